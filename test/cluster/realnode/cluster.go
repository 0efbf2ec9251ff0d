//go:build linux

package realnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

// Options of a cluster of real nodes.
type Options struct {
	// Dir is the state folder, below which every file of the cluster goes. It is emptied at the
	// start and removed by Stop. Required, and absolute.
	Dir string
	// Images are image archives that every node gets, on top of the sandbox image's. They are
	// imported before the kubelet starts.
	Images []string
	// ControlPlane are the control plane's further options; addresses and the folder are set here.
	ControlPlane cluster.Options
	// Log is told what happens, one line each. Default: nothing is said.
	Log io.Writer
}

// Cluster is a control plane and its nodes.
type Cluster struct {
	// ControlPlane is the cluster without nodes that this one stands on.
	ControlPlane *cluster.Cluster
	// Client has an administrator's rights.
	Client kubernetes.Interface

	options         Options
	dir, bin        string
	images          []string
	proxyKubeconfig string
	lock            *net.UnixListener

	mu    sync.Mutex // guards nodes and next
	nodes map[string]*Node
	next  int
}

// Start brings up the control plane and the network between the machine and the nodes to come.
// What an earlier run left behind is swept away first.
func Start(ctx context.Context, o Options) (_ *Cluster, err error) {
	if err := require(); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(o.Dir) {
		return nil, fmt.Errorf("options: Dir must be an absolute path, not %q", o.Dir)
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	listener, err := lock()
	if err != nil {
		return nil, err
	}
	if err := Sweep(ctx, o.Dir); err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("remove what an earlier cluster left behind: %w", err)
	}
	c := &Cluster{options: o, dir: o.Dir, nodes: map[string]*Node{}, images: o.Images, lock: listener}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
		}
	}()
	if err := os.MkdirAll(filepath.Join(c.dir, "control-plane"), 0o700); err != nil {
		return nil, err
	}
	if err := c.borrow(); err != nil {
		return nil, err
	}
	if err := createFabric(ctx); err != nil {
		return nil, err
	}
	control := o.ControlPlane
	control.Dir, control.BindAddress, control.ServiceCIDR = filepath.Join(c.dir, "control-plane"), HostAddress, ServiceCIDR
	control.NodeLifecycle, control.AllControllers = true, true
	if c.ControlPlane, err = cluster.Start(ctx, control); err != nil {
		return nil, err
	}
	c.bin = c.ControlPlane.Bin()
	if c.Client, err = kubernetes.NewForConfig(c.ControlPlane.Config()); err != nil {
		return nil, err
	}
	if c.proxyKubeconfig, err = c.ControlPlane.KubeconfigForUser("kube-proxy", "system:kube-proxy"); err != nil {
		return nil, err
	}
	_, _ = fmt.Fprintf(o.Log, "cluster: control plane at %s\n", c.ControlPlane.URL())
	return c, nil
}

// AddNode boots a new node and returns once its daemons are started; its kubelet registers it
// a little later. Nodes may be added from several goroutines.
func (c *Cluster) AddNode(ctx context.Context, name string, o NodeOptions) (*Node, error) {
	if len(name) > 10 {
		return nil, fmt.Errorf("node %s: its name has more than 10 characters, which a link's name cannot hold", name)
	}
	c.mu.Lock()
	if _, ok := c.nodes[name]; ok {
		c.mu.Unlock()
		return nil, fmt.Errorf("node %s exists", name)
	}
	c.next++
	n := &Node{
		Name: name, Address: nodeAddress(c.next), PodSubnet: podSubnet(c.next), Dir: filepath.Join(c.dir, "nodes", name),
		cluster: c, options: o,
	}
	c.nodes[name] = n
	c.mu.Unlock()
	var err error
	n.kubeconfig, err = c.ControlPlane.KubeconfigForUser("kubelet-"+name, "system:node:"+name, "system:nodes")
	if err != nil {
		return nil, err
	}
	if err := n.up(ctx); err != nil {
		return nil, err
	}
	_, _ = fmt.Fprintf(c.options.Log, "cluster: node %s booted, address %s, pods %s\n", name, n.Address, n.PodSubnet)
	return n, nil
}

// RemoveNode kills a node's machine and forgets it; its Node object is the caller's to delete.
func (c *Cluster) RemoveNode(ctx context.Context, n *Node) error {
	err := n.Kill(ctx)
	c.mu.Lock()
	delete(c.nodes, n.Name)
	c.mu.Unlock()
	return errors.Join(err, c.route(ctx))
}

// built is the path of one of this folder's own programs, which build.sh builds.
func (c *Cluster) built(name string) string {
	return filepath.Join(filepath.Dir(c.bin), "..", "realnode", name)
}

// Dir is the state folder; nodes/<name>/log in it holds a node's logs.
func (c *Cluster) Dir() string { return c.dir }

// Nodes are the nodes that exist, by name.
func (c *Cluster) Nodes() map[string]*Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes := make(map[string]*Node, len(c.nodes))
	for name, n := range c.nodes {
		nodes[name] = n
	}
	return nodes
}

// route tells the machine and every running node where each node's pods are.
func (c *Cluster) route(ctx context.Context) error {
	nodes := c.Nodes()
	for _, to := range nodes {
		if to.pid == 0 {
			continue
		}
		if _, err := run(ctx, "ip", "route", "replace", to.PodSubnet, "via", to.Address, "dev", hostLink); err != nil {
			return err
		}
		for _, from := range nodes {
			if from == to || from.pid == 0 {
				continue
			}
			if _, err := run(ctx, "ip", "-n", prefix+from.Name, "route", "replace", to.PodSubnet, "via", to.Address, "dev", "eth0"); err != nil {
				return err
			}
		}
	}
	return nil
}

// AwaitNode waits until the node's object exists and its kubelet says Ready.
func (c *Cluster) AwaitNode(ctx context.Context, name string, limit time.Duration) error {
	return poll(ctx, limit, func() error {
		node, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("node %s is not Ready: %+v", name, node.Status.Conditions)
	})
}

// Stop ends the cluster and removes every trace of it.
func (c *Cluster) Stop(ctx context.Context) error {
	var errs []error
	for _, n := range c.Nodes() {
		if n.pid != 0 {
			errs = append(errs, n.Kill(ctx))
		}
	}
	c.ControlPlane.Stop()
	return errors.Join(append(errs, Sweep(ctx, c.dir), c.lock.Close())...)
}

// require says what the machine lacks.
func require() error {
	if os.Geteuid() != 0 {
		return errors.New("a cluster of real nodes makes network namespaces and cgroups: run it as root")
	}
	var missing []error
	for _, program := range []string{"ip", "nsenter", "unshare", "iptables", "conntrack", "runc", "bash", "sysctl"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, err)
		}
	}
	if _, err := os.Stat("/usr/lib/cni/bridge"); err != nil {
		missing = append(missing, err)
	}
	if len(missing) > 0 {
		return fmt.Errorf("install runc, containernetworking-plugins, iptables, conntrack and iproute2 (test/cluster/realnode/packages.sh does): %w", errors.Join(missing...))
	}
	return nil
}
