package cluster

import (
	"crypto"
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
)

// lifetime of every certificate; a test cluster lives for minutes.
const lifetime = 7 * 24 * time.Hour

// authority is the cluster's certificate authority; it signs the API server's serving
// certificate and all client certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "kubernetes"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(lifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: certPEM(der)}, nil
}

// issue signs a certificate. With addresses or names it is for a server, else for a client.
func (a *authority) issue(user string, groups []string, ips []net.IP, names []string) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	usage := x509.ExtKeyUsageClientAuth
	if len(ips)+len(names) > 0 {
		usage = x509.ExtKeyUsageServerAuth
	}
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: user, Organization: groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{usage},
		IPAddresses:  ips,
		DNSNames:     names,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	key, err = keyPEM(private)
	return certPEM(der), key, err
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // the system's random source does not fail
	}
	return n
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// writePKI fills the cluster's pki folder.
func (c *Cluster) writePKI() error {
	var err error
	if c.ca, err = newAuthority(); err != nil {
		return fmt.Errorf("make the certificate authority: %w", err)
	}
	if err := os.MkdirAll(c.path("pki"), 0o700); err != nil {
		return err
	}
	write := func(name string, content []byte) {
		if err == nil {
			err = os.WriteFile(c.path("pki", name), content, 0o600)
		}
	}
	write("ca.crt", c.ca.pem)
	caKey, kerr := keyPEM(c.ca.key.(*ecdsa.PrivateKey))
	if kerr != nil {
		return kerr
	}
	write("ca.key", caKey)

	serviceAccounts, kerr := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if kerr != nil {
		return kerr
	}
	saKey, kerr := keyPEM(serviceAccounts)
	if kerr != nil {
		return kerr
	}
	write("sa.key", saKey)

	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(c.options.BindAddress), c.serviceIP}
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + ClusterDomain}
	cert, key, kerr := c.ca.issue("kube-apiserver", nil, ips, names)
	if kerr != nil {
		return kerr
	}
	write("apiserver.crt", cert)
	write("apiserver.key", key)

	cert, key, kerr = c.ca.issue("kube-apiserver-kubelet-client", []string{"system:masters"}, nil, nil)
	if kerr != nil {
		return kerr
	}
	write("apiserver-kubelet-client.crt", cert)
	write("apiserver-kubelet-client.key", key)
	return err
}

// path is a path inside the cluster's folder.
func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}
