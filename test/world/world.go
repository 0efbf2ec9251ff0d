package world

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/controller/remediation"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/inputs"
	"github.com/kube-node-ready/kube-node-ready/test/world/termination"
)

const (
	// WorldLabel is on the nodes of a world, with its name.
	WorldLabel = "effects-test"
	pool       = "pool"
)

// Gating is the taint of a node that is not verified.
var Gating = corev1.Taint{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}

// Clock is the time that the controllers go by.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// Now is the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance lets time go by.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// World is the namespace and the nodes of one test: its controllers see no others.
type World struct {
	*testing.T
	// API is the world's API server, as its administrator sees it.
	API       client.WithWatch
	Ctx       context.Context
	Namespace string
	Config    *config.Config
	Clock     *Clock
	NodeNames []string
	// RuleNames are the rules that there are, or were.
	RuleNames []string
	// podNamespaces are those in which a leader of the world has made its workers.
	podNamespaces map[string]bool
	// Installed is the age of the installation. It is later than all nodes, unless the test says otherwise.
	Installed time.Time
	// done is how many steps of a path have happened.
	done int
	// Exit says with which code a worker ends; Stays for one that goes on. Default: 0.
	Exit func(*corev1.Pod) int
	// Report is the termination message that a worker leaves with its exit code; nil: what ours leaves. For a test of
	// workers that leave no report, it returns an empty one.
	Report func(p *corev1.Pod, code int) string
	// Unmet says whose prerequisites do not hold; nil: all do.
	Unmet func(node string) bool
	// Policy is what a mutating admission policy makes of each pod that is stored; nil: nothing.
	Policy func(*corev1.Pod)
	// Linger: what terminates does not end. Hold says it of single pods; nil: of none.
	Linger bool
	Hold   func(*corev1.Pod) bool
	Referee
}

// What Exit says of a worker that has no exit code.
const (
	Stays   = -1 // it has neither started nor ended
	Runs    = -4 // its container has started, and has not ended
	Rejects = -2 // its kubelet rejects it
	Pulls   = -3 // its image cannot be pulled
)

var worlds atomic.Int32

// Begin makes a world of its own, in memory. settings are merged into the configuration.
func Begin(t *testing.T, settings string) *World {
	t.Helper()
	return begin(t, settings, fakeAPI(false))
}

// WithManagedFields is Begin for a test that asks who wrote a field.
func WithManagedFields(t *testing.T, settings string) *World {
	t.Helper()
	return begin(t, settings, fakeAPI(true))
}

// OnServer makes a world on a real API server. It is for what the fake does not show: admission, validation, owners of
// fields, versions that can be compared, the controller with its watches.
func OnServer(t *testing.T, settings string) *World {
	t.Helper()
	need(t)
	return begin(t, settings, server)
}

func begin(t *testing.T, settings string, api client.WithWatch) *World {
	t.Helper()
	definition, err := ruleDefinition()
	if err != nil {
		t.Fatal(err)
	}
	inputs.Track(t, definition)
	// The process is part of the name: other packages may have their worlds on the same control plane.
	name := fmt.Sprintf("world-%d%04d", os.Getpid(), worlds.Add(1))
	w := &World{T: t, API: api, Ctx: t.Context(), Namespace: name, Clock: &Clock{now: time.Now()}, podNamespaces: map[string]bool{}}
	w.Exit = func(*corev1.Pod) int { return 0 }
	w.world = w
	w.Installed = w.Clock.Now().Add(24 * time.Hour)
	w.Configure(settings)
	w.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}})
	w.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "kube-node-ready-worker"}})
	w.beginLedger(w.Clock.Now().Add(-24 * time.Hour))
	t.Cleanup(w.end)
	return w
}

const base = `{
  "worker": {"image": {"repository": "kube-node-ready", "tag": "test"}, "keepFailedSeconds": 20},
  "reconciliation": {"maxRetries": 2, "initialBackoffSeconds": 1, "maxBackoffSeconds": 2, "exhaustedRetrySeconds": -1, "intervalSeconds": 60},
  "nodeManagement": {"nodeSelector": {"matchLabels": {"effects-test": %q}}, "remediation": {"maxUnhealthy": "100%%", "maxInFlight": 100}}
}`

