package watch

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/daemonsets"
)

func allDaemonSets(exclude ...string) config.Prerequisites {
	p := config.Prerequisites{DaemonSets: daemonsets.Settings{Mode: daemonsets.Auto}}
	for _, name := range exclude {
		p.DaemonSets.Exclude = append(p.DaemonSets.Exclude, daemonsets.Name{Namespace: "x", Name: name})
	}
	return p
}

func theDaemonSet(name string) config.Prerequisites {
	return config.Prerequisites{DaemonSets: daemonsets.Settings{Named: []daemonsets.Entry{{Namespace: "x", Name: name}}}}
}

// podOf is a pod of a DaemonSet on a node.
func podOf(ds, nodeName string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := pod(ds+"-"+nodeName, nodeName, changes...)
	p.OwnerReferences = []metav1.OwnerReference{controllerRef(daemonSet(ds).UID)}
	return p
}

func deleted(ds *appsv1.DaemonSet) *appsv1.DaemonSet {
	ds.DeletionTimestamp, ds.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"foregroundDeletion"}
	return ds
}

// renamed lets a DaemonSet have two pods on a node.
func renamed(p *corev1.Pod) { p.Name += "-2" }

func TestDaemonSets(t *testing.T) {
	var many []runtime.Object
	for i := range 8 {
		many = append(many, daemonSet(fmt.Sprint("d", 7-i)))
	}
	intolerant := daemonSet("d", tolerates)
	stranger := podOf("d", "node-a", ready)
	stranger.OwnerReferences[0].UID = "before"
	for name, test := range map[string]struct {
		objects []runtime.Object
		auto    string // why, with auto
		named   string // why, with x/d named
	}{
		"no DaemonSet": {named: "there is no such DaemonSet"},
		"no pod":       {objects: []runtime.Object{daemonSet("d"), podOf("d", "node-b", ready), podOf("d", "", ready)}, auto: "x/d (none on the node)", named: "none on the node"},
		"another's":    {objects: []runtime.Object{daemonSet("d"), stranger}, auto: "x/d (none on the node)", named: "none on the node"},
		"not Ready":    {objects: []runtime.Object{daemonSet("d"), podOf("d", "node-a")}, auto: "x/d (not Ready)", named: "not Ready"},
		"terminating":  {objects: []runtime.Object{daemonSet("d"), podOf("d", "node-a", ready, terminating)}, auto: "x/d (terminating)", named: "terminating"},
		"replaced":     {objects: []runtime.Object{daemonSet("d"), podOf("d", "node-a", ready, terminating), podOf("d", "node-a", renamed)}, auto: "x/d (not Ready)", named: "not Ready"},
		"Ready":        {objects: []runtime.Object{daemonSet("d"), podOf("d", "node-a", ready)}},
		"one of two":   {objects: []runtime.Object{daemonSet("d"), daemonSet("e"), podOf("d", "node-a", ready)}, auto: "x/e (none on the node)"},
		"not here":     {objects: []runtime.Object{intolerant}},
		"excluded":     {objects: []runtime.Object{daemonSet("excluded"), daemonSet("d"), podOf("d", "node-a", ready)}},
		"deleted":      {objects: []runtime.Object{deleted(daemonSet("d"))}, named: "there is no such DaemonSet"},
		"many": {objects: many, auto: "x/d0 (none on the node), x/d1 (none on the node), x/d2 (none on the node), x/d3 (none on the node), x/d4 (none on the node) and 3 more",
			named: "there is no such DaemonSet"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, one := allDaemonSets("excluded"), theDaemonSet("d")
				f := prepare(t, all, nil, nil, one)
				for _, o := range test.objects {
					f.must(f.kubernetes.Tracker().Add(o))
				}
				n := node("node-a")
				n.Spec.Taints = []corev1.Taint{gating}
				check := func(p config.Prerequisites, prefix, why string) {
					t.Helper()
					if why != "" {
						why = prefix + why
					}
					got := ""
					for _, w := range f.Unmet(n, p) {
						got += w.Message
						if waits := (decide.Plan{Unmet: []decide.Unmet{w}}).WaitingLabels(decide.Input{}); strings.Contains(w.Message, "DaemonSets x/") && !strings.HasPrefix(waits[0].For, "daemonSets x/") {
							t.Errorf("metrics say that it waits for %v", waits)
						}
					}
					if got != why {
						t.Errorf("waits for %q, want %q", got, why)
					}
				}
				check(all, "", "Ready pods of all DaemonSets (not read yet)")
				check(one, "", "a Ready pod of DaemonSet x/d (not read yet)")
				f.start()
				check(all, "Ready pods of DaemonSets ", test.auto)
				if test.named != "" {
					test.named = "(" + test.named + ")"
				}
				check(one, "a Ready pod of DaemonSet x/d ", test.named)
			})
		})
	}
}

