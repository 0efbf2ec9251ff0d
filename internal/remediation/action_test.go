package remediation

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// In a dry run the controller has no right to create the object, and reports what it would do.
func TestDryRunAsksNothing(t *testing.T) {
	c := &config.Config{}
	c.NodeManagement.Remediation.DryRun = true
	action := config.Action{Object: &config.ObjectAction{Template: map[string]any{"apiVersion": "batch/v1", "kind": "Job"}}}
	problem, err := Actions{Config: c}.Problem(t.Context(), &corev1.Node{}, action, marks.Record{}) // it has no client to ask
	if problem != "" || err != nil {
		t.Errorf("%q, %v", problem, err)
	}
}

// A template's strings are filled in wherever they are, and the object says which node it is about.
func TestRender(t *testing.T) {
	n := &corev1.Node{}
	n.Name, n.UID, n.Spec.ProviderID = "worker-1", "uid", "aws:///i-1"
	o := render(&config.ObjectAction{Template: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"annotations": map[string]any{"node": "{{node}}"}},
		"data":     map[string]any{"list": []any{"{{providerID}} {{check}}/{{reason}} {{attempt}} {{nodeUID}}", 7}},
	}}, n, marks.Record{LastCheck: "dns", LastReason: "Timeout", Sequence: 3}, "remediate")
	list := o.Object["data"].(map[string]any)["list"].([]any)
	if o.GetName() != "remediate" || o.GetAnnotations()["node"] != "worker-1" || o.GetAnnotations()[AnnotationNodeUID] != "uid" ||
		list[0] != "aws:///i-1 dns/Timeout 3 uid" || list[1] != int64(7) {
		t.Errorf("%+v", o.Object)
	}
}
