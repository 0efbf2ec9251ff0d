package node_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// waits runs the controller for a number of turns in which a refused creation changes nothing.
func waits(l *world.Leader, count int) {
	l.W.Helper()
	for range count {
		before := l.WriteCount()
		l.Deliver()
		wait := l.ReconcileAll()
		changed := slices.ContainsFunc(l.Writes[before:], func(write string) bool { return write != "create Pod" })
		if !l.W.Kubelets(l) && !changed {
			l.W.Clock.Advance(wait)
		}
	}
}

// brokenWebhook makes every creation in the world's namespace fail, by a webhook that is down.
func brokenWebhook(w *world.World) {
	w.Helper()
	hook := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: "down.example.com", ClientConfig: admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.Namespace}},
		Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods", "configmaps"}}}},
		SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: ptr.To(int32(1)),
	}}}
	w.Create(hook)
	w.Cleanup(func() { _ = w.API.Delete(context.Background(), hook) })
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := client.NewDryRunClient(w.API).Create(w.Ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "try"}})
		if err != nil {
			return
		}
		if time.Now().After(end) {
			w.Fatal("the webhook is not called")
		}
	}
}

// A worker that the API server refuses, for any reason, causes a record, a condition and one event. It is tried again
// with backoff and spends no retry.
func TestRefusedWorker(t *testing.T) {
	for name, c := range map[string]struct {
		settings string
		large    bool // its pod is over what a request may hold
		prepare  func(*world.World, *world.Leader)
		says     string
		reason   string
		passes   bool // its answer may pass, so that it is tried again for half a minute before that is recorded
	}{
		"no namespace":       {settings: `{"worker": {"namespace": "not-there"}}`, says: `namespaces "not-there" not found`},
		"too large (413)":    {large: true, says: "limit"},
		"webhook down":       {prepare: func(w *world.World, _ *world.Leader) { brokenWebhook(w) }, says: "failed calling webhook", passes: true},
		"no service account": {settings: `{"worker": {"serviceAccountName": "not-there"}}`, says: `serviceaccount "not-there" not found`},
		"too many requests": {prepare: func(_ *world.World, l *world.Leader) {
			l.Refuse = func(client.Object) error { return world.Refusal(429, "create Pod") }
		}, says: "too many requests", passes: true},
		"server error": {prepare: func(_ *world.World, l *world.Leader) {
			l.Refuse = func(client.Object) error { return world.Refusal(503, "create Pod") }
		}, says: "unable to handle", passes: true},
		"a foreign pod has the name": {reason: attempt.ReasonNameTaken, says: "but the controller did not create it", prepare: func(w *world.World, l *world.Leader) {
			l.Refuse = func(o client.Object) error { // takes each name just before
				foreignPod(w, o.GetName())
				return nil
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.OnServer(t, c.settings)
			if c.large {
				w.Config.Worker.PodTemplate.Env = []corev1.EnvVar{{Name: "LARGE", Value: strings.Repeat("x", 4<<20)}}
			}
			n := w.Node("n")
			l := w.Lead()
			if c.prepare != nil {
				c.prepare(w, l)
			}
			began, tried := w.Clock.Now(), 0
			for w.Record(n.Name).Sequence == 0 && tried < 50 {
				waits(l, 1)
				tried++
			}
			if took := w.Clock.Now().Sub(began); c.passes != (took >= 30*time.Second) || took > 40*time.Second || tried > 20 {
				t.Errorf("it is recorded after %s and %d tries", took, tried)
			}
			for w.Clock.Now().Sub(began) < time.Minute {
				waits(l, 1)
			}
			if _, f := w.Get(n.Name); f.Condition == nil || f.Condition.Reason != marks.ReasonWorkerInconclusive {
				t.Errorf("after a minute: condition %+v", f.Condition)
			}
			waits(l, 25)
			_, f := w.Get(n.Name)
			reason := c.reason
			if reason == "" {
				reason = attempt.ReasonPodRefused
			}
			if r := f.Record; r.LastOutcome != attempt.Inconclusive || r.LastReason != reason || !strings.Contains(r.LastMessage, c.says) || r.Inconclusive < 2 || r.Attempts != 0 {
				t.Errorf("record %+v", r)
			}
			if c := f.Condition; c == nil || c.Reason != marks.ReasonWorkerInconclusive || c.Status != corev1.ConditionUnknown {
				t.Errorf("condition %+v", c)
			}
			if e := w.EventCount(n.Name, decide.EventInconclusive); e != 1 {
				t.Errorf("%d events", e)
			}
			if !f.Gated || len(l.Errs) > 0 || w.Created("verify") > 0 {
				t.Errorf("gated %t, errors %v, %d workers", f.Gated, l.Errs, w.Created("verify"))
			}
			took := w.Clock.Now().Sub(began)
			if attempts := time.Duration(f.Record.Sequence); attempts > 3+took/(1600*time.Millisecond) {
				t.Errorf("%d attempts in %s: without backoff", attempts, took)
			}
		})
	}
}

func foreignPod(w *world.World, name string) {
	w.Helper()
	w.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}, Spec: corev1.PodSpec{
		ServiceAccountName: "kube-node-ready-worker", Containers: []corev1.Container{{Name: "worker", Image: "i"}}}})
}

