package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// pollInterval is short because tests wait for every cluster they start.
const pollInterval = 50 * time.Millisecond

// probe returns nil when what it looks for is there, and otherwise an error
// that says what is still missing.
type probe func(context.Context) error

// waitFor polls until the probe succeeds. It gives up when any component ends;
// when time runs out, the given component is to blame.
func (c *cluster) waitFor(ctx context.Context, blamed *child, timeout time.Duration, what string, check probe) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		for _, child := range c.children() {
			if child.lostPort() {
				return fmt.Errorf("%s: %w", child.name, errPortLost)
			}
			if child.exited() {
				return child.failure(fmt.Sprintf("ended while starting (%v)", child.err))
			}
		}
		select {
		case <-ctx.Done():
			return blamed.failure(fmt.Sprintf("%s after %s: %v", what, timeout, err))
		case <-ticker.C:
		}
	}
}

func etcdHealthy(port int) probe {
	client := &http.Client{Timeout: time.Second}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, loopbackURL("http", port)+"/health", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("/health answers %s", response.Status)
		}
		return nil
	}
}

func apiServerReady(client kubernetes.Interface) probe {
	return func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}
}

func serviceAccountExists(client kubernetes.Interface) probe {
	return func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	}
}

// nodeReady waits for the taints too: a new node has one that keeps pods away
// until the controller manager has seen it ready.
func nodeReady(client kubernetes.Interface, name string) probe {
	return func(ctx context.Context) error {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(node.Spec.Taints) > 0 {
			return fmt.Errorf("the node has the taint %s", node.Spec.Taints[0].Key)
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("the node is not ready")
	}
}
