package webhook

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// answered posts a review and reads the answer; nil where it is none.
func answered(h http.Handler, review []byte) *admissionv1.AdmissionResponse {
	request := httptest.NewRequest(http.MethodPost, Path, bytes.NewReader(review))
	request.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request)
	var answer admissionv1.AdmissionReview
	if w.Code != http.StatusOK || json.Unmarshal(w.Body.Bytes(), &answer) != nil {
		return nil
	}
	return answer.Response
}

// FuzzReview checks that every request gets an answer and that no review of a node is refused. The patch applies to the
// node as API servers encode it: it adds the missing taints and changes no other. A second review has nothing to add.
func FuzzReview(f *testing.F) {
	c, err := config.Parse([]byte(`nodeManagement: {taints: [{key: a, effect: NoSchedule}, {key: b, value: c, effect: NoExecute}]}
profiles: [{name: p, nodeSelector: {matchLabels: {p: ""}}, taints: [{key: d, effect: PreferNoSchedule}]}]`), "fuzz")
	if err != nil {
		f.Fatal(err)
	}
	h := answering(&Tainter{Config: c})
	const create = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE","resource":{"group":"","version":"v1","resource":"nodes"},"object":`
	for _, object := range []string{`{"spec":{}}`, `{"metadata":{"labels":{"p":""}},"spec":{"taints":[{"key":"a","value":"x","effect":"NoSchedule"},{"key":"b","effect":"NoSchedule"}]}}`,
		`{"metadata":{"annotations":{"node-ready/skip":"true"}},"spec":null}`, `null`, `5`, `{"spec":{"taints":[{"timeAdded":"x"}]}}`} {
		f.Add([]byte(create + object + "}}"))
	}
	f.Add([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","request":{}}`))
	f.Add([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		answer := answered(h, data)
		if answer == nil {
			t.Fatal("no answer")
		}
		if !answer.Allowed && answer.Result.Code != http.StatusBadRequest {
			t.Fatalf("refused: %+v", answer)
		}
		var review admissionv1.AdmissionReview
		var n corev1.Node
		if json.Unmarshal(data, &review) != nil || review.Request == nil || json.Unmarshal(review.Request.Object.Raw, &n) != nil {
			return
		}
		encoded, err := json.Marshal(&n)
		if err != nil {
			return // a quantity that no API server holds
		}
		var request bytes.Buffer
		request.WriteString(create)
		request.Write(encoded)
		request.WriteString("}}")
		if answer = answered(h, request.Bytes()); answer == nil || !answer.Allowed {
			t.Fatalf("%s: %+v", encoded, answer)
		}
		if answer.Patch == nil {
			return
		}
		patch, err := jsonpatch.DecodePatch(answer.Patch)
		if err != nil {
			t.Fatal(err)
		}
		encoded, err = patch.Apply(encoded)
		var after corev1.Node
		if err != nil || json.Unmarshal(encoded, &after) != nil {
			t.Fatalf("%s makes %s: %v", answer.Patch, encoded, err)
		}
		kept := after.Spec.Taints[:min(len(n.Spec.Taints), len(after.Spec.Taints))]
		if len(kept) == len(after.Spec.Taints) || !slices.EqualFunc(n.Spec.Taints, kept, func(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value }) {
			t.Errorf("%v became %v", n.Spec.Taints, after.Spec.Taints)
		}
		if again := decide.TaintsOnCreation(&after, c); len(again) > 0 {
			t.Errorf("the second time it adds %v", again)
		}
	})
}
