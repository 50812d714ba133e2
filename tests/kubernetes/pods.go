package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podManager keeps one worker for each pod of the node.
type podManager struct {
	ctx     context.Context
	kubelet *kubelet

	mu      sync.Mutex
	workers map[types.UID]*podWorker
}

func newPodManager(ctx context.Context, k *kubelet) *podManager {
	return &podManager{ctx: ctx, kubelet: k, workers: map[types.UID]*podWorker{}}
}

// update is called for each pod that is new or has changed.
func (m *podManager) update(pod *corev1.Pod) {
	m.mu.Lock()
	worker, known := m.workers[pod.UID]
	if !known {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			m.mu.Unlock()
			return
		}
		worker = newPodWorker(m, pod)
		m.workers[pod.UID] = worker
	}
	m.mu.Unlock()
	worker.update(pod)
	if !known {
		go worker.run()
		go worker.publish()
	}
}

// remove is called when a pod is gone from the API, either because its worker
// is done with it or because somebody deleted it by force.
func (m *podManager) remove(pod *corev1.Pod) {
	m.mu.Lock()
	worker := m.workers[pod.UID]
	delete(m.workers, pod.UID)
	m.mu.Unlock()
	if worker != nil {
		go worker.discard()
	}
}

// container finds a container by names. Without a container's name it is the
// first one.
func (m *podManager) container(namespace, pod, name string) (*container, error) {
	worker := m.worker(namespace, pod)
	if worker == nil {
		return nil, fmt.Errorf("%w: the pod %s/%s is not on this node", errNoSuchContainer, namespace, pod)
	}
	worker.mu.Lock()
	defer worker.mu.Unlock()
	for _, c := range worker.containers {
		if c.spec.Name == name || (name == "" && c.kind == mainContainer) {
			return c, nil
		}
	}
	return nil, fmt.Errorf("%w: %q in the pod %s/%s", errNoSuchContainer, name, namespace, pod)
}

func (m *podManager) worker(namespace, pod string) *podWorker {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, worker := range m.workers {
		if worker.namespace == namespace && worker.name == pod {
			return worker
		}
	}
	return nil
}

// podWorker runs one pod from its first container to its deletion.
type podWorker struct {
	manager              *podManager
	kubelet              *kubelet
	uid                  types.UID
	namespace, name, dir string
	startTime            metav1.Time

	mu         sync.Mutex
	pod        *corev1.Pod
	containers []*container
	failed     bool // an init container has failed for good
	gone       bool // the pod no longer exists in the API
	conditions []corev1.PodCondition

	terminateOnce sync.Once
	stopOnce      sync.Once
	stopping      chan struct{}  // closed when no container may start any more
	running       sync.WaitGroup // the containers' loops
	dirty         chan struct{}  // the status has changed
}

func newPodWorker(m *podManager, pod *corev1.Pod) *podWorker {
	w := &podWorker{
		manager: m, kubelet: m.kubelet, uid: pod.UID, namespace: pod.Namespace, name: pod.Name,
		dir:       filepath.Join(m.kubelet.options.dir, string(pod.UID)),
		startTime: metav1.Now(), pod: pod,
		stopping: make(chan struct{}), dirty: make(chan struct{}, 1),
	}
	for _, spec := range pod.Spec.InitContainers {
		w.containers = append(w.containers, newContainer(w, spec, initContainer))
	}
	for _, spec := range pod.Spec.Containers {
		w.containers = append(w.containers, newContainer(w, spec, mainContainer))
	}
	w.running.Add(1) // ended by run
	return w
}

func (w *podWorker) spec() *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod
}

// all is the list of containers, of those kinds if any are given.
func (w *podWorker) all(kinds ...containerKind) []*container {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []*container
	for _, c := range w.containers {
		if len(kinds) == 0 {
			list = append(list, c)
		}
		for _, kind := range kinds {
			if c.kind == kind {
				list = append(list, c)
			}
		}
	}
	return list
}

// update takes in a changed pod. Only two changes matter to a running pod: new
// ephemeral containers and its deletion.
func (w *podWorker) update(pod *corev1.Pod) {
	w.mu.Lock()
	w.pod = pod
	known := map[string]bool{}
	for _, c := range w.containers {
		known[c.spec.Name] = true
	}
	var added []*container
	for _, spec := range pod.Spec.EphemeralContainers {
		if !known[spec.Name] && pod.DeletionTimestamp == nil {
			c := newContainer(w, corev1.Container(spec.EphemeralContainerCommon), ephemeralContainer)
			w.containers = append(w.containers, c)
			added = append(added, c)
		}
	}
	w.mu.Unlock()
	for _, c := range added {
		go c.run()
	}
	if pod.DeletionTimestamp != nil {
		w.stopRestarts()
		w.terminateOnce.Do(func() { go w.terminate() })
	}
	w.changed()
}

