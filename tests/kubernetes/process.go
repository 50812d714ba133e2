package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// spawner starts processes from one thread that lives as long as the program.
//
// The kernel sends a process its parent-death signal when the thread that
// started it ends, not when the parent process ends. Go ends threads when it
// likes, so a child started from any goroutine could be killed at any time.
type spawner struct {
	requests chan func()
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for request := range s.requests {
			request()
		}
	}()
	return s
}

// do runs f on the spawner's thread and waits for it.
func (s *spawner) do(f func() error) error {
	result := make(chan error, 1)
	s.requests <- func() { result <- f() }
	return <-result
}

func (s *spawner) start(cmd *exec.Cmd) error { return s.do(cmd.Start) }

// markerVariable is an environment variable that every process of a pod has.
// Its value is `CLUSTER/CONTAINER`, both random. It finds processes that have
// left their process group or session, and those whose parents were killed.
const markerVariable = "BAILIWICK_KUBE_CONTAINER"

func marker(clusterID, containerID string) string { return clusterID + "/" + containerID }

// killMarked kills all processes whose marker starts with prefix and returns
// how many there were. It looks again until none is left, because a process
// may fork while the list is read.
func killMarked(prefix string) int {
	killed := 0
	for round := 0; round < 20; round++ {
		pids := markedProcesses(prefix)
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed++
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return killed
}

// markedProcesses lists the processes of a marker. Zombies have no environment
// any more and so are not among them.
func markedProcesses(prefix string) []int {
	entry := []byte("\x00" + markerVariable + "=" + prefix)
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var pids []int
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil || pid == os.Getpid() {
			continue
		}
		environment, err := os.ReadFile(filepath.Join(folder, "environ"))
		if err != nil || len(environment) == 0 {
			continue
		}
		if bytes.Contains(append([]byte{0}, environment...), entry) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killGroup signals a whole process group. The leader may be gone already
// while others of its group still run, so the error is of no interest.
func killGroup(pid int, signal syscall.Signal) {
	if pid > 1 {
		_ = syscall.Kill(-pid, signal)
	}
}

// lastLines returns the end of a text file, for error messages.
func lastLines(path string, count int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "(" + err.Error() + ")"
	}
	text := strings.TrimRight(string(data), "\n")
	if text == "" {
		return "(its log is empty)"
	}
	lines := strings.Split(text, "\n")
	if len(lines) > count {
		lines = lines[len(lines)-count:]
	}
	return strings.Join(lines, "\n")
}
