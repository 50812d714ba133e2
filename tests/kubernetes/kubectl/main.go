// Command kubectl is the kubectl of one Kubernetes minor version: each folder
// beside this file is a module that names the version, and builds this file.
package main

import (
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// main does what kubectl's own main function does, less what 1.32 does not have.
func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
