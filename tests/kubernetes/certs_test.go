package main

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestIssuedCertificatesVerify(t *testing.T) {
	ca, err := newAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	tests := []struct {
		name    string
		request certificateRequest
		usage   x509.ExtKeyUsage
		other   x509.ExtKeyUsage
	}{
		{"server", certificateRequest{commonName: "s", ips: []net.IP{net.IPv4(127, 0, 0, 1)}}, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		{"client", certificateRequest{commonName: "c", organizations: []string{"system:masters"}}, x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pair, err := ca.issue(test.request)
			if err != nil {
				t.Fatal(err)
			}
			loaded, err := tls.X509KeyPair(pair.certPEM, pair.keyPEM)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := loaded.Leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{test.usage}}); err != nil {
				t.Error(err)
			}
			if _, err := loaded.Leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{test.other}}); err == nil {
				t.Error("usable for what it is not for")
			}
		})
	}
}

func TestKubeconfigIsPrivateAndComplete(t *testing.T) {
	dir := t.TempDir()
	c, err := newCredentials(dir, "alpha", "alpha-node")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "admin.kubeconfig")
	if err := c.writeKubeconfig(path, "alpha", "https://127.0.0.1:1", userAdmin); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if config.CurrentContext != "alpha" || config.Clusters["alpha"] == nil || config.AuthInfos["alpha"] == nil {
		t.Errorf("not everything is called alpha: %v", config)
	}
	if len(config.Clusters["alpha"].CertificateAuthorityData) == 0 || len(config.AuthInfos["alpha"].ClientKeyData) == 0 {
		t.Error("certificates are not embedded")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", entry.Name(), info.Mode())
		}
	}
}
