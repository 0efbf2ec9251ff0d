//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/realnode"
)

const nodePoolLabel = "karpenter.sh/nodepool"

// karpenter is Karpenter itself with its kwok provider, which makes Node objects without
// machines. The node agent stands in for their kubelets.
type karpenter struct {
	suite   *suite
	process *process.Process
	agent   *nodeagent.Agent
	cancel  context.CancelFunc
	done    sync.WaitGroup

	mu sync.Mutex
	// resolver is how DNS works on the next node that appears.
	resolver nodeagent.DNSMode
	// created are the taints with which nodes were created.
	created map[string][]corev1.Taint
	// violations are orders of events that must not be, as seen on the nodes.
	violations []string
}

// startKarpenter installs its CRDs, starts it, and serves the nodes that it makes. It may be called more than once.
func (s *suite) startKarpenter(ctx context.Context, t *testing.T) {
	if s.karpenter != nil {
		return
	}
	source, err := exec.CommandContext(ctx, "go", "-C", filepath.Join(s.root, "test", "tools", "karpenter"), "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/karpenter").Output()
	must(t, err)
	module := strings.TrimSpace(string(source))
	s.kubectl(ctx, t, "apply", "--server-side", "-f", filepath.Join(module, "pkg", "apis", "crds"), "-f", filepath.Join(module, "kwok", "apis", "crds"))
	s.kubectl(ctx, t, "wait", "--for=condition=Established", "--timeout=30s", "crd/nodepools.karpenter.sh", "crd/nodeclaims.karpenter.sh", "crd/kwoknodeclasses.karpenter.kwok.sh")

	// The agent's containers share this machine's network, and find ClusterIPs through a node.
	must(t, s.cluster.RouteServices(ctx, s.node("node-a")))
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	k := &karpenter{suite: s, cancel: cancel, created: map[string][]corev1.Taint{}}
	s.karpenter = k
	worker, err := install.Binary("kube-node-ready-worker")
	must(t, err)
	k.agent, err = nodeagent.Start(work, s.cluster.ControlPlane, nodeagent.Options{
		DNS: realnode.DNSAddress + ":53",
		Images: map[string]nodeagent.Image{
			s.image:             {"/kube-node-ready-worker": worker},
			realnode.PauseImage: {"/pause": filepath.Join(s.root, ".cache", "realnode", "pause")},
		},
	})
	must(t, err)
	k.follow(work, t)

	ports, err := cluster.FreePorts("127.0.0.1", 2)
	must(t, err)
	log, err := os.Create(filepath.Join(s.cluster.ControlPlane.Dir(), "log", "karpenter.log"))
	must(t, err)
	defer func() { _ = log.Close() }()
	k.process, err = s.cluster.ControlPlane.Processes().Start(process.Spec{
		Path: filepath.Join(s.cluster.ControlPlane.Bin(), "karpenter-kwok"), Stdout: log, Stderr: log,
		Env: []string{
			"KUBECONFIG=" + s.cluster.ControlPlane.Kubeconfig(), "HOME=/nonexistent", "DISABLE_LEADER_ELECTION=true",
			fmt.Sprintf("METRICS_PORT=%d", ports[0]), fmt.Sprintf("HEALTH_PROBE_PORT=%d", ports[1]),
			"FEATURE_GATES=StaticCapacity=true,NodeRepair=true",
			// Else a preference, the spread over zones, keeps a pod from the real nodes, which have no zone.
			"PREFERENCE_POLICY=Ignore",
		},
	})
	must(t, err)
}

// follow serves every node of Karpenter's as soon as it appears, keeps its lease, and watches
// that its marks come in the right order.
func (k *karpenter) follow(ctx context.Context, t *testing.T) {
	client := k.suite.client
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = nodePoolLabel }))
	informer := factory.Core().V1().Nodes().Informer()
	serve := func(name string) {
		if k.suite.node(name) != nil {
			return // it has a kubelet
		}
		k.mu.Lock()
		resolver := k.resolver
		k.mu.Unlock()
		if _, err := k.agent.AdoptNode(ctx, name, resolver); err != nil && ctx.Err() == nil {
			t.Logf("node agent: %v", err)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			n := obj.(*corev1.Node)
			k.mu.Lock()
			k.created[n.Name] = n.Spec.Taints
			k.mu.Unlock()
			go serve(n.Name)
		},
		UpdateFunc: func(_, obj any) { k.observe(obj.(*corev1.Node)) },
	})
	must(t, err)
	factory.Start(ctx.Done())
	k.done.Go(func() {
		for ctx.Err() == nil {
			for _, obj := range informer.GetStore().List() {
				if n := obj.(*corev1.Node); k.agent.Node(n.Name) != nil {
					k.renewLease(ctx, n)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(3 * time.Second):
			}
		}
	})
}

