package nodeagent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"runtime"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// address of every node and pod: containers share the machine's network.
const address = "127.0.0.1"

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

	agent    *Agent
	resolver *resolver
}

// Object is the Node that a spec describes, with a boot ID of its own.
func (s NodeSpec) Object() *corev1.Node {
	capacity := s.Capacity
	if capacity == nil {
		capacity = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
		}
	}
	labels := map[string]string{corev1.LabelHostname: s.Name, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH}
	maps.Copy(labels, s.Labels)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Annotations: s.Annotations, Labels: labels},
		Spec:       corev1.NodeSpec{ProviderID: s.ProviderID, Taints: s.Taints},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity, NodeInfo: corev1.NodeSystemInfo{BootID: uuid.NewString()},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: s.Name}},
			Conditions: []corev1.NodeCondition{ready(!s.NotReady)},
		},
	}
}

// ready is the kubelet's condition, in its words.
func ready(is bool) corev1.NodeCondition {
	c := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}
	if !is {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "KubeletNotReady", "container runtime network not ready: cni plugin not initialized"
	}
	c.LastHeartbeatTime, c.LastTransitionTime = metav1.Now(), metav1.Now()
	return c
}

// AddNode registers a node, Ready unless the spec says otherwise, and serves it.
func (a *Agent) AddNode(ctx context.Context, spec NodeSpec) (*Node, error) {
	return a.serve(spec.Name, spec.DNS, func(*Node) error {
		object := spec.Object()
		object.Status.DaemonEndpoints = a.endpoints()
		_, err := a.client.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{})
		return err
	})
}

// AdoptNode serves a node that another party registered, Karpenter's kwok provider for example, and sets it Ready with
// a new boot ID.
func (a *Agent) AdoptNode(ctx context.Context, name string, dns DNSMode) (*Node, error) {
	return a.serve(name, dns, func(n *Node) error {
		return n.patchStatus(ctx, map[string]any{"conditions": []corev1.NodeCondition{ready(true)}, "daemonEndpoints": a.endpoints(),
			"nodeInfo": map[string]any{"bootID": uuid.NewString()}})
	})
}

// serve registers a node as given and starts the pods that are bound to it already.
func (a *Agent) serve(name string, dns DNSMode, register func(*Node) error) (*Node, error) {
	if a.Node(name) != nil {
		return nil, fmt.Errorf("node %q is the agent's already", name)
	}
	relay, err := newResolver(a.options.DNS, dns)
	if err != nil {
		return nil, err
	}
	n := &Node{Name: name, agent: a, resolver: relay}
	a.mu.Lock()
	a.nodes[name] = n
	a.mu.Unlock()
	if err := register(n); err != nil {
		n.forget()
		return nil, fmt.Errorf("register node %q: %w", name, err)
	}
	for _, obj := range a.pods.GetStore().List() {
		if pod := obj.(*corev1.Pod); pod.Spec.NodeName == name {
			a.observe(pod)
		}
	}
	return n, nil
}

// forget ends what runs on the node without a word.
func (n *Node) forget() {
	n.agent.mu.Lock()
	defer n.agent.mu.Unlock()
	delete(n.agent.nodes, n.Name)
	for _, r := range n.agent.runs {
		if r.node == n {
			r.cancel()
		}
	}
	n.resolver.close()
}

// endpoints tells the API server where logs are served.
func (a *Agent) endpoints() corev1.NodeDaemonEndpoints {
	return corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(a.kubelet.Listener.Addr().(*net.TCPAddr).Port)}} //nolint:gosec // a port
}

// Node is a node of the agent's by name, or nil.
func (a *Agent) Node(name string) *Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.nodes[name]
}

// SetDNS breaks or repairs the node's resolver, for running containers too. It does not fail.
func (n *Node) SetDNS(mode DNSMode) error {
	n.resolver.mode.Store(int32(mode))
	return nil
}

// MarkReady reports Ready=True.
func (n *Node) MarkReady(ctx context.Context) error { return n.SetCondition(ctx, ready(true)) }

// SetCondition sets one condition of the node, as an agent on it would.
func (n *Node) SetCondition(ctx context.Context, condition corev1.NodeCondition) error {
	condition.LastHeartbeatTime, condition.LastTransitionTime = metav1.Now(), metav1.Now()
	return n.patchStatus(ctx, map[string]any{"conditions": []corev1.NodeCondition{condition}})
}

// Reboot gives the node a new boot ID. It must run nothing: containers are not touched.
func (n *Node) Reboot(ctx context.Context) error {
	return n.patchStatus(ctx, map[string]any{"nodeInfo": map[string]any{"bootID": uuid.NewString()}})
}

// Remove deletes the node's machine and object: its containers are killed without a word.
func (n *Node) Remove(ctx context.Context) error {
	n.forget()
	return n.agent.client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{})
}

func (n *Node) patchStatus(ctx context.Context, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err == nil {
		_, err = n.agent.client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	return err
}
