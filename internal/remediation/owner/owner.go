// Package owner names the kinds of objects that own a node, which is what a remediation acts on: Karpenter's NodeClaim,
// or the Node itself. It is pure: what it knows of a node it reads from the Node. The objects themselves are looked up
// and acted on by internal/remediation.
package owner

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Node is the kind of a node that no other object owns. Its Node object is what a remediation acts on.
const Node = "Node"

// Guard is the name of the guard that holds while a node's owner cannot be found for certain. Records and metrics carry
// it.
const Guard = "nodeClaim"

// Kind is a kind of owner. A new one is an entry in Kinds and a back-end in internal/remediation.
type Kind struct {
	// Name is the kind's name in records, the ledger, events and the label of a metric.
	Name string
	// Version and Resource are what the API server serves the owners as; empty for Node.
	Version  schema.GroupVersionKind
	Resource schema.GroupVersionResource
	// Pools is the kind of the pools that the nodes belong to, for a message.
	Pools string
	// signs reads from a node whether it has an owner of the kind; nil for Node.
	signs func(*corev1.Node) Signs
	// Machine reads from an owner which machine and which node it is; empty where it does not say. nil for Node.
	Machine func(*unstructured.Unstructured) (providerID, nodeName string)
}

// Kinds lists the kinds of owners. Node is the last: it is what is left where a node shows the signs of no other.
func Kinds() []Kind { return []Kind{nodeClaim, {Name: Node}} }

// Named returns the kind of a name, or a kind without signs if Kinds does not list the name.
func Named(name string) Kind {
	for _, k := range Kinds() {
		if k.Name == name {
			return k
		}
	}
	return Kind{Name: name, Pools: "pool"}
}

// Names lists the kinds' names.
func Names() (names []string) {
	for _, k := range Kinds() {
		names = append(names, k.Name)
	}
	return names
}

// Signs is what a Node shows of its owner.
type Signs struct {
	// Kind is the name of the owner's kind: that whose signs the Node shows, else Node.
	Kind string
	// Pool is the node's pool; empty for a node without one.
	Pool string
	// UIDs and Names are those of the owners that the Node refers to; there should be one at most.
	UIDs, Names []string
	// Managed reports whether the Node shows any sign of an owner other than itself. Some signs come at registration only.
	Managed bool
	// Registered reports whether the owner's controller no longer puts startup taints back.
	Registered bool
}

// PoolName names the node's pool with its kind, for a message; empty for a node without a pool.
func (s Signs) PoolName() string {
	if s.Pool == "" {
		return ""
	}
	return Named(s.Kind).Pools + " " + s.Pool
}

// Of reads the signs of a node's owner.
func Of(n *corev1.Node) Signs {
	for _, k := range Kinds() {
		if k.signs == nil {
			continue
		}
		if s := k.signs(n); s.Managed {
			s.Kind = k.Name
			return s
		}
	}
	return Signs{Kind: Node}
}

// Target is the object that a remediation acts on, by the UID that was decided on.
type Target struct{ Kind, Name, UID string }

// Owner is what the lookup of a node's owner found.
type Owner struct {
	// Target is the one object that owns the node. It is empty where Problem is set.
	Target
	// Terminating reports whether the owner is being deleted already.
	Terminating bool
	// OptedOut is the annotation of the owner that forbids to act on it; empty without one.
	OptedOut string
	// Problem is why the lookup cannot be trusted. Then nothing may be deleted, not even the Node.
	Problem string
}

// OfNode is the owner of a node that no other object owns: its Node, whose own deletion the Node shows.
func OfNode(name, uid string) Owner { return Owner{Target: Target{Kind: Node, Name: name, UID: uid}} }
