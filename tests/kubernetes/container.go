package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// drainTime is how long output is awaited from a process that has ended and
// left others behind that hold its output open.
const drainTime = 2 * time.Second

// container is one container of a pod through all of its restarts.
type container struct {
	pod  *podWorker
	spec corev1.Container
	kind containerKind

	mu       sync.Mutex
	id       string
	restarts int32
	state    corev1.ContainerState
	last     corev1.ContainerState
	process  *containerProcess // nil when none is running
}

// containerKind tells in which of a pod's lists a container is.
type containerKind int

const (
	initContainer containerKind = iota
	mainContainer
	ephemeralContainer
)

// containerProcess is one run of a container.
type containerProcess struct {
	id      string
	cmd     *exec.Cmd
	stdin   io.WriteCloser // nil without stdin
	tty     *os.File       // nil without a terminal
	stdout  *broadcast
	stderr  *broadcast
	pipes   *outputPipes  // nil with a terminal
	drained chan struct{} // closed when all output has been passed on
	done    chan struct{} // closed when the run is over
}

func newContainer(pod *podWorker, spec corev1.Container, kind containerKind) *container {
	return &container{
		pod: pod, spec: spec, kind: kind,
		state: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
	}
}

// dir is the container's working folder, and what stands for its file system.
func (c *container) dir() string { return filepath.Join(c.pod.dir, c.spec.Name) }

func (c *container) logPath(restart int32) string {
	return filepath.Join(c.pod.dir, ".logs", c.spec.Name, strconv.Itoa(int(restart))+".log")
}

// logFile is the log of the current or of the previous run, with the id of the
// run that it belongs to.
func (c *container) logFile(previous bool) (string, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	restart, id := c.restarts, c.id
	if previous {
		if restart == 0 {
			return "", "", fmt.Errorf("previous terminated container %q in pod %q not found", c.spec.Name, c.pod.name)
		}
		restart, id = restart-1, ""
	}
	path := c.logPath(restart)
	if _, err := os.Stat(path); err != nil {
		return "", "", fmt.Errorf("container %q in pod %q is waiting to start", c.spec.Name, c.pod.name)
	}
	return path, id, nil
}

func (c *container) isRunning(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process != nil && c.process.id == id
}

func (c *container) running() *containerProcess {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process
}

// run starts the container's command, waits for its end and returns the exit
// code. Whatever it does is visible in the pod's status.
func (c *container) run() int32 {
	started := metav1.Now()
	process, err := c.start()
	if err != nil {
		c.finish(nil, corev1.ContainerStateTerminated{
			ExitCode: 128, Reason: "StartError", Message: err.Error(), StartedAt: started,
		})
		return 128
	}
	err = process.cmd.Wait()
	// As in a real container: when its first process ends, all others do.
	killGroup(process.cmd.Process.Pid, syscall.SIGKILL)
	killMarked(marker(c.pod.kubelet.options.clusterID, process.id))
	if process.pipes != nil {
		process.pipes.drain(drainTime)
	}
	<-process.drained
	if process.tty != nil {
		_ = process.tty.Close()
	}
	code, signal := exitStatus(err)
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	c.finish(process, corev1.ContainerStateTerminated{
		ExitCode: code, Signal: signal, Reason: reason, StartedAt: started,
	})
	return code
}

// start starts the command and makes its output go to the log and to whoever
// is attached.
func (c *container) start() (*containerProcess, error) {
	id := newContainerID()
	cmd, err := c.command(id, nil)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	path := c.logPath(c.restarts)
	c.mu.Unlock()
	log, err := newCRILog(path)
	if err != nil {
		return nil, err
	}
	stdout := &lineWriter{log: log, stream: "stdout"}
	stderr := &lineWriter{log: log, stream: "stderr"}
	p := &containerProcess{
		id: id, cmd: cmd,
		stdout: newBroadcast(stdout), stderr: newBroadcast(stderr),
		drained: make(chan struct{}), done: make(chan struct{}),
	}
	copies, err := p.launch(c.pod.kubelet.spawner, c.spec.TTY, c.spec.Stdin)
	if err != nil {
		log.close()
		return nil, err
	}
	c.mu.Lock()
	c.id, c.process = id, p
	c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	c.mu.Unlock()
	c.pod.changed()
	go func() {
		// Only then is it known that nobody holds the output open for ever.
		copies.Wait()
		stdout.flush()
		stderr.flush()
		log.close()
		close(p.drained)
	}()
	return p, nil
}

