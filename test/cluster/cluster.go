// Package cluster runs a Kubernetes control plane of real components on this machine, for tests and the demo. It runs
// etcd, kube-apiserver and, unless they are switched off, kube-controller-manager and kube-scheduler. They use free
// ports and need no root. Nothing of the cluster outlives the process that started it.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

// toolsFolder is where test/tools/build.sh puts what it builds, below the module's root.
const toolsFolder = ".cache/tools/bin"

// ClusterDomain is the DNS domain of every test cluster.
const ClusterDomain = "cluster.local"

// unroutable is advertised as the API server's endpoint address where it listens on
// loopback: Kubernetes refuses loopback addresses in Endpoints and EndpointSlices. It is of
// TEST-NET-1 (RFC 5737), so nothing answers there.
const unroutable = "192.0.2.1"

// Options of a cluster; the zero value is a complete control plane on loopback.
type Options struct {
	// Bin is the folder of the built components. Default: .cache/tools/bin of the module
	// that the working directory is in.
	Bin string
	// Dir holds the cluster's files. Default: a temporary folder, which goes with the
	// cluster. A given folder must exist and is left alone by Stop.
	Dir string
	// BindAddress is the API server's address. Default 127.0.0.1.
	BindAddress string
	// ServiceCIDR is the range of Service addresses. Default 127.0.0.0/20 where BindAddress is 127.0.0.1, else
	// 10.96.0.0/16. With the former, the Service "kubernetes" has the range's first address, 127.0.0.1, as its ClusterIP.
	// Its port is set to the API server's. So local processes reach it, and every other loopback ClusterIP, without
	// kube-proxy.
	ServiceCIDR string
	// WithoutControllerManager leaves kube-controller-manager out: no default service
	// accounts, no garbage collection.
	WithoutControllerManager bool
	// WithoutScheduler leaves kube-scheduler out.
	WithoutScheduler bool
	// NodeLifecycle switches the node-lifecycle controller on, which marks nodes as
	// unreachable that do not renew their lease. Default off.
	NodeLifecycle bool
	// AllControllers has kube-controller-manager run those too that only pods on real kubelets have use for: of volumes,
	// for example.
	// Default off.
	AllControllers bool
	// EtcdQuota is how large etcd's database may become, in bytes. Default 0: etcd's own, 2 GiB.
	EtcdQuota int64
	// APIServerArgs and ControllerManagerArgs are flags of these components, over those that are set here.
	APIServerArgs, ControllerManagerArgs []string
}

// Cluster is a running control plane.
type Cluster struct {
	options   Options
	dir       string
	serviceIP net.IP
	plane     envtest.ControlPlane // etcd and kube-apiserver
	admin     *rest.Config
	group     *process.Group
}

// startAttempts bounds how often a start is repeated because another process took one of the
// chosen ports before the component listened on it.
const startAttempts = 3

// Start starts a control plane and returns once it serves: the API server is ready, the
// controller manager has made the namespace default's service account, and the scheduler is
// healthy. An error says which component failed, with the end of its log.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	var err error
	for range startAttempts {
		var c *Cluster
		if c, err = start(ctx, o); err == nil {
			return c, nil
		}
		if !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	return nil, err
}

func start(ctx context.Context, o Options) (_ *Cluster, err error) {
	c := &Cluster{options: o, dir: o.Dir}
	prefix, _ := netip.ParsePrefix(o.ServiceCIDR)
	c.serviceIP = prefix.Masked().Addr().Next().AsSlice()

	var owned []string
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "kube-node-ready-cluster-"); err != nil {
			return nil, err
		}
		owned = []string{c.dir}
	}
	if c.group, err = process.NewGroup(owned...); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	for _, folder := range []string{"log", "pki", "bin", "etcd", "kubeconfig"} {
		if err = os.MkdirAll(c.path(folder), 0o700); err != nil {
			return nil, err
		}
	}
	if err = c.startComponents(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// complete fills in the defaults.
func (o *Options) complete() error {
	if o.Bin == "" {
		root, err := ModuleRoot()
		if err != nil {
			return err
		}
		o.Bin = filepath.Join(root, toolsFolder)
	}
	if o.BindAddress == "" {
		o.BindAddress = "127.0.0.1"
	}
	bind, err := netip.ParseAddr(o.BindAddress)
	if err != nil {
		return fmt.Errorf("options: BindAddress: %w", err)
	}
	if o.ServiceCIDR == "" {
		o.ServiceCIDR = "10.96.0.0/16"
		if bind == netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
			o.ServiceCIDR = "127.0.0.0/20"
		}
	}
	if _, err := netip.ParsePrefix(o.ServiceCIDR); err != nil {
		return fmt.Errorf("options: ServiceCIDR: %w", err)
	}
	return nil
}

// Stop ends the cluster: no process and, unless Options.Dir was given, no file is left. It
// may be called more than once.
func (c *Cluster) Stop() {
	if c != nil && c.group != nil {
		c.group.Stop()
		_ = c.plane.Stop() // reaps what the group has killed
	}
}

// URL of the API server.
func (c *Cluster) URL() string {
	return "https://" + c.plane.APIServer.HostPort()
}

// Host and Port of the API server, as a pod's KUBERNETES_SERVICE_HOST and
// KUBERNETES_SERVICE_PORT would have them if it could not reach ClusterIPs.
func (c *Cluster) Host() string { return c.options.BindAddress }

// Port of the API server.
func (c *Cluster) Port() int {
	port, _ := strconv.Atoi(c.plane.APIServer.Port) // it was made by Itoa
	return port
}

// Dir is the folder of the cluster's files; component logs are in its subfolder "log".
func (c *Cluster) Dir() string { return c.dir }

// Bin is the folder of the built components.
func (c *Cluster) Bin() string { return c.options.Bin }

// ServiceIP is the Nth address of the service range: 1 is that of the Service "kubernetes", 10
// is by custom the cluster's DNS Service. It must not exceed 255.
func (c *Cluster) ServiceIP(n byte) string {
	prefix, _ := netip.ParsePrefix(c.options.ServiceCIDR)
	address := prefix.Masked().Addr()
	for range n {
		address = address.Next()
	}
	return address.String()
}

// Processes is the group that the components run in. What is started through it, a
// controller under test for example, ends with the cluster at the latest.
func (c *Cluster) Processes() *process.Group { return c.group }

// path is a path inside the cluster's folder.
func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}

// ModuleRoot is the nearest folder, from the working directory upwards, that holds this
// project's go.mod.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(content), "module github.com/kube-node-ready/kube-node-ready\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("the working directory is not inside the kube-node-ready module: set Options.Bin")
		}
	}
}

// readyTimeout bounds each component's start. It is long because a first start reads large
// binaries from a cold disk.
const readyTimeout = 90 * time.Second
