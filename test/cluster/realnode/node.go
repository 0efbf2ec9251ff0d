//go:build linux

package realnode

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

//go:embed templates
var templates embed.FS

// NodeOptions is what differs between nodes.
type NodeOptions struct {
	// Taints the kubelet registers with (registerWithTaints). Default none.
	Taints []corev1.Taint
	// Labels the kubelet registers with (--node-labels). Default none.
	Labels map[string]string
	// Images are archives to import into the node's containerd, on top of the cluster's. Default none.
	Images []string
	// WithoutImages are image names that are left out of the cluster's on this node.
	WithoutImages []string
	// Registries are registries that the node can pull from (UseRegistry): by host, the address. Default none.
	Registries map[string]string
	// MaxPods is how many pods the kubelet admits. Default 60.
	MaxPods int
}

// Node is one real node. Its methods may be called from one goroutine at a time.
type Node struct {
	// Name in the cluster, and in every name that the node has on the machine.
	Name string
	// Address of the node on the lab's network.
	Address string
	// PodSubnet of the node.
	PodSubnet string
	// Dir holds the node's configuration, disks and logs.
	Dir string

	cluster *Cluster
	// kubeconfig of the kubelet: user system:node:<name>.
	kubeconfig string
	options    NodeOptions
	holder     *process.Process
	pid        int // of the node's first process, as the machine sees it
}