// launch starts the process with pipes or a terminal. The group it returns
// ends when the output does.
func (p *containerProcess) launch(s *spawner, tty, stdin bool) (*sync.WaitGroup, error) {
	copies := &sync.WaitGroup{}
	if tty {
		err := s.do(func() (err error) {
			p.tty, err = pty.StartWithAttrs(p.cmd, &pty.Winsize{Rows: 24, Cols: 80}, terminalAttributes())
			return err
		})
		if err != nil {
			return nil, err
		}
		p.stdin = p.tty
		copies.Go(func() { _, _ = io.Copy(p.stdout, p.tty) })
		return copies, nil
	}
	p.cmd.SysProcAttr = groupAttributes()
	p.pipes = &outputPipes{}
	if err := p.pipes.open(p.cmd, p.stdout, p.stderr); err != nil {
		return nil, err
	}
	if stdin {
		var err error
		if p.stdin, err = p.cmd.StdinPipe(); err != nil {
			p.pipes.close()
			return nil, err
		}
	}
	if err := s.start(p.cmd); err != nil {
		p.pipes.close()
		return nil, err
	}
	copies.Go(p.pipes.run)
	return copies, nil
}

// command prepares a process in the container: its own command when words is
// nil, otherwise a command that somebody executes in it.
func (c *container) command(id string, words []string) (*exec.Cmd, error) {
	variables, values, err := environment(c.pod.spec(), &c.spec)
	if err != nil {
		return nil, err
	}
	if words == nil {
		if words, err = commandLine(&c.spec, values); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(c.dir(), 0o700); err != nil {
		return nil, err
	}
	cmd := exec.Command(words[0], words[1:]...)
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	cmd.Dir = c.dir()
	cmd.Env = append(variables, "HOME="+c.dir(), markerVariable+"="+marker(c.pod.kubelet.options.clusterID, id))
	return cmd, nil
}

// finish records the end of a run.
func (c *container) finish(process *containerProcess, end corev1.ContainerStateTerminated) {
	end.FinishedAt = metav1.Now()
	c.mu.Lock()
	if process != nil {
		end.ContainerID = containerIDPrefix + process.id
	}
	c.process = nil
	c.state = corev1.ContainerState{Terminated: &end}
	c.mu.Unlock()
	if process != nil {
		close(process.done)
	}
	c.pod.changed()
}

// wait records why the container does not run at the moment. The state it was
// in becomes its last state.
func (c *container) wait(reason, message string) {
	c.mu.Lock()
	if c.state.Terminated != nil {
		c.last = c.state
	}
	c.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	c.mu.Unlock()
	c.pod.changed()
}

// signal sends a signal to all processes of the current run.
func (c *container) signal(signal syscall.Signal) {
	if p := c.running(); p != nil {
		killGroup(p.cmd.Process.Pid, signal)
	}
}

const containerIDPrefix = "process://"

func newContainerID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

// exitStatus turns the result of a process into a container's exit code:
// 128 plus the number of the signal when a signal ended it.
func exitStatus(err error) (code, signal int32) {
	if err == nil {
		return 0, 0
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 1, 0
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int32(status.Signal()), int32(status.Signal())
	}
	return int32(exit.ExitCode()), 0
}

// groupAttributes put a process into a group of its own and let it die with
// the stand-in.
func groupAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// terminalAttributes do the same for a process with a terminal, whose session
// is a group too.
func terminalAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
}
