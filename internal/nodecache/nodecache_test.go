package nodecache

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// node is a Node whose fields are drawn, each set in some of the draws.
func node(r *rand.Rand) *corev1.Node {
	some := func() bool { return r.IntN(2) == 0 }
	text := func(of string) string { return fmt.Sprintf("%s-%d", of, r.IntN(3)) }
	at := func() (t metav1.Time) {
		if some() {
			t = metav1.Unix(r.Int64N(4e9), 0)
		}
		return t
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: text("node"), UID: types.UID(text("uid")),
		ResourceVersion: text("version"), CreationTimestamp: at()}}
	if some() {
		n.DeletionTimestamp = ptr.To(metav1.Unix(r.Int64N(4e9), 0))
	}
	for range r.IntN(4) {
		n.Labels = with(n.Labels, text("key"), text("value"))
		n.Annotations = with(n.Annotations, text("key"), text("value"))
		n.Finalizers = append(n.Finalizers, text("finalizer"))
		n.OwnerReferences = append(n.OwnerReferences, metav1.OwnerReference{APIVersion: text("v"), Kind: text("Kind"), Name: text("owner"),
			UID: types.UID(text("uid")), Controller: []*bool{nil, ptr.To(false), ptr.To(true)}[r.IntN(3)], BlockOwnerDeletion: []*bool{nil, ptr.To(true)}[r.IntN(2)]})
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: text("key"), Value: text("value"), Effect: corev1.TaintEffectNoExecute,
			TimeAdded: []*metav1.Time{nil, ptr.To(metav1.Unix(r.Int64N(4e9), 0))}[r.IntN(2)]})
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: []corev1.NodeConditionType{corev1.NodeReady, "Other", marks.ConditionType}[r.IntN(3)],
			Status: corev1.ConditionStatus(text("status")), Reason: text("reason"), Message: text("message"), LastTransitionTime: at(), LastHeartbeatTime: at()})
	}
	if some() {
		n.Labels = with(n.Labels, corev1.LabelHostname, n.Name)
		n.Spec.ProviderID, n.Spec.Unschedulable = text("provider"), true
		n.Status.NodeInfo.BootID = text("boot")
		n.Status.Allocatable = corev1.ResourceList{"example.com/gpu": resource.MustParse("1"), "example.com/nic": resource.MustParse("2")}
	}
	return n
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// read is a Node with what decisions read of it.
func read(n *corev1.Node, k Keep) *corev1.Node {
	n = n.DeepCopy()
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		if c.Type != marks.ConditionType {
			c.Reason, c.Message = "", ""
		}
		if !k.Heartbeats {
			c.LastHeartbeatTime = metav1.Time{}
		}
	}
	for name := range n.Status.Allocatable {
		if !k.Allocatable[name] {
			delete(n.Status.Allocatable, name)
		}
	}
	if len(n.Status.Allocatable) == 0 {
		n.Status.Allocatable = nil
	}
	return n
}

// A Node that was packed says what it said, and what is done to it changes nothing in the cache.
func TestPackedNodesSayTheSame(t *testing.T) {
	keeps := []Keep{{}, {Heartbeats: true, Allocatable: map[corev1.ResourceName]bool{"example.com/gpu": true}}}
	filled := &corev1.Node{}
	for seed := range uint64(2000) {
		n, k := node(rand.New(rand.NewPCG(1, seed))), keeps[seed%2]
		want := read(n, k)
		p := pack(n, k)
		if p.fill(filled); !reflect.DeepEqual(filled, want) {
			t.Fatalf("seed %d: filled\n%+v, want\n%+v", seed, filled, want)
		}
		got, again := &corev1.Node{}, &corev1.Node{}
		if p.into(got); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: kept\n%+v, want\n%+v", seed, got, want)
		}
		for i := range got.Spec.Taints {
			got.Spec.Taints[i].Key = "changed"
		}
		for i := range got.Status.Conditions {
			got.Status.Conditions[i].Type = "changed"
		}
		for i := range got.Finalizers {
			got.Finalizers[i] = "changed"
		}
		clear(got.Labels)
		clear(got.Annotations)
		clear(got.Status.Allocatable)
		if p.into(again); !reflect.DeepEqual(again, want) {
			t.Fatalf("seed %d: a change of what was read changed the cache to\n%+v", seed, again)
		}
	}
}