// A pod enqueues the node that it is on, a DaemonSet all that wait for it, and what changes no reason nobody.
func TestDaemonSetsWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, one := allDaemonSets(), theDaemonSet("d")
		f := prepare(t, all, nil, nil, one)
		f.must(f.kubernetes.Tracker().Add(daemonSet("d")))
		f.start()
		if f.Unmet(node("node-a"), all) == nil || f.Unmet(node("node-b"), one) == nil {
			t.Fatal("nobody waits")
		}
		pods, sets := f.kubernetes.CoreV1().Pods("x"), f.kubernetes.AppsV1().DaemonSets("x")
		update := func(ds *appsv1.DaemonSet) {
			_, err := sets.Update(f.ctx, ds, metav1.UpdateOptions{})
			f.must(err)
		}
		f.enqueuesOnly("a pod on node-a", func() {
			_, err := pods.Create(f.ctx, podOf("d", "node-a"), metav1.CreateOptions{})
			f.must(err)
		}, "node-a")
		f.enqueuesOnly("its annotation", func() {
			_, err := pods.Update(f.ctx, podOf("d", "node-a", warm), metav1.UpdateOptions{})
			f.must(err)
		})
		f.enqueuesOnly("a DaemonSet's status", func() {
			counted := daemonSet("d")
			counted.Status.NumberReady = 4711
			update(counted)
		})
		f.enqueuesOnly("another DaemonSet", func() {
			_, err := sets.Create(f.ctx, daemonSet("e", selects), metav1.CreateOptions{})
			f.must(err)
		}, "node-a")
		f.enqueuesOnly("its readiness", func() {
			_, err := pods.Update(f.ctx, podOf("d", "node-a", ready), metav1.UpdateOptions{})
			f.must(err)
		}, "node-a")
		if waits := f.Unmet(node("node-a"), all); waits != nil {
			t.Errorf("node-a waits for %v", waits)
		}
		f.enqueuesOnly("a DaemonSet that no longer comes to node-b", func() { update(daemonSet("d", selects)) }, "node-b")
		if waits := f.Unmet(node("node-b"), one); waits != nil {
			t.Errorf("node-b waits for %v", waits)
		}
	})
}

// registered is a DaemonSet whose owner has new nodes wait for it.
func registered(ds *appsv1.DaemonSet) *appsv1.DaemonSet {
	ds.Labels = map[string]string{"node-ready/required": "true"}
	return ds
}

