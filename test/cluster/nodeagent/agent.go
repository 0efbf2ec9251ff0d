// Package nodeagent plays nodes without root. It registers them, runs the worker of a pod bound to them as a process of
// this machine, and patches the result into the pod's status. A worker needs no more than that. Tests patch unusual
// statuses themselves, such as an eviction or a missing image. The end-to-end run shows what a real kubelet does.
//
// There are no mounts, so a container is told where its files are by the worker's own variables (internal/worker). Probes,
// restarts, init containers, second containers and volumes other than the token do not exist here: a pod that asks for one
// of the last three fails with reason Unsupported.
package nodeagent

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

// Image maps a path in the image, as a container's command names it, to the program on this machine.
type Image map[string]string

// Options of an agent.
type Options struct {
	// Images by name, as a container's image field has it. A pod of another image stays Pending.
	Images map[string]Image
	// DNS is the address (host:port) of the cluster's DNS server, as cluster.StartDNS returns it.
	DNS string
}

// Agent serves nodes until it is stopped.
type Agent struct {
	cluster *cluster.Cluster
	client  kubernetes.Interface
	options Options
	group   *process.Group
	dir     string
	pods    cache.SharedInformer
	kubelet *httptest.Server // answers the API server's requests for logs, for all nodes

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	nodes map[string]*Node
	runs  map[types.UID]*run // kept until the pod is gone, so that a late event does not start it again
}

// Start starts an agent without nodes. It ends with Stop, with the context, or with the cluster.
func Start(ctx context.Context, c *cluster.Cluster, o Options) (*Agent, error) {
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
	a := &Agent{cluster: c, client: client, options: o, group: group, dir: dir, nodes: map[string]*Node{}, runs: map[types.UID]*run{}}
	a.ctx, a.cancel = context.WithCancel(ctx)
	logs := http.NewServeMux()
	logs.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", a.serveLog)
	a.kubelet = httptest.NewTLSServer(logs)

	bound := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
	}))
	a.pods = bound.Core().V1().Pods().Informer()
	_, err = a.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { a.observe(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { a.observe(obj.(*corev1.Pod)) },
		DeleteFunc: a.gone,
	})
	bound.Start(a.ctx.Done())
	if err == nil && !cache.WaitForCacheSync(a.ctx.Done(), a.pods.HasSynced) {
		err = fmt.Errorf("list pods: %w", context.Cause(a.ctx))
	}
	if err != nil {
		a.Stop()
		return nil, err
	}
	return a, nil
}

// Stop kills all containers without a word to the API server and removes the agent's files, as if the machines were
// switched off. It may be called more than once.
func (a *Agent) Stop() {
	a.cancel()
	a.group.Stop()
	a.wg.Wait()
	a.kubelet.CloseClientConnections()
	a.kubelet.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.nodes {
		n.resolver.close()
	}
}

// observe starts a pod that is new on one of the agent's nodes, and ends one that is being deleted.
func (a *Agent) observe(pod *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	node := a.nodes[pod.Spec.NodeName]
	if node == nil || a.ctx.Err() != nil {
		return
	}
	r := a.runs[pod.UID]
	if r == nil {
		r = newRun(a, pod.DeepCopy(), node)
		a.runs[pod.UID] = r
		a.wg.Go(r.live)
	}
	if pod.DeletionTimestamp != nil && r.ending.Err() == nil {
		r.grace = time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second
		r.end()
	}
}

// gone ends what still runs of a pod that was deleted by force.
func (a *Agent) gone(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.runs[obj.(*corev1.Pod).UID]; r != nil {
		r.cancel()
		delete(a.runs, r.pod.UID)
	}
}

// serveLog answers kubectl logs with all that a container has written; it does not follow.
func (a *Agent) serveLog(w http.ResponseWriter, request *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.runs {
		if r.pod.Namespace == request.PathValue("namespace") && r.pod.Name == request.PathValue("pod") {
			http.ServeFile(w, request, r.path(logFile))
			return
		}
	}
	http.NotFound(w, request)
}
