package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/validation"
)

// clusterOptions are the arguments of `bailiwick-kube cluster`.
type clusterOptions struct {
	name             string
	dir              string
	featureGates     string
	controlPlaneOnly bool
	exitWithStdin    bool
	outliveParent    bool
}

func parseClusterOptions(args []string, output io.Writer) (*clusterOptions, error) {
	o := &clusterOptions{}
	flags := flag.NewFlagSet("bailiwick-kube cluster", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&o.name, "name", "", "name of the cluster and of its context, cluster and user in the kubeconfig")
	flags.StringVar(&o.dir, "dir", "", "folder for all of the cluster's files; what an earlier cluster left there is removed")
	flags.StringVar(&o.featureGates, "feature-gates", "", "feature gates of the API server, for example A=false,B=true")
	flags.BoolVar(&o.controlPlaneOnly, "control-plane-only", false, "leave out the scheduler and the kubelet: no pod ever runs")
	flags.BoolVar(&o.exitWithStdin, "exit-with-stdin", false, "stop when standard input ends")
	flags.BoolVar(&o.outliveParent, "outlive-parent", false, "do not stop when the parent process ends")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.dir == "" {
		return nil, errors.New("--dir is missing")
	}
	if problems := validation.IsDNS1123Label(o.name); len(problems) > 0 {
		return nil, fmt.Errorf("--name %q: %s", o.name, problems[0])
	}
	var err error
	o.dir, err = filepath.Abs(o.dir)
	return o, err
}

func (o *clusterOptions) path(elements ...string) string {
	return filepath.Join(append([]string{o.dir}, elements...)...)
}

func (o *clusterOptions) nodeName() string { return o.name + "-node" }

// prepareDir makes the cluster's folder and removes what an earlier cluster
// left there. Only names that a cluster makes are removed: the folder may hold
// other things.
func (o *clusterOptions) prepareDir() error {
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"ready.json", "audit.log", "admin.kubeconfig", "bin", "etcd", "logs", "pki", "pods"} {
		if err := os.RemoveAll(o.path(name)); err != nil {
			return err
		}
	}
	for _, name := range []string{"bin", "etcd", "logs", "pki", "pods"} {
		if err := os.Mkdir(o.path(name), 0o700); err != nil {
			return err
		}
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	return os.Symlink(executable, o.path("bin", "kubectl"))
}
