// Command requestinfo says how a Kubernetes API server reads requests.
//
// Each line of standard input is a JSON object with "method" and "target", the
// words of a request line. Each line of standard output is the answer: what
// net/http and the RequestInfoFactory of k8s.io/apiserver make of it, set up as
// the API server sets it up.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
)

type question struct {
	Method string `json:"method"`
	Target string `json:"target"`
}

type answer struct {
	// Why it is no request, or not one for a resource although it begins as one.
	Error       string `json:"error,omitempty"`
	IsResource  bool   `json:"isResource"`
	Path        string `json:"path"`
	Verb        string `json:"verb"`
	Group       string `json:"group"`
	Version     string `json:"version"`
	Namespace   string `json:"namespace"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource"`
	Name        string `json:"name"`
}

// As k8s.io/apiserver/pkg/server.NewRequestInfoResolver makes it, with the
// default prefixes.
var factory = request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

func read(q question) answer {
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: example.com\r\n\r\n", q.Method, q.Target)
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
	if err != nil {
		return answer{Error: err.Error()}
	}
	info, err := factory.NewRequestInfo(req)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{
		IsResource:  info.IsResourceRequest,
		Path:        info.Path,
		Verb:        info.Verb,
		Group:       info.APIGroup,
		Version:     info.APIVersion,
		Namespace:   info.Namespace,
		Resource:    info.Resource,
		Subresource: info.Subresource,
		Name:        info.Name,
	}
}

func run(in io.Reader, out io.Writer) error {
	buffered := bufio.NewWriter(out)
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(buffered)
	for {
		var q question
		if err := decoder.Decode(&q); errors.Is(err, io.EOF) {
			return buffered.Flush()
		} else if err != nil {
			return err
		}
		if err := encoder.Encode(read(q)); err != nil {
			return err
		}
	}
}

func main() {
	// Queries that the API server cannot read are what this is for; it would
	// write each to standard error.
	klog.SetLogger(logr.Discard())
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