// Configure reads the configuration anew: base, with the settings merged in.
func (w *World) Configure(settings ...string) {
	w.Helper()
	into := map[string]any{}
	w.Must(json.Unmarshal(fmt.Appendf(nil, base, w.Namespace), &into))
	for _, s := range settings {
		more := map[string]any{}
		if s != "" {
			w.Must(json.Unmarshal([]byte(s), &more))
		}
		merge(into, more)
	}
	content, err := json.Marshal(into)
	w.Must(err)
	w.Config, err = config.Parse(content, "test")
	w.Must(err)
}

func merge(into, from map[string]any) {
	for k, v := range from {
		have, ok := into[k].(map[string]any)
		more, both := v.(map[string]any)
		if ok && both {
			merge(have, more)
			continue
		}
		into[k] = v
	}
}

// Must ends the test on an error.
func (w *World) Must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// Create creates an object.
func (w *World) Create(o client.Object) {
	w.Helper()
	w.Must(w.API.Create(w.Ctx, o))
}

// end removes what belongs to no namespace.
func (w *World) end() {
	ctx := context.Background()
	mine := client.MatchingLabels{WorldLabel: w.Namespace}
	var claims karpv1.NodeClaimList
	_ = w.API.List(ctx, &claims, mine)
	for i := range claims.Items {
		_ = w.API.Delete(ctx, &claims.Items[i])
		_ = w.API.Patch(ctx, &claims.Items[i], client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	}
	for _, name := range w.RuleNames {
		r := &v1alpha1.NodeReadinessRule{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_ = w.API.Delete(ctx, r)
		_ = w.API.Patch(ctx, r, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	}
	_ = w.API.DeleteAllOf(ctx, &corev1.Node{}, mine)
}

// Node makes a tainted, ready node.
func (w *World) Node(suffix string, change ...func(*corev1.Node)) *corev1.Node {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-" + suffix, Labels: map[string]string{WorldLabel: w.Namespace}}}
	n.Spec.Taints, n.Spec.ProviderID = []corev1.Taint{Gating}, "test://"+n.Name
	n.Status.NodeInfo.BootID = "boot"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, f := range change {
		f(n)
	}
	w.Create(n) // with its status: the w.API server takes that of a new node, as a kubelet gives it
	w.NodeNames = append(w.NodeNames, n.Name)
	w.see(n)
	return n
}

// Pooled makes the node one of Karpenter's.
func Pooled(n *corev1.Node) {
	n.Labels[owner.LabelNodePool], n.Labels[owner.LabelRegistered] = pool, "true"
}

// Untainted takes the taints off a node that is to be made.
func Untainted(n *corev1.Node) { n.Spec.Taints = nil }

// Verified makes a node on which a control probe may run.
func (w *World) Verified(suffix string, change ...func(*corev1.Node)) *corev1.Node {
	now := w.Clock.Now().UTC()
	n := w.Node(suffix, append(change, Untainted, func(n *corev1.Node) {
		n.Labels["node-ready/verified"] = "true"
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: marks.ConditionType, Status: corev1.ConditionTrue,
			Reason: marks.ReasonChecksPassed, Message: "All required checks passed in 0s, attempt 1"})
	})...)
	w.WriteRecord(n, marks.Record{Sequence: 1, LastOutcome: "passed", BootID: "boot", LastTime: &now, VerifiedTime: &now})
	return n
}

// Exhausted makes a node whose retries are exhausted, and which a probe has shown to be at fault.
func (w *World) Exhausted(suffix string, change ...func(*corev1.Node)) *corev1.Node {
	n := w.Node(suffix, change...)
	w.WriteRecord(n, w.Failures(2))
	return n
}

// Failures is the record of so many failed attempts.
func (w *World) Failures(count int32) marks.Record {
	now := w.Clock.Now().UTC()
	return marks.Record{Sequence: count, Attempts: count, LastOutcome: "failed", LastCheck: termination.Check, LastReason: "ChecksFailed", BootID: "boot", LastTime: &now, Probed: true}
}

// WriteRecord writes a node's record, under the node's present checks if the record has none.
func (w *World) WriteRecord(n *corev1.Node, r marks.Record) {
	w.Helper()
	r.NodeUID = string(n.UID)
	r.Checks = cmp.Or(r.Checks, w.Builder().Checks(w.Config.For(n.Labels).Profile))
	w.Annotate(n.Name, marks.AnnotationRecord, r.Encode())
}

// Builder builds worker pods as a leader of the present configuration does.
func (w *World) Builder() *workerpod.Builder {
	w.Helper()
	b, err := workerpod.NewBuilder(w.Config, w.PodNamespace(), w.Config.Worker.Image.Reference("test"))
	w.Must(err)
	return b
}

// Annotate annotates a node.
func (w *World) Annotate(node, key, value string) {
	w.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}})
	w.Must(err)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	w.Must(w.API.Patch(w.Ctx, n, client.RawPatch(types.MergePatchType, patch)))
}

