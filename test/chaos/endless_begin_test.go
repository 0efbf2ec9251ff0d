package chaos

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

// dieWithin is how long a kubelet that is to die waits for a worker to die under.
const dieWithin = 3 * time.Second

// hit reports whether a fault of the kind that has begun is about the slot, and since when.
func (w *world) hit(kind string, slot int) (since time.Time, is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.endless {
		if e.name == kind && slot >= 0 && e.slots[slot] {
			return e.began, true
		}
	}
	return time.Time{}, false
}

// beginEndless begins the fault, and has its nodes verified again so that it shows. It goes on until that is done.
func (w *world) beginEndless(e endless) error {
	w.mu.Lock()
	e.began = time.Now()
	w.endless = append(w.endless, e)
	for slot := range slots {
		if (e.name == claimStuck && !e.asked || e.name == poolFails || e.name == conditionTaken) && e.slots[slot] {
			w.ill[slot] = time.Now().Add(time.Hour)
		}
	}
	w.mu.Unlock()
	w.check.begin(e)
	w.persist(func() error { return w.refuse(e) })
	if e.name == rightsRefused {
		if e.restarts {
			w.check.restarted()
		}
		for i := range w.replicas {
			w.proxies[i].drop() // a watch that is under way asks nobody again
			if e.restarts {
				w.replicas[i].do((*process.Process).Kill)
			}
		}
	}
	for slot := range slots {
		if !e.slots[slot] {
			continue
		}
		w.persist(func() error {
			err := w.mark(slot, labelled(verifiedLabel, ""))
			if err == nil && e.closes {
				err = w.mark(slot, closeGate)
			}
			return client.IgnoreNotFound(err)
		})
		if e.name == poolFails {
			w.persist(func() error { return w.remove(slot) }) // one that never was verified may be deleted
		}
		if e.name == claimStuck && e.asked {
			w.persist(func() error { return w.endClaim(slot) })
		}
	}
	return nil
}

// persist tries until it works: the API server may be down.
func (w *world) persist(try func() error) {
	for err := try(); err != nil && w.ctx.Err() == nil; err = try() {
		pause(w.ctx, 200*time.Millisecond)
	}
}

// refuse tells the API server what it refuses.
func (w *world) refuse(e endless) error {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: refusals}
	var err error
	switch e.name {
	case rightsRefused:
		return w.regrant()
	case podsRefused:
		w.webhook.set(e)
		err = w.api.Create(w.ctx, w.webhook.configuration(e.code == 0))
	case quotaFull:
		hard := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
		quota := &corev1.ResourceQuota{ObjectMeta: meta, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
		if err = w.api.Create(w.ctx, quota); err == nil || apierrors.IsAlreadyExists(err) {
			quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: quota.Spec.Hard} // no controller counts here
			patch, _ := json.Marshal(map[string]any{"status": quota.Status})                        // strings only
			err = w.api.Status().Patch(w.ctx, quota, client.RawPatch(types.MergePatchType, patch))
		}
	}
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// refusals is the name of what refuses pods.
const refusals = "chaos.example"

// endClaim deletes a slot's NodeClaim in somebody else's name.
func (w *world) endClaim(slot int) error {
	var claims karpv1.NodeClaimList
	if err := w.api.List(w.ctx, &claims); err != nil {
		return err
	}
	for i := range claims.Items {
		if claims.Items[i].Status.NodeName == nodeName(slot) && claims.Items[i].DeletionTimestamp == nil {
			return w.end(&claims.Items[i], 0)
		}
	}
	return nil
}

// webhook refuses pods for some nodes.
type webhook struct {
	server *httptest.Server

	refuses chan endless // holds the one that is in force
}

func newWebhook() *webhook {
	h := &webhook{refuses: make(chan endless, 1)}
	h.refuses <- endless{}
	h.server = httptest.NewTLSServer(http.HandlerFunc(h.serve))
	return h
}

func (h *webhook) set(e endless) {
	<-h.refuses
	h.refuses <- e
}

func (h *webhook) serve(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	var pod corev1.Pod
	if json.NewDecoder(r.Body).Decode(&review) != nil || review.Request == nil ||
		json.Unmarshal(review.Request.Object.Raw, &pod) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	e := <-h.refuses
	h.refuses <- e
	slot := slotOf(pod.Annotations[workerpod.AnnotationNode])
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: slot < 0 || !e.slots[slot]}
	if !review.Response.Allowed {
		code := int32(e.code) //nolint:gosec // a status code
		review.Response.Result = &metav1.Status{Code: code, Message: "no such pods here"}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// configuration asks the API server to call it for each pod that is made in the namespace; one that is dead does not
// answer.
func (h *webhook) configuration(dead bool) *admissionregistrationv1.ValidatingWebhookConfiguration {
	url := h.server.URL + "/"
	if dead {
		url = "https://127.0.0.1:1/"
	}
	hook := admissionregistrationv1.ValidatingWebhook{
		Name: "pods." + refusals, AdmissionReviewVersions: []string{"v1"},
		SideEffects:    ptr.To(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds: ptr.To[int32](1), FailurePolicy: ptr.To(admissionregistrationv1.Fail),
		ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url,
			CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.server.Certificate().Raw})},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
				Resources: []string{"pods"}},
		}},
	}
	return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: refusals},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{hook}}
}

// permit takes back what a run's faults refuse.
func (s *stage) permit(ctx context.Context) error {
	s.webhook.set(endless{})
	err := client.IgnoreNotFound(s.api.Delete(ctx, s.webhook.configuration(true)))
	if err == nil {
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: refusals}}
		err = client.IgnoreNotFound(s.api.Delete(ctx, quota))
	}
	if err == nil {
		err = s.grant(ctx, nil)
	}
	if err != nil {
		return fmt.Errorf("permit what is refused: %w", err)
	}
	return nil
}
