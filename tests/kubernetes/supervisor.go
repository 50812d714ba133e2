package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"
)

// errPortLost means that another program took a port that had been free.
var errPortLost = errors.New("another program took a port that was free a moment ago")

// readyInfo is what a caller needs to know about a cluster that is ready.
type readyInfo struct {
	Name       string `json:"name"`
	Server     string `json:"server"`
	Kubeconfig string `json:"kubeconfig"`
	CAFile     string `json:"ca_file"`
	AuditLog   string `json:"audit_log"`
	PID        int    `json:"pid"`
	Version    string `json:"version"`
	Kubectl    string `json:"kubectl"`
}

// cluster is one running cluster.
type cluster struct {
	options     *clusterOptions
	id          string
	begin       time.Time
	spawner     *spawner
	credentials *credentials
	server      string
	ports       ports
	commands    chan string
	client      kubernetes.Interface

	etcd, apiServer, controllerManager, scheduler, kubelet *child
}

// clusterMain runs one cluster until it is told to stop.
func clusterMain(args []string) int {
	options, err := parseClusterOptions(args, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bailiwick-kube cluster: %v\n", err)
		return 2
	}
	c := &cluster{options: options, begin: time.Now(), spawner: newSpawner(), commands: make(chan string)}
	ctx, cancel := context.WithCancelCause(context.Background())
	watchForStop(options, c.spawner, c.commands, cancel)

	err = c.run(ctx)
	c.stop()
	// Being told to stop is the normal end, also before the cluster is ready.
	if err == nil || ctx.Err() != nil {
		c.progress("stopped (%v)", context.Cause(ctx))
		return 0
	}
	fmt.Fprintf(os.Stderr, "bailiwick-kube cluster %s: %v\n", options.name, err)
	return 1
}

// run starts the cluster and waits until it has to end.
func (c *cluster) run(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		err := c.start(ctx)
		if err == nil {
			break
		}
		if !errors.Is(err, errPortLost) || attempt == 5 {
			return err
		}
		c.progress("%v; starting again", err)
		c.stop()
	}
	if err := c.announce(); err != nil {
		return err
	}
	exits := make(chan *child)
	for _, child := range c.children() {
		go child.tell(ctx, exits)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case ended := <-exits:
			if !ended.expected.Load() {
				return ended.failure(fmt.Sprintf("ended by itself (%v)", ended.err))
			}
		case command := <-c.commands:
			if err := c.obey(ctx, command, exits); err != nil {
				return err
			}
			// The caller waits for this line.
			if _, err := fmt.Println(command + ": done"); err != nil {
				return err
			}
		}
	}
}

// obey carries out a command: an outage of the API server, with all data kept.
func (c *cluster) obey(ctx context.Context, command string, exits chan<- *child) error {
	switch command {
	case "stop kube-apiserver":
		c.apiServer.expected.Store(true)
		c.apiServer.stop(1900 * time.Millisecond)
		c.progress("the API server is stopped")
	case "start kube-apiserver":
		if !c.apiServer.exited() {
			return nil
		}
		if err := c.startAPIServer(ctx); err != nil {
			return err
		}
		go c.apiServer.tell(ctx, exits)
	default:
		return fmt.Errorf("standard input: no command %q", command)
	}
	return nil
}

// start starts the components one after the other and returns when the
// cluster is ready.
func (c *cluster) start(ctx context.Context) error {
	if err := c.prepare(); err != nil {
		return err
	}
	o := c.options
	p, err := pickPorts()
	if err != nil {
		return err
	}
	c.ports = p
	c.server = loopbackURL("https", p.apiServer)
	if err := c.writeKubeconfigs(); err != nil {
		return err
	}
	if c.etcd, err = c.startComponent("etcd", syscall.SIGKILL, etcdArgs(o, p)...); err != nil {
		return err
	}
	if err := c.waitFor(ctx, c.etcd, 20*time.Second, "is not healthy", etcdHealthy(p.etcdClient)); err != nil {
		return err
	}
	c.progress("etcd is healthy")
	if err := c.startAPIServer(ctx); err != nil {
		return err
	}
	if c.controllerManager, err = c.startComponent("kube-controller-manager", syscall.SIGKILL, controllerManagerArgs(c.credentials)...); err != nil {
		return err
	}
	if !o.controlPlaneOnly {
		// SIGTERM, not SIGKILL: if the supervisor is killed, the stand-in still
		// has to kill the processes of its pods.
		if c.kubelet, err = c.startComponent("kubelet", syscall.SIGTERM, kubeletArgs(o, c.credentials, c.id)...); err != nil {
			return err
		}
		if c.scheduler, err = c.startComponent("kube-scheduler", syscall.SIGKILL, schedulerArgs(c.credentials)...); err != nil {
			return err
		}
	}
	if err := c.waitFor(ctx, c.controllerManager, 60*time.Second, "has not made the default service account", serviceAccountExists(c.client)); err != nil {
		return err
	}
	c.progress("the default service account exists")
	if !o.controlPlaneOnly {
		if err := c.waitFor(ctx, c.kubelet, 60*time.Second, "has no ready node without taints", nodeReady(c.client, o.nodeName())); err != nil {
			return err
		}
		c.progress("the node is ready")
	}
	return nil
}

