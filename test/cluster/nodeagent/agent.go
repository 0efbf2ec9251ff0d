// Package nodeagent plays nodes against a real API server: it registers them, runs the
// containers of the pods bound to them as local processes, and reports what became of them
// in the words of the kubelet. It needs neither root nor a container runtime, and one agent
// serves a thousand nodes.
//
// What is real: the pod's lifecycle (admission, init containers, deadline, deletion with
// grace, restart policy, back-off of image pulls), exit codes and termination messages,
// bound service-account tokens, DNS through each node's own resolver. What is not: there are
// no namespaces, so containers share the host's network and files, and no limits, users or
// capabilities. A pod that asks for what the agent cannot give (a volume other than its
// service account's, a probe, a sidecar) is refused with status reason Unsupported rather
// than run differently. A container is told by environment where its files are: see
// EnvServiceAccountDir, EnvResolvConf and EnvTerminationLog.
package nodeagent

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

// Where a container finds what a container runtime would have mounted.
const (
	// EnvServiceAccountDir holds token, ca.crt and namespace; in a container it would be
	// /var/run/secrets/kubernetes.io/serviceaccount. It names a folder that does not exist
	// where the pod does not mount its token.
	EnvServiceAccountDir = "KUBE_NODE_READY_SERVICEACCOUNT_DIR"
	// EnvResolvConf stands for /etc/resolv.conf. Its nameserver carries a port: "[127.0.0.1]:5353".
	EnvResolvConf = "KUBE_NODE_READY_RESOLV_CONF"
	// EnvTerminationLog stands for the container's terminationMessagePath.
	EnvTerminationLog = "KUBE_NODE_READY_TERMINATION_LOG"
)

// Image is what an image name stands for.
type Image struct {
	// Entrypoint runs where a container has no command.
	Entrypoint []string
	// Files maps a path in the image, as a command names it, to the program on this machine.
	Files map[string]string
}

// Binary is an image that holds one static program at its root, and runs it.
func Binary(path string) Image {
	inside := "/" + filepath.Base(path)
	return Image{Entrypoint: []string{inside}, Files: map[string]string{inside: path}}
}

// Options of an agent.
type Options struct {
	// Images by name, as a container's image field has it. An image that is not there cannot be pulled.
	Images map[string]Image
	// DNS is the address (host:port) of the cluster's DNS server, as cluster.StartDNS returns
	// it. Empty: the nodes' resolvers fail every query.
	DNS string
	// BackOff is the first wait after a failed image pull, and before a container is started
	// again; it doubles up to five minutes. Default 10 s, the kubelet's.
	BackOff time.Duration
	// Log is told what is started and how it ends, one line each. Default: nothing is said.
	Log io.Writer
}

// Agent serves nodes until it is stopped.
type Agent struct {
	cluster  *cluster.Cluster
	client   kubernetes.Interface
	options  Options
	group    *process.Group
	dir      string
	services corelisters.ServiceLister
	pods     cache.SharedInformer
	kubelet  *kubelet

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	images map[string]Image
	nodes  map[string]*Node
	runs   map[types.UID]*podRun
	// ended are pods whose deletion was confirmed and not yet heard of: a late event of one
	// must not start it again.
	ended  map[types.UID]struct{}
	serial int // of nodes, for their addresses
}

// Start starts an agent without nodes. It ends with Stop, with the context, or with the cluster.
func Start(ctx context.Context, c *cluster.Cluster, o Options) (*Agent, error) {
	if o.BackOff == 0 {
		o.BackOff = defaultBackOff
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	o.Log = &lockedWriter{w: o.Log}
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kube-node-ready-nodes-")
	if err != nil {
		return nil, err
	}
	group, err := process.NewGroup(dir)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		cluster: c, client: client, options: o, group: group, dir: dir,
		images: map[string]Image{}, nodes: map[string]*Node{}, runs: map[types.UID]*podRun{},
		ended: map[types.UID]struct{}{},
	}
	for name, image := range o.Images {
		a.images[name] = image
	}
	a.ctx, a.cancel = context.WithCancel(ctx)
	if a.kubelet, err = newKubelet(a); err != nil {
		a.Stop()
		return nil, err
	}

	services := informers.NewSharedInformerFactory(client, 0)
	a.services = services.Core().V1().Services().Lister()
	bound := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
	}))
	a.pods = bound.Core().V1().Pods().Informer()
	if err := a.watchPods(); err != nil {
		a.Stop()
		return nil, err
	}
	services.Start(a.ctx.Done())
	bound.Start(a.ctx.Done())
	if !cache.WaitForCacheSync(a.ctx.Done(), a.pods.HasSynced, services.Core().V1().Services().Informer().HasSynced) {
		a.Stop()
		return nil, fmt.Errorf("list pods and services: %w", context.Cause(a.ctx))
	}
	return a, nil
}

