package node_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// elsewhere is the affinity with which a policy replaces that of a worker (linode/apl-core#1549).
func elsewhere() *corev1.Affinity {
	pool := corev1.NodeSelectorRequirement{Key: "pool", Operator: corev1.NodeSelectorOpIn, Values: []string{"infra"}}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{pool}}}}}}
}

// alterations are what mutating policies make of a worker that is not for its node any more, by what the record says.
func alterations() map[string]func(*corev1.Pod) {
	return map[string]func(*corev1.Pod){
		"spec.affinity": func(p *corev1.Pod) { p.Spec.Affinity = elsewhere() },
		"spec.affinity does not pin": func(p *corev1.Pod) { // its terms are alternatives
			terms := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			terms.NodeSelectorTerms = append(terms.NodeSelectorTerms, elsewhere().NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms...)
		},
		"spec.nodeName":                                func(p *corev1.Pod) { p.Spec.NodeName = "another" },
		"metadata.ownerReferences":                     func(p *corev1.Pod) { p.OwnerReferences = nil },
		"metadata.labels[app.kubernetes.io/component]": func(p *corev1.Pod) { p.Labels[workerpod.LabelComponent] = "platform" },
		"metadata.labels[node-ready/node-uid]":         func(p *corev1.Pod) { delete(p.Labels, workerpod.LabelNodeUID) },
		"metadata.annotations[node-ready/attempt]":     func(p *corev1.Pod) { delete(p.Annotations, workerpod.AnnotationAttempt) },
		"metadata.annotations[node-ready/recorded]":    func(p *corev1.Pod) { p.Annotations[workerpod.AnnotationRecorded] = "true" },
		"spec.tolerations":                             func(p *corev1.Pod) { p.Spec.Tolerations = nil },
	}
}

// everyPod lists the pods of the world's namespace, whatever their labels, that nobody has deleted.
func everyPod(w *world.World) (kept []string) {
	w.Helper()
	var list corev1.PodList
	w.Must(w.API.List(w.Ctx, &list, client.InNamespace(w.Namespace)))
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			kept = append(kept, p.Name)
		}
	}
	return kept
}

// A policy changes each worker so that it is not for its node any more. Each is deleted at once, the attempt is refused
// with the field in its message, and the next ones wait as after any refusal. Once the policy is gone, the node passes.
func TestAlteredWorkerIsDeleted(t *testing.T) {
	for field, alter := range alterations() {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, `{"worker": {"scheduling": "scheduler"}}`)
			n := w.Node("n")
			l := w.Lead()
			created := 0
			l.Refuse = func(o client.Object) error {
				created++
				alter(o.(*corev1.Pod))
				return nil
			}
			l.RunFor(45 * time.Second)
			_, f := w.Get(n.Name)
			if r := f.Record; !f.Gated || r.LastReason != attempt.ReasonPodRefused || !strings.Contains(r.LastMessage, field) || r.Attempts != 0 {
				t.Errorf("record %+v", r)
			}
			if kept := everyPod(w); len(kept) > 0 || created > 30 || len(l.Errs) > 0 {
				t.Errorf("of %d workers are left: %v (%v)", created, kept, l.Errs)
			}
			if c := f.Condition; c == nil || c.Reason != marks.ReasonWorkerInconclusive || !strings.Contains(c.Message, field) {
				t.Errorf("condition %+v", c)
			}
			if e := w.EventCount(n.Name, decide.EventInconclusive); e != 1 {
				t.Errorf("%d events", e)
			}
			l.Refuse = nil
			l.Drive()
			if _, f := w.Get(n.Name); f.Gated || len(l.Errs) > 0 {
				t.Errorf("once the policy is gone: %+v (%v)", f.Record, l.Errs)
			}
		})
	}
}

// The process ends between the creation of a worker that a policy changed and its deletion. The successor finds it by its
// name, although its cache does not show it as one of ours, and deletes it.
func TestAlteredWorkerOfAProcessThatEnded(t *testing.T) {
	for field, alter := range alterations() {
		if field == "metadata.annotations[node-ready/recorded]" || field == "spec.tolerations" {
			continue // still ours: it is handled as a worker that ended, or that is not scheduled
		}
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, `{"worker": {"scheduling": "scheduler"}}`)
			n := w.Node("n")
			first := w.Lead(func(l *world.Leader) { l.Fault = world.Fault{At: 1} })
			first.Refuse = func(o client.Object) error {
				alter(o.(*corev1.Pod))
				return nil
			}
			first.Steps(2)
			if kept := everyPod(w); len(kept) != 1 {
				t.Fatalf("%v", kept)
			}
			l := w.Lead()
			l.Steps(2)
			if r := w.Record(n.Name); r.LastReason != attempt.ReasonPodRefused || !strings.Contains(r.LastMessage, field) {
				t.Errorf("record %+v", r)
			}
			if kept := everyPod(w); len(kept) > 0 {
				t.Errorf("%v are left", kept)
			}
			l.Drive()
			if _, f := w.Get(n.Name); f.Gated || len(l.Errs) > 0 {
				t.Errorf("%+v (%v)", f.Record, l.Errs)
			}
		})
	}
}

