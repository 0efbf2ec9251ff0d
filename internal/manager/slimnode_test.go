package manager

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/allocatable"
)

// completed is the annotation of a node that completed a rule of the name "net".
const completed = "readiness.k8s.io/bootstrap-completed-net"

// wholeNode is a Node with all that decisions read, and more.
func wholeNode() *corev1.Node {
	at := func(s int64) metav1.Time { return metav1.Unix(s, 0) }
	writer := func(manager, annotation string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Time: ptr.To(at(9)), FieldsV1: metav1.NewFieldsV1(fmt.Sprintf(`{"f:metadata":{"f:annotations":{"f:%s":{}}}}`, annotation))}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "7", CreationTimestamp: at(1), DeletionTimestamp: ptr.To(at(8)),
			Labels:        map[string]string{corev1.LabelHostname: "n", corev1.LabelTopologyZone: "zone", "empty": ""},
			Annotations:   map[string]string{completed: "true", "other": "x", marks.AnnotationRecord: marks.Record{NodeUID: "u", Sequence: 3}.Encode()},
			Finalizers:    []string{"karpenter.sh/termination"},
			ManagedFields: []metav1.ManagedFieldsEntry{writer("nrc", completed), writer("kubelet", "other")},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: "claim", UID: "c",
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}}},
		Spec: corev1.NodeSpec{ProviderID: "cloud:///n", Unschedulable: true, PodCIDR: "10.0.0.0/24",
			Taints: []corev1.Taint{{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoExecute, TimeAdded: ptr.To(at(2))}}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "ready", LastHeartbeatTime: at(6), LastTransitionTime: at(3)},
				{Type: "repair/Needed", Status: corev1.ConditionTrue, Reason: marks.ReasonVerificationFailed, Message: "failed", LastHeartbeatTime: at(6), LastTransitionTime: at(4)},
				{Type: marks.ConditionType, Status: corev1.ConditionFalse, Reason: marks.ReasonChecksFailed, Message: "a check failed", LastHeartbeatTime: at(6), LastTransitionTime: at(5)}},
			Allocatable: corev1.ResourceList{"example.com/gpu": resource.MustParse("1"), corev1.ResourceEphemeralStorage: resource.MustParse("9Gi")},
			Capacity:    corev1.ResourceList{"example.com/gpu": resource.MustParse("1")},
			Images:      []corev1.ContainerImage{{Names: []string{"image"}}},
			Addresses:   []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
			NodeInfo:    corev1.NodeSystemInfo{BootID: "boot", KernelVersion: "6.1"}}}
}

// nodeConfig waits for GPUs. staleAfter is how old a condition that rules require may be; 0 if they do not ask.
func nodeConfig(staleAfter time.Duration) *config.Config {
	cfg := &config.Config{NodeManagement: config.NodeManagement{Prerequisites: config.Prerequisites{Allocatable: allocatable.Settings{"example.com/gpu": resource.MustParse("1")}}}}
	cfg.SetDefaults()
	cfg.Rules.Enabled, cfg.Rules.StaleAfter.Duration = ptr.To(true), staleAfter
	return cfg
}

func slimmed(t *testing.T, cfg *config.Config, n *corev1.Node) *corev1.Node {
	t.Helper()
	o, err := slimNode(cfg)(n)
	if err != nil {
		t.Fatal(err)
	}
	return o.(*corev1.Node)
}

// The cache keeps of a Node what decisions read, and nothing else. The Node that was read stays as it was: the informer
// may show it to others.
func TestCacheKeepsWhatDecisionsRead(t *testing.T) {
	for _, staleAfter := range []time.Duration{0, time.Minute} {
		n := wholeNode()
		want := n.DeepCopy()
		want.ManagedFields = marks.CompletionTimes(n)
		want.Spec.PodCIDR = ""
		conditions := want.Status.Conditions
		want.Status = corev1.NodeStatus{Conditions: conditions, NodeInfo: corev1.NodeSystemInfo{BootID: "boot"},
			Allocatable: corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}}
		conditions[0].Message, conditions[1].Message = "", ""
		if staleAfter == 0 {
			conditions[0].Reason = ""
			for i := range conditions {
				conditions[i].LastHeartbeatTime = metav1.Time{}
			}
		}
		if got := slimmed(t, nodeConfig(staleAfter), n); !reflect.DeepEqual(got, want) {
			t.Errorf("staleAfter %s: kept\n%+v, want\n%+v", staleAfter, got, want)
		}
		if !reflect.DeepEqual(n, wholeNode()) {
			t.Errorf("the Node that was read became\n%+v", n)
		}
	}
}

// What is observed of a Node in the cache is what is observed of the whole one. For each field alone a decision may be
// made: a node of Karpenter that just joined may show no more than its finalizer.
func TestCachedNodesAreObservedAsWhole(t *testing.T) {
	cfg := nodeConfig(time.Minute)
	for name, change := range map[string]func(*corev1.Node){
		"all of it":     func(*corev1.Node) {},
		"no label":      func(n *corev1.Node) { n.Labels = nil },
		"no annotation": func(n *corev1.Node) { n.Annotations = nil },
		"its finalizer alone": func(n *corev1.Node) {
			n.OwnerReferences, n.Labels = nil, nil
		},
		"its owner alone": func(n *corev1.Node) { n.Finalizers, n.Labels = nil, nil },
		"a bare one":      func(n *corev1.Node) { *n = corev1.Node{} },
	} {
		n := wholeNode()
		change(n)
		got, want := marks.Observe(slimmed(t, cfg, n), cfg.Vocabulary()), marks.Observe(n, cfg.Vocabulary())
		for _, f := range []*marks.Facts{&got, &want} { // of these a part is kept
			f.Conditions, f.ManagedFields, f.Allocatable, f.RemediationConditions = nil, nil, nil, nil
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: observed\n%+v, want\n%+v", name, got, want)
		}
	}
}

