package cluster

import (
	"context"
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
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// startControlPlane has envtest start etcd and the API server. Their certificates are given: the API server's is also for
// the names and the address of its Service, which envtest does not do.
func (c *Cluster) startControlPlane() error {
	ca, err := c.writeCertificates()
	if err != nil {
		return err
	}
	ports, err := FreePorts(c.options.BindAddress, 1)
	if err != nil {
		return err
	}
	programs, logs := map[string]string{}, map[string]*os.File{}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		program, err := tool(c.options.Bin, name)
		if err != nil {
			return err
		}
		if programs[name], err = c.group.Wrap(c.path("bin"), program); err != nil {
			return err
		}
		if logs[name], err = os.Create(c.LogFile(name)); err != nil {
			return err
		}
		defer func() { _ = logs[name].Close() }()
	}
	c.plane.Etcd = &envtest.Etcd{Path: programs["etcd"], DataDir: c.path("etcd"), StartTimeout: readyTimeout, Out: logs["etcd"], Err: logs["etcd"]}
	// Nothing of a cluster outlives its machine. Envtest sets this only where --help names it.
	c.plane.Etcd.Configure().Set("log-level", "warn").Set("unsafe-no-fsync", "true")
	if quota := c.options.EtcdQuota; quota > 0 {
		c.plane.Etcd.Configure().Set("quota-backend-bytes", strconv.FormatInt(quota, 10))
	}
	api := &envtest.APIServer{Path: programs["kube-apiserver"], CertDir: c.path("pki"), StartTimeout: readyTimeout, Out: logs["kube-apiserver"], Err: logs["kube-apiserver"]}
	api.ListenAddr = envtest.ListenAddr{Address: c.options.BindAddress, Port: strconv.Itoa(ports[0])}
	api.CA = ca
	c.configure(api)
	c.plane.APIServer = api
	if err := c.plane.Start(); err != nil {
		return fmt.Errorf("%w; etcd's log ends:\n%s\nkube-apiserver's log ends:\n%s", err, tail(c.LogFile("etcd")), tail(c.LogFile("kube-apiserver")))
	}
	path, err := c.KubeconfigForUser("admin", "kubernetes-admin", "system:masters")
	if err != nil {
		return err
	}
	if c.admin, err = clientcmd.BuildConfigFromFlags("", path); err != nil {
		return err
	}
	c.admin.QPS, c.admin.UserAgent = -1, "kube-node-ready-test"
	return nil
}

// configure sets the API server's flags over envtest's defaults, which have service accounts switched off.
func (c *Cluster) configure(api *envtest.APIServer) {
	advertise := c.options.BindAddress
	if netip.MustParseAddr(advertise).IsLoopback() {
		advertise = unroutable
	}
	key := c.path("pki", "apiserver.key") // signs service-account tokens too
	flags := api.Configure().Disable("disable-admission-plugins")
	if !c.options.NodeLifecycle { // it takes back the taint that the plugin gives to every new node
		flags.Set("disable-admission-plugins", "TaintNodesByCondition")
	}
	for flag, value := range map[string]string{
		"advertise-address": advertise, "service-cluster-ip-range": c.options.ServiceCIDR,
		"service-account-issuer": "https://kubernetes.default.svc." + ClusterDomain, "service-account-key-file": key, "service-account-signing-key-file": key,
		"kubelet-client-certificate": c.KubeletClientCAFile(), "kubelet-client-key": key,
		"kubelet-preferred-address-types": "InternalIP", // node names are in no DNS here
		"authorization-mode":              "Node,RBAC", "enable-admission-plugins": "NodeRestriction",
	} {
		flags.Set(flag, value)
	}
	for _, arg := range c.options.APIServerArgs {
		flag, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		flags.Set(flag, value)
	}
}

// writeCertificates writes the API server's certificates with one key: as a server, with its authority, which is returned,
// and as a client of kubelets. The key, which signs tokens too, is of P-256: one of RSA takes longer than all else that
// this process does for a start.
func (c *Cluster) writeCertificates() ([]byte, error) {
	const service = "kubernetes.default.svc"
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	private, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	serving, err := selfSigned(key, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kubernetes"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(c.options.BindAddress), c.serviceIP},
		DNSNames:    []string{"localhost", "kubernetes.default", service, service + "." + ClusterDomain},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return nil, fmt.Errorf("make the API server's certificate: %w", err)
	}
	client, err := selfSigned(key, &x509.Certificate{Subject: pkix.Name{CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}}})
	if err != nil {
		return nil, fmt.Errorf("make the API server's certificate for kubelets: %w", err)
	}
	for name, content := range map[string][]byte{
		c.path("pki", "apiserver.crt"): serving, c.path("pki", "apiserver.key"): private, c.KubeletClientCAFile(): client,
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return nil, err
		}
	}
	return serving, nil
}

// selfSigned is a certificate of the key, in PEM, that is its own authority and valid for a year.
func selfSigned(key crypto.Signer, template *x509.Certificate) ([]byte, error) {
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = template.NotBefore.AddDate(1, 0, 0)
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign
	template.BasicConstraintsValid, template.IsCA = true, true
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}), nil
}

// alignServicePort gives the Service "kubernetes" the API server's own port where its
// ClusterIP is the API server's address. The API server sets 443 once, at its start.
func (c *Cluster) alignServicePort(ctx context.Context, client kubernetes.Interface) error {
	if c.serviceIP.String() != c.options.BindAddress {
		return nil
	}
	services := client.CoreV1().Services(metav1.NamespaceDefault)
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		service, err := services.Get(ctx, "kubernetes", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil // the API server makes it a moment after it is ready
		}
		if err != nil {
			return false, err
		}
		service.Spec.Ports = []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: int32(c.Port())}} //nolint:gosec // a port
		_, err = services.Update(ctx, service, metav1.UpdateOptions{})
		return err == nil, err
	})
}