// Claim makes the NodeClaim of a node, with Karpenter's finalizer: it stays after its deletion.
func (w *World) Claim(n *corev1.Node) *karpv1.NodeClaim {
	w.Helper()
	c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + n.Name, Finalizers: []string{"karpenter.sh/termination"},
		Labels: map[string]string{WorldLabel: w.Namespace, owner.LabelNodePool: pool}},
		Spec: karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: "default"}, Requirements: []karpv1.NodeSelectorRequirementWithMinValues{}}}
	w.Create(c)
	c.Status.ProviderID, c.Status.NodeName = n.Spec.ProviderID, n.Name
	w.Must(w.API.Status().Update(w.Ctx, c))
	return c
}

// Get reads a node; nil when it is gone.
func (w *World) Get(name string) (*corev1.Node, marks.Facts) {
	w.Helper()
	n := &corev1.Node{}
	err := w.API.Get(w.Ctx, client.ObjectKey{Name: name}, n)
	if apierrors.IsNotFound(err) {
		return nil, marks.Facts{}
	}
	w.Must(err)
	return n, marks.Observe(n, w.Config.Vocabulary())
}

// Deleting reports whether the NodeClaim of a node is on its way out, or gone.
func (w *World) Deleting(node string) bool {
	w.Helper()
	c := &karpv1.NodeClaim{}
	err := w.API.Get(w.Ctx, client.ObjectKey{Name: "claim-" + node}, c)
	if err != nil && !apierrors.IsNotFound(err) {
		w.Fatal(err)
	}
	return err != nil || c.DeletionTimestamp != nil
}

// beginLedger makes the ledger as one that was begun then.
func (w *World) beginLedger(then time.Time) {
	w.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: ledger.Name}}
	w.Must(ledger.Contents{CompleteSince: then, Entries: []ledger.Entry{}}.Write(cm))
	w.Create(cm)
}

// AnnotateLedger annotates the ledger.
func (w *World) AnnotateLedger(key, value string) {
	w.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}})
	w.Must(err)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: ledger.Name}}
	w.Must(w.API.Patch(w.Ctx, cm, client.RawPatch(types.MergePatchType, patch)))
}

// EmptyLedger does what helm upgrade --force does: it replaces the ledger by what the chart has, which is no data.
func (w *World) EmptyLedger() {
	w.Helper()
	w.Must(w.API.Update(w.Ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: ledger.Name}}))
}

// Ledger lists the UIDs of the nodes in the ledger.
func (w *World) Ledger() []string {
	w.Helper()
	l := remediation.Ledger{Reader: w.API, Namespace: w.Namespace, ReadOnly: true}
	read, err := l.Read(w.Ctx, w.Clock.Now(), true)
	w.Must(err)
	var uids []string
	for _, d := range read.Entries {
		uids = append(uids, d.UID)
	}
	return uids
}

// FillLedger enters the deletions of other nodes in the ledger.
func (w *World) FillLedger(entries int) {
	w.Helper()
	for i := range entries {
		l := remediation.Ledger{Reader: w.API, Writer: w.API, Namespace: w.Namespace}
		have, err := l.Read(w.Ctx, w.Clock.Now(), true)
		w.Must(err)
		e := ledger.Entry{Time: metav1.NewTime(w.Clock.Now()), Node: "other", UID: fmt.Sprintf("other-%d", i), Kind: owner.Node}
		w.Must(l.Append(w.Ctx, e, time.Time{}, have.Version))
	}
}