// An attempt is recorded as refused, but the API server created its worker. The next attempt does not start beside that
// worker, although no watch has shown it yet.
func TestRefusedWorkerThatNoWatchShows(t *testing.T) {
	w := world.OnServer(t, "")
	w.Exit = func(*corev1.Pod) int { return world.Stays }
	n := w.Node("n")
	l := w.Lead()
	l.StalePods = &corev1.PodList{}
	l.Refuse = func(o client.Object) error {
		l.Refuse = nil
		w.Must(w.Creates(w.Ctx, o))
		return world.Refusal(403, "create Pod")
	}
	l.Steps(2)
	if r := w.Record(n.Name); r.Sequence != 1 || r.LastReason != attempt.ReasonPodRefused || w.Created("verify") != 1 {
		t.Fatalf("%d workers, record %+v", w.Created("verify"), r)
	}
	l.Steps(6)
	if pods := w.Pods(n.Name); len(pods) != 1 || w.Created("verify") != 2 || pods[0].Annotations[workerpod.AnnotationAttempt] != "2" {
		t.Errorf("%d workers, of which %d are there", w.Created("verify"), len(pods))
	}
}

// The API server answered that it refuses the creation, but the worker exists. The next attempt waits until that worker
// has ended, however long that takes.
func TestNextAttemptWaitsForTheLastWorker(t *testing.T) {
	w := world.OnServer(t, "")
	w.Exit, w.Linger = func(*corev1.Pod) int { return world.Runs }, true
	n := w.Node("n")
	l := w.Lead(func(l *world.Leader) { l.Fault = world.Fault{At: 1, Code: 403, After: true} })
	l.Until(time.Minute, func() bool { return false })
	if pods := w.Pods(n.Name); len(pods) != 1 || pods[0].DeletionTimestamp == nil || w.Record(n.Name).Sequence != 1 {
		t.Errorf("%d pods, record %+v", len(pods), w.Record(n.Name))
	}
	if _, f := w.Get(n.Name); f.Condition == nil || !strings.Contains(f.Condition.Message, "to end") {
		t.Errorf("condition %+v", f.Condition)
	}
	w.Exit, w.Linger = func(*corev1.Pod) int { return 0 }, false
	l.Drive()
	if _, f := w.Get(n.Name); f.Gated || f.Record.Sequence != 2 || len(l.Errs) > 0 {
		t.Errorf("record %+v, errors %v", f.Record, l.Errs)
	}
}

