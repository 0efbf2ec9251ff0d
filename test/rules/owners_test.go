package rules

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// Of two rules with one taint, the older one decides. The other one reports that, and nothing flaps. When the older
// rule is deleted, the younger one takes over, and the taint stays on without a gap.
func TestTwoRulesOnOneTaint(t *testing.T) {
	w := beside(t)
	w.node("two-1")
	older := w.rule("older")
	time.Sleep(1100 * time.Millisecond) // the API server's timestamps hold seconds
	younger := w.rule("a-younger", withKey("readiness.k8s.io/older"), func(r *v1alpha1.NodeReadinessRule) { r.Spec.Conditions[0].Type = "other/Ready" })
	n := w.tainted("two-1", "older", true)
	if !owns(n, older) || owns(n, younger) {
		t.Errorf("%v", n.Annotations)
	}
	w.said("a-younger", "Warning RuleOverruled/Overrule Rule 'older' is older")
	w.eventually("the metric names it", func() string { return w.scraped(`kube_node_ready_rule_overruled{by="older",rule="a-younger"} 1`) })
	w.condition("two-1", "True") // the older releases it, whatever the younger asks for
	w.tainted("two-1", "older", false)
	watch := w.watch()
	time.Sleep(2 * time.Second) // longer than the safety-net resync
	watch.each(func(n *corev1.Node) {
		if carries(n, "readiness.k8s.io/older") {
			t.Error("the taint came back")
		}
	})
	w.condition("two-1", "False")
	w.tainted("two-1", "older", true)
	watch = w.watch()
	w.must(api.Delete(w.ctx, older))
	w.gone("older")
	w.eventually("the younger owns it", func() string {
		if n := w.get("two-1"); !owns(n, younger) || owns(n, older) {
			return fmt.Sprint(n.Annotations)
		}
		return ""
	})
	watch.each(func(n *corev1.Node) {
		if !carries(n, "readiness.k8s.io/older") {
			t.Error("the taint was off for a moment")
		}
	})
}

// A taint that verification owns is no rule's.
func TestARuleAndAProfileOnOneTaint(t *testing.T) {
	w := beside(t)
	w.rule("both")
	w.node("both-1", isReady, createdWith(rival))
	w.said("both", "Warning RuleRefused/Refuse The rule is refused: spec.taint: Invalid value: \"readiness.k8s.io/both:NoSchedule\": is a gating taint")
	w.eventually("the metric names it", func() string { return w.scraped(`kube_node_ready_rule_refused{rule="both"} 1`) })
	if n := w.get("both-1"); !carries(n, "readiness.k8s.io/both") {
		t.Error("the gating taint is gone")
	}
}

// Two writers in a tight loop on foreign taints, and rules that hold and release meanwhile: no taint of theirs is lost or restored.
func TestForeignTaintsInATightLoop(t *testing.T) {
	w := beside(t)
	w.node("loop-1")
	w.rule("loop")
	stop, writers := make(chan struct{}), sync.WaitGroup{}
	for i := range 2 {
		key := fmt.Sprintf("karpenter.sh/unregistered-%d", i)
		writers.Go(func() {
			for on := true; ; on = !on {
				select {
				case <-stop:
					return
				default:
				}
				want := on
				for tries := 0; ; tries++ { // as an operator does: read, change, write, on conflict again
					n := &corev1.Node{}
					if err := api.Get(w.ctx, client.ObjectKey{Name: "loop-1"}, n); err != nil {
						t.Error(err)
						return
					}
					if tries == 0 && carries(n, key) == want {
						t.Errorf("%s: somebody else changed it", key)
						return
					}
					kept := []corev1.Taint{}
					for _, taint := range n.Spec.Taints {
						if taint.Key != key {
							kept = append(kept, taint)
						}
					}
					if want {
						kept = append(kept, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
					}
					n.Spec.Taints = kept
					if api.Update(w.ctx, n) == nil {
						break
					}
				}
			}
		})
	}
	for i := range 20 {
		status := corev1.ConditionStatus("True")
		if i%2 == 1 {
			status = "False"
		}
		w.condition("loop-1", status)
		w.tainted("loop-1", "loop", status == "False")
	}
	close(stop)
	writers.Wait()
}

// A node that is replaced under its name starts afresh, whatever was remembered of the one before.
func TestReplacedUnderItsName(t *testing.T) {
	w := beside(t)
	r := w.rule("replaced", bootstrapOnly)
	first := w.node("replaced-1")
	for range 3 {
		w.tainted("replaced-1", "replaced", true)
		w.condition("replaced-1", "True")
		w.tainted("replaced-1", "replaced", false)
		w.must(api.Delete(w.ctx, first))
		first = w.node("replaced-1")
	}
	n := w.tainted("replaced-1", "replaced", true)
	if !owns(n, r) || n.Annotations["readiness.k8s.io/bootstrap-completed-"+string(r.UID)] != "" {
		t.Errorf("%v", n.Annotations)
	}
	// One that leaves the selector and is replaced by one outside it: the new one has a taint of somebody else's.
	w.must(api.Delete(w.ctx, n))
	w.node("replaced-1", createdWith("readiness.k8s.io/replaced"), func(n *corev1.Node) { n.Labels[testLabel] = "elsewhere" })
	time.Sleep(2 * time.Second)
	if n := w.get("replaced-1"); !carries(n, "readiness.k8s.io/replaced") || n.Annotations[marks.AnnotationRules] != "" {
		t.Errorf("%v %v", n.Annotations, n.Spec.Taints)
	}
	w.must(api.Delete(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "replaced-1"}}))
}

// Two hundred nodes join while a controller with rules starts: none is released by verification before its rule holds it.
func TestTwoHundredJoinWhileCachesFill(t *testing.T) {
	const count = 200
	w := in(t)
	w.config["nodeManagement"] = map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]any{testLabel: w.name}}}
	for i := range 40 {
		w.rule(fmt.Sprintf("fill-%02d", i), dryRun) // the list takes a while
	}
	w.rule("fill")
	watch := w.watch()
	join := sync.WaitGroup{}
	for worker := range 8 {
		join.Go(func() {
			for i := worker; i < count; i += 8 {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("fill-%03d", i), Labels: map[string]string{testLabel: w.name}}}
				if err := api.Create(w.ctx, n); err != nil {
					t.Error(err)
				}
			}
		})
	}
	w.controller()
	join.Wait()
	w.eventually("every node is held", func() string {
		var nodes corev1.NodeList
		w.must(api.List(w.ctx, &nodes, client.MatchingLabels{testLabel: w.name}))
		held := 0
		for i := range nodes.Items {
			if carries(&nodes.Items[i], "readiness.k8s.io/fill") && len(marks.OwnedOn(&nodes.Items[i])) == 1 {
				held++
			}
		}
		if held != count {
			time.Sleep(200 * time.Millisecond) // the list is long
			return fmt.Sprintf("%d of %d are held", held, count)
		}
		return ""
	})
	writes := map[string]int{}
	watch.each(func(n *corev1.Node) { writes[n.Name]++ })
	for name, times := range writes {
		if times > 2 { // created, and tainted
			t.Errorf("%s was written %d times", name, times-1)
		}
	}
}
