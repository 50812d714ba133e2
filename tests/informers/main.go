// Command informers keeps a cache of the ConfigMaps of all namespaces, or of the
// namespaces, as controllers do, and says on demand what is in it.
//
// The cache is kept by the libraries that controllers are made with; -form says
// by which and how. For each line of standard input one line is written on
// standard output, a report in JSON. The program ends with its input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// report is what one line of standard output says. Objects are named
// "namespace/name", namespaces "name", and stand with their resourceVersion.
type report struct {
	// What the cache holds.
	Cache map[string]string `json:"cache"`
	// What whoever was told of events would hold: each object with the last
	// revision that was told of it, without those of which the end was told.
	Told map[string]string `json:"told"`
	// Whether the first list is over.
	Synced bool `json:"synced"`
	// Requests so far: lists, watches, and those of them that begin with
	// what is there.
	Lists   int64 `json:"lists"`
	Watches int64 `json:"watches"`
	Streams int64 `json:"streams"`
}

// told keeps what events say.
type told struct {
	mutex   sync.Mutex
	objects map[string]string
}

func (t *told) set(name, revision string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.objects[name] = revision
}

func (t *told) unset(name string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	delete(t.objects, name)
}

func (t *told) copy() map[string]string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	objects := make(map[string]string, len(t.objects))
	for name, revision := range t.objects {
		objects[name] = revision
	}
	return objects
}

// handler of an informer that keeps what it is told.
func (t *told) handler() cache.ResourceEventHandler {
	name := func(object any) string {
		name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
		if err != nil {
			panic(err)
		}
		return name
	}
	set := func(object any) { t.set(name(object), object.(metav1.Object).GetResourceVersion()) }
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, object any) { set(object) },
		DeleteFunc: func(object any) { t.unset(name(object)) },
	}
}

// counter counts requests on their way.
type counter struct {
	next                    http.RoundTripper
	lists, watches, streams atomic.Int64
}

func (c *counter) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	switch {
	case query.Get("watch") == "true" || query.Get("watch") == "1":
		c.watches.Add(1)
		if query.Get("sendInitialEvents") == "true" {
			c.streams.Add(1)
		}
	case request.Method == http.MethodGet:
		c.lists.Add(1)
	}
	return c.next.RoundTrip(request)
}

// source of a report: the cache and what was told of it.
type source interface {
	// objects are those in the cache.
	objects(ctx context.Context) (map[string]string, error)
	// told is what events said.
	told() map[string]string
	// synced says whether the first list is over.
	synced() bool
}

func run(ctx context.Context) error {
	// controller-runtime has flags of its own.
	flags := flag.NewFlagSet("informers", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "file to read")
	contextName := flags.String("context", "", "context in it")
	server := flags.String("server", "", "where to go instead of the kubeconfig's server, path included")
	form := flags.String("form", "", "list-watch, watch-list, metadata, manager or namespaces")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}

	// Read by client-go when it is first needed.
	streams := "true"
	if *form == "list-watch" {
		streams = "false"
	}
	if err := os.Setenv("KUBE_FEATURE_WatchListClient", streams); err != nil {
		return err
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: *contextName}
	overrides.ClusterInfo.Server = *server
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: *kubeconfig}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 50, 100
	var counted counter
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		counted.next = next
		return &counted
	})
	from, err := start(ctx, *form, config)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		objects, err := from.objects(ctx)
		if err != nil {
			return err
		}
		err = out.Encode(report{
			Cache:   objects,
			Told:    from.told(),
			Synced:  from.synced(),
			Lists:   counted.lists.Load(),
			Watches: counted.watches.Load(),
			Streams: counted.streams.Load(),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func start(ctx context.Context, form string, config *rest.Config) (source, error) {
	switch form {
	case "list-watch", "watch-list":
		return startTyped(ctx, config)
	case "namespaces":
		return startNamespaces(ctx, config)
	case "metadata":
		return startMetadata(ctx, config)
	case "manager":
		return startManager(ctx, config)
	default:
		return nil, fmt.Errorf("there is no form %q", form)
	}
}

func main() {
	// What is retried is told there, line by line; the reports count.
	klog.SetOutput(os.Stderr)
	log.SetLogger(logr.Discard())
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
