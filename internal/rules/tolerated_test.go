package rules

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ownPod answers reads of the controller's pod, and counts them.
type ownPod struct {
	client.Reader
	pod   corev1.Pod
	err   error
	reads int
}

func (o *ownPod) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	o.reads++
	if o.err == nil && key != client.ObjectKeyFromObject(&o.pod) {
		return apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
	}
	if pod, isPod := into.(*corev1.Pod); isPod {
		o.pod.DeepCopyInto(pod)
	}
	return o.err
}

// TestStatusNamesATaintThatTheControllerDoesNotTolerate checks the condition Tolerated, which kubectl describe shows.
func TestStatusNamesATaintThatTheControllerDoesNotTolerate(t *testing.T) {
	created := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	const key = "readiness.k8s.io/r0"
	exists := func(key string, effect corev1.TaintEffect) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
	}
	const unset, no, yes, unknown = "", `"status":"False"`, `"status":"True"`, `"status":"Unknown"`
	for name, c := range map[string]struct {
		tolerations []corev1.Toleration
		effect      corev1.TaintEffect
		younger     bool // than the rule
		policies    bool
		err         error
		nowhere     bool // it runs in no pod
		invalid     bool
		want, says  string
	}{
		"it does not": {want: no, says: "Add " + key + " to rules.toleratedKeys"},
		"it tolerates another key": {tolerations: []corev1.Toleration{exists("readiness.k8s.io/r", "")}, want: no,
			says: "does not tolerate"},
		"it tolerates another effect": {tolerations: []corev1.Toleration{exists(key, corev1.TaintEffectNoExecute)},
			want: no, says: "does not tolerate"},
		"it tolerates another value": {tolerations: []corev1.Toleration{{Key: key, Value: "x"}}, want: no,
			says: "does not tolerate"},
		"a taint that evicts it":   {effect: corev1.TaintEffectNoExecute, want: no, says: "does not tolerate"},
		"the taint keeps none off": {effect: corev1.TaintEffectPreferNoSchedule, want: yes, says: "keeps no pod off"},
		"it does":                  {tolerations: []corev1.Toleration{exists(key, "")}, want: yes, says: "tolerates the taint"},
		"it tolerates everything":  {tolerations: []corev1.Toleration{exists("", "")}, want: yes, says: "tolerates the taint"},
		"its next pod does":        {policies: true, want: yes, says: "next pod"},
		"its next pod should have": {policies: true, younger: true, want: no, says: "does not tolerate"},
		"it may not read its pod": {err: apierrors.NewForbidden(corev1.Resource("pods"), "own", nil), want: unknown,
			says: `pods \"own\" is forbidden`},
		"its pod is gone": {err: apierrors.NewNotFound(corev1.Resource("pods"), "own"), want: unknown,
			says: `pods \"own\" not found`},
		"it runs in no pod":   {nowhere: true, want: unset},
		"the rule is refused": {invalid: true, want: unset},
	} {
		t.Run(name, func(t *testing.T) {
			r := agentRule(0)
			r.CreationTimestamp = metav1.NewTime(created)
			if c.effect != "" {
				r.Spec.Taint.Effect = c.effect
			}
			if c.invalid {
				r.Spec.NodeSelector = metav1.LabelSelector{}
			}
			f, w := serve(t, r), &writer{}
			own := &ownPod{err: c.err}
			own.pod.Namespace, own.pod.Name, own.pod.Spec.Tolerations = "system", "own", c.tolerations
			own.pod.CreationTimestamp = metav1.NewTime(created.Add(-time.Hour))
			if c.younger {
				own.pod.CreationTimestamp = metav1.NewTime(created.Add(time.Hour))
			}
			if c.policies {
				own.pod.Annotations = map[string]string{"node-ready/rule-tolerations": "added"}
			}
			reconciler := &Reconciler{Rules: f.Rules, Live: own, Writer: w}
			if !c.nowhere {
				reconciler.Pod = types.NamespacedName{Namespace: "system", Name: "own"}
			}
			request := reconcile.Request{NamespacedName: types.NamespacedName{Name: "r0"}}
			if _, err := reconciler.Reconcile(t.Context(), request); err != nil || len(w.patches) != 1 {
				t.Fatalf("%v, %v", err, w.patches)
			}
			_, condition, found := strings.Cut(w.patches[0], `"type":"Tolerated"`)
			before, _, _ := strings.Cut(w.patches[0], `"type":"Tolerated"`)
			condition = before[strings.LastIndex(before, "{"):] + condition
			if found != (c.want != unset) || found && (!strings.Contains(condition, c.want) ||
				!strings.Contains(condition, c.says)) {
				t.Errorf("got %s", w.patches[0])
			}
		})
	}
}

// TestItsPodIsReadOnceAMinute checks that the rules of a cluster do not read the controller's pod again and again.
func TestItsPodIsReadOnceAMinute(t *testing.T) {
	f, now := serve(t, agentRule(0), agentRule(1)), time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	f.Now = func() time.Time { return now }
	for _, err := range []error{nil, apierrors.NewForbidden(corev1.Resource("pods"), "own", nil)} {
		own := &ownPod{err: err}
		own.pod.Namespace, own.pod.Name = "system", "own"
		reconciler := &Reconciler{Rules: f.Rules, Live: own, Pod: client.ObjectKeyFromObject(&own.pod),
			Writer: &writer{}}
		for i := range 12 {
			for _, rule := range []string{"r0", "r1"} {
				request := reconcile.Request{NamespacedName: types.NamespacedName{Name: rule}}
				if _, err := reconciler.Reconcile(t.Context(), request); err != nil {
					t.Fatal(err)
				}
			}
			if want := 1 + i/6; own.reads != want {
				t.Fatalf("%v: %d reads after %d s", err, own.reads, i*10)
			}
			now = now.Add(10 * time.Second)
		}
	}
}
