package node

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// A device plugin that registers late ends a wait for what is allocatable, without a change of anything else.
func TestAllocatableWakesItsNode(t *testing.T) {
	offers := func(version, gpus string) *corev1.Node {
		n := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"example.com/gpu": resource.MustParse(gpus)}}}
		n.ResourceVersion = version
		return n
	}
	r := Reconciler{View: &controller.View{Config: &config.Config{}}}
	for _, test := range []struct {
		old, now *corev1.Node
		want     bool
	}{
		{offers("1", "0"), offers("2", "1"), true},
		{offers("1", "1"), offers("2", "1"), false},
	} {
		if got := r.nodeChanges().Update(event.UpdateEvent{ObjectOld: test.old, ObjectNew: test.now}); got != test.want {
			t.Errorf("%v to %v: woken %v", test.old.Status.Allocatable, test.now.Status.Allocatable, got)
		}
	}
}

// A condition that becomes ours, or is ours no longer, enqueues its node, also where only its reason changes.
func TestReasonWakesItsNode(t *testing.T) {
	with := func(kind corev1.NodeConditionType, reason string) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: kind, Status: corev1.ConditionTrue, Reason: reason}}}}
	}
	r := Reconciler{View: &controller.View{Config: &config.Config{}}}
	for name, test := range map[string]struct {
		old, now *corev1.Node
		want     bool
	}{
		"becomes ours":       {with("a/B", "Theirs"), with("a/B", marks.ReasonVerificationFailed), true},
		"is ours no longer":  {with("a/B", marks.ReasonVerificationFailed), with("a/B", "Theirs"), true},
		"stays ours":         {with("a/B", marks.ReasonVerificationFailed), with("a/B", marks.ReasonVerificationFailed), false},
		"another program's":  {with("a/B", "Theirs"), with("a/B", "StillTheirs"), false},
		"our verification's": {with(marks.ConditionType, marks.ReasonVerifying), with(marks.ConditionType, marks.ReasonChecksPassed), false},
	} {
		if got := r.nodeChanges().Update(event.UpdateEvent{ObjectOld: test.old, ObjectNew: test.now}); got != test.want {
			t.Errorf("%s: woken %v", name, got)
		}
	}
}

// A heartbeat enqueues nothing, and neither does a write that changes nothing which a decision reads. A finalizer does:
// it may be all that shows whose the node is.
func TestHeartbeatsWakeNoNode(t *testing.T) {
	r, _ := reconciler(t)
	for name, test := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"a heartbeat": {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }, false},
		"a reason":    {func(n *corev1.Node) { n.Status.Conditions[0].Reason = "Another" }, false},
		"a status":    {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, true},
		"a finalizer": {func(n *corev1.Node) { n.Finalizers = []string{"karpenter.sh/termination"} }, true},
		"an owner":    {func(n *corev1.Node) { n.OwnerReferences = []metav1.OwnerReference{{Kind: "NodeClaim", UID: "c"}} }, true},
	} {
		ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}
		old := done()
		old.ResourceVersion, old.Status.Conditions = "1", append([]corev1.NodeCondition{ready}, old.Status.Conditions...)
		now := old.DeepCopy()
		now.ResourceVersion = "2"
		test.change(now)
		if got := r.nodeChanges().Update(event.UpdateEvent{ObjectOld: old, ObjectNew: now}); got != test.want {
			t.Errorf("%s: woken %v", name, got)
		}
	}
}

// In an outage nodes that come must not queue behind those that fail, whatever enqueues those.
func TestNodesThatFailGoLast(t *testing.T) {
	gated := marks.Facts{Gated: true}
	failed, passed := gated, gated
	failed.Record.LastOutcome, passed.Record.LastOutcome = attempt.Failed, attempt.Passed
	unclear := gated
	unclear.Record.LastOutcome = attempt.Inconclusive
	for name, test := range map[string]struct {
		facts marks.Facts
		want  int
	}{
		"new": {gated, 0}, "passed before, gated again": {passed, 0}, "failed": {failed, failing}, "inconclusive": {unclear, failing}, "released": {marks.Facts{}, tidy},
	} {
		if got := urgency(test.facts); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}

	result := func(o attempt.Outcome) *attempt.Result { return &attempt.Result{Outcome: o} }
	for name, test := range map[string]struct {
		pod  workerpod.Observation
		want int
	}{
		"passed":           {workerpod.Observation{Attempt: attempt.Attempt{Result: result(attempt.Passed)}}, release},
		"failed":           {workerpod.Observation{Attempt: attempt.Attempt{Result: result(attempt.Failed)}}, failing},
		"cannot be pulled": {workerpod.Observation{Attempt: attempt.Attempt{Result: result(attempt.Inconclusive)}, Occupies: true}, failing},
		"vanished":         {workerpod.Observation{}, failing},
		"began":            {workerpod.Observation{Occupies: true}, tidy},
	} {
		q := priorityqueue.New[reconcile.Request]("test")
		(&Reconciler{}).enqueueNode(test.pod, q)
		if _, got, _ := q.GetWithPriority(); got != test.want {
			t.Errorf("a pod that %s: %d, want %d", name, got, test.want)
		}
		q.ShutDown()
	}
}

