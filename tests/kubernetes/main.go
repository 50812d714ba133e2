// Command bailiwick-kube is a whole local Kubernetes in one binary: the real
// etcd, API server, controller manager, scheduler and kubectl, a stand-in
// kubelet that runs pod commands as local processes, and a supervisor that
// starts one cluster of them and stops it again.
//
// It is a multi-call binary because the five components share nearly all of
// their code: one link and one file instead of five.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// binaryName is what the binary is called when it is not called as one of its
// components.
const binaryName = "bailiwick-kube"

const usage = `usage: bailiwick-kube COMPONENT [ARGUMENTS]

components:
  cluster                   run one local cluster until told to stop
  kubelet                   the stand-in kubelet (started by cluster)
  etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl
                            the real components, with their own arguments

The binary behaves as a component when it is called by the component's name
(a symbolic link) or gets it as the first argument.
`

// components maps a component's name to its main function, which returns the
// exit code. os.Args has been made to look as if the component was called
// directly.
var components = map[string]func() int{
	"cluster":                 func() int { return clusterMain(os.Args[1:]) },
	"kubelet":                 func() int { return kubeletMain(os.Args[1:]) },
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubectl":                 kubectlMain,
}

func main() {
	name, args := selectComponent(os.Args)
	run, ok := components[name]
	if !ok {
		fmt.Fprint(os.Stderr, usage)
		if name == "" || name == "help" || name == "-h" || name == "--help" {
			os.Exit(0)
		}
		fmt.Fprintf(os.Stderr, "\n%s: no component %q\n", binaryName, name)
		os.Exit(2)
	}
	os.Args = append([]string{name}, args...)
	os.Exit(run())
}

// selectComponent finds which component is meant by a command line and which
// arguments are left for it.
func selectComponent(argv []string) (string, []string) {
	if len(argv) == 0 {
		return "", nil
	}
	called := strings.TrimSuffix(filepath.Base(argv[0]), ".exe")
	if _, ok := components[called]; ok {
		return called, argv[1:]
	}
	if len(argv) == 1 {
		return "", nil
	}
	return argv[1], argv[2:]
}

// kubectlMain does what the main function of kubectl does: the verbosity has
// to be set before the command is built, and errors are printed kubectl's way.
func kubectlMain() int {
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}
