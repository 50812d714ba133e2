package main

import (
	"bytes"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestSelectComponent(t *testing.T) {
	tests := []struct {
		argv []string
		name string
		rest string
	}{
		{[]string{"/a/kubectl", "get", "pods"}, "kubectl", "get pods"},
		{[]string{"/a/bailiwick-kube", "kubectl", "get"}, "kubectl", "get"},
		{[]string{"bailiwick-kube"}, "", ""},
		{[]string{"bailiwick-kube", "nonsense"}, "nonsense", ""},
	}
	for _, test := range tests {
		name, rest := selectComponent(test.argv)
		if name != test.name || strings.Join(rest, " ") != test.rest {
			t.Errorf("%q: got %q, %q", test.argv, name, rest)
		}
	}
}

func TestClusterOptions(t *testing.T) {
	o, err := parseClusterOptions([]string{"--name", "a", "--dir", "x", "--feature-gates", "A=false"}, io.Discard)
	if err != nil || !filepath.IsAbs(o.dir) || o.featureGates != "A=false" {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, line := range []string{"", "--name a", "--dir x", "--name A_B --dir x", "--name a --dir x more"} {
		if _, err := parseClusterOptions(strings.Fields(line), io.Discard); err == nil {
			t.Errorf("no error for %q", line)
		}
	}
}

func TestPhase(t *testing.T) {
	ended := func(code int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}
	}
	running := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	waiting := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}
	tests := []struct {
		name            string
		policy          corev1.RestartPolicy
		containers      []corev1.ContainerStatus
		failed, deleted bool
		want            corev1.PodPhase
	}{
		{"new", "Always", []corev1.ContainerStatus{waiting}, false, false, corev1.PodPending},
		{"running", "Always", []corev1.ContainerStatus{running, ended(0)}, false, false, corev1.PodRunning},
		{"between restarts", "Always", []corev1.ContainerStatus{ended(0)}, false, false, corev1.PodRunning},
		{"done", "OnFailure", []corev1.ContainerStatus{ended(0)}, false, false, corev1.PodSucceeded},
		{"failed", "Never", []corev1.ContainerStatus{ended(0), ended(3)}, false, false, corev1.PodFailed},
		{"init failed", "Never", []corev1.ContainerStatus{waiting}, true, false, corev1.PodFailed},
		{"deleted", "Always", []corev1.ContainerStatus{ended(137)}, false, true, corev1.PodFailed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := phase(test.policy, test.containers, test.failed, test.deleted); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestLogRequest(t *testing.T) {
	now := time.Now()
	query, _ := url.ParseQuery("follow=true&tailLines=5&limitBytes=9&sinceSeconds=10&timestamps=true&previous=true&stream=Stdout")
	r, err := parseLogRequest(query, now)
	if err != nil {
		t.Fatal(err)
	}
	o := r.options
	if !o.Follow || !o.Timestamp || *o.TailLines != 5 || *o.LimitBytes != 9 || !o.Since.Equal(now.Add(-10*time.Second)) || !r.previous || r.stderr {
		t.Errorf("got %+v", r)
	}
	for _, bad := range []string{"follow=x", "tailLines=-1", "sinceTime=now", "stream=Other"} {
		query, _ := url.ParseQuery(bad)
		if _, err := parseLogRequest(query, now); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func TestLineWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c", "0.log")
	log, err := newCRILog(path)
	if err != nil {
		t.Fatal(err)
	}
	w := &lineWriter{log: log, stream: "stdout"}
	for _, part := range []string{"one\ntw", "o\n", strings.Repeat("x", maxLogLine+1), "\nend"} {
		if _, err := w.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	w.flush()
	log.close()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		_, rest, _ := strings.Cut(line, " ")
		got = append(got, rest)
	}
	want := []string{"stdout F one", "stdout F two", "stdout P " + strings.Repeat("x", maxLogLine), "stdout F x", "stdout F end"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q", got)
	}
}

// slowWriter takes longer for its data than the drain time of the test.
type slowWriter struct{ bytes.Buffer }

func (w *slowWriter) Write(data []byte) (int, error) {
	time.Sleep(100 * time.Millisecond)
	return w.Buffer.Write(data)
}

func TestOutputReachesSlowClientButDoesNotWaitForever(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 20 & head -c 65536 /dev/zero")
	out := &slowWriter{}
	pipes := &outputPipes{}
	if err := pipes.open(cmd, out, nil); err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = groupAttributes()
	if err := newSpawner().start(cmd); err != nil {
		t.Fatal(err)
	}
	defer killGroup(cmd.Process.Pid, 9)
	go pipes.run()
	begin := time.Now()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	pipes.drain(50 * time.Millisecond)
	if out.Len() != 65536 {
		t.Errorf("only %d bytes arrived", out.Len())
	}
	if waited := time.Since(begin); waited > 5*time.Second {
		t.Errorf("waited %s for a process that keeps the output open", waited)
	}
}