// boot makes the node's namespaces and first process.
func (n *Node) boot(ctx context.Context) error {
	for _, dir := range []string{"kubelet", "log", "cni", "cni-cache", "containerd", "volume-plugins"} {
		if err := os.MkdirAll(filepath.Join(n.Dir, dir), 0o755); err != nil {
			return err
		}
	}
	files := map[string]string{
		"boot_id":     uuid.NewString() + "\n",
		"resolv.conf": "nameserver " + gateway + "\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(n.Dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{
		"containerd.toml": "containerd.toml", "kubelet.yaml": "kubelet.yaml", "cni.conflist": "cni/10-lab.conflist", "node.sh": "node.sh",
	} {
		if err := n.render(name, target); err != nil {
			return err
		}
	}
	for host, address := range n.options.Registries {
		if err := n.UseRegistry(host, address); err != nil {
			return err
		}
	}
	if err := makeCgroup(n.cgroup()); err != nil {
		return err
	}
	if err := attach(ctx, n.Name, n.Address); err != nil {
		return err
	}
	// Until the CNI plugin has made the pods' bridge, with a better route, they are unreachable.
	if _, err := run(ctx, "ip", "-n", prefix+n.Name, "route", "add", "unreachable", n.PodSubnet, "metric", "4096"); err != nil {
		return err
	}
	alive := filepath.Join(n.Dir, "alive")
	_ = os.Remove(alive)
	log, err := os.Create(filepath.Join(n.Dir, "log", "node.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	// The process group that the starter's supervisor kills holds the first process too, so a
	// node does not outlive its starter, however that ends.
	n.holder, err = n.cluster.ControlPlane.Processes().Start(process.Spec{
		Path: "/usr/bin/nsenter",
		Args: []string{"--net=" + netnsPath + prefix + n.Name, "unshare", "--mount", "--propagation", "private",
			"--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "bash", filepath.Join(n.Dir, "node.sh")},
		Stdout: log, Stderr: log,
	})
	if err != nil {
		return err
	}
	if err := poll(ctx, 10*time.Second, func() error { _, err := os.Stat(alive); return err }); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("node %s: its first process did not come up: %s", n.Name, text)
	}
	// nsenter becomes unshare, whose only child is the node's first process.
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", n.holder.Pid(), n.holder.Pid()))
	if err != nil {
		return err
	}
	n.pid, err = strconv.Atoi(strings.TrimSpace(string(children)))
	return err
}

func (n *Node) cgroup() string { return cgroupParent + "/" + n.Name }

func (n *Node) render(name, target string) error {
	tmpl, err := template.ParseFS(templates, "templates/"+name)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	err = tmpl.Execute(&out, map[string]any{
		"Name": n.Name, "Dir": n.Dir, "Address": n.Address, "PodSubnet": n.PodSubnet, "DNSAddress": DNSAddress,
		"CgroupRoot": n.cgroup(), "Taints": n.options.Taints, "MaxPods": cmp.Or(n.options.MaxPods, 60), "PauseImage": PauseImage,
		"ClientCAFile": n.cluster.ControlPlane.KubeletClientCAFile(),
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(n.Dir, target), out.Bytes(), 0o644)
}

// Command prepares a program that runs inside the node: in its network, mounts and processes,
// but with the machine's files.
func (n *Node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	full := append([]string{"--target", strconv.Itoa(n.pid), "--mount", "--net", "--pid", "--uts", "--", name}, args...)
	return exec.CommandContext(ctx, "nsenter", full...)
}

// Run executes a program inside the node and returns its standard output.
func (n *Node) Run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := n.Command(ctx, name, args...)
	return run(ctx, cmd.Args[0], cmd.Args[1:]...)
}

// start launches one of the tools as a daemon inside the node.
func (n *Node) start(name string, args ...string) error {
	return n.launch(name, filepath.Join(n.cluster.bin, name), args...)
}

// launch runs a program as a daemon inside the node; its process ID (as the node counts) is in
// /run/<name>.pid there, its output in the node's log folder.
func (n *Node) launch(name, path string, args ...string) error {
	log, err := os.OpenFile(filepath.Join(n.Dir, "log", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := n.Command(context.Background(), "sh", append([]string{"-c", `echo $$ >"/run/$0.pid"; exec "$@"`, name, path}, args...)...)
	cmd.Env = []string{"PATH=" + n.cluster.bin + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }()
	return nil
}

// signal sends a signal to a daemon that start launched.
func (n *Node) signal(ctx context.Context, name, signal string) error {
	_, err := n.Run(ctx, "sh", "-c", `kill -s `+signal+` "$(cat /run/`+name+`.pid)"`)
	return err
}

// StopKubelet ends the kubelet and leaves containers, containerd and kube-proxy running.
func (n *Node) StopKubelet(ctx context.Context) error { return n.signal(ctx, "kubelet", "KILL") }

// StopKubeProxy ends kube-proxy; the rules that it programmed stay until something flushes them.
func (n *Node) StopKubeProxy(ctx context.Context) error { return n.signal(ctx, "kube-proxy", "KILL") }

// StartKubeProxy launches kube-proxy, which programs the node's service rules anew.
func (n *Node) StartKubeProxy() error {
	return n.start("kube-proxy",
		"--kubeconfig="+n.cluster.proxyKubeconfig, "--hostname-override="+n.Name,
		"--proxy-mode=iptables", "--cluster-cidr="+PodCIDR, "--iptables-min-sync-period=200ms",
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
		"--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249", "--nodeport-addresses=127.0.0.0/8")
}

// StartKubelet launches the kubelet.
func (n *Node) StartKubelet() error {
	args := []string{
		"--config=" + filepath.Join(n.Dir, "kubelet.yaml"), "--kubeconfig=" + n.kubeconfig,
		"--hostname-override=" + n.Name, "--node-ip=" + n.Address, "--root-dir=/var/lib/kubelet",
	}
	if len(n.options.Labels) > 0 {
		var pairs []string
		for key, value := range n.options.Labels {
			pairs = append(pairs, key+"="+value)
		}
		args = append(args, "--node-labels="+strings.Join(pairs, ","))
	}
	return n.start("kubelet", args...)
}

// daemons launches everything on a node that has booted: containerd first, the images that the
// node is to have, kube-proxy and the kubelet.
func (n *Node) daemons(ctx context.Context) error {
	if err := n.start("containerd", "--config", filepath.Join(n.Dir, "containerd.toml")); err != nil {
		return err
	}
	err := poll(ctx, 20*time.Second, func() error {
		_, err := n.ctr(ctx, "version")
		return err
	})
	if err != nil {
		return fmt.Errorf("node %s: containerd did not answer: %w", n.Name, err)
	}
	for _, archive := range append(append([]string{}, n.cluster.images...), n.options.Images...) {
		if err := n.ImportImage(ctx, archive); err != nil {
			return err
		}
	}
	for _, image := range n.options.WithoutImages {
		if _, err := n.ctr(ctx, "images", "rm", "--sync", image); err != nil {
			return err
		}
	}
	if err := n.StartKubeProxy(); err != nil {
		return err
	}
	return n.StartKubelet()
}

func (n *Node) ctr(ctx context.Context, args ...string) (string, error) {
	cmd := n.Containerd(ctx, args...)
	return run(ctx, cmd.Args[0], cmd.Args[1:]...)
}

// ImportImage loads an image archive into the node's containerd.
func (n *Node) ImportImage(ctx context.Context, archive string) error {
	_, err := n.ctr(ctx, "images", "import", "--local", archive)
	return err
}

// UseRegistry lets the node pull images of a registry's host, with a port where their names have one, from host:port over plain
// HTTP (containerd's hosts.md).
func (n *Node) UseRegistry(host, address string) error {
	dir := filepath.Join(n.Dir, "registries", host)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	url := strconv.Quote("http://" + address)
	return os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte("server = "+url+"\n[host."+url+"]\ncapabilities = [\"pull\", \"resolve\"]\n"), 0o644)
}

// Containerd prepares a command of containerd's client (ctr) for the node's pods and images.
func (n *Node) Containerd(ctx context.Context, args ...string) *exec.Cmd {
	return n.Command(ctx, filepath.Join(n.cluster.bin, "ctr"), append([]string{"--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io"}, args...)...)
}

// RemoveImage forgets an image, as a node that never pulled it.
func (n *Node) RemoveImage(ctx context.Context, image string) error {
	_, err := n.ctr(ctx, "images", "rm", "--sync", image)
	return err
}

// Kill ends everything on the node at once, as a power cut does, and takes it off the
// network. The Node object stays: nobody told the API server.
func (n *Node) Kill(ctx context.Context) error {
	var errs []error
	if n.pid != 0 {
		// The death of a PID namespace's first process is the death of all in it.
		if err := syscall.Kill(n.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
		n.holder.Kill()
		<-n.holder.Done()
		n.pid = 0
	}
	errs = append(errs, detach(ctx, n.Name), removeCgroup(n.cgroup()))
	return errors.Join(errs...)
}

// Reboot kills the node and boots it again with a new boot ID: containers, rules and
// everything under /run are gone, disks stay.
func (n *Node) Reboot(ctx context.Context) error {
	if err := n.Kill(ctx); err != nil {
		return err
	}
	return n.up(ctx)
}

func (n *Node) up(ctx context.Context) error {
	if err := n.boot(ctx); err != nil {
		return err
	}
	if err := n.cluster.route(ctx); err != nil {
		return err
	}
	return n.daemons(ctx)
}

// poll calls try until it succeeds, the time is over, or ctx ends; it returns the last error.
func poll(ctx context.Context, limit time.Duration, try func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
