package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/creack/pty"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// streamIdleTimeout closes a connection on which nothing happens.
const streamIdleTimeout = 4 * time.Hour

// handler serves what the API server asks of a kubelet. WebSockets do not get
// here: the API server translates them to SPDY.
func (k *kubelet) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.serveLogs)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		mux.HandleFunc(method+" /exec/{namespace}/{pod}/{container}", k.serveExec)
		mux.HandleFunc(method+" /attach/{namespace}/{pod}/{container}", k.serveAttach)
		mux.HandleFunc(method+" /portForward/{namespace}/{pod}", k.servePortForward)
	}
	return mux
}

// session is the container that a request is about, with its current run.
type session struct {
	container *container
	process   *containerProcess
	words     []string
}

// open finds the container and the streams of a request, or answers it.
func (k *kubelet) open(w http.ResponseWriter, r *http.Request) (*session, *remotecommand.Options, bool) {
	container, err := k.pods.container(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return nil, nil, false
	}
	process := container.running()
	if process == nil {
		http.Error(w, fmt.Sprintf("container %q is not running", container.spec.Name), http.StatusBadRequest)
		return nil, nil, false
	}
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil, nil, false
	}
	return &session{container: container, process: process, words: r.URL.Query()["command"]}, options, true
}

func (k *kubelet) serveExec(w http.ResponseWriter, r *http.Request) {
	s, options, ok := k.open(w, r)
	if !ok {
		return
	}
	if len(s.words) == 0 {
		http.Error(w, "the command is missing", http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, s, "", "", "", s.words, options,
		streamIdleTimeout, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

func (k *kubelet) serveAttach(w http.ResponseWriter, r *http.Request) {
	s, options, ok := k.open(w, r)
	if !ok {
		return
	}
	// A container has a terminal or has none, whatever the client asks for.
	options.TTY = s.process.tty != nil
	options.Stdin = options.Stdin && s.process.stdin != nil
	if options.TTY {
		options.Stderr = false
	}
	remotecommand.ServeAttach(w, r, s, "", "", "", options,
		streamIdleTimeout, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

// ExecInContainer runs one command next to the container's own.
func (s *session) ExecInContainer(ctx context.Context, _, _, _ string, words []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	cmd, err := s.container.command(s.process.id, words)
	if err != nil {
		return err
	}
	spawner := s.container.pod.kubelet.spawner
	p := &containerProcess{cmd: cmd, done: make(chan struct{})}
	if tty {
		cmd.Env = append(cmd.Env, "TERM=xterm")
		// The client's size is waited for, so that the command sees it from its
		// very start.
		err := spawner.do(func() (err error) {
			p.tty, err = pty.StartWithAttrs(cmd, firstSize(resize), terminalAttributes())
			return err
		})
		if err != nil {
			return err
		}
		return exitError(s.execTerminal(p, in, out, resize))
	}
	cmd.SysProcAttr = groupAttributes()
	pipes := &outputPipes{}
	if err := pipes.open(cmd, writer(out), writer(errOut)); err != nil {
		return err
	}
	var stdin io.WriteCloser
	if in != nil {
		// A pipe of our own: with cmd.Stdin set, Wait would wait for the client
		// to end its input even after the command has ended.
		if stdin, err = cmd.StdinPipe(); err != nil {
			pipes.close()
			return err
		}
	}
	if err := spawner.start(cmd); err != nil {
		pipes.close()
		return err
	}
	go pipes.run()
	if in != nil {
		go func() {
			_, _ = io.Copy(stdin, in)
			_ = stdin.Close()
		}()
	}
	err = cmd.Wait()
	pipes.drain(drainTime)
	return exitError(err)
}

// execTerminal passes data between a client and a command in a terminal.
func (s *session) execTerminal(p *containerProcess, in io.Reader, out io.Writer, resize <-chan remotecommand.TerminalSize) error {
	defer p.tty.Close()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		if _, err := io.Copy(out, p.tty); err != nil && !errors.Is(err, syscall.EIO) {
			killGroup(p.cmd.Process.Pid, syscall.SIGHUP)
		}
	}()
	if in != nil {
		go func() { _, _ = io.Copy(p.tty, in) }()
	}
	go func() {
		applySizes(p, resize)
		// The stream of sizes lasts as long as the connection. Its end is the
		// one sign that the client has gone, and a terminal that is gone hangs
		// up.
		hangUp(p)
	}()
	err := p.cmd.Wait()
	close(p.done)
	select {
	case <-copied:
	case <-time.After(drainTime):
	}
	return err
}

// hangUp ends a command whose terminal has gone.
func hangUp(p *containerProcess) {
	select {
	case <-p.done:
		return
	default:
	}
	killGroup(p.cmd.Process.Pid, syscall.SIGHUP)
	select {
	case <-p.done:
	case <-time.After(drainTime):
		killGroup(p.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// firstSize is the size that the client sends right after connecting.
func firstSize(resize <-chan remotecommand.TerminalSize) *pty.Winsize {
	select {
	case size, ok := <-resize:
		if ok {
			return &pty.Winsize{Rows: size.Height, Cols: size.Width}
		}
	case <-time.After(200 * time.Millisecond):
	}
	return &pty.Winsize{Rows: 24, Cols: 80}
}

func applySizes(p *containerProcess, resize <-chan remotecommand.TerminalSize) {
	for size := range resize {
		_ = pty.Setsize(p.tty, &pty.Winsize{Rows: size.Height, Cols: size.Width})
	}
}

// AttachContainer connects a client to the container's own process until
// either of them ends.
func (s *session) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	p := s.process
	var outGone, errGone <-chan struct{}
	if out := writer(out); out != nil {
		outGone = p.stdout.add(out)
		defer p.stdout.remove(out)
	}
	if errOut := writer(errOut); errOut != nil {
		errGone = p.stderr.add(errOut)
		defer p.stderr.remove(errOut)
	}
	if tty {
		go applySizes(p, resize)
	}
	if in != nil && p.stdin != nil {
		go func() {
			_, _ = io.Copy(p.stdin, in)
			if s.container.spec.StdinOnce && !tty {
				_ = p.stdin.Close()
			}
		}()
	}
	select {
	case <-p.done:
	case <-outGone:
	case <-errGone:
	case <-ctx.Done():
	}
	return nil
}

// writer makes a stream that is not there a nil interface.
func writer(stream io.WriteCloser) io.Writer {
	if stream == nil {
		return nil
	}
	return stream
}

// exitError makes a command's result into what the streaming library passes on
// as an exit code.
func exitError(err error) error {
	if err == nil {
		return nil
	}
	code, _ := exitStatus(err)
	return utilexec.CodeExitError{Err: fmt.Errorf("exit status %d", code), Code: int(code)}
}

func (k *kubelet) servePortForward(w http.ResponseWriter, r *http.Request) {
	worker := k.pods.worker(r.PathValue("namespace"), r.PathValue("pod"))
	if worker == nil {
		http.Error(w, errNoSuchContainer.Error(), http.StatusNotFound)
		return
	}
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, portForwarder{worker}, worker.name, string(worker.uid), options,
		streamIdleTimeout, remotecommand.DefaultStreamCreationTimeout, portforward.SupportedProtocols)
}

// portForwarder connects to a port of a pod.
type portForwarder struct{ pod *podWorker }

// PortForward copies both ways. A client that has sent everything may still be
// waiting for the answer, so its end is passed on by itself.
func (f portForwarder) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	local, err := machinePort(f.pod.spec(), port)
	if err != nil {
		return err
	}
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(local))))
	if err != nil {
		return err
	}
	defer connection.Close()
	go func() {
		_, _ = io.Copy(connection, stream)
		_ = connection.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, connection)
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