// A selector waits for each DaemonSet that it matches, like a name does, and for none where it matches none.
func TestDaemonSetSelector(t *testing.T) {
	required := func(namespace string) config.Prerequisites {
		return config.Prerequisites{DaemonSets: daemonsets.Settings{Named: []daemonsets.Entry{{Namespace: namespace,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"node-ready/required": "true"}}}}}}
	}
	synctest.Test(t, func(t *testing.T) {
		everywhere, inY := required(""), required("y")
		f := prepare(t, everywhere, nil, nil, inY)
		for _, o := range []runtime.Object{
			registered(daemonSet("d")), daemonSet("other"), registered(elsewhere(daemonSet("e"))),
			registered(daemonSet("intolerant", tolerates)), registered(deleted(daemonSet("gone"))),
		} {
			f.must(f.kubernetes.Tracker().Add(o))
		}
		n := node("node-a")
		n.Spec.Taints = []corev1.Taint{gating}
		f.is("before it is read", n, "Ready pods of DaemonSets node-ready/required=true (not read yet)", "")
		f.start().is("at first", n, "Ready pods of DaemonSets x/d (none on the node), y/e (none on the node)", "")
		if waits := f.Unmet(n, inY); len(waits) != 1 || waits[0].Message != "Ready pods of DaemonSets y/e (none on the node)" ||
			waits[0].Name != "node-ready/required=true in namespace y" || fmt.Sprint(waits[0].Objects) != "[y/e]" {
			t.Errorf("in one namespace: %+v", waits)
		}
		f.Unmet(n, everywhere)
		sets := f.kubernetes.AppsV1().DaemonSets("x")
		f.enqueuesOnly("a DaemonSet that registers", func() {
			_, err := sets.Create(f.ctx, registered(daemonSet("late")), metav1.CreateOptions{})
			f.must(err)
		}, "node-a")
		for _, pod := range []*corev1.Pod{podOf("d", "node-a", ready), elsewhere(podOf("e", "node-a", ready)), podOf("late", "node-a", ready)} {
			f.must(f.kubernetes.Tracker().Add(pod))
		}
		synctest.Wait()
		f.is("once all are Ready", n, "", "")
	})
	synctest.Test(t, func(t *testing.T) {
		f := prepare(t, required(""), nil, nil)
		f.must(f.kubernetes.Tracker().Add(daemonSet("d")))
		f.start().is("where none registered", node("node-a"), "", "")
	})
}

// lists counts how often all objects of an informer are read.
type lists struct {
	cache.SharedIndexInformer
	count int
}

type countedIndexer struct {
	cache.Indexer
	lists *lists
}

func (l *lists) GetIndexer() cache.Indexer {
	return countedIndexer{l.SharedIndexInformer.GetIndexer(), l}
}

func (c countedIndexer) List() []any {
	c.lists.count++
	return c.Indexer.List()
}

// With auto the DaemonSets are read once for each look at a node, also where its prerequisites do not hold.
func TestDaemonSetsAreReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := allDaemonSets()
		f := prepare(t, all, nil, nil)
		f.must(f.kubernetes.Tracker().Add(daemonSet("d")))
		f.start()
		sets := f.informers[all.All()[0].Sources[0].Key()]
		counted := &lists{SharedIndexInformer: sets.cache}
		sets.cache = counted
		if waits := f.Unmet(node("node-a"), all); len(waits) != 1 || len(waits[0].Objects) != 1 || counted.count != 1 {
			t.Errorf("%d reads, waits for %v", counted.count, waits)
		}
	})
}

// A label that comes before the release brings a DaemonSet, and the node waits for it from then on. One that goes takes
// it away.
func TestLabelBringsADaemonSet(t *testing.T) {
	for name, p := range map[string]config.Prerequisites{"auto": allDaemonSets(), "named": theDaemonSet("driver")} {
		synctest.Test(t, func(t *testing.T) {
			f := prepare(t, p, nil, nil)
			for _, o := range []runtime.Object{daemonSet("driver", selects), daemonSet("agent"), podOf("agent", "node-a", ready)} {
				f.must(f.kubernetes.Tracker().Add(o))
			}
			f.start()
			n := node("node-a")
			n.Spec.Taints = []corev1.Taint{gating}
			waits := func(when, want string) {
				t.Helper()
				synctest.Wait()
				got := ""
				for _, u := range f.Unmet(n, p) {
					got += u.Message
				}
				if (got == "") != (want == "") || !strings.Contains(got, want) {
					t.Errorf("%s, %s: waits for %q, want %q", name, when, got, want)
				}
			}
			waits("without the label", "")
			n.Labels = map[string]string{"pool": "gpu"}
			waits("with the label", "none on the node")
			f.must(f.kubernetes.Tracker().Add(podOf("driver", "node-a")))
			waits("its pod starts", "not Ready")
			n.Labels = nil
			waits("the label goes", "")
			n.Labels = map[string]string{"pool": "gpu"}
			_, err := f.kubernetes.CoreV1().Pods("x").Update(f.ctx, podOf("driver", "node-a", ready), metav1.UpdateOptions{})
			f.must(err)
			waits("its pod is Ready", "")
		})
	}
}
