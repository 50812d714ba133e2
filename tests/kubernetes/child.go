package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// child is one component that the supervisor runs as a process.
type child struct {
	name    string
	logPath string
	cmd     *exec.Cmd
	stdin   io.Closer
	done    chan struct{}
	// Set before it is stopped on command, so that its end is no failure.
	expected atomic.Bool
	err      error // valid once done is closed
}

// startChild runs a component of this same binary with its output in a log
// file. deathSignal is what the kernel sends it if the supervisor is killed.
func startChild(s *spawner, component, logPath string, deathSignal syscall.Signal, args ...string) (*child, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := &child{name: component, logPath: logPath, done: make(chan struct{})}
	c.cmd = exec.Command(executable, append([]string{component}, args...)...)
	c.cmd.Stdout = log
	c.cmd.Stderr = log
	// A group of its own: Ctrl-C in a terminal shall reach only the
	// supervisor, which stops the components in the right order.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: deathSignal}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.start(c.cmd); err != nil {
		return nil, fmt.Errorf("%s: %w", component, err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// tell says when the child has ended.
func (c *child) tell(ctx context.Context, exits chan<- *child) {
	<-c.done
	select {
	case exits <- c:
	case <-ctx.Done():
	}
}

func (c *child) exited() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// stop ends the child: SIGTERM first, SIGKILL for its whole group when it has
// not gone in time.
func (c *child) stop(patience time.Duration) {
	if !c.exited() {
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-c.done:
		case <-time.After(patience):
		}
	}
	killGroup(c.cmd.Process.Pid, syscall.SIGKILL)
	<-c.done
}

// failure describes why a cluster did not start or did not stay, with the end
// of the log of the component that is to blame.
func (c *child) failure(what string) error {
	return fmt.Errorf("%s: %s\nthe last lines of %s:\n%s", c.name, what, c.logPath, lastLines(c.logPath, 20))
}

// lostPort tells if the child ended because somebody else took its port
// between choosing it and listening on it.
func (c *child) lostPort() bool {
	return c.exited() && strings.Contains(lastLines(c.logPath, 40), "address already in use")
}