// renewLease is what a kubelet does so that its node is not taken for lost.
func (k *karpenter) renewLease(ctx context.Context, node *corev1.Node) {
	leases := k.suite.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	lease, err := leases.Get(ctx, node.Name, metav1.GetOptions{})
	if err == nil {
		lease.Spec.RenewTime = &now
		_, _ = leases.Update(ctx, lease, metav1.UpdateOptions{})
		return
	}
	_, _ = leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &node.Name, LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &now},
	}, metav1.CreateOptions{})
}

// observe insists on the order of things: Karpenter registers the node with the startup taint,
// and only then may the taint go, with the label in the same write. The pools of karpenterZeroConfig have no startup
// taint.
func (k *karpenter) observe(node *corev1.Node) {
	burst := []string{"ungated", "gated", "unknown"}
	if node.DeletionTimestamp != nil || slices.Contains(burst, node.Labels[nodePoolLabel]) {
		return
	}
	tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintKey })
	registered, labelled := node.Labels["karpenter.sh/registered"] == "true", node.Labels[verifiedLabel] == "true"
	k.mu.Lock()
	defer k.mu.Unlock()
	if labelled && !registered {
		k.violations = append(k.violations, node.Name+" was verified before Karpenter registered it")
	}
	if registered && tainted == labelled {
		k.violations = append(k.violations, fmt.Sprintf("%s is registered: tainted=%t, labelled=%t", node.Name, tainted, labelled))
	}
}

func (k *karpenter) check(t *testing.T) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, violation := range k.violations {
		t.Error(violation)
	}
	k.violations = nil
}

func (k *karpenter) nextResolver(mode nodeagent.DNSMode) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.resolver = mode
}

// nodeClaim is what the cases need of one.
type nodeClaim struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		StartupTaints []corev1.Taint `json:"startupTaints"`
	} `json:"spec"`
	Status struct {
		NodeName    string              `json:"nodeName"`
		ProviderID  string              `json:"providerID"`
		Capacity    corev1.ResourceList `json:"capacity"`
		Allocatable corev1.ResourceList `json:"allocatable"`
		Conditions  []metav1.Condition  `json:"conditions"`
	} `json:"status"`
}

func (c nodeClaim) is(condition string) bool {
	return slices.ContainsFunc(c.Status.Conditions, func(have metav1.Condition) bool {
		return have.Type == condition && have.Status == metav1.ConditionTrue
	})
}

// node is the claim's as its kubelet registers it, with the taints given and without the labels of the NodeClaim, which
// Karpenter adds as it registers the node.
func (c nodeClaim) node(taints ...corev1.Taint) *corev1.Node {
	unregistered := corev1.Taint{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: strings.TrimPrefix(c.Status.ProviderID, "kwok://"), Annotations: c.Metadata.Annotations,
			Labels: map[string]string{corev1.LabelHostname: c.Metadata.Name},
		},
		Spec:   corev1.NodeSpec{ProviderID: c.Status.ProviderID, Taints: append(taints, unregistered)},
		Status: corev1.NodeStatus{Capacity: c.Status.Capacity, Allocatable: c.Status.Allocatable},
	}
}

// holdKarpenter scales a Deployment up, and holds Karpenter still once it has launched a NodeClaim whose node has not
// joined. The function that it returns lets it go on.
func (s *suite) holdKarpenter(ctx context.Context, t *testing.T, deployment string, replicas int) (nodeClaim, func()) {
	t.Helper()
	known := s.nodeClaims(ctx, t)
	delay := func(d string) {
		s.kubectl(ctx, t, "patch", "kwoknodeclass", "e2e", "--type=merge", "-p", `{"spec":{"nodeRegistrationDelay":"`+d+`"}}`)
	}
	delay("30s")
	s.kubectl(ctx, t, "scale", "deployment/"+deployment, fmt.Sprintf("--replicas=%d", replicas))
	claim := s.awaitClaimWith(ctx, t, known, nodeClaim.launched)
	s.karpenter.process.Signal(syscall.SIGSTOP)
	release := func() { s.karpenter.process.Signal(syscall.SIGCONT) }
	t.Cleanup(release)
	delay("0s")
	return claim, release
}

