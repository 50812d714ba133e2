package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchForStop cancels, with the reason, when the cluster has to end: by a
// signal, by the end of standard input, or by the end of the parent process.
//
// Lines of standard input are commands; see obey.
func watchForStop(o *clusterOptions, s *spawner, commands chan<- string, cancel context.CancelCauseFunc) {
	signals := make(chan os.Signal, 8)
	// Asking for SIGINT also matters for the children: a supervisor that a
	// script starts in the background has it ignored, and they would inherit
	// that.
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, parentDeathSignal)
	parent := os.Getppid()
	if !o.outliveParent {
		_ = s.do(func() error { return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(parentDeathSignal), 0, 0, 0) })
	}
	if o.exitWithStdin {
		go func() {
			lines := bufio.NewScanner(os.Stdin)
			for lines.Scan() {
				commands <- lines.Text()
			}
			// A line that is too long ends the scanner, not the input.
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel(errors.New("standard input ended"))
		}()
	}
	go func() {
		ticker := time.NewTicker(500 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case received := <-signals:
				if received != parentDeathSignal {
					cancel(errors.New("got signal: " + received.String()))
				}
			case <-ticker.C:
			}
			if !o.outliveParent && os.Getppid() != parent {
				cancel(errors.New("the parent process ended"))
				return
			}
		}
	}()
}

// parentDeathSignal wakes the supervisor up when its parent may have died. It
// is no signal that ends it, because the kernel also sends it when only the
// thread that started the supervisor ends: that is what happens to a test's
// thread while the test program goes on.
const parentDeathSignal = syscall.SIGUSR1
