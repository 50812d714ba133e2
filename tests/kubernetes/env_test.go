package main

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func testPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1"}}
}

func fieldVariable(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

func TestEnvironment(t *testing.T) {
	container := &corev1.Container{Env: []corev1.EnvVar{
		{Name: "A", Value: "1"},
		{Name: "B", Value: "$(A)2 $$(A) $(UNKNOWN)"},
		fieldVariable("POD", "metadata.name"),
		fieldVariable("NS", "metadata.namespace"),
		{Name: "A", Value: "changed"},
	}}
	list, _, err := environment(testPod(), container)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A=changed", "B=12 $(A) $(UNKNOWN)", "POD=web", "NS=shop", "HOSTNAME=web"} {
		if !slices.Contains(list, want) {
			t.Errorf("no %q in %q", want, list)
		}
	}
}

func TestEnvironmentRefusesWhatItCannotDo(t *testing.T) {
	for _, container := range []*corev1.Container{
		{Env: []corev1.EnvVar{fieldVariable("X", "status.hostIPs")}},
		{Env: []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{}}}}},
		{EnvFrom: []corev1.EnvFromSource{{}}},
	} {
		if _, _, err := environment(testPod(), container); err == nil {
			t.Errorf("no error for %+v", container)
		}
	}
}

func TestCommandLine(t *testing.T) {
	tests := []struct {
		name      string
		container corev1.Container
		want      []string
		err       error
	}{
		{"command and arguments", corev1.Container{Command: []string{"echo"}, Args: []string{"$(A)"}}, []string{"echo", "1"}, nil},
		{"arguments only", corev1.Container{Image: "busybox", Args: []string{"ls"}}, []string{"ls"}, nil},
		{"pause", corev1.Container{Image: "registry.example:5000/pause:3.10"}, []string{"sleep", "2147483647"}, nil},
		{"shell", corev1.Container{Image: "library/busybox@sha256:00"}, []string{"sh"}, nil},
		{"other image", corev1.Container{Image: "nginx"}, nil, errNoCommand},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := commandLine(&test.container, map[string]string{"A": "1"})
			if !reflect.DeepEqual(got, test.want) || !errors.Is(err, test.err) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestPortMap(t *testing.T) {
	pod := testPod()
	pod.Annotations = map[string]string{portMapAnnotation: "8080=31234, 9090=31235"}
	for from, want := range map[int32]int32{8080: 31234, 9090: 31235, 80: 80} {
		if got, err := machinePort(pod, from); got != want || err != nil {
			t.Errorf("%d: got %d, %v", from, got, err)
		}
	}
	for _, text := range []string{"8080", "x=1", "1=70000", "0=1", "1=2=3"} {
		if _, err := parsePortMap(text); err == nil {
			t.Errorf("no error for %q", text)
		}
	}
}
