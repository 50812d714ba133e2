package main

import (
	"encoding/json"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// publish writes the pod's status to the API whenever it has changed, until the
// pod is gone.
func (w *podWorker) publish() {
	for {
		select {
		case <-w.manager.ctx.Done():
			return
		case <-w.dirty:
		}
		w.mu.Lock()
		gone := w.gone
		w.mu.Unlock()
		if gone {
			return
		}
		w.patchStatus()
	}
}

// patchStatus writes the status once, again after an error. It is a patch, so
// that the conditions of others, such as the scheduler's, stay.
func (w *podWorker) patchStatus() {
	for attempt := 0; attempt < 25 && w.manager.ctx.Err() == nil; attempt++ {
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": w.uid},
			"status":   w.status(),
		})
		if err != nil {
			log.Printf("status of the pod %s/%s: %v", w.namespace, w.name, err)
			return
		}
		_, err = w.kubelet.client.CoreV1().Pods(w.namespace).Patch(
			w.manager.ctx, w.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return
		}
		log.Printf("status of the pod %s/%s: %v", w.namespace, w.name, err)
		time.Sleep(200 * time.Millisecond)
	}
}

// status is what the pod's containers add up to.
func (w *podWorker) status() corev1.PodStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	status := corev1.PodStatus{
		ObservedGeneration: w.pod.Generation,
		HostIP:             "127.0.0.1",
		HostIPs:            []corev1.HostIP{{IP: "127.0.0.1"}},
		PodIP:              "127.0.0.1",
		PodIPs:             []corev1.PodIP{{IP: "127.0.0.1"}},
		StartTime:          &w.startTime,
		QOSClass:           w.pod.Status.QOSClass,
	}
	initialized := true
	var main []corev1.ContainerStatus
	for _, c := range w.containers {
		s := c.status()
		switch c.kind {
		case initContainer:
			status.InitContainerStatuses = append(status.InitContainerStatuses, s)
			if done := s.State.Terminated; !isSidecar(c.spec) && (done == nil || done.ExitCode != 0) {
				initialized = false
			}
		case mainContainer:
			main = append(main, s)
		case ephemeralContainer:
			status.EphemeralContainerStatuses = append(status.EphemeralContainerStatuses, s)
		}
	}
	status.ContainerStatuses = main
	status.Phase = phase(w.pod.Spec.RestartPolicy, main, w.failed, w.pod.DeletionTimestamp != nil)
	ready := status.Phase == corev1.PodRunning
	for _, s := range main {
		ready = ready && s.Ready
	}
	w.conditions = updateConditions(w.conditions, w.pod.Generation, map[corev1.PodConditionType]bool{
		corev1.PodReadyToStartContainers: true,
		corev1.PodInitialized:            initialized,
		corev1.ContainersReady:           ready,
		corev1.PodReady:                  ready,
	})
	status.Conditions = w.conditions
	return status
}

// status is the state of one container.
func (c *container) status() corev1.ContainerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	running := c.state.Running != nil
	s := corev1.ContainerStatus{
		Name:                 c.spec.Name,
		Image:                c.spec.Image,
		ImageID:              c.spec.Image,
		State:                c.state,
		LastTerminationState: c.last,
		RestartCount:         c.restarts,
		Started:              &running,
		// There are no probes: a container that runs is ready.
		Ready: running,
	}
	if c.kind == initContainer && c.state.Terminated != nil {
		s.Ready = c.state.Terminated.ExitCode == 0
	}
	if c.kind == ephemeralContainer {
		s.Ready = false
	}
	if c.id != "" {
		s.ContainerID = containerIDPrefix + c.id
	}
	return s
}

// phase sums up the main containers. A pod that is being deleted does not
// restart its containers, whatever its policy says.
func phase(policy corev1.RestartPolicy, containers []corev1.ContainerStatus, failed, deleted bool) corev1.PodPhase {
	if failed {
		return corev1.PodFailed
	}
	var started, ended, bad int
	for _, s := range containers {
		if s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil {
			started++
		}
		if s.State.Terminated != nil {
			ended++
			if s.State.Terminated.ExitCode != 0 {
				bad++
			}
		}
	}
	finished := ended == len(containers)
	switch {
	case started == 0:
		return corev1.PodPending
	case !finished:
		return corev1.PodRunning
	case deleted || policy == corev1.RestartPolicyNever:
		if bad > 0 {
			return corev1.PodFailed
		}
		return corev1.PodSucceeded
	case policy == corev1.RestartPolicyOnFailure && bad == 0:
		return corev1.PodSucceeded
	}
	return corev1.PodRunning // about to be restarted
}

// updateConditions sets the conditions and keeps the time of those that have
// not changed. The result is a new list: the old one may be in use.
func updateConditions(old []corev1.PodCondition, generation int64, want map[corev1.PodConditionType]bool) []corev1.PodCondition {
	order := []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady,
	}
	var conditions []corev1.PodCondition
	for _, kind := range order {
		c := corev1.PodCondition{
			Type: kind, Status: corev1.ConditionFalse, ObservedGeneration: generation, LastTransitionTime: metav1.Now(),
		}
		if want[kind] {
			c.Status = corev1.ConditionTrue
		}
		for _, previous := range old {
			if previous.Type == kind && previous.Status == c.Status {
				c.LastTransitionTime = previous.LastTransitionTime
			}
		}
		conditions = append(conditions, c)
	}
	return conditions
}
