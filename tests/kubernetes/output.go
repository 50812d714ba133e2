package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

// broadcast passes a container's output to its log and to all that are
// attached at the moment.
type broadcast struct {
	log io.Writer

	mu        sync.Mutex
	listeners map[io.Writer]chan struct{}
}

func newBroadcast(log io.Writer) *broadcast {
	return &broadcast{log: log, listeners: map[io.Writer]chan struct{}{}}
}

// Write never fails: a client that has gone must not stop the container.
func (b *broadcast) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, _ = b.log.Write(data)
	for listener, gone := range b.listeners {
		if _, err := listener.Write(data); err != nil {
			delete(b.listeners, listener)
			close(gone)
		}
	}
	return len(data), nil
}

// add attaches a listener. The channel is closed when it can no longer be
// written to.
func (b *broadcast) add(listener io.Writer) <-chan struct{} {
	gone := make(chan struct{})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listeners[listener] = gone
	return gone
}

func (b *broadcast) remove(listener io.Writer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.listeners, listener)
}

// outputPipes carry the output of a process. They differ from what os/exec does
// by itself in when they give up after the process has ended: os/exec would
// wait for every process that still holds the output open, or, with a delay
// set, cut off a client that reads slowly. These give up only when nothing more
// has come out of the pipe for a while; time a client takes does not count.
type outputPipes struct {
	copies []*outputCopy
}

type outputCopy struct {
	reader, writer *os.File
	to             io.Writer
	// readingSince is when the current read began, zero while writing.
	readingSince atomic.Int64
	done         chan struct{}
}

// open makes the pipes and gives their ends to the command. Output without a
// writer is thrown away.
func (o *outputPipes) open(cmd *exec.Cmd, stdout, stderr io.Writer) error {
	for _, output := range []struct {
		to     io.Writer
		target *io.Writer
	}{{stdout, &cmd.Stdout}, {stderr, &cmd.Stderr}} {
		if output.to == nil {
			continue
		}
		reader, writer, err := os.Pipe()
		if err != nil {
			o.close()
			return err
		}
		*output.target = writer
		o.copies = append(o.copies, &outputCopy{
			reader: reader, writer: writer, to: output.to, done: make(chan struct{}),
		})
	}
	return nil
}

func (o *outputPipes) close() {
	for _, c := range o.copies {
		_ = c.reader.Close()
		_ = c.writer.Close()
	}
}

// run copies until all output has ended. The process must have been started.
func (o *outputPipes) run() {
	var group sync.WaitGroup
	for _, c := range o.copies {
		_ = c.writer.Close() // the process has its own
		group.Go(c.run)
	}
	group.Wait()
}

func (c *outputCopy) run() {
	defer close(c.done)
	defer c.reader.Close()
	buffer := make([]byte, 32*1024)
	for {
		c.readingSince.Store(time.Now().UnixNano())
		n, err := c.reader.Read(buffer)
		c.readingSince.Store(0)
		if n > 0 {
			// When the client has gone the process gets an error on its next
			// write, as if it had written into a closed pipe.
			if _, failed := c.to.Write(buffer[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// drain waits for the rest of the output after the process has ended.
func (o *outputPipes) drain(patience time.Duration) {
	ended := time.Now()
	for _, c := range o.copies {
		c.drain(ended, patience)
	}
}

func (c *outputCopy) drain(ended time.Time, patience time.Duration) {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-ticker.C:
			since := c.readingSince.Load()
			if since == 0 || time.Since(ended) < patience || time.Since(time.Unix(0, since)) < patience {
				continue
			}
			if err := c.reader.SetReadDeadline(time.Now()); errors.Is(err, os.ErrNoDeadline) {
				return
			}
			<-c.done
			return
		}
	}
}