// nodes is a cache in which every node is gated but those of that name and "host", which are done; host has a pod.
type nodes struct {
	podCache
	done *corev1.Node
}

func (c *nodes) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	n := o.(*corev1.Node)
	if key.Name == c.done.Name || key.Name == "host" {
		c.done.DeepCopyInto(n)
	} else {
		n.Spec.Taints = []corev1.Taint{{Key: config.DefaultTaintKey, Effect: corev1.TaintEffectNoSchedule}}
	}
	c.pods = nil
	if key.Name == "host" {
		c.pods = []corev1.Pod{{}}
	}
	n.Name = key.Name
	return nil
}

// Each node that is not done, or has a pod, is enqueued once in ten intervals, evenly: none is forgotten where a watch has missed it, and
// none has a timer.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := reconciler(t) // intervals of 30 s
		done := done()
		r.View.Cache = &nodes{done: done}
		all := []string{}
		for i := range 599 {
			all = append(all, strconv.Itoa(i))
		}
		all = append(all, "host", done.Name)
		var mu sync.Mutex
		names := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return all
		}
		r.Cached = listed(names)
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		if err := r.queue.set(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = r.sweep(ctx) }()
		const round = 300 * time.Second
		time.Sleep(time.Second + time.Millisecond) // it begins
		for rest, want := 2, []int{300, 600}; rest > 0; rest-- {
			time.Sleep(round / 2)
			if got := q.Len(); got != want[2-rest] {
				t.Errorf("%d nodes are enqueued, want %d", got, want[2-rest])
			}
		}
		for q.Len() > 0 {
			req, _ := q.Get()
			q.Done(req)
		}
		mu.Lock()
		all = append(all, "late")
		mu.Unlock()
		time.Sleep(2 * round)
		if got := q.Len(); got != 601 {
			t.Errorf("%d nodes are enqueued in a later round, want 601", got)
		}
	})
}

// listed are the names of all nodes of a cache, none of which has a taint.
type listed func() []string

func (l listed) Names() []string { return l() }

func (listed) Tainted(func(corev1.Taint) bool) []string { return nil }

// byName is a cache of nodes without pods.
type byName struct {
	podCache
	nodes map[string]*corev1.Node
}

func (c *byName) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	c.nodes[key.Name].DeepCopyInto(o.(*corev1.Node))
	return nil
}

func (c *byName) Names() []string { return slices.Sorted(maps.Keys(c.nodes)) }

func (c *byName) Tainted(match func(corev1.Taint) bool) []string {
	return slices.DeleteFunc(c.Names(), func(name string) bool {
		return !slices.ContainsFunc(c.nodes[name].Spec.Taints, match)
	})
}

// A process that begins to lead does not wait until its watch has shown it all nodes: those that a taint of ours holds come at once.
func TestHeldNodesComeFirst(t *testing.T) {
	r, _ := reconciler(t)
	tainted := func(name, key string) *corev1.Node {
		return done(func(n *corev1.Node) {
			n.Name, n.Spec.Taints = name, []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}
		})
	}
	failed := tainted("failed", config.DefaultTaintKey)
	record := marks.Record{NodeUID: "uid-n", BootID: "boot", Sequence: 1, LastOutcome: attempt.Failed}
	failed.Annotations = map[string]string{marks.AnnotationRecord: record.Encode()}
	c := &byName{nodes: map[string]*corev1.Node{"failed": failed, "gated": tainted("gated", config.DefaultTaintKey),
		"ruled": tainted("ruled", "readiness.k8s.io/cni"), "foreign": tainted("foreign", "example.com/maintenance"), "done": done()}}
	r.Cached, r.View.Cache = c, c
	q := priorityqueue.New[reconcile.Request]("test")
	defer q.ShutDown()
	first := heldFirst{source.Func(func(context.Context, queue) error { return nil }), r.enqueueHeld}
	if _, waits := any(first).(source.SyncingSource); waits {
		t.Error("the workers wait for the source")
	}
	if err := first.Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for q.Len() > 0 {
		req, priority, _ := q.GetWithPriority()
		got[req.Name] = priority
	}
	if want := map[string]int{"gated": 0, "ruled": 0, "failed": failing}; !maps.Equal(got, want) {
		t.Errorf("the queue has %v, want %v", got, want)
	}
}