// Two packed Nodes are the same where nothing but the version differs of what is kept.
func TestSame(t *testing.T) {
	for seed := range uint64(2000) {
		a := node(rand.New(rand.NewPCG(2, seed/2)))
		b := node(rand.New(rand.NewPCG(2, seed-seed/2))) // the same draw where seed is 0 or 1
		if seed%3 == 0 {
			b = a.DeepCopy()
			b.ResourceVersion = "another"
			for i := range b.Status.Conditions {
				b.Status.Conditions[i].LastHeartbeatTime = metav1.Unix(1, 0)
			}
		}
		want := read(a, Keep{})
		want.ResourceVersion = b.ResourceVersion
		same := reflect.DeepEqual(want, read(b, Keep{}))
		if got := pack(a, Keep{}).same(pack(b, Keep{})); got != same {
			t.Fatalf("seed %d: same is %v of\n%+v and\n%+v", seed, got, a, b)
		}
	}
}

// completed is the annotation of a node that completed a rule of that name, and completedBy who wrote it, and when.
const completed = "readiness.k8s.io/bootstrap-completed-net"

func completedBy(manager string) []metav1.ManagedFieldsEntry {
	return []metav1.ManagedFieldsEntry{{Manager: manager, Time: ptr.To(metav1.Unix(9, 0)),
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + completed + `":{},"f:other":{}}}}`)}}
}

// Of managedFields only the times of completions by name are kept: a rule of the name may be younger.
func TestCompletionsAreKept(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{completed: "true", "other": "x"},
		ManagedFields: append(completedBy("nrc"), metav1.ManagedFieldsEntry{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:other":{}}}}`)})}}
	kept := pack(n, Keep{}).node()
	for _, at := range []int64{8, 9, 10} {
		if got := marks.BootstrapCompleted(kept, "uid", "net", time.Unix(at, 0)); got != (at <= 9) {
			t.Errorf("a rule that was created at %d s: completed %t", at, got)
		}
	}
	if len(kept.ManagedFields) != 1 {
		t.Errorf("%+v", kept.ManagedFields)
	}
	delete(n.Annotations, completed)
	if again := pack(pack(n, Keep{}).node(), Keep{}); len(again.completions) != 0 {
		t.Errorf("%+v", again.completions)
	}
}

// Every field of the form counts.
func TestSameComparesEachField(t *testing.T) {
	base := func() *packed {
		return pack(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", DeletionTimestamp: ptr.To(metav1.Unix(1, 0)), Labels: map[string]string{"k": "v"}, Annotations: map[string]string{"k": "v", completed: "true"},
			ManagedFields:   completedBy("nrc"),
			OwnerReferences: []metav1.OwnerReference{{Name: "o"}}, Finalizers: []string{"f"}}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "t"}}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "c"}}, Allocatable: corev1.ResourceList{"r": resource.MustParse("1")}}}, Keep{Allocatable: map[corev1.ResourceName]bool{"r": true}})
	}
	if !base().same(base()) {
		t.Fatal("a packed Node differs from itself")
	}
	fields := reflect.TypeFor[packed]()
	for i := range fields.NumField() {
		p := base()
		f := reflect.NewAt(fields.Field(i).Type, reflect.ValueOf(p).Elem().Field(i).Addr().UnsafePointer()).Elem()
		switch f.Kind() {
		case reflect.String:
			f.SetString("changed")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int64:
			f.SetInt(7)
		default:
			f.SetZero()
		}
		if same, version := base().same(p), fields.Field(i).Name == "resourceVersion"; same != version {
			t.Errorf("with another %s, same is %v", fields.Field(i).Name, same)
		}
	}
}

