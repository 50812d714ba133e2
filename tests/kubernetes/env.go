package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// fallbackPath is the search path when this process has none.
const fallbackPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// portMapAnnotation maps the ports of a pod to ports of this machine, because
// all pods share its loopback address: `8080=31234,9090=31235`.
const portMapAnnotation = "kubelet.bailiwick.dev/port-map"

// environment makes the variables of a container: what every container has,
// then what its specification says, with references to earlier variables
// filled in. Nothing else of this process's environment gets in.
func environment(pod *corev1.Pod, container *corev1.Container) ([]string, map[string]string, error) {
	values := map[string]string{}
	var order []string
	set := func(name, value string) {
		if _, known := values[name]; !known {
			order = append(order, name)
		}
		values[name] = value
	}
	search := os.Getenv("PATH")
	if search == "" {
		search = fallbackPath
	}
	set("PATH", search)
	set("HOSTNAME", pod.Name)
	if container.TTY {
		set("TERM", "xterm")
	}
	if len(container.EnvFrom) > 0 {
		return nil, nil, errors.New("envFrom is not supported by the stand-in kubelet")
	}
	for _, variable := range container.Env {
		value := expansion.Expand(variable.Value, expansion.MappingFuncFor(values))
		if source := variable.ValueFrom; source != nil {
			if source.FieldRef == nil {
				return nil, nil, fmt.Errorf("variable %s: only fieldRef is supported by the stand-in kubelet", variable.Name)
			}
			var err error
			if value, err = podField(pod, source.FieldRef.FieldPath); err != nil {
				return nil, nil, fmt.Errorf("variable %s: %w", variable.Name, err)
			}
		}
		set(variable.Name, value)
	}
	list := make([]string, 0, len(order))
	for _, name := range order {
		list = append(list, name+"="+values[name])
	}
	return list, values, nil
}

// podField is the value of a field that a variable refers to.
func podField(pod *corev1.Pod, field string) (string, error) {
	switch field {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.podIP", "status.hostIP":
		return "127.0.0.1", nil
	}
	return "", fmt.Errorf("the field %s is not supported by the stand-in kubelet", field)
}

// errNoCommand is the stand-in's answer to a container that only names an
// image: there are no images here, hence nothing to run.
var errNoCommand = errors.New("the stand-in kubelet has no images: give the container a command")

// commandLine is the command of a container with references to variables
// filled in. Without a command it guesses from the image's name what the image
// would run, for the few images that tests like to use.
func commandLine(container *corev1.Container, values map[string]string) ([]string, error) {
	words := append(append([]string{}, container.Command...), container.Args...)
	if len(words) == 0 {
		switch name := imageName(container.Image); {
		case strings.Contains(name, "pause"):
			words = []string{"sleep", "2147483647"}
		case isShellImage(name):
			words = []string{"sh"}
		default:
			return nil, errNoCommand
		}
	}
	for i, word := range words {
		words[i] = expansion.Expand(word, expansion.MappingFuncFor(values))
	}
	return words, nil
}

// imageName is the last part of an image reference, without tag and digest.
func imageName(image string) string {
	name, _, _ := strings.Cut(path.Base(image), "@")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// isShellImage tells images that run a shell when they get no command.
func isShellImage(name string) bool {
	switch name {
	case "alpine", "busybox", "debian", "ubuntu":
		return true
	}
	return false
}

// parsePortMap reads the annotation with the port map.
func parsePortMap(text string) (map[int32]int32, error) {
	ports := map[int32]int32{}
	for _, entry := range strings.Split(text, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		from, to, found := strings.Cut(entry, "=")
		if !found {
			return nil, fmt.Errorf("%q is not POD_PORT=MACHINE_PORT", entry)
		}
		var numbers [2]int32
		for i, word := range []string{from, to} {
			number, err := strconv.ParseUint(strings.TrimSpace(word), 10, 16)
			if err != nil || number == 0 {
				return nil, fmt.Errorf("%q in %q is not a port", word, entry)
			}
			numbers[i] = int32(number)
		}
		ports[numbers[0]] = numbers[1]
	}
	return ports, nil
}

// machinePort is the port of this machine that a port of a pod stands for.
func machinePort(pod *corev1.Pod, port int32) (int32, error) {
	ports, err := parsePortMap(pod.Annotations[portMapAnnotation])
	if err != nil {
		return 0, fmt.Errorf("annotation %s: %w", portMapAnnotation, err)
	}
	if mapped, ok := ports[port]; ok {
		return mapped, nil
	}
	return port, nil
}