// As above, of an open node, to whose worker a policy gives a priority for which the kubelet ends workloads. A pod that
// the gate closed for may have it, also once the gate is open.
func TestCriticalWorkerOfAProcessThatEnded(t *testing.T) {
	for name, c := range map[string]struct {
		priority int32
		gated    bool
		deleted  bool
	}{
		"critical":                      {2_000_001_000, false, true},
		"the lowest critical one":       {2_000_000_000, false, true},
		"the highest that a user gives": {1_000_000_000, false, false},
		"critical, and gated":           {2_000_001_000, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, `{"worker": {"scheduling": "scheduler"}}`)
			var changes []func(*corev1.Node)
			if !c.gated {
				changes = append(changes, world.Untainted)
			}
			n := w.Node("n", changes...)
			if !c.gated {
				w.WriteRecord(n, marks.Record{Sequence: 1, LastOutcome: attempt.Passed}) // whose label somebody has removed
			}
			first := w.Lead(func(l *world.Leader) { l.Fault = world.Fault{At: 1} })
			first.Refuse = func(o client.Object) error {
				o.(*corev1.Pod).Spec.Priority = &c.priority
				return nil
			}
			first.Steps(2)
			before := everyPod(w)
			if len(before) != 1 {
				t.Fatalf("%v", before)
			}
			l := w.Lead()
			l.Steps(2)
			refused := w.Record(n.Name).LastReason == attempt.ReasonPodRefused
			if kept := everyPod(w); refused != c.deleted || (len(kept) == 0) != c.deleted {
				t.Errorf("record %+v, %v are left", w.Record(n.Name), kept)
			}
			l.Drive()
			if _, f := w.Get(n.Name); !f.Labelled || len(l.Errs) > 0 {
				t.Errorf("%+v (%v)", f.Record, l.Errs)
			}
		})
	}
}

// A control probe that a policy changed is deleted as well, and the failure is not counted against the node.
func TestAlteredProbeIsDeleted(t *testing.T) {
	w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`}}`)
	w.Exit = world.VerifyExits(1)
	w.Verified("control")
	n := w.Node("n")
	l := w.Lead()
	l.Refuse = func(o client.Object) error {
		if p := o.(*corev1.Pod); world.IsProbe(p) {
			p.Spec.Affinity = elsewhere()
		}
		return nil
	}
	l.Until(time.Minute, func() bool { return w.Record(n.Name).Sequence > 0 })
	if r := w.Record(n.Name); r.LastOutcome != attempt.Inconclusive || r.Attempts != 0 || !strings.Contains(r.HeldMessage, "spec.affinity") {
		t.Errorf("record %+v", r)
	}
	for _, p := range w.Pods("") {
		if world.IsProbe(&p) && p.DeletionTimestamp == nil {
			t.Errorf("probe %s is left", p.Name)
		}
	}
}

// The process ends between the creation of a control probe that a policy changed and its deletion. The successor records
// the failure without another probe, so nobody asks for the name again. Its host's turn deletes the probe, also if the
// host is gone.
func TestAlteredProbeOfAProcessThatEnded(t *testing.T) {
	fields := alterations()
	fields["metadata.annotations[node-ready/subject]"] = func(p *corev1.Pod) { delete(p.Annotations, workerpod.AnnotationSubject) }
	fields["metadata.annotations[node-ready/node]"] = func(p *corev1.Pod) { delete(p.Annotations, workerpod.AnnotationNode) }
	fields["metadata.labels[node-ready/purpose]"] = func(p *corev1.Pod) { p.Labels[workerpod.LabelPurpose] = "policy" }
	for _, ours := range []string{"metadata.annotations[node-ready/attempt]", "metadata.annotations[node-ready/recorded]", "spec.tolerations"} {
		delete(fields, ours) // still ours: it is handled as a probe that ended, or that is not scheduled
	}
	for field, alter := range fields {
		for _, hostGone := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, host gone %t", field, hostGone), func(t *testing.T) {
				t.Parallel()
				w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`}}`)
				w.Exit = world.VerifyExits(1)
				host, n := w.Verified("control"), w.Node("n")
				first := w.Lead(func(l *world.Leader) { l.Fault = world.Fault{At: 2} }) // the worker's creation, then the probe's
				probe := ""
				w.Policy = func(p *corev1.Pod) {
					if world.IsProbe(p) && probe == "" {
						probe = p.Name
						alter(p)
					}
				}
				first.Steps(4)
				if left := everyPod(w); !slices.Contains(left, probe) {
					t.Fatalf("%q is not in %v", probe, left)
				}
				if hostGone {
					w.Must(w.API.Delete(w.Ctx, host))
				}
				l := w.Lead()
				l.Until(time.Minute, func() bool { return w.Record(n.Name).Sequence > 0 && !slices.Contains(everyPod(w), probe) })
				if r := w.Record(n.Name); r.LastReason != attempt.ReasonFailureUnseen {
					t.Errorf("record %+v", r)
				}
				if left := everyPod(w); slices.Contains(left, probe) || len(l.Errs) > 0 {
					t.Errorf("%v are left (%v)", left, l.Errs)
				}
			})
		}
	}
}

