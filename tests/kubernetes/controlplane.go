package main

import (
	"fmt"
	"net"
	"strconv"
)

// auditPolicy logs every request, with its user but without its body.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
`

// ports are the TCP ports of one cluster, all on the loopback address. The
// controller manager and the scheduler do not listen at all; the stand-in
// kubelet picks its own.
type ports struct {
	etcdClient, etcdPeer, apiServer int
}

// pickPorts finds free ports. They are free again until the component listens
// on them, so another program can get in between: the caller tries again then.
func pickPorts() (ports, error) {
	var p ports
	for _, port := range []*int{&p.etcdClient, &p.etcdPeer, &p.apiServer} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return ports{}, err
		}
		// Kept open until all are chosen, so that they differ.
		defer listener.Close()
		*port = listener.Addr().(*net.TCPAddr).Port
	}
	return p, nil
}

func loopbackURL(scheme string, port int) string {
	return scheme + "://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func etcdArgs(o *clusterOptions, p ports) []string {
	client, peer := loopbackURL("http", p.etcdClient), loopbackURL("http", p.etcdPeer)
	return []string{
		"--data-dir=" + o.path("etcd", "data"),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=default=" + peer,
		// The data is thrown away with the cluster.
		"--unsafe-no-fsync",
		"--log-level=warn",
	}
}

func apiServerArgs(o *clusterOptions, p ports, c *credentials) []string {
	args := []string{
		"--etcd-servers=" + loopbackURL("http", p.etcdClient),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", p.apiServer),
		// Nobody reaches the API server through the `kubernetes` service, and a
		// loopback address is not allowed as its endpoint. Given explicitly it
		// also works on a machine without any network.
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none",
		"--client-ca-file=" + c.path("ca.crt"),
		"--tls-cert-file=" + c.path("apiserver.crt"),
		"--tls-private-key-file=" + c.path("apiserver.key"),
		"--service-account-key-file=" + c.path("sa.pub"),
		"--service-account-signing-key-file=" + c.path("sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--allow-privileged",
		"--kubelet-certificate-authority=" + c.path("ca.crt"),
		"--kubelet-client-certificate=" + c.path("kubelet-client.crt"),
		"--kubelet-client-key=" + c.path("kubelet-client.key"),
		// A host name would cost a DNS lookup that need not succeed.
		"--kubelet-preferred-address-types=InternalIP",
		"--audit-policy-file=" + c.path("audit-policy.yaml"),
		"--audit-log-path=" + o.path("audit.log"),
		"--audit-log-format=json",
		// A request waits until its line is written, so a test that has its
		// answer also finds the line.
		"--audit-log-mode=blocking-strict",
		"--audit-log-maxsize=100000",
	}
	if o.featureGates != "" {
		args = append(args, "--feature-gates="+o.featureGates)
	}
	return args
}

func controllerManagerArgs(c *credentials) []string {
	return []string{
		"--kubeconfig=" + c.path(userControllerManager+".kubeconfig"),
		"--service-account-private-key-file=" + c.path("sa.key"),
		"--root-ca-file=" + c.path("ca.crt"),
		"--use-service-account-credentials",
		"--leader-elect=false",
		"--secure-port=0",
		// The defaults are for saving the API server of a large cluster. Here
		// they would only make the start slow.
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--node-monitor-period=500ms",
	}
}

func schedulerArgs(c *credentials) []string {
	return []string{
		"--kubeconfig=" + c.path(userScheduler+".kubeconfig"),
		"--leader-elect=false",
		"--secure-port=0",
	}
}

func kubeletArgs(o *clusterOptions, c *credentials, clusterID string) []string {
	return []string{
		"--kubeconfig=" + c.path(userNode+".kubeconfig"),
		"--node-name=" + o.nodeName(),
		"--dir=" + o.path("pods"),
		"--cluster-id=" + clusterID,
		"--client-ca-file=" + c.path("ca.crt"),
		"--tls-cert-file=" + c.path("kubelet.crt"),
		"--tls-private-key-file=" + c.path("kubelet.key"),
	}
}
