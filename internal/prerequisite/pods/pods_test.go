package pods

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
)

// counting is a cluster in which all that is reported counts.
type counting struct{ kind.Cluster }

func (counting) Stale(*corev1.Node, kind.Object) string { return "" }

// pod is a pod p; each change makes it more of what is waited for.
func pod(changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{}}}
	for _, change := range changes {
		change(p)
	}
	return p
}

func ready(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func warm(p *corev1.Pod) { p.Annotations["warm/done"] = "true" }

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func TestReadyBy(t *testing.T) {
	cold := func(p *corev1.Pod) { p.Annotations["warm/done"] = "no" }
	const notReady, notWarm = "p is not Ready", "p does not carry annotation warm/done=true"
	for _, test := range []struct {
		annotation string
		by         string
		pod        *corev1.Pod
		why        string
	}{
		{"", "", pod(ready), ""},
		{"", "", pod(warm), notReady},
		{"warm/done", ReadyByAny, pod(ready), ""},
		{"warm/done", ReadyByAny, pod(warm), ""},
		{"warm/done", ReadyByAny, pod(cold), notReady + " and does not carry annotation warm/done=true"},
		{"warm/done", ReadyByAnnotation, pod(warm), ""},
		{"warm/done", ReadyByAnnotation, pod(ready, cold), notWarm},
		{"warm/done", ReadyByBoth, pod(ready, warm), ""},
		{"warm/done", ReadyByBoth, pod(warm), notReady},
		{"warm/done", ReadyByBoth, pod(ready), notWarm},
		{"warm/done=no", ReadyByAnnotation, pod(cold), ""},
		{"warm/done=no", ReadyByAnnotation, pod(warm), "p does not carry annotation warm/done=no"},
		{"warm/done=a=b", ReadyByAnnotation, pod(func(p *corev1.Pod) { p.Annotations["warm/done"] = "a=b" }), ""},
		{"warm/done", ReadyByAny, pod(ready, warm, terminating), "p is terminating"},
	} {
		e, want := Entry{ReadyAnnotation: test.annotation, ReadyBy: test.by}, test.why
		if got := e.missing([]any{test.pod}, counting{}, nil, nil); got != want {
			t.Errorf("%q by %q: %v %v: %q, want %q", test.annotation, test.by, test.pod.Annotations, test.pod.Status.Conditions, got, want)
		}
	}
}
