// Package v1alpha1 is the NodeReadinessRule of the Kubernetes SIG Node's node-readiness-controller
// (https://github.com/kubernetes-sigs/node-readiness-controller): the same group, version and fields, so that a manifest
// written for it is served here unchanged. What that project checks in an optional webhook is in the definition's CEL.
//
// +kubebuilder:object:generate=true
// +groupName=readiness.node.x-k8s.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of the types.
var GroupVersion = schema.GroupVersion{Group: "readiness.node.x-k8s.io", Version: "v1alpha1"}

// Names of the resource.
const (
	// Kind is the resource's kind, Resource its plural.
	Kind     = "NodeReadinessRule"
	Resource = "nodereadinessrules"
	// Finalizer is on every rule that is served: it goes once no node has a taint that the rule owns.
	Finalizer = "readiness.node.x-k8s.io/cleanup-taints"
)

// AddToScheme registers the types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &NodeReadinessRule{}, &NodeReadinessRuleList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