// A verified node takes no more than this of memory in the cache, where the Node that the API server sends takes 20 KiB.
func TestBytesANode(t *testing.T) {
	const nodes, limit = 5000, 1300
	now := metav1.Now()
	sent := func(i int) *corev1.Node {
		name, uid := fmt.Sprintf("ip-10-0-%05d.eu-central-1.compute.internal", i), fmt.Sprintf("7a0e6c1e-0f6a-4a4e-9d3e-%012d", i)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: fmt.Sprint(i), CreationTimestamp: now, Labels: map[string]string{},
			Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true",
				marks.AnnotationRecord: marks.Record{NodeUID: uid, BootID: uid, Sequence: 1, LastOutcome: "passed", LastTime: ptr.To(now.Time), VerifiedTime: ptr.To(now.Time)}.Encode()}},
			Spec:   corev1.NodeSpec{ProviderID: fmt.Sprintf("aws:///eu-central-1a/i-%017d", i)},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: uid}}}
		for j := range 12 {
			n.Labels[fmt.Sprintf("example.com/label-%02d", j)] = fmt.Sprintf("value-%d", i%7)
		}
		n.Labels[corev1.LabelHostname] = name
		for _, c := range []corev1.NodeConditionType{"MemoryPressure", "DiskPressure", "PIDPressure", "Ready", "NetworkUnavailable", marks.ConditionType} {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: c, Status: corev1.ConditionTrue, Reason: "Reason", Message: "message", LastHeartbeatTime: now, LastTransitionTime: now})
		}
		return n
	}
	used := func() uint64 {
		runtime.GC()
		runtime.GC() // what the first finalized
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, held := used(), make([]*packed, nodes)
	for i := range held {
		data, err := sent(i).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		n := &corev1.Node{}
		if err := n.Unmarshal(data); err != nil {
			t.Fatal(err)
		}
		held[i] = pack(n, Keep{})
	}
	each := (used() - before) / nodes
	runtime.KeepAlive(held)
	t.Logf("%d bytes a node", each)
	if each > limit {
		t.Errorf("%d bytes a node, more than %d", each, limit)
	}
}

// handler collects its events.
type handler struct{ events chan string }

func (h handler) OnAdd(o any, initial bool) {
	h.events <- fmt.Sprintf("add %s initial=%v", o.(*corev1.Node).Name, initial)
}

func (h handler) OnUpdate(old, now any) {
	h.events <- fmt.Sprintf("update %v to %v", old.(*corev1.Node).Labels, now.(*corev1.Node).Labels)
}

func (h handler) OnDelete(o any) { h.events <- "delete " + o.(*corev1.Node).Name }

// Handlers get Nodes, and neither heartbeats nor a resync.
func TestHandlers(t *testing.T) {
	source := cachetesting.NewFakeControllerSource()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Unix(1, 0)}}}}
	source.Add(n)
	const resync = time.Second
	shared := toolscache.NewSharedIndexInformer(source, &corev1.Node{}, resync, toolscache.Indexers{})
	if err := shared.SetTransform(transform(Keep{})); err != nil {
		t.Fatal(err)
	}
	nodes, err := wrap(shared, &atomic.Pointer[update]{})
	if err != nil {
		t.Fatal(err)
	}
	events := handler{make(chan string, 100)}
	if _, err := nodes.AddEventHandler(events); err != nil {
		t.Fatal(err)
	}
	go shared.RunWithContext(t.Context())
	next := func(want string) {
		t.Helper()
		select {
		case got := <-events.events:
			if got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("no event, want %q", want)
		}
	}
	next("add n initial=true")
	renewed := n.DeepCopy()
	renewed.Status.Conditions[0].LastHeartbeatTime = metav1.Unix(2, 0)
	source.Modify(renewed)
	labelled := renewed.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	source.Modify(labelled)
	next("update map[] to map[a:b]")
	if got := slices.Collect(unpacked(shared.GetStore().List())); len(got) != 1 || got[0].Labels["a"] != "b" {
		t.Errorf("the cache has %v", got)
	}
	time.Sleep(resync + resync/2)
	source.Delete(labelled)
	next("delete n")
	late := toolscache.DeletedFinalStateUnknown{Key: "n", Obj: pack(n, Keep{})}
	got := make(chan any, 1)
	unpacking{to: toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) { got <- o }}}.OnDelete(late)
	if d, ok := (<-got).(toolscache.DeletedFinalStateUnknown); !ok || d.Obj.(*corev1.Node).Name != "n" {
		t.Errorf("a deletion that was missed is passed as %v", d)
	}
}

// Tainted names the Nodes that have such a taint.
func TestTainted(t *testing.T) {
	shared := toolscache.NewSharedIndexInformer(cachetesting.NewFakeControllerSource(), &corev1.Node{}, 0, toolscache.Indexers{})
	nodes, err := wrap(shared, &atomic.Pointer[update]{})
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]string{"a": "ours", "b": "another's"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: key}}}}
		if err := shared.GetStore().Add(pack(n, Keep{})); err != nil {
			t.Fatal(err)
		}
	}
	ours := func(t corev1.Taint) bool { return t.Key == "ours" }
	if got := nodes.Tainted(ours); !slices.Equal(got, []string{"a"}) {
		t.Errorf("got %q, want a alone", got)
	}
}
