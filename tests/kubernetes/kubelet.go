package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/utils/clock"
)

// kubeletOptions are the arguments of the stand-in kubelet.
type kubeletOptions struct {
	kubeconfig, nodeName, dir, clusterID string
	clientCAFile, certFile, keyFile      string
}

func parseKubeletOptions(args []string) (*kubeletOptions, error) {
	o := &kubeletOptions{}
	flags := flag.NewFlagSet("bailiwick-kube kubelet", flag.ContinueOnError)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the node")
	flags.StringVar(&o.nodeName, "node-name", "", "name of the node")
	flags.StringVar(&o.dir, "dir", "", "folder for the pods' files")
	flags.StringVar(&o.clusterID, "cluster-id", "", "marks the pods' processes")
	flags.StringVar(&o.clientCAFile, "client-ca-file", "", "authority of the API server's client certificate")
	flags.StringVar(&o.certFile, "tls-cert-file", "", "serving certificate")
	flags.StringVar(&o.keyFile, "tls-private-key-file", "", "its key")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	var missing error
	flags.VisitAll(func(f *flag.Flag) {
		if f.Value.String() == "" && missing == nil {
			missing = fmt.Errorf("--%s is missing", f.Name)
		}
	})
	return o, missing
}

// kubelet stands in for a real kubelet: it is a node that runs the commands of
// its pods as processes of this machine, without images and without isolation.
type kubelet struct {
	options *kubeletOptions
	client  kubernetes.Interface
	spawner *spawner
	pods    *podManager
}

func kubeletMain(args []string) int {
	options, err := parseKubeletOptions(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "bailiwick-kube kubelet: %v\n", err)
		return 2
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// All signals that a shell may have set to be ignored, because the pods'
	// processes would inherit that: Ctrl-C in a terminal would do nothing.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP)
	go func() {
		<-signals
		cancel()
	}()

	k := &kubelet{options: options, spawner: newSpawner()}
	err = k.run(ctx)
	// The cluster goes away, so there is no grace for its pods.
	killMarked(marker(options.clusterID, ""))
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "bailiwick-kube kubelet: %v\n", err)
		return 1
	}
	return 0
}

func (k *kubelet) run(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", k.options.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	if k.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	k.pods = newPodManager(ctx, k)
	listener, err := k.listen()
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	server := &http.Server{Handler: k.handler(), ReadHeaderTimeout: 30 * time.Second}
	go func() { failed <- server.Serve(listener) }()

	port := listener.Addr().(*net.TCPAddr).Port
	if err := k.register(ctx, port); err != nil {
		return fmt.Errorf("registering the node: %w", err)
	}
	log.Printf("node %s is registered, serving on 127.0.0.1:%d", k.options.nodeName, port)
	go k.renewLease(ctx)
	go k.watchPods(ctx)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// listen serves only the API server. Any certificate of the cluster's
// authority is not enough: that would give every user of the cluster a shell
// on this machine, past all authorization.
func (k *kubelet) listen() (net.Listener, error) {
	certificate, err := tls.LoadX509KeyPair(k.options.certFile, k.options.keyFile)
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(k.options.clientCAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s has no certificate", k.options.clientCAFile)
	}
	return tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{certificate},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    pool,
		MinVersion:   tls.VersionTLS12,
		// SPDY needs HTTP/1.1.
		NextProtos: []string{"http/1.1"},
		VerifyConnection: func(state tls.ConnectionState) error {
			if name := state.PeerCertificates[0].Subject.CommonName; name != kubeletClientName {
				return fmt.Errorf("%q may not use the kubelet", name)
			}
			return nil
		},
	})
}

// register creates the node. The Node authorizer may need a moment before it
// lets a new API server's first node in, hence the repetition.
func (k *kubelet) register(ctx context.Context, port int) error {
	node := newNode(k.options.nodeName, port)
	for attempt := 1; ; attempt++ {
		_, err := k.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err == nil || apierrors.IsAlreadyExists(err) {
			return nil
		}
		if attempt == 50 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// newNode describes the machine. It has no Hostname address: the API server
// would prefer that and look it up in the DNS.
func newNode(name string, port int) *corev1.Node {
	now := metav1.Now()
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: reason,
			LastHeartbeatTime: now, LastTransitionTime: now,
		}
	}
	resources := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("64"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("500"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname:   name,
				corev1.LabelOSStable:   runtime.GOOS,
				corev1.LabelArchStable: runtime.GOARCH,
			},
		},
		Status: corev1.NodeStatus{
			Capacity:    resources,
			Allocatable: resources,
			Addresses:   []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{
				KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(port)},
			},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion:          version.Get().GitVersion,
				ContainerRuntimeVersion: "processes://1",
				OSImage:                 "local processes",
				OperatingSystem:         runtime.GOOS,
				Architecture:            runtime.GOARCH,
			},
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
			},
		},
	}
}

// renewLease is the node's heartbeat.
func (k *kubelet) renewLease(ctx context.Context) {
	name := k.options.nodeName
	controller := lease.NewController(clock.RealClock{}, k.client, name, 40, nil, 10*time.Second, name, corev1.NamespaceNodeLease, nil)
	controller.Run(ctx)
}

// watchPods tells the pod manager about all pods of this node. The selector is
// not only for speed: the Node authorizer insists on it.
func (k *kubelet) watchPods(ctx context.Context) {
	selector := fields.OneTermEqualSelector("spec.nodeName", k.options.nodeName)
	source := cache.NewListWatchFromClient(k.client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, selector)
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { k.pods.update(object.(*corev1.Pod)) },
		UpdateFunc: func(_, object any) { k.pods.update(object.(*corev1.Pod)) },
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				k.pods.remove(pod)
			}
		},
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source, ObjectType: &corev1.Pod{}, Handler: handler,
	})
	informer.RunWithContext(ctx)
}

// errNoSuchContainer is what a request for an unknown pod or container gets.
var errNoSuchContainer = errors.New("no such container")
