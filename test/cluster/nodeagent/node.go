package nodeagent

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// NodeSpec is a node to register.
type NodeSpec struct {
	Name string
	// Labels are added to kubernetes.io/hostname, kubernetes.io/os and kubernetes.io/arch, and win over them.
	Labels      map[string]string
	Annotations map[string]string
	Taints      []corev1.Taint
	ProviderID  string
	// Capacity is also what is allocatable. Default: 4 CPUs, 8Gi of memory, 110 pods.
	Capacity corev1.ResourceList
	// NotReady registers the node with Ready=False, as a kubelet does whose network is not there yet.
	NotReady bool
	// DNS breaks the node's resolver from the start. Default: it works.
	DNS DNSMode
}

// Node is a node that an agent serves.
type Node struct {
	Name string
	// IP is the node's and its pods' address. Each node has its own out of 127.64.0.0/10.
	IP string

	agent    *Agent
	resolver *resolver
	logs     net.Listener // nil where the address is not local
	logsPort int32
	off      bool // no power: pods are not looked at; guarded by agent.mu
}

// AddNode registers a node, Ready unless the spec says otherwise, and serves it.
func (a *Agent) AddNode(ctx context.Context, spec NodeSpec) (*Node, error) {
	n, err := a.newNode(spec.Name, spec.DNS)
	if err != nil {
		return nil, err
	}
	capacity := spec.Capacity
	if capacity == nil {
		capacity = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
		}
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: spec.Name, Annotations: spec.Annotations, Labels: map[string]string{
			corev1.LabelHostname: spec.Name, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
		}},
		Spec: corev1.NodeSpec{ProviderID: spec.ProviderID, Taints: spec.Taints},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.IP}, {Type: corev1.NodeHostName, Address: spec.Name}},
			NodeInfo:  nodeInfo(), DaemonEndpoints: endpoints(n.logsPort),
		},
	}
	for key, value := range spec.Labels {
		node.Labels[key] = value
	}
	node.Status.Conditions = conditions(!spec.NotReady)
	if node, err = a.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		a.forget(n)
		return nil, fmt.Errorf("register node: %w", err)
	}
	// The API server's TaintNodesByCondition admission plugin taints every new node; the
	// node-lifecycle controller takes that back once the node is Ready.
	if !spec.NotReady {
		if err := n.setLifecycleTaints(ctx, node); err != nil {
			return nil, err
		}
	}
	return n, a.serve(ctx, n)
}

// AdoptNode serves a node that another party registered (Karpenter's kwok provider, for
// example) and sets it Ready, giving it a boot ID if it has none. Its resolver starts in the
// given mode.
func (a *Agent) AdoptNode(ctx context.Context, name string, dns DNSMode) (*Node, error) {
	n, err := a.newNode(name, dns)
	if err != nil {
		return nil, err
	}
	node, err := a.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		status := map[string]any{"conditions": conditions(true), "daemonEndpoints": endpoints(n.logsPort)}
		if node.Status.NodeInfo.BootID == "" {
			status["nodeInfo"] = nodeInfo()
		}
		if err = n.patchStatus(ctx, status); err == nil {
			err = n.setLifecycleTaints(ctx, nil)
		}
	}
	if err != nil {
		a.forget(n)
		return nil, fmt.Errorf("adopt node: %w", err)
	}
	return n, a.serve(ctx, n)
}

// Node is a node of the agent's by name, or nil.
func (a *Agent) Node(name string) *Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.nodes[name]
}

func (a *Agent) newNode(name string, dns DNSMode) (*Node, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nodes[name] != nil {
		return nil, fmt.Errorf("node %q is the agent's already", name)
	}
	a.serial++
	address := netip.AddrFrom4([4]byte{127, 64 + byte(a.serial>>16)&63, byte(a.serial >> 8), byte(a.serial)})
	n := &Node{Name: name, IP: address.String(), agent: a, off: true, resolver: &resolver{upstream: a.options.DNS, mode: dns}}
	n.logs, n.logsPort = a.kubelet.listen(n.IP)
	a.nodes[name] = n
	return n, nil
}

func (a *Agent) forget(n *Node) {
	a.mu.Lock()
	delete(a.nodes, n.Name)
	a.mu.Unlock()
	n.resolver.close()
	if n.logs != nil {
		_ = n.logs.Close()
	}
}

// SetDNS breaks or heals the node's resolver, for running containers too.
func (n *Node) SetDNS(mode DNSMode) error { return n.resolver.set(mode) }

// DNSQueries counts the queries that the node's resolver was asked.
func (n *Node) DNSQueries() int64 { return n.resolver.queries.Load() }

// MarkNotReady reports Ready=False with a reason and message, as a kubelet without a network
// plugin does, and adds the taint that the node-lifecycle controller would.
func (n *Node) MarkNotReady(ctx context.Context) error {
	return n.report(ctx, conditions(false), corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})
}