// A transient refusal costs only another try. A burst of conflicts, for example when many pods are created at once
// under a ResourceQuota, causes no attempt, no event and no write to the node. Nor does a lost answer: the controller
// finds the worker by its name.
func TestRefusalThatPasses(t *testing.T) {
	for name, c := range map[string]struct {
		refusal func() error
		made    bool // the pod, all the same
	}{
		"a quota's conflict": {refusal: func() error {
			quotas := schema.GroupResource{Resource: "resourcequotas"}
			return apierrors.NewConflict(quotas, "critical", errors.New("the object has been modified"))
		}},
		"too many requests": {refusal: func() error { return world.Refusal(429, "create Pod") }},
		"internal error":    {refusal: func() error { return world.Refusal(500, "create Pod") }},
		"unavailable":       {refusal: func() error { return world.Refusal(503, "create Pod") }},
		"timeout":           {refusal: func() error { return world.Refusal(504, "create Pod") }, made: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.OnServer(t, "")
			n := w.Node("n")
			l := w.Lead()
			tries := 0
			l.Refuse = func(o client.Object) error {
				if tries++; tries > 5 || c.made && tries > 1 {
					return nil
				}
				if c.made {
					w.Must(w.Creates(w.Ctx, o))
				}
				return c.refusal()
			}
			began := w.Clock.Now()
			waits(l, 10)
			_, f := w.Get(n.Name)
			if f.Gated || f.Record.Sequence != 1 || w.EventCount(n.Name, decide.EventInconclusive) > 0 || len(l.Errs) > 0 {
				t.Errorf("after %s and %d tries: %+v, errors %v", w.Clock.Now().Sub(began), tries, f.Record, l.Errs)
			}
			l.Drive()
			others := slices.DeleteFunc(slices.Clone(l.Writes), func(w string) bool { return w == "create Pod" })
			if len(others) != 3 || w.Created("verify") != 1 {
				t.Errorf("%d workers, writes %v", w.Created("verify"), l.Writes)
			}
		})
	}
}

// While the API server rejects the pod of the next attempt for a time, the condition says that, and names no time of the
// next attempt that is over. It is not written for a refusal of less than five seconds.
func TestADelayedPodNamesNoPastTime(t *testing.T) {
	w := world.OnServer(t, `{"reconciliation": {"maxRetries": 5}}`)
	w.Exit = world.VerifyExits(1)
	n := w.Node("n")
	l := w.Lead()
	l.Until(time.Minute, func() bool { return w.Record(n.Name).Sequence == 1 })
	refused := time.Time{}
	l.Refuse = func(client.Object) error {
		if refused.IsZero() {
			refused = w.Clock.Now()
		}
		return world.Refusal(503, "create Pod")
	}
	for range 40 {
		waits(l, 1)
		c := w.ConditionText(n.Name)
		since := w.Clock.Now().Sub(refused)
		if refused.IsZero() || w.Record(n.Name).Sequence > 1 {
			continue
		}
		if late := since > 10*time.Second; late && (strings.Contains(c, "next attempt at") || !strings.Contains(c, "the API server rejects its worker pod")) {
			t.Fatalf("%s after the first refusal: %s", since, c)
		}
		if early := since < 4*time.Second; early && strings.Contains(c, "rejects its worker pod") {
			t.Fatalf("%s after the first refusal: %s", since, c)
		}
	}
	if r := w.Record(n.Name); r.Sequence < 2 || r.LastReason != attempt.ReasonPodRefused {
		t.Errorf("record %+v", r)
	}
}

// A probe that cannot be made ends in a failed attempt that is recorded and not counted against the node.
func TestRefusedProbe(t *testing.T) {
	probe := func(o client.Object) bool { return o.GetLabels()[workerpod.LabelPurpose] == workerpod.PurposeProbe }
	for name, prepare := range map[string]func(*world.World, *world.Leader, *corev1.Node, *corev1.Node){
		"refused": func(_ *world.World, l *world.Leader, _, _ *corev1.Node) {
			l.Refuse = func(o client.Object) error {
				if probe(o) {
					return world.Refusal(403, "create Pod")
				}
				return nil
			}
		},
		"a foreign pod has the name": func(w *world.World, _ *world.Leader, n, control *corev1.Node) {
			for _, number := range []string{"/1", "/2", "/3"} {
				foreignPod(w, workerpod.ProbeName(workerpod.Target{Name: control.Name, UID: string(control.UID)}, string(n.UID)+number))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.OnServer(t, `{"nodeManagement": {`+world.Deletes+`}}`)
			w.Exit = func(p *corev1.Pod) int {
				if w.Record(p.Annotations[workerpod.AnnotationNode]).Sequence < 3 {
					return 1
				}
				return 0
			}
			control := w.Verified("control")
			n := w.Node("n")
			l := w.Lead()
			prepare(w, l, n, control)
			for range 60 {
				if l.Steps(1); w.Record(n.Name).Sequence == 2 {
					break
				}
			}
			_, f := w.Get(n.Name)
			if r := f.Record; r.Sequence != 2 || r.LastOutcome != attempt.Inconclusive || r.Held != decide.GuardControlProbe || r.Attempts != 0 {
				t.Errorf("record %+v", r)
			}
			if e := w.EventCount(n.Name, decide.EventHeld); e != 1 {
				t.Errorf("%d events", e)
			}
			l.Drive()
			if _, f := w.Get(n.Name); f.Gated || !f.Labelled || len(l.Errs) > 0 {
				t.Errorf("it is not released once it passes: %+v, %v", f.Record, l.Errs)
			}
		})
	}
}

