package cluster

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
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

	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

// ServiceAccountIssuer is the iss claim of service-account tokens.
const ServiceAccountIssuer = "https://kubernetes.default.svc." + ClusterDomain

func (c *Cluster) startComponents(ctx context.Context) error {
	began := time.Now()
	if err := c.startControlPlane(); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return err
	}
	if err := c.alignServicePort(ctx, client); err != nil {
		return err
	}
	ports, err := FreePorts("127.0.0.1", 2)
	if err != nil {
		return err
	}
	var manager, scheduler *process.Process
	if !c.options.WithoutControllerManager {
		if manager, err = c.startControllerManager(ports[0]); err != nil {
			return err
		}
	}
	if !c.options.WithoutScheduler {
		if scheduler, err = c.startScheduler(ports[1]); err != nil {
			return err
		}
	}
	if manager != nil {
		if err := c.await(ctx, "kube-controller-manager", manager, func() error {
			if err := healthz(ports[0]); err != nil {
				return err
			}
			_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	if scheduler != nil {
		if err := c.await(ctx, "kube-scheduler", scheduler, func() error { return healthz(ports[1]) }); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintf(c.options.Log, "cluster: control plane ready at %s in %.1f s\n", c.URL(), time.Since(began).Seconds())
	return nil
}

func healthz(port int) error {
	insecure := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a health probe of our own child, whose certificate it made itself
	}}
	response, err := insecure.Get("https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) + "/healthz")
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/healthz says %s", response.Status)
	}
	return nil
}

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
		program, err := c.tool(name)
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
	c.plane.Etcd.Configure().Set("log-level", "warn")
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
		"service-account-issuer": ServiceAccountIssuer, "service-account-key-file": key, "service-account-signing-key-file": key,
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
// and as a client of kubelets.
func (c *Cluster) writeCertificates() ([]byte, error) {
	const service = "kubernetes.default.svc"
	serving, key, err := cert.GenerateSelfSignedCertKey("kubernetes", []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(c.options.BindAddress), c.serviceIP},
		[]string{"localhost", "kubernetes.default", service, service + "." + ClusterDomain})
	if err != nil {
		return nil, fmt.Errorf("make the API server's certificate: %w", err)
	}
	private, err := keyutil.ParsePrivateKeyPEM(key)
	if err != nil {
		return nil, err
	}
	client, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}}, private.(crypto.Signer))
	if err != nil {
		return nil, fmt.Errorf("make the API server's certificate for kubelets: %w", err)
	}
	for name, content := range map[string][]byte{
		c.path("pki", "apiserver.crt"): serving, c.path("pki", "apiserver.key"): key,
		c.KubeletClientCAFile(): pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: client.Raw}),
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return nil, err
		}
	}
	return serving, nil
}

func (c *Cluster) startControllerManager(port int) (*process.Process, error) {
	kubeconfig, err := c.KubeconfigForUser("kube-controller-manager", "system:kube-controller-manager")
	if err != nil {
		return nil, err
	}
	controllers := "*"
	if !c.options.NodeLifecycle {
		controllers += ",-node-lifecycle-controller,-ttl-controller" // what writes to nodes by itself
	}
	return c.StartComponent("kube-controller-manager", append([]string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port), "--cert-dir=" + c.path("kube-controller-manager"),
		"--leader-elect=false", "--use-service-account-credentials=true", "--controllers=" + controllers,
		"--root-ca-file=" + c.path("pki", "apiserver.crt"), "--service-account-private-key-file=" + c.path("pki", "apiserver.key"),
		"--kube-api-qps=200", "--kube-api-burst=400",
	}, c.options.ControllerManagerArgs...)...)
}

func (c *Cluster) startScheduler(port int) (*process.Process, error) {
	kubeconfig, err := c.KubeconfigForUser("kube-scheduler", "system:kube-scheduler")
	if err != nil {
		return nil, err
	}
	return c.StartComponent("kube-scheduler", append([]string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port), "--cert-dir=" + c.path("kube-scheduler"),
		"--leader-elect=false",
	}, c.options.SchedulerArgs...)...)
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

// tool is the path of a program of the tools folder.
func (c *Cluster) tool(name string) (string, error) {
	path := filepath.Join(c.options.Bin, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is not built: run \"make tools\" (%w)", name, err)
	}
	return path, nil
}

// StartComponent starts a program of the tools folder; it logs to log/<name>.log in Dir and
// ends with the cluster. Starting a name again is a restart of one that has ended.
func (c *Cluster) StartComponent(name string, args ...string) (*process.Process, error) {
	program, err := c.tool(name)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(c.LogFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	_, _ = fmt.Fprintf(c.options.Log, "cluster: %s %s\n", name, strings.Join(args, " "))
	p, err := c.group.Start(process.Spec{Path: program, Args: args, Dir: c.dir, Stdout: log, Stderr: log})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// LogFile is the path of a component's log.
func (c *Cluster) LogFile(component string) string { return c.path("log", component+".log") }

// await polls until the component is ready; it gives up early when the component has ended.
func (c *Cluster) await(ctx context.Context, name string, p *process.Process, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (last answer: %w); its log ends:\n%s", name, context.Cause(ctx), err, tail(c.LogFile(name)))
		case <-p.Done():
			return fmt.Errorf("%s ended with exit code %d; its log ends:\n%s", name, p.ExitCode(), tail(c.LogFile(name)))
		case <-tick.C:
		}
	}
}

// tail is the end of a log, for an error.
func tail(path string) string {
	const limit = 3000
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err == nil && info.Size() > limit {
		_, _ = file.Seek(-limit, io.SeekEnd)
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(content))
}

// The range that FreePorts picks from lies below the ports that systems give to outgoing
// connections (32768 and up on Linux, 49152 and up by RFC 6335): such a connection could take
// a port between its choice and its use.
const (
	firstPort = 20000
	lastPort  = 32000
)

// FreePorts returns so many different TCP ports that nothing listens on, neither on the
// address nor on any other of this machine.
func FreePorts(address string, n int) ([]int, error) {
	var ports []int
	var last error
	for range 100 * n {
		port := firstPort + rand.IntN(lastPort-firstPort) //nolint:gosec // no secret
		if slices.Contains(ports, port) {
			continue
		}
		if last = bindable(address, port); last != nil {
			continue
		}
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("find a free port on %s: %w", address, last)
}

// bindable tries a port on the address and on all addresses.
func bindable(address string, port int) error {
	for _, host := range []string{address, ""} {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return err
		}
		_ = listener.Close()
	}
	return nil
}