func (c *cluster) startAPIServer(ctx context.Context) error {
	var err error
	arguments := apiServerArgs(c.options, c.ports, c.credentials)
	if c.apiServer, err = c.startComponent("kube-apiserver", syscall.SIGKILL, arguments...); err != nil {
		return err
	}
	if err := c.waitFor(ctx, c.apiServer, 60*time.Second, "is not ready", apiServerReady(c.client)); err != nil {
		return err
	}
	c.progress("the API server is ready")
	return nil
}

// prepare makes the files that the components need.
func (c *cluster) prepare() error {
	id := make([]byte, 8)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	c.id = hex.EncodeToString(id)
	if err := c.options.prepareDir(); err != nil {
		return err
	}
	var err error
	c.credentials, err = newCredentials(c.options.path("pki"), c.options.name, c.options.nodeName())
	if err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	return c.credentials.write("audit-policy.yaml", []byte(auditPolicy))
}

func (c *cluster) writeKubeconfigs() error {
	for _, user := range []string{userControllerManager, userScheduler, userNode} {
		if err := c.credentials.writeKubeconfig(c.credentials.path(user+".kubeconfig"), user, c.server, user); err != nil {
			return err
		}
	}
	admin := c.adminKubeconfig()
	if err := c.credentials.writeKubeconfig(admin, c.options.name, c.server, userAdmin); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", admin)
	if err != nil {
		return err
	}
	config.QPS = -1 // polls at a high rate, for a few seconds
	config.Timeout = 2 * time.Second
	c.client, err = kubernetes.NewForConfig(config)
	return err
}

func (c *cluster) adminKubeconfig() string { return c.options.path("admin.kubeconfig") }

func (c *cluster) startComponent(name string, deathSignal syscall.Signal, args ...string) (*child, error) {
	return startChild(c.spawner, name, c.options.path("logs", name+".log"), deathSignal, args...)
}

// announce tells the caller, by a file and by a line, how to use the cluster.
func (c *cluster) announce() error {
	line, err := json.Marshal(readyInfo{
		Name:       c.options.name,
		Server:     c.server,
		Kubeconfig: c.adminKubeconfig(),
		CAFile:     c.credentials.path("ca.crt"),
		AuditLog:   c.options.path("audit.log"),
		PID:        os.Getpid(),
		Version:    version.Get().GitVersion,
		Kubectl:    c.options.path("bin", "kubectl"),
	})
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if err := writeFileAtomically(c.options.path("ready.json"), line); err != nil {
		return err
	}
	c.progress("ready")
	_, err = os.Stdout.Write(line)
	return err
}

func (c *cluster) children() []*child {
	var started []*child
	for _, child := range []*child{c.etcd, c.apiServer, c.controllerManager, c.scheduler, c.kubelet} {
		if child != nil {
			started = append(started, child)
		}
	}
	return started
}

// stop stops everything that runs, users of a component before the component.
// The API server would wait a long time for its watches if its clients were
// still there, and for etcd if that were gone. In total it takes less than
// eight seconds, because whoever is late is killed.
func (c *cluster) stop() {
	_ = os.Remove(c.options.path("ready.json"))
	const patience = 1900 * time.Millisecond
	for _, step := range [][]*child{{c.kubelet}, {c.scheduler, c.controllerManager}, {c.apiServer}, {c.etcd}} {
		var group sync.WaitGroup
		for _, child := range step {
			if child != nil {
				group.Go(func() { child.stop(patience) })
			}
		}
		group.Wait()
	}
	if c.id != "" {
		killMarked(marker(c.id, ""))
	}
	c.etcd, c.apiServer, c.controllerManager, c.scheduler, c.kubelet = nil, nil, nil, nil, nil
}

// progress writes one line about how far the cluster is.
func (c *cluster) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%s %5.1fs] %s\n", c.options.name, time.Since(c.begin).Seconds(), fmt.Sprintf(format, args...))
}
