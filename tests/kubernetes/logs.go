package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/util/flushwriter"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crilogs "k8s.io/cri-client/pkg/logs"
)

// maxLogLine is where container runtimes cut a line that does not end.
const maxLogLine = 16 * 1024

// criLog writes a container's output to a file in the format of the container
// runtime interface, which is what Kubernetes' own log reader reads.
type criLog struct {
	mu   sync.Mutex
	file *os.File
}

func newCRILog(path string) (*criLog, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &criLog{file: file}, nil
}

// line writes one entry. A partial line is one that goes on in the next entry.
func (l *criLog) line(stream string, text []byte, partial bool) {
	tag := "F"
	if partial {
		tag = "P"
	}
	entry := make([]byte, 0, len(text)+64)
	entry = time.Now().UTC().AppendFormat(entry, time.RFC3339Nano)
	entry = append(entry, ' ')
	entry = append(entry, stream...)
	entry = append(entry, ' ')
	entry = append(entry, tag...)
	entry = append(entry, ' ')
	entry = append(entry, text...)
	entry = append(entry, '\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	// A log that cannot be written, for example on a full disk, must not stop
	// the container.
	_, _ = l.file.Write(entry)
}

func (l *criLog) close() { _ = l.file.Close() }

// lineWriter cuts one stream of a container into lines for its log.
type lineWriter struct {
	log    *criLog
	stream string
	rest   []byte
}

func (w *lineWriter) Write(data []byte) (int, error) {
	written := len(data)
	for {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			break
		}
		w.log.line(w.stream, append(w.rest, data[:end]...), false)
		w.rest = w.rest[:0]
		data = data[end+1:]
	}
	w.rest = append(w.rest, data...)
	for len(w.rest) >= maxLogLine {
		w.log.line(w.stream, w.rest[:maxLogLine], true)
		w.rest = append(w.rest[:0], w.rest[maxLogLine:]...)
	}
	return written, nil
}

// flush writes what came after the last line's end.
func (w *lineWriter) flush() {
	if len(w.rest) > 0 {
		w.log.line(w.stream, w.rest, false)
		w.rest = nil
	}
}

// logRequest is what a client wants of a log.
type logRequest struct {
	options        crilogs.LogOptions
	previous       bool
	stdout, stderr bool
}

// parseLogRequest reads the query by hand: the type's registered decoder does
// not know this conversion.
func parseLogRequest(query url.Values, now time.Time) (*logRequest, error) {
	request := &logRequest{stdout: true, stderr: true}
	var err error
	flag := func(name string) bool {
		value, ok := query[name]
		if !ok || err != nil {
			return false
		}
		var set bool
		if set, err = strconv.ParseBool(value[0]); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return set
	}
	number := func(name string) *int64 {
		value, ok := query[name]
		if !ok || err != nil {
			return nil
		}
		var n int64
		if n, err = strconv.ParseInt(value[0], 10, 64); err != nil || n < 0 {
			err = fmt.Errorf("%s: %q is not a number that can be used", name, value[0])
			return nil
		}
		return &n
	}
	request.options.Follow = flag("follow")
	request.options.Timestamp = flag("timestamps")
	request.previous = flag("previous")
	request.options.TailLines = number("tailLines")
	request.options.LimitBytes = number("limitBytes")
	if seconds := number("sinceSeconds"); seconds != nil {
		request.options.Since = now.Add(-time.Duration(*seconds) * time.Second)
	}
	if since := query.Get("sinceTime"); since != "" && err == nil {
		request.options.Since, err = time.Parse(time.RFC3339, since)
	}
	switch stream := query.Get("stream"); stream {
	case "", "All":
	case "Stdout":
		request.stderr = false
	case "Stderr":
		request.stdout = false
	default:
		err = fmt.Errorf("stream: %q is not a stream", stream)
	}
	return request, err
}

// serveLogs answers GET /containerLogs/{namespace}/{pod}/{container}.
func (k *kubelet) serveLogs(w http.ResponseWriter, r *http.Request) {
	request, err := parseLogRequest(r.URL.Query(), time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	container, err := k.pods.container(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	path, id, err := container.logFile(request.previous)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusOK)
	body := flushwriter.Wrap(w)
	// The headers go out at once: a follower may wait long for a first line.
	_, _ = body.Write(nil)
	stdout, stderr := body, body
	if !request.stdout {
		stdout = nil
	}
	if !request.stderr {
		stderr = nil
	}
	err = crilogs.ReadLogs(r.Context(), path, id, &request.options, logRuntime{container: container}, stdout, stderr)
	if err != nil && r.Context().Err() == nil {
		fmt.Fprintf(body, "reading the log: %v\n", err)
	}
}

// logRuntime is the part of a container runtime that the log reader asks: is
// the container whose log it follows still running?
type logRuntime struct {
	internalapi.RuntimeService
	container *container
}

func (l logRuntime) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	state := runtimeapi.ContainerState_CONTAINER_EXITED
	if l.container.isRunning(id) {
		state = runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: id, State: state}}, nil
}