// A worker pod for a node that accepts workloads evicts no other pod. It has no priority class. It goes through the
// scheduler, unless the scheduler could preempt pods of a lower class for it.
func TestPodForAnOpenNodeNeverPreempts(t *testing.T) {
	for name, tc := range map[string]struct {
		class *schedulingv1.PriorityClass // the cluster's default
		bound bool
	}{
		"no default class":            {nil, false},
		"a default class":             {&schedulingv1.PriorityClass{Value: 1000}, true},
		"a default class of no haste": {&schedulingv1.PriorityClass{Value: 1000, PreemptionPolicy: ptr.To(corev1.PreemptNever)}, false},
		"a lower default class":       {&schedulingv1.PriorityClass{Value: -1000}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := world.OnServer(t, "")
			if class := tc.class; class != nil {
				class.Name, class.GlobalDefault = w.Namespace, true
				w.Create(class)
				t.Cleanup(func() { _ = w.API.Delete(context.Background(), class) })
				defaultsTo(w, class.Name)
			}
			n := w.Node("n", world.Untainted)
			w.WriteRecord(n, marks.Record{Sequence: 1, LastOutcome: attempt.Passed}) // whose label somebody has removed
			l := w.Lead()
			l.Deliver()
			l.ReconcileAll()
			pods := w.Pods(n.Name)
			if len(pods) != 1 || len(l.Errs) > 0 {
				t.Fatalf("%d pods, %v", len(pods), l.Errs)
			}
			p := pods[0].Spec
			if (p.NodeName != "") != tc.bound || *p.Priority > 1000 {
				t.Errorf("bound to %q, priority %d, preemption %v", p.NodeName, *p.Priority, *p.PreemptionPolicy)
			}
			l.Drive()
			if _, f := w.Get(n.Name); !f.Labelled || f.Record.Sequence != 2 {
				t.Errorf("%+v", f.Record)
			}
		})
	}
}

// A pod with claims cannot be bound without the scheduler. It is not created if the scheduler could preempt other pods
// for it.
func TestPodWithClaimsNeverPreempts(t *testing.T) {
	for name, preempts := range map[string]bool{"no default class": false, "a default class": true} {
		t.Run(name, func(t *testing.T) {
			w := world.OnServer(t, `{"worker": {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]}}`)
			if preempts {
				class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}, Value: 1000, GlobalDefault: true}
				w.Create(class)
				t.Cleanup(func() { _ = w.API.Delete(context.Background(), class) })
				defaultsTo(w, class.Name)
			}
			n := w.Node("n", world.Untainted)
			w.WriteRecord(n, marks.Record{Sequence: 1, LastOutcome: attempt.Passed})
			l := w.Lead()
			l.Deliver()
			l.ReconcileAll()
			pods, r := w.Pods(n.Name), w.Record(n.Name)
			switch {
			case !preempts && (len(pods) != 1 || pods[0].Spec.NodeName != "" || len(pods[0].Spec.ResourceClaims) != 1):
				t.Errorf("%+v", pods)
			case preempts && (len(pods) > 0 || r.LastReason != attempt.ReasonPodRefused || !strings.Contains(r.LastMessage, "preemptionPolicy Never")):
				t.Errorf("%d pods, record %+v", len(pods), r)
			}
		})
	}
}

// defaultsTo waits until the API server uses the class for pods without one.
func defaultsTo(w *world.World, class string) {
	w.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "try"}, Spec: corev1.PodSpec{
			ServiceAccountName: "kube-node-ready-worker", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		w.Must(client.NewDryRunClient(w.API).Create(w.Ctx, p))
		if p.Spec.PriorityClassName == class {
			return
		}
		if time.Now().After(end) {
			w.Fatalf("the default class is %q", p.Spec.PriorityClassName)
		}
	}
}
