package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

// ServiceAccountIssuer is the iss claim of service-account tokens.
const ServiceAccountIssuer = "https://kubernetes.default.svc." + ClusterDomain

func (c *Cluster) startComponents(ctx context.Context) error {
	ports, err := FreePorts(c.options.BindAddress, 5)
	if err != nil {
		return err
	}
	c.port = ports[0]
	began := time.Now()
	if err := c.loadAdmin(); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return err
	}

	etcd := "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[1]))
	peer := "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[2]))
	if err := c.StartComponent("etcd", c.etcdArgs(etcd, peer)...); err != nil {
		return err
	}
	if err := c.StartComponent("kube-apiserver", c.apiServerArgs(etcd)...); err != nil {
		return err
	}
	if err := c.await(ctx, "kube-apiserver", func() error {
		body, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Timeout(5 * time.Second).DoRaw(ctx)
		if err != nil {
			return fmt.Errorf("%w: %s", err, body)
		}
		_, err = client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
		return err
	}); err != nil {
		return err
	}
	if err := c.alignServicePort(ctx, client); err != nil {
		return err
	}

	insecure := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a health probe of our own child, whose certificate it made itself
	}}
	healthz := func(port int) error {
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
	if !c.options.WithoutControllerManager {
		if err := c.startControllerManager(ports[3]); err != nil {
			return err
		}
	}
	if !c.options.WithoutScheduler {
		if err := c.startScheduler(ports[4]); err != nil {
			return err
		}
	}
	if !c.options.WithoutControllerManager {
		if err := c.await(ctx, "kube-controller-manager", func() error {
			if err := healthz(ports[3]); err != nil {
				return err
			}
			_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	if !c.options.WithoutScheduler {
		if err := c.await(ctx, "kube-scheduler", func() error { return healthz(ports[4]) }); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintf(c.options.Log, "cluster: control plane ready at %s in %.1f s\n", c.URL(), time.Since(began).Seconds())
	return nil
}

func (c *Cluster) etcdArgs(client, peer string) []string {
	return []string{
		"--data-dir=" + c.path("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
	}
}

func (c *Cluster) apiServerArgs(etcd string) []string {
	advertise := c.options.BindAddress
	if netip.MustParseAddr(advertise).IsLoopback() {
		advertise = unroutable
	}
	cert, key := c.KubeletClientFiles()
	args := append([]string{
		"--etcd-servers=" + etcd,
		"--bind-address=" + c.options.BindAddress, "--secure-port=" + strconv.Itoa(c.port), "--advertise-address=" + advertise,
		"--service-cluster-ip-range=" + c.options.ServiceCIDR,
		"--client-ca-file=" + c.CAFile(),
		"--tls-cert-file=" + c.path("pki", "apiserver.crt"), "--tls-private-key-file=" + c.path("pki", "apiserver.key"),
		"--service-account-issuer=" + ServiceAccountIssuer,
		"--service-account-key-file=" + c.ServiceAccountKeyFile(), "--service-account-signing-key-file=" + c.ServiceAccountKeyFile(),
		"--kubelet-client-certificate=" + cert, "--kubelet-client-key=" + key,
		"--kubelet-preferred-address-types=InternalIP", // node names are in no DNS here
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
	}, c.options.APIServerArgs...)
	if !c.options.NodeLifecycle { // it takes back the taint that the plugin gives to every new node
		args = append(args, "--disable-admission-plugins=TaintNodesByCondition")
	}
	return args
}

func (c *Cluster) startControllerManager(port int) error {
	kubeconfig, err := c.KubeconfigForUser("kube-controller-manager", "system:kube-controller-manager")
	if err != nil {
		return err
	}
	controllers := "*"
	if !c.options.NodeLifecycle {
		controllers += ",-node-lifecycle-controller,-ttl-controller" // what writes to nodes by itself
	}
	return c.StartComponent("kube-controller-manager", append([]string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port), "--cert-dir=" + c.path("kube-controller-manager"),
		"--leader-elect=false", "--use-service-account-credentials=true", "--controllers=" + controllers,
		"--root-ca-file=" + c.CAFile(), "--service-account-private-key-file=" + c.ServiceAccountKeyFile(),
		"--cluster-signing-cert-file=" + c.CAFile(), "--cluster-signing-key-file=" + c.path("pki", "ca.key"),
		"--kube-api-qps=200", "--kube-api-burst=400",
	}, c.options.ControllerManagerArgs...)...)
}

func (c *Cluster) startScheduler(port int) error {
	kubeconfig, err := c.KubeconfigForUser("kube-scheduler", "system:kube-scheduler")
	if err != nil {
		return err
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
	service, err := client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return err
	}
	service.Spec.Ports = []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: int32(c.port)}} //nolint:gosec // a port
	_, err = client.CoreV1().Services(metav1.NamespaceDefault).Update(ctx, service, metav1.UpdateOptions{})
	return err
}

// StartComponent starts a program of the tools folder; it logs to log/<name>.log in Dir and
// ends with the cluster. Starting a name again is a restart of one that has ended.
func (c *Cluster) StartComponent(name string, args ...string) error {
	program := filepath.Join(c.options.Bin, name)
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("%s is not built: run \"make tools\" (%w)", name, err)
	}
	log, err := os.OpenFile(c.LogFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	_, _ = fmt.Fprintf(c.options.Log, "cluster: %s %s\n", name, strings.Join(args, " "))
	p, err := c.group.Start(process.Spec{Path: program, Args: args, Dir: c.dir, Stdout: log, Stderr: log})
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	c.processes[name] = p
	return nil
}

// LogFile is the path of a component's log.
func (c *Cluster) LogFile(component string) string { return c.path("log", component+".log") }

// await polls until the component is ready; it gives up early when etcd or the component has ended.
func (c *Cluster) await(ctx context.Context, name string, ready func() error) error {
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
		case <-c.processes["etcd"].Done():
			return fmt.Errorf("etcd ended with exit code %d; its log ends:\n%s", c.processes["etcd"].ExitCode(), tail(c.LogFile("etcd")))
		case <-c.processes[name].Done():
			return fmt.Errorf("%s ended with exit code %d; its log ends:\n%s", name, c.processes[name].ExitCode(), tail(c.LogFile(name)))
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