// An informer may transform a Node twice, the second time while others read it.
func TestNodesAreSlimmedTwiceAsOnce(t *testing.T) {
	for _, n := range []*corev1.Node{wholeNode(), {}} {
		for _, cfg := range []*config.Config{nodeConfig(0), nodeConfig(time.Minute)} {
			once := slimmed(t, cfg, n)
			before := once.DeepCopy()
			if twice := slimmed(t, cfg, once); !reflect.DeepEqual(twice, before) || !reflect.DeepEqual(once, before) {
				t.Errorf("once\n%+v, twice\n%+v", before, twice)
			}
		}
	}
}

// A status that a kubelet renews, and what it says that nothing waits for, changes nothing in the cache.
func TestHeartbeatsChangeNothing(t *testing.T) {
	cfg := nodeConfig(0)
	renewed := wholeNode()
	renewed.ResourceVersion = "8"
	for i := range renewed.Status.Conditions {
		c := &renewed.Status.Conditions[i]
		if c.LastHeartbeatTime = metav1.Unix(60, 0); c.Type == corev1.NodeReady {
			c.Message = "ready again"
		}
	}
	renewed.Status.Allocatable[corev1.ResourceEphemeralStorage] = resource.MustParse("8Gi")
	renewed.Status.Images = nil
	got, want := slimmed(t, cfg, renewed), slimmed(t, cfg, wholeNode())
	if want.ResourceVersion = "8"; !reflect.DeepEqual(got, want) {
		t.Errorf("the cache has\n%+v, want\n%+v", got, want)
	}
	if got := slimmed(t, nodeConfig(time.Minute), renewed); !got.Status.Conditions[0].LastHeartbeatTime.Equal(ptr.To(metav1.Unix(60, 0))) {
		t.Errorf("rules ask for heartbeats: %+v", got.Status.Conditions)
	}
}

// Of managedFields only the times of completions by name are kept: a rule of the name may be younger.
func TestCompletionsAreKept(t *testing.T) {
	n := wholeNode()
	kept := slimmed(t, nodeConfig(0), n)
	for _, at := range []int64{8, 9, 10} {
		if got := marks.BootstrapCompleted(kept, "uid", "net", time.Unix(at, 0)); got != (at <= 9) {
			t.Errorf("a rule that was created at %d s: completed %t", at, got)
		}
	}
	delete(n.Annotations, completed)
	if kept := slimmed(t, nodeConfig(0), n); len(kept.ManagedFields) != 0 {
		t.Errorf("%+v", kept.ManagedFields)
	}
}

// Strings that nodes have in common are in memory once. Those that each node has alone are not kept forever.
func TestNodesShareTexts(t *testing.T) {
	s := slimmer{}
	for i := range 3 * sharedTexts {
		kept := s.shared("zone")
		if unsafe.StringData(s.shared(strings.Clone("zone"))) != unsafe.StringData(kept) {
			t.Fatal("two equal strings one after the other are not the same")
		}
		if text := fmt.Sprint(i); s.shared(text) != text || len(s.texts) > sharedTexts {
			t.Fatalf("%d strings are kept", len(s.texts))
		}
	}
}

// A verified node takes no more memory than this in the cache. The Node that the API server sends takes 20 KiB.
func TestBytesANode(t *testing.T) {
	const nodes, limit = 5000, 3900
	now := metav1.Now()
	sent := func(i int) *corev1.Node {
		name, uid := fmt.Sprintf("ip-10-0-%05d.eu-central-1.compute.internal", i), fmt.Sprintf("7a0e6c1e-0f6a-4a4e-9d3e-%012d", i)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: fmt.Sprint(i), CreationTimestamp: now, Labels: map[string]string{},
			Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true",
				marks.AnnotationRecord: marks.Record{NodeUID: uid, BootID: uid, Sequence: 1, LastOutcome: "passed", LastTime: ptr.To(now.Time), VerifiedTime: ptr.To(now.Time)}.Encode()}},
			Spec:   corev1.NodeSpec{ProviderID: fmt.Sprintf("aws:///eu-central-1a/i-%017d", i)},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: uid}}}
		for j := range 23 {
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
	transform := slimNode(nodeConfig(0))
	before, held := used(), make([]any, nodes)
	for i := range held {
		data, err := sent(i).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		n := &corev1.Node{}
		if err := n.Unmarshal(data); err != nil {
			t.Fatal(err)
		}
		if held[i], err = transform(n); err != nil {
			t.Fatal(err)
		}
	}
	each := (used() - before) / nodes
	runtime.KeepAlive(held)
	t.Logf("%d bytes a node", each)
	if each > limit {
		t.Errorf("%d bytes a node, more than %d", each, limit)
	}
}