// changed asks for the status to be published.
func (w *podWorker) changed() {
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// stopRestarts keeps all containers from being started, again or at all.
func (w *podWorker) stopRestarts() { w.stopOnce.Do(func() { close(w.stopping) }) }

func (w *podWorker) isStopping() bool {
	select {
	case <-w.stopping:
		return true
	default:
		return false
	}
}

// run runs the init containers one after the other, then the others together.
func (w *podWorker) run() {
	defer w.running.Done()
	// Sidecars end with the containers that they serve.
	defer func() {
		w.stopRestarts()
		for _, c := range w.all(initContainer) {
			c.signal(syscall.SIGKILL)
		}
	}()
	policy := w.spec().Spec.RestartPolicy
	for _, c := range w.all(initContainer) {
		if isSidecar(c.spec) {
			w.running.Go(func() { w.loop(c, corev1.RestartPolicyAlways) })
			continue
		}
		once := corev1.RestartPolicyOnFailure
		if policy == corev1.RestartPolicyNever {
			once = corev1.RestartPolicyNever
		}
		if code := w.loop(c, once); code != 0 {
			w.mu.Lock()
			w.failed = true
			w.mu.Unlock()
			w.changed()
			return
		}
	}
	var group sync.WaitGroup
	for _, c := range w.all(mainContainer) {
		group.Go(func() { w.loop(c, policy) })
	}
	group.Wait()
}

func isSidecar(spec corev1.Container) bool {
	return spec.RestartPolicy != nil && *spec.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// loop runs a container as often as the policy wants and returns the last exit
// code. Restarts come faster than a real kubelet's, for the tests' sake.
func (w *podWorker) loop(c *container, policy corev1.RestartPolicy) int32 {
	pause := time.Second
	for {
		if w.isStopping() {
			return 1
		}
		code := c.run()
		if policy == corev1.RestartPolicyNever || (policy == corev1.RestartPolicyOnFailure && code == 0) {
			return code
		}
		if w.isStopping() {
			return code
		}
		c.wait("CrashLoopBackOff", fmt.Sprintf("back-off %s restarting container %s", pause, c.spec.Name))
		select {
		case <-w.stopping:
			return code
		case <-time.After(pause):
		}
		pause = min(2*pause, 10*time.Second)
		c.mu.Lock()
		c.restarts++
		c.mu.Unlock()
	}
}

// terminate ends a pod that is being deleted: a signal, the grace period, and
// then the end by force. Only when all processes are gone is the pod removed
// from the API, as with a real kubelet.
func (w *podWorker) terminate() {
	begin := time.Now()
	ended := make(chan struct{})
	go func() {
		w.running.Wait()
		close(ended)
	}()
	asked := map[string]bool{}
	for !w.allEnded(ended) {
		overdue := time.Since(begin) >= w.grace()
		for _, c := range w.all() {
			p := c.running()
			switch {
			case p == nil:
			case overdue:
				c.signal(syscall.SIGKILL)
			case !asked[p.id]:
				asked[p.id] = true
				c.signal(syscall.SIGTERM)
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.patchStatus()
	w.deleteFromAPI()
}

// grace is how long the pod may take to end. It can become shorter while the
// pod is ending, when it is deleted once more.
func (w *podWorker) grace() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone || w.pod.DeletionGracePeriodSeconds == nil {
		return 0
	}
	return time.Duration(*w.pod.DeletionGracePeriodSeconds) * time.Second
}

func (w *podWorker) allEnded(ended <-chan struct{}) bool {
	select {
	case <-ended:
	default:
		return false
	}
	for _, c := range w.all() {
		if c.running() != nil {
			return false
		}
	}
	return true
}

func (w *podWorker) deleteFromAPI() {
	now := int64(0)
	options := metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &w.uid}}
	for w.manager.ctx.Err() == nil {
		err := w.kubelet.client.CoreV1().Pods(w.namespace).Delete(w.manager.ctx, w.name, options)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return
		}
		log.Printf("deleting the pod %s/%s: %v", w.namespace, w.name, err)
		time.Sleep(200 * time.Millisecond)
	}
}

// discard kills what is left of a pod that no longer exists, and removes its
// files.
func (w *podWorker) discard() {
	w.mu.Lock()
	w.gone = true
	w.mu.Unlock()
	w.changed()
	w.stopRestarts()
	w.terminateOnce.Do(w.terminate)
	w.running.Wait()
	if err := os.RemoveAll(w.dir); err != nil {
		log.Printf("removing the files of the pod %s/%s: %v", w.namespace, w.name, err)
	}
}
