package webhook

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// Whatever the webhook is asked, it refuses nothing.
func TestNothingIsRefused(t *testing.T) {
	c, err := config.Parse(nil, "empty")
	if err != nil {
		t.Fatal(err)
	}
	tainter := &Tainter{Config: c}
	for name, tc := range map[string]struct {
		operation admissionv1.Operation
		resource  string
		object    string
		patches   int
		warns     string
	}{
		"a node":               {admissionv1.Create, "nodes", `{"spec": {}}`, 2, ""},
		"a node with taints":   {admissionv1.Create, "nodes", `{"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}`, 1, ""},
		"an update":            {admissionv1.Update, "nodes", `{"spec": {}}`, 0, ""},
		"something else":       {admissionv1.Create, "pods", `{"spec": {}}`, 0, ""},
		"what is not a node":   {admissionv1.Create, "nodes", `{"spec": 5}`, 0, "cannot read the node"},
		"nothing":              {admissionv1.Create, "nodes", ``, 0, "cannot read the node"},
		"a node of later days": {admissionv1.Create, "nodes", `{"spec": {"unheardOf": {"a": 1}}}`, 2, ""},
	} {
		response := tainter.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: tc.operation, Resource: metav1.GroupVersionResource{Version: "v1", Resource: tc.resource}, Object: runtime.RawExtension{Raw: []byte(tc.object)}}})
		if !response.Allowed || len(response.Patches) != tc.patches {
			t.Errorf("%s: allowed %v, %d patches, want %d", name, response.Allowed, len(response.Patches), tc.patches)
		}
		if warnings := strings.Join(response.Warnings, " "); !strings.Contains(warnings, tc.warns) || tc.warns == "" && warnings != "" {
			t.Errorf("%s: warns %q", name, warnings)
		}
	}
}
