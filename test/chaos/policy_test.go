package chaos

import (
	"encoding/json"
	"encoding/pem"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

const (
	// annotationAltered is on a worker pod that the policy changed so that it is not for its node any more, and says how.
	annotationAltered = "chaos.example/altered"
	// policyMark is the key of the annotation, the label and the taint that the policy adds to nodes.
	policyMark = "policy.example/audited"
)

// policy is a mutating admission webhook on the controller's pods and on all nodes. The API server calls it in every
// run. It changes something only while it is in force.
type policy struct {
	server *httptest.Server

	mu          sync.Mutex
	rng         *rand.Rand
	tally       *tally
	pods, nodes time.Time // until when it is in force for them
}

func newPolicy() *policy {
	p := &policy{}
	p.begin(rand.New(rand.NewPCG(0, 0)), &tally{}) //nolint:gosec // no secret
	p.server = httptest.NewTLSServer(http.HandlerFunc(p.serve))
	return p
}

// begin ends what is in force, for another seed.
func (p *policy) begin(rng *rand.Rand, t *tally) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rng, p.tally, p.pods, p.nodes = rng, t, time.Time{}, time.Time{}
}

// enforce sets until when the policy is in force for pods and nodes. A zero time is no change.
func (p *policy) enforce(pods, nodes time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !pods.IsZero() {
		p.pods = pods
	}
	if !nodes.IsZero() {
		p.nodes = nodes
	}
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func (p *policy) serve(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if json.NewDecoder(r.Body).Decode(&review) != nil || review.Request == nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	var patch []operation
	switch review.Request.Kind.Kind {
	case "Pod":
		patch = p.pod(review.Request.Object.Raw)
	case "Node":
		patch = p.node(review.Request.Object.Raw)
	}
	if len(patch) > 0 {
		review.Response.Patch, _ = json.Marshal(patch) // strings and API types only
		review.Response.PatchType = ptr.To(admissionv1.PatchTypeJSONPatch)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// alterations are what the policy does to a worker pod. The first of them leaves it what it is.
var alterations = []string{"none", "nodeName", "owner", "label", "tolerations"}

// pod changes half of the worker pods.
func (p *policy) pod(raw []byte) []operation {
	var pod corev1.Pod
	p.mu.Lock()
	defer p.mu.Unlock()
	if json.Unmarshal(raw, &pod) != nil || pod.Labels[labelForged] != "" || len(pod.Annotations) == 0 ||
		!time.Now().Before(p.pods) || p.rng.IntN(2) == 0 {
		return nil
	}
	altered := alterations[p.rng.IntN(len(alterations))]
	p.tally.add("pods mutated: "+altered, 1)
	mark := operation{"add", pointer("/metadata/annotations", annotationAltered), altered}
	switch altered {
	case "nodeName":
		other := nodeName((slotOf(pod.Annotations[workerpod.AnnotationNode]) + 1) % slots)
		return []operation{mark, {"add", "/spec/nodeName", other}}
	case "owner":
		return []operation{mark, {"remove", "/metadata/ownerReferences", nil}}
	case "label":
		return []operation{mark, {"remove", pointer("/metadata/labels", "app.kubernetes.io/component"), nil}}
	case "tolerations":
		return []operation{mark, {"replace", "/spec/tolerations", []corev1.Toleration{{Key: "policy.example", Operator: corev1.TolerationOpExists}}}}
	}
	return []operation{{"add", pointer("/metadata/annotations", policyMark), "true"},
		{"add", pointer("/metadata/labels", policyMark), "true"},
		{"add", "/spec/tolerations/-", corev1.Toleration{Key: "policy.example", Operator: corev1.TolerationOpExists}}}
}

// node adds marks to whatever is written on a node, and announces them. Where the write itself has touched a foreign
// mark, that is not to be covered up.
func (p *policy) node(raw []byte) []operation {
	var n corev1.Node
	p.mu.Lock()
	defer p.mu.Unlock()
	if json.Unmarshal(raw, &n) != nil || !time.Now().Before(p.nodes) || n.Annotations[annotationMarks] != foreign(&n) ||
		n.Annotations[policyMark] != "" || n.Labels == nil {
		return nil
	}
	p.tally.add("nodes mutated", 1)
	n.Annotations[policyMark], n.Labels[policyMark] = "true", "true"
	if !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == policyMark }) {
		n.Spec.Taints = append([]corev1.Taint{{Key: policyMark, Effect: corev1.TaintEffectPreferNoSchedule}}, n.Spec.Taints...)
	}
	announce(&n)
	return []operation{{"add", "/metadata/annotations", n.Annotations}, {"add", "/metadata/labels", n.Labels},
		{"add", "/spec/taints", n.Spec.Taints}}
}

// pointer is the JSON pointer to a key of a map.
func pointer(path, key string) string { return path + "/" + strings.ReplaceAll(key, "/", "~1") }

// configuration asks the API server to call it.
func (p *policy) configuration() *admissionregistrationv1.MutatingWebhookConfiguration {
	hook := func(resource string, in *metav1.LabelSelector, of ...admissionregistrationv1.OperationType) admissionregistrationv1.MutatingWebhook {
		return admissionregistrationv1.MutatingWebhook{
			Name: resource + ".policy.example", AdmissionReviewVersions: []string{"v1"},
			SideEffects:    ptr.To(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds: ptr.To[int32](1), FailurePolicy: ptr.To(admissionregistrationv1.Ignore),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To(p.server.URL + "/"),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})},
			NamespaceSelector: in,
			Rules: []admissionregistrationv1.RuleWithOperations{{Operations: of, Rule: admissionregistrationv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}}}},
		}
	}
	workers := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "policy.example"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{hook("pods", workers, admissionregistrationv1.Create),
			hook("nodes", nil, admissionregistrationv1.Create, admissionregistrationv1.Update)}}
}
