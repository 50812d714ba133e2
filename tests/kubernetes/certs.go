package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeletClientName is the name the API server has towards the stand-in
// kubelet. The stand-in lets nobody else in: whoever can call it has a shell.
const kubeletClientName = "kube-apiserver-kubelet-client"

// authority is the certificate authority of one cluster. It lives only as long
// as the cluster, so its key is never written to a file.
type authority struct {
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	certPEM []byte
}

// certificateRequest says what goes into a certificate. With IPs or DNS names
// it is a server's certificate, otherwise a client's.
type certificateRequest struct {
	commonName    string
	organizations []string
	ips           []net.IP
	dnsNames      []string
}

// keyPair is a certificate with its key, both in PEM.
type keyPair struct {
	certPEM, keyPEM []byte
}

func newAuthority(commonName string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := certificateTemplate(pkix.Name{CommonName: commonName})
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, certPEM: encodePEM("CERTIFICATE", der)}, nil
}

// issue makes a new key and a certificate for it.
func (a *authority) issue(request certificateRequest) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, err
	}
	template, err := certificateTemplate(pkix.Name{
		CommonName:   request.commonName,
		Organization: request.organizations,
	})
	if err != nil {
		return keyPair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(request.ips)+len(request.dnsNames) > 0 {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		template.IPAddresses = request.ips
		template.DNSNames = request.dnsNames
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return keyPair{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return keyPair{}, err
	}
	return keyPair{certPEM: encodePEM("CERTIFICATE", der), keyPEM: keyPEM}, nil
}

// certificateTemplate fills in what all certificates have in common. They
// start an hour in the past, so that a clock set back does not matter.
func certificateTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(30 * 24 * time.Hour),
	}, nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return encodePEM("EC PRIVATE KEY", der), nil
}

// newSigningKey makes the pair with which the control plane signs service
// account tokens: private key and public key, both in PEM.
func newSigningKey() (privatePEM, publicPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if privatePEM, err = encodeKey(key); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, err
	}
	return privatePEM, encodePEM("PUBLIC KEY", der), nil
}

// credentials are the files of one cluster's certificates and keys, and the
// certificates that go into its kubeconfigs.
type credentials struct {
	dir    string
	ca     *authority
	client map[string]keyPair
}

// The users of the kubeconfigs, by the file's name without its extension.
const (
	userAdmin             = "admin"
	userControllerManager = "controller-manager"
	userScheduler         = "scheduler"
	userNode              = "node"
)

// newCredentials makes a new authority with all certificates of a cluster and
// writes those that components read from files to dir.
func newCredentials(dir, cluster, nodeName string) (*credentials, error) {
	ca, err := newAuthority("bailiwick test cluster " + cluster)
	if err != nil {
		return nil, err
	}
	loopback := net.IPv4(127, 0, 0, 1)
	c := &credentials{dir: dir, ca: ca, client: map[string]keyPair{}}
	if err := c.write("ca.crt", ca.certPEM); err != nil {
		return nil, err
	}
	files := map[string]certificateRequest{
		"apiserver": {
			commonName: "kube-apiserver",
			ips:        []net.IP{loopback, net.IPv4(10, 0, 0, 1)},
			dnsNames:   []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		},
		"kubelet":        {commonName: nodeName, ips: []net.IP{loopback}},
		"kubelet-client": {commonName: kubeletClientName},
	}
	for name, request := range files {
		pair, err := ca.issue(request)
		if err != nil {
			return nil, err
		}
		if err := c.write(name+".crt", pair.certPEM); err != nil {
			return nil, err
		}
		if err := c.write(name+".key", pair.keyPEM); err != nil {
			return nil, err
		}
	}
	clients := map[string]certificateRequest{
		userAdmin:             {commonName: "bailiwick-test-admin", organizations: []string{"system:masters"}},
		userControllerManager: {commonName: "system:kube-controller-manager"},
		userScheduler:         {commonName: "system:kube-scheduler"},
		userNode:              {commonName: "system:node:" + nodeName, organizations: []string{"system:nodes"}},
	}
	for user, request := range clients {
		if c.client[user], err = ca.issue(request); err != nil {
			return nil, err
		}
	}
	private, public, err := newSigningKey()
	if err != nil {
		return nil, err
	}
	if err := c.write("sa.key", private); err != nil {
		return nil, err
	}
	return c, c.write("sa.pub", public)
}

func (c *credentials) path(name string) string { return filepath.Join(c.dir, name) }

func (c *credentials) write(name string, data []byte) error {
	return os.WriteFile(c.path(name), data, 0o600)
}

// writeKubeconfig writes a kubeconfig in which cluster, context and user have
// the same name and all certificates are embedded.
func (c *credentials) writeKubeconfig(path, name, server, user string) error {
	pair, ok := c.client[user]
	if !ok {
		return fmt.Errorf("no client certificate for %q", user)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   server,
		CertificateAuthorityData: c.ca.certPEM,
	}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: pair.certPEM,
		ClientKeyData:         pair.keyPEM,
	}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "default"}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return writeFileAtomically(path, data)
}

// writeFileAtomically lets nobody see a half-written file.
func writeFileAtomically(path string, data []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	if _, err := file.Write(data); err != nil {
		file.Close()
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