// done is a node about which there is nothing to do, with these changes.
func done(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{}
	n.Name, n.UID = "n", "uid-n"
	n.Status.NodeInfo.BootID = "boot"
	n.Labels = map[string]string{config.DefaultLabelKey: "true", corev1.LabelOSStable: "linux"}
	now := time.Now()
	record := marks.Record{NodeUID: "uid-n", BootID: "boot", Sequence: 1, LastOutcome: attempt.Passed, LastTime: &now, VerifiedTime: &now}
	n.Annotations = map[string]string{marks.AnnotationRecord: record.Encode()}
	n.Status.Conditions = []corev1.NodeCondition{{Type: marks.ConditionType, Status: corev1.ConditionTrue,
		Reason: marks.ReasonChecksPassed, Message: "All required checks passed in 0s, attempt 1"}}
	for _, f := range change {
		f(n)
	}
	return n
}

// A process that begins to lead looks at once at the nodes about which something may have to be done, and leaves the others to the sweep.
func TestNodesThatAreDoneAreNotEnqueuedAtTheStart(t *testing.T) {
	r, _ := reconciler(t)
	for name, test := range map[string]struct {
		node    *corev1.Node
		later   bool
		concern bool
		want    int
	}{
		"done":              {node: done()},
		"came later":        {node: done(), later: true, want: 1},
		"a rule selects it": {node: done(), concern: true, want: 1},
		"a rule owned its taint": {node: done(func(n *corev1.Node) {
			n.Annotations[marks.AnnotationRules] = marks.Owned{"uid-r": {Key: "a/b", Effect: corev1.TaintEffectNoSchedule}}.Encode()
		}), want: 1},
		"gated": {node: done(func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: config.DefaultTaintKey, Effect: corev1.TaintEffectNoSchedule}}
		}), want: 1},
		"label lost":               {node: done(func(n *corev1.Node) { delete(n.Labels, config.DefaultLabelKey) }), want: 1},
		"no marks":                 {node: done(func(n *corev1.Node) { n.Labels, n.Annotations, n.Status.Conditions = nil, nil, nil })},
		"no condition":             {node: done(func(n *corev1.Node) { n.Status.Conditions = nil }), want: 1},
		"condition says otherwise": {node: done(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }), want: 1},
		"rebooted":                 {node: done(func(n *corev1.Node) { n.Status.NodeInfo.BootID = "another" }), want: 1},
		"a condition asks for its remediation": {node: done(func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "a/B", Reason: marks.ReasonVerificationFailed})
		}), want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			q := priorityqueue.New[reconcile.Request]("test")
			defer q.ShutDown()
			r.Rules = concerning(test.concern)
			r.nodeHandler().Create(t.Context(), event.CreateEvent{Object: test.node, IsInInitialList: !test.later}, q)
			if got := q.Len(); got != test.want {
				t.Errorf("%d nodes are enqueued, want %d", got, test.want)
			}
		})
	}
}

// concerning are rules that concern every node, or none.
type concerning bool

func (c concerning) Concern(*corev1.Node) bool           { return bool(c) }
func (concerning) Plan(*corev1.Node) (rule.Plan, func()) { return rule.Plan{}, func() {} }
func (concerning) Confirm(context.Context, client.Reader, rule.Plan, bool) (bool, error) {
	return true, nil
}
func (concerning) RecordWrite(*corev1.Node, rule.Plan)          {}
func (concerning) RecordFailure(*corev1.Node, rule.Plan, error) {}
func (concerning) ForgetNode(string)                            {}

// A control probe that was changed enqueues its host, when the process begins and later, and nobody waits for it.
func TestAlteredProbeWakesItsHost(t *testing.T) {
	r, _ := reconciler(t)
	probe := r.View.Builder.Probe(workerpod.Target{Name: "host", UID: "uid-host"}, r.View.Config.For(nil), "uid-n/1", "group")
	altered := probe.DeepCopy()
	altered.OwnerReferences = nil
	for name, test := range map[string]struct {
		see  func(handler.EventHandler, queue)
		want []string
	}{
		"created": {func(h handler.EventHandler, q queue) {
			h.Create(t.Context(), event.CreateEvent{Object: altered}, q)
		}, []string{"host"}},
		"of before this process": {func(h handler.EventHandler, q queue) {
			h.Create(t.Context(), event.CreateEvent{Object: altered, IsInInitialList: true}, q)
		}, []string{"host"}},
		"changed later": {func(h handler.EventHandler, q queue) {
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: probe, ObjectNew: altered}, q)
		}, []string{"host"}},
		"gone": {func(h handler.EventHandler, q queue) {
			h.Delete(t.Context(), event.DeleteEvent{Object: altered}, q)
		}, nil},
		"somebody else's": {func(h handler.EventHandler, q queue) {
			h.Create(t.Context(), event.CreateEvent{Object: &corev1.Pod{}}, q)
		}, nil},
	} {
		q := priorityqueue.New[reconcile.Request]("test")
		test.see(r.podHandler(), q)
		var got []string
		for q.Len() > 0 {
			req, _, _ := q.GetWithPriority()
			got = append(got, req.Name)
		}
		if q.ShutDown(); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
