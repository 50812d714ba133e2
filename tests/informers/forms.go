package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// informed is a shared informer of client-go.
type informed struct {
	informer cache.SharedIndexInformer
	events   *told
}

func startInformer(ctx context.Context, informer cache.SharedIndexInformer) (source, error) {
	events := &told{objects: map[string]string{}}
	if _, err := informer.AddEventHandler(events.handler()); err != nil {
		return nil, err
	}
	go informer.RunWithContext(ctx)
	return &informed{informer: informer, events: events}, nil
}

func (i *informed) objects(context.Context) (map[string]string, error) {
	objects := map[string]string{}
	for _, item := range i.informer.GetStore().List() {
		name, err := cache.MetaNamespaceKeyFunc(item)
		if err != nil {
			return nil, err
		}
		objects[name] = item.(metav1.Object).GetResourceVersion()
	}
	return objects, nil
}

func (i *informed) told() map[string]string { return i.events.copy() }

func (i *informed) synced() bool { return i.informer.HasSynced() }

// startTyped keeps whole objects.
func startTyped(ctx context.Context, config *rest.Config) (source, error) {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(clientset, 0)
	return startInformer(ctx, factory.Core().V1().ConfigMaps().Informer())
}

// startNamespaces keeps the namespaces themselves.
func startNamespaces(ctx context.Context, config *rest.Config) (source, error) {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(clientset, 0)
	return startInformer(ctx, factory.Core().V1().Namespaces().Informer())
}

// startMetadata keeps the metadata of objects only.
func startMetadata(ctx context.Context, config *rest.Config) (source, error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	factory := metadatainformer.NewSharedInformerFactory(client, 0)
	return startInformer(ctx, factory.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps")).Informer())
}

// managed is a manager of controller-runtime with one controller.
type managed struct {
	client client.Client
	cache  interface{ WaitForCacheSync(context.Context) bool }
	events *told
	ready  chan struct{}
}

// Reconcile keeps what it finds in the cache.
func (m *managed) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var object corev1.ConfigMap
	err := m.client.Get(ctx, request.NamespacedName, &object)
	switch {
	case apierrors.IsNotFound(err):
		m.events.unset(request.String())
	case err != nil:
		return reconcile.Result{}, err
	default:
		m.events.set(request.String(), object.ResourceVersion)
	}
	return reconcile.Result{}, nil
}

// startManager runs a controller of controller-runtime.
func startManager(ctx context.Context, config *rest.Config) (source, error) {
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return nil, err
	}
	m := &managed{
		client: manager.GetClient(),
		cache:  manager.GetCache(),
		events: &told{objects: map[string]string{}},
		ready:  make(chan struct{}),
	}
	if err := builder.ControllerManagedBy(manager).For(&corev1.ConfigMap{}).Complete(m); err != nil {
		return nil, err
	}
	go func() {
		if err := manager.Start(ctx); err != nil {
			panic(err)
		}
	}()
	go func() {
		if m.cache.WaitForCacheSync(ctx) {
			close(m.ready)
		}
	}()
	return m, nil
}

func (m *managed) objects(ctx context.Context) (map[string]string, error) {
	objects := map[string]string{}
	if !m.synced() {
		return objects, nil
	}
	var list corev1.ConfigMapList
	if err := m.client.List(ctx, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		objects[list.Items[i].Namespace+"/"+list.Items[i].Name] = list.Items[i].ResourceVersion
	}
	return objects, nil
}

func (m *managed) told() map[string]string { return m.events.copy() }

func (m *managed) synced() bool {
	select {
	case <-m.ready:
		return true
	default:
		return false
	}
}