func (c nodeClaim) launched() bool { return c.is("Launched") && c.Status.ProviderID != "" }

// nodeClaims are those that there are, by UID.
func (s *suite) nodeClaims(ctx context.Context, t *testing.T) map[types.UID]nodeClaim {
	t.Helper()
	list := decode[struct {
		Items []nodeClaim `json:"items"`
	}](t, s.kubectl(ctx, t, "get", "nodeclaims.karpenter.sh", "-o", "json"))
	claims := map[types.UID]nodeClaim{}
	for _, claim := range list.Items {
		claims[claim.Metadata.UID] = claim
	}
	return claims
}

// awaitClaim waits for a NodeClaim that is not among the known ones and has a node.
func (s *suite) awaitClaim(ctx context.Context, t *testing.T, known map[types.UID]nodeClaim) nodeClaim {
	t.Helper()
	return s.awaitClaimWith(ctx, t, known, func(c nodeClaim) bool { return c.Status.NodeName != "" })
}

func (s *suite) awaitClaimWith(ctx context.Context, t *testing.T, known map[types.UID]nodeClaim, wanted func(nodeClaim) bool) nodeClaim {
	t.Helper()
	var found nodeClaim
	eventually(ctx, t, 60*time.Second, "Karpenter launches a node", func() error {
		for uid, claim := range s.nodeClaims(ctx, t) {
			if _, ok := known[uid]; !ok && wanted(claim) {
				found = claim
				return nil
			}
		}
		return fmt.Errorf("there is no new NodeClaim that is so far")
	})
	t.Logf("NodeClaim %s, node %s", found.Metadata.Name, found.Status.NodeName)
	return found
}

// awaitInitialized waits until Karpenter calls the claim's node initialized: Ready, with its
// resources, and without startup taints.
func (s *suite) awaitInitialized(ctx context.Context, t *testing.T, claim nodeClaim) {
	t.Helper()
	eventually(ctx, t, 30*time.Second, claim.Metadata.Name+" is initialized", func() error {
		now, ok := s.nodeClaims(ctx, t)[claim.Metadata.UID]
		if !ok || !now.is("Registered") || !now.is("Initialized") {
			return fmt.Errorf("it is not: %+v", now)
		}
		return nil
	})
}

// pool starts Karpenter, with the NodePool "e2e" and a Deployment whose pods each need a node of it.
func (s *suite) pool(ctx context.Context, t *testing.T) {
	t.Helper()
	s.startKarpenter(ctx, t)
	s.kubectl(ctx, t, "apply", "--server-side", "-f", filepath.Join(s.root, "test", "e2e", "testdata", "karpenter.yaml"))
}

// pooled brings the pool to so many nodes, each verified, whatever the cases before left.
func (s *suite) pooled(ctx context.Context, t *testing.T, nodes int) {
	t.Helper()
	s.pool(ctx, t)
	s.scalePooled(ctx, t, nodes)
	s.awaitPooled(ctx, t, nodes)
}

func (s *suite) scalePooled(ctx context.Context, t *testing.T, replicas int) {
	t.Helper()
	s.kubectl(ctx, t, "scale", "deployment/pooled", fmt.Sprintf("--replicas=%d", replicas))
}

// awaitPooled waits until so many of the pool's pods run, each on a verified node of the pool.
func (s *suite) awaitPooled(ctx context.Context, t *testing.T, replicas int) {
	t.Helper()
	eventually(ctx, t, time.Minute, fmt.Sprintf("%d pods of the pool run", replicas), func() error {
		list, err := s.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=pooled", FieldSelector: "status.phase=Running"})
		if err != nil {
			return err
		}
		if len(list.Items) != replicas {
			return fmt.Errorf("%d do", len(list.Items))
		}
		for _, pod := range list.Items {
			if err := s.verified(ctx, pod.Spec.NodeName); err != nil {
				t.Fatalf("%s runs on a node that is not verified: %v", pod.Name, err)
			}
		}
		return nil
	})
}

// stop ends Karpenter and what stands in for its kubelets. It may be called more than once.
func (k *karpenter) stop() {
	if k == nil {
		return
	}
	k.cancel()
	k.done.Wait()
	if k.process != nil {
		k.process.Terminate(10 * time.Second)
	}
	k.agent.Stop()
}
