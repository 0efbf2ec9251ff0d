// Package v1alpha1 is the NodeReadinessRule of SIG Node's node-readiness-controller
// (https://github.com/kubernetes-sigs/node-readiness-controller). Group, version and fields are the same, so a manifest
// for that project works here unchanged. That project validates more in an optional webhook, which the definition does
// by CEL.
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
	// Finalizer is on every rule that is served. It is removed once no node has a taint that the rule owns.
	Finalizer = "readiness.node.x-k8s.io/cleanup-taints"
)

// AddToScheme registers the types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &NodeReadinessRule{}, &NodeReadinessRuleList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