// MarkReady reports Ready=True and removes the node-lifecycle controller's taints.
func (n *Node) MarkReady(ctx context.Context) error { return n.report(ctx, conditions(true)) }

// SetCondition sets one condition of the node, as an agent on it would.
func (n *Node) SetCondition(ctx context.Context, condition corev1.NodeCondition) error {
	condition.LastHeartbeatTime, condition.LastTransitionTime = metav1.Now(), metav1.Now()
	return n.patchStatus(ctx, map[string]any{"conditions": []corev1.NodeCondition{condition}})
}

// PowerOff kills the node's containers without a word, as a machine does that goes away, and
// reports what the node-lifecycle controller would after its grace period: Ready=Unknown and
// the unreachable taints.
func (n *Node) PowerOff(ctx context.Context) error {
	n.kill()
	unknown := conditions(true)
	for i := range unknown {
		unknown[i].Status, unknown[i].Reason, unknown[i].Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
	}
	return n.report(ctx, unknown,
		corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule},
		corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
}

// Reboot kills the node's containers, and comes back Ready with a new boot ID. Pods that were
// running end as the kubelet finds them then: exit code 255, reason Unknown.
func (n *Node) Reboot(ctx context.Context) error {
	n.kill()
	info := nodeInfo()
	if err := n.patchStatus(ctx, map[string]any{"nodeInfo": map[string]any{"bootID": info.BootID}}); err != nil {
		return err
	}
	if err := n.MarkReady(ctx); err != nil {
		return err
	}
	return n.agent.serve(ctx, n)
}

// Remove deletes the node's machine and object: the containers are killed without a word, and
// the agent forgets the node.
func (n *Node) Remove(ctx context.Context) error {
	n.kill()
	n.agent.forget(n)
	return n.agent.client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{})
}

// Evict ends a pod of the node as the kubelet does under resource pressure.
func (n *Node) Evict(pod types.UID, resource corev1.ResourceName) error {
	return n.interrupt(pod, interruption{reason: "Evicted", message: fmt.Sprintf("The node was low on resource: %s. ", resource)})
}

// OOMKill kills a pod's containers as the kernel does when they exceed their memory.
func (n *Node) OOMKill(pod types.UID) error {
	return n.interrupt(pod, interruption{containerReason: "OOMKilled"})
}

func (n *Node) interrupt(pod types.UID, why interruption) error {
	for _, r := range n.agent.runsOn(n) {
		if r.pod.UID == pod {
			r.interrupt(why)
			return nil
		}
	}
	return fmt.Errorf("node %s runs no pod with UID %s", n.Name, pod)
}

// kill takes the power away and waits until nothing runs.
func (n *Node) kill() {
	n.agent.mu.Lock()
	n.off = true
	n.agent.mu.Unlock()
	for _, r := range n.agent.runsOn(n) {
		r.powerOff()
	}
}

// report writes conditions and replaces the node-lifecycle controller's taints.
func (n *Node) report(ctx context.Context, conditions []corev1.NodeCondition, taints ...corev1.Taint) error {
	if err := n.patchStatus(ctx, map[string]any{"conditions": conditions}); err != nil {
		return err
	}
	return n.setLifecycleTaints(ctx, nil, taints...)
}

func (n *Node) patchStatus(ctx context.Context, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = n.agent.client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// setLifecycleTaints plays the node-lifecycle controller, which is off where nodes renew no
// leases: it leaves exactly the given ones of that controller's taints on the node, which is
// read unless it is given.
func (n *Node) setLifecycleTaints(ctx context.Context, node *corev1.Node, taints ...corev1.Taint) error {
	nodes := n.agent.client.CoreV1().Nodes()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if node == nil {
			var err error
			if node, err = nodes.Get(ctx, n.Name, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		kept := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool {
			return t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
		})
		now := metav1.NewTime(time.Now())
		for _, taint := range taints {
			taint.TimeAdded = &now
			kept = append(kept, taint)
		}
		if len(taints) == 0 && len(kept) == len(node.Spec.Taints) {
			return nil
		}
		node.Spec.Taints = kept
		_, err := nodes.Update(ctx, node, metav1.UpdateOptions{})
		node = nil // a conflict: read it
		return err
	})
}

// conditions are what a kubelet reports.
func conditions(ready bool) []corev1.NodeCondition {
	now := metav1.Now()
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now}
	}
	all := []corev1.NodeCondition{
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
	}
	if ready {
		return append(all, condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"))
	}
	return append(all, condition(corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady",
		"container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"))
}

// nodeInfo is that of a machine that has just booted.
func nodeInfo() corev1.NodeSystemInfo {
	return corev1.NodeSystemInfo{
		MachineID: uuid.NewString(), SystemUUID: uuid.NewString(), BootID: uuid.NewString(),
		KernelVersion: "unknown", OSImage: "kube-node-ready node agent", ContainerRuntimeVersion: "node-agent://1",
		KubeletVersion: "v1.36.3", OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
	}
}