// Stop kills all containers without a word to the API server and removes the agent's files,
// as if the machines were switched off. It may be called more than once.
func (a *Agent) Stop() {
	a.cancel()
	a.group.Stop()
	a.wg.Wait()
	if a.kubelet != nil {
		_ = a.kubelet.server.Close() // with all its listeners
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.nodes {
		n.resolver.close()
	}
}

// SetImage makes an image pullable from now on, or, with no files, impossible to pull.
// Containers that run already are not touched.
func (a *Agent) SetImage(name string, image Image) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(image.Files) == 0 {
		delete(a.images, name)
		return
	}
	a.images[name] = image
}

// LogFile is the path of a container's output; it stays until Stop.
func (a *Agent) LogFile(pod *corev1.Pod, container string) string {
	return filepath.Join(a.podDir(pod), container+".log")
}

func (a *Agent) podDir(pod *corev1.Pod) string { return filepath.Join(a.dir, "pods", string(pod.UID)) }

func (a *Agent) watchPods() error {
	_, err := a.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { a.podChanged(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { a.podChanged(obj.(*corev1.Pod)) },
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			a.mu.Lock()
			run := a.runs[obj.(*corev1.Pod).UID]
			delete(a.ended, obj.(*corev1.Pod).UID)
			a.mu.Unlock()
			if run != nil {
				run.remove()
			}
		},
	})
	return err
}

// podChanged starts a pod that is new on one of the agent's nodes, or tells its run about a deletion.
func (a *Agent) podChanged(pod *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.podChangedLocked(pod)
}

func (a *Agent) podChangedLocked(pod *corev1.Pod) {
	node := a.nodes[pod.Spec.NodeName]
	if _, over := a.ended[pod.UID]; over || node == nil || node.off || a.ctx.Err() != nil {
		return
	}
	run := a.runs[pod.UID]
	if run == nil {
		run = newPodRun(a, node, pod.DeepCopy())
		a.runs[pod.UID] = run
		a.wg.Add(1)
		go func() {
			defer a.wg.Done()
			confirmed := run.run()
			a.mu.Lock()
			delete(a.runs, pod.UID)
			if confirmed {
				a.ended[pod.UID] = struct{}{}
			}
			a.mu.Unlock()
			close(run.done)
		}()
	}
	if pod.DeletionTimestamp != nil {
		run.delete(time.Duration(deref(pod.DeletionGracePeriodSeconds)) * time.Second)
	}
}

// serve switches the node on and takes up the pods that are bound to it already. It asks the
// API server for them: the informer may not have heard yet what the agent itself reported of a
// pod before a reboot. It asks again once events count, for the pods that were created in between.
func (a *Agent) serve(ctx context.Context, n *Node) error {
	list := func() ([]corev1.Pod, error) {
		pods, err := a.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("spec.nodeName", n.Name).String(),
		})
		if err != nil {
			return nil, fmt.Errorf("list the pods of node %s: %w", n.Name, err)
		}
		return pods.Items, nil
	}
	before, err := list()
	if err != nil {
		return err
	}
	a.mu.Lock()
	n.off = false
	for i := range before {
		a.podChangedLocked(&before[i])
	}
	a.mu.Unlock()
	after, err := list()
	if err != nil {
		return err
	}
	for i := range after {
		a.podChanged(&after[i])
	}
	return nil
}

// runsOn are the pods that the node runs.
func (a *Agent) runsOn(n *Node) []*podRun {
	a.mu.Lock()
	defer a.mu.Unlock()
	var runs []*podRun
	for _, r := range a.runs {
		if r.node == n {
			runs = append(runs, r)
		}
	}
	return runs
}

func (a *Agent) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(a.options.Log, "nodes: "+format+"\n", args...)
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}