// The deletion of a control probe that a policy changed is disturbed. Whether that is tried again or the failure is
// recorded, the probe goes.
func TestAlteredProbeGoesWhateverTheAnswer(t *testing.T) {
	for _, field := range []string{"spec.affinity", "metadata.ownerReferences", "metadata.labels[app.kubernetes.io/component]"} {
		for how, fault := range map[string]world.Fault{"403": {Code: 403}, "404": {Code: 404}, "409": {Code: 409}, "422": {Code: 422},
			"429": {Code: 429}, "500": {Code: 500}, "answer lost": {Code: 500, After: true}} {
			t.Run(field+", "+how, func(t *testing.T) {
				t.Parallel()
				w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`}}`)
				w.Verified("control")
				n := w.Node("n")
				inconclusive := func(r marks.Record) bool { return r.Inconclusive > 0 }
				w.Exit = world.FailsUntil(w, inconclusive)
				w.Policy = func(p *corev1.Pod) {
					if world.IsProbe(p) && !inconclusive(w.Record(n.Name)) {
						alterations()[field](p)
					}
				}
				fault.At = 3 // after the creations of the worker and of the probe
				l := w.Lead(func(l *world.Leader) { l.Fault = fault })
				l.Drive()
				if len(l.Writes) < 3 || l.Writes[2] != "delete Pod" {
					t.Fatalf("it writes %v", l.Writes)
				}
				if _, f := w.Get(n.Name); f.Gated || f.Record.LastOutcome != attempt.Passed || f.Record.Attempts > 0 {
					t.Errorf("record %+v", f.Record)
				}
				if left := everyPod(w); len(left) > 0 {
					t.Errorf("%v are left (%v)", left, l.Errs)
				}
			})
		}
	}
}

// A pod that only looks like a changed probe, and a probe that is as it was made, stay.
func TestOtherPodsThanAlteredProbesStay(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"ours":              func(*corev1.Pod) {},
		"a person's check":  func(p *corev1.Pod) { p.Name, p.Labels[workerpod.LabelPurpose] = "check-x", workerpod.PurposeCheck },
		"of no node":        func(p *corev1.Pod) { p.OwnerReferences, p.Annotations = nil, nil },
		"of another's name": func(p *corev1.Pod) { p.Name += "1" },
		"without the label": func(p *corev1.Pod) { delete(p.Labels, workerpod.LabelPurpose) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, "")
			w.Exit = func(*corev1.Pod) int { return world.Stays }
			host := w.Verified("control")
			pod := w.Builder().Probe(workerpod.Target{Name: host.Name, UID: string(host.UID)}, w.Config.For(nil), "x/1", "group")
			change(pod)
			w.Create(pod)
			w.Lead().Steps(2)
			if left := everyPod(w); len(left) != 1 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// What the cache shows of a changed probe may be behind: one that is ours by now stays, and one that goes is not asked
// for again.
func TestAlteredProbeIsReadBeforeItsEnd(t *testing.T) {
	for name, now := range map[string]func(*corev1.Pod){
		"ours again": func(*corev1.Pod) {},
		"it goes": func(p *corev1.Pod) {
			p.OwnerReferences, p.Finalizers = nil, []string{"test/keeps"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, "")
			w.Exit = func(*corev1.Pod) int { return world.Stays }
			host := w.Verified("control")
			made := w.Builder().Probe(workerpod.Target{Name: host.Name, UID: string(host.UID)}, w.Config.For(nil), "x/1", "group")
			pod := made.DeepCopy()
			now(pod)
			w.Create(pod)
			if len(pod.Finalizers) > 0 {
				w.Must(w.API.Delete(w.Ctx, pod))
			}
			l := w.Lead()
			stale := pod.DeepCopy()
			stale.OwnerReferences = nil
			l.StalePods = &corev1.PodList{Items: []corev1.Pod{*stale}}
			l.Steps(2)
			if slices.Contains(l.Writes, "delete Pod") || len(l.Errs) > 0 {
				t.Errorf("%v (%v)", l.Writes, l.Errs)
			}
		})
	}
}
