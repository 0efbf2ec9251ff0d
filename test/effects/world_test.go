package effects

import (
	"context"
	"encoding/json"
	"fmt"
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
	"github.com/kube-node-ready/kube-node-ready/internal/controller/deletion"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/inputs"
)

const (
	worldLabel = "effects-test"
	pool       = "pool"
)

var gating = corev1.Taint{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}

// clock is the time that the controllers go by.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// world is the namespace and the nodes of one test: its controllers see no others.
type world struct {
	*testing.T
	ctx   context.Context
	ns    string
	cfg   *config.Config
	clock *clock
	nodes []string
	// ruleNames are the rules that there are, or were.
	ruleNames []string
	// done is how many steps of a path have happened.
	done int
	// exit says with which code a worker ends; stays for one that goes on. Default: 0.
	exit func(*corev1.Pod) int
	// lacks says whose prerequisites do not hold; nil: all do.
	lacks func(node string) bool
	// lingers: what terminates does not end. holds says it of single pods; nil: of none.
	lingers bool
	holds   func(*corev1.Pod) bool
	referee
}

// What exit says of a worker that has no exit code.
const (
	stays   = -1 // it has neither started nor ended
	runs    = -4 // its container has started, and has not ended
	rejects = -2 // its kubelet rejects it
	pulls   = -3 // its image cannot be pulled
)

var worlds atomic.Int32

// begin makes a world. settings are merged into the configuration.
func begin(t *testing.T, settings string) *world {
	t.Helper()
	inputs.Track(t, ruleDefinition) // TestMain installs it
	w := &world{T: t, ctx: t.Context(), ns: fmt.Sprintf("world-%d", worlds.Add(1)), clock: &clock{now: time.Now()}}
	w.exit = func(*corev1.Pod) int { return 0 }
	w.world = w
	w.configure(settings)
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}})
	w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "kube-node-ready-worker"}})
	w.beginLedger(w.clock.Now().Add(-24 * time.Hour))
	t.Cleanup(w.end)
	return w
}

const base = `{
  "worker": {"image": {"repository": "kube-node-ready", "tag": "test"}, "keepFailedSeconds": 20},
  "reconciliation": {"maxRetries": 2, "initialBackoffSeconds": 1, "maxBackoffSeconds": 2, "exhaustedRetrySeconds": -1, "intervalSeconds": 60},
  "nodeManagement": {"nodeSelector": {"matchLabels": {"effects-test": %q}}, "remediation": {"maxUnhealthy": "100%%", "maxInFlight": 100}}
}`

// configure reads the configuration anew: base, with the settings merged in.
func (w *world) configure(settings ...string) {
	w.Helper()
	into := map[string]any{}
	w.must(json.Unmarshal(fmt.Appendf(nil, base, w.ns), &into))
	for _, s := range settings {
		more := map[string]any{}
		if s != "" {
			w.must(json.Unmarshal([]byte(s), &more))
		}
		merge(into, more)
	}
	content, err := json.Marshal(into)
	w.must(err)
	w.cfg, err = config.Parse(content, "test")
	w.must(err)
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

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) create(o client.Object) {
	w.Helper()
	w.must(api.Create(w.ctx, o))
}

// end removes what belongs to no namespace.
func (w *world) end() {
	ctx := context.Background()
	mine := client.MatchingLabels{worldLabel: w.ns}
	var claims karpv1.NodeClaimList
	_ = api.List(ctx, &claims, mine)
	for i := range claims.Items {
		_ = api.Patch(ctx, &claims.Items[i], client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	}
	_ = api.DeleteAllOf(ctx, &karpv1.NodeClaim{}, mine)
	for _, name := range w.ruleNames {
		r := &v1alpha1.NodeReadinessRule{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_ = api.Delete(ctx, r)
		_ = api.Patch(ctx, r, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	}
	_ = api.DeleteAllOf(ctx, &corev1.Node{}, mine)
}

// node makes a tainted, ready node.
func (w *world) node(suffix string, change ...func(*corev1.Node)) *corev1.Node {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.ns + "-" + suffix, Labels: map[string]string{worldLabel: w.ns}}}
	n.Spec.Taints, n.Spec.ProviderID = []corev1.Taint{gating}, "test://"+n.Name
	n.Status.NodeInfo.BootID = "boot"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, f := range change {
		f(n)
	}
	w.create(n) // with its status: the API server takes that of a new node, as a kubelet gives it
	w.nodes = append(w.nodes, n.Name)
	w.see(n)
	return n
}

func pooled(n *corev1.Node) {
	n.Labels[owner.LabelNodePool], n.Labels[owner.LabelRegistered] = pool, "true"
}

func untainted(n *corev1.Node) { n.Spec.Taints = nil }

// verified makes a node on which a control probe may run.
func (w *world) verified(suffix string) *corev1.Node {
	now := w.clock.Now().UTC()
	n := w.node(suffix, untainted, func(n *corev1.Node) {
		n.Labels["node-ready/verified"] = "true"
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: marks.ConditionType, Status: corev1.ConditionTrue,
			Reason: marks.ReasonChecksPassed, Message: "All required checks passed in 0s, attempt 1"})
	})
	w.write(n, marks.Record{Sequence: 1, LastOutcome: "passed", BootID: "boot", LastTime: &now, VerifiedTime: &now})
	return n
}

// exhausted makes a node whose retries are exhausted, and which a probe has shown to be at fault.
func (w *world) exhausted(suffix string, change ...func(*corev1.Node)) *corev1.Node {
	n := w.node(suffix, change...)
	w.write(n, w.failures(2))
	return n
}

func (w *world) failures(count int32) marks.Record {
	now := w.clock.Now().UTC()
	return marks.Record{Sequence: count, Attempts: count, LastOutcome: "failed", LastReason: "ChecksFailed", BootID: "boot", LastTime: &now, Probed: true}
}

// write writes a node's record.
func (w *world) write(n *corev1.Node, r marks.Record) {
	w.Helper()
	r.NodeUID = string(n.UID)
	w.annotate(n.Name, marks.AnnotationRecord, r.Encode())
}

func (w *world) annotate(node, key, value string) {
	w.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}})
	w.must(err)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	w.must(api.Patch(w.ctx, n, client.RawPatch(types.MergePatchType, patch)))
}

// claim makes the NodeClaim of a node, with Karpenter's finalizer: it stays after its deletion.
func (w *world) claim(n *corev1.Node) *karpv1.NodeClaim {
	w.Helper()
	c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + n.Name, Finalizers: []string{"karpenter.sh/termination"},
		Labels: map[string]string{worldLabel: w.ns, owner.LabelNodePool: pool}},
		Spec: karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: "default"}, Requirements: []karpv1.NodeSelectorRequirementWithMinValues{}}}
	w.create(c)
	c.Status.ProviderID, c.Status.NodeName = n.Spec.ProviderID, n.Name
	w.must(api.Status().Update(w.ctx, c))
	return c
}

// get reads a node; nil when it is gone.
func (w *world) get(name string) (*corev1.Node, marks.Facts) {
	w.Helper()
	n := &corev1.Node{}
	err := api.Get(w.ctx, client.ObjectKey{Name: name}, n)
	if apierrors.IsNotFound(err) {
		return nil, marks.Facts{}
	}
	w.must(err)
	return n, marks.Observe(n, w.cfg.Vocabulary())
}

// deleting reports whether the NodeClaim of a node is on its way out, or gone.
func (w *world) deleting(node string) bool {
	w.Helper()
	c := &karpv1.NodeClaim{}
	err := api.Get(w.ctx, client.ObjectKey{Name: "claim-" + node}, c)
	if err != nil && !apierrors.IsNotFound(err) {
		w.Fatal(err)
	}
	return err != nil || c.DeletionTimestamp != nil
}

// beginLedger makes the ledger as one that was begun then.
func (w *world) beginLedger(then time.Time) {
	w.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: ledger.Name}}
	w.must(ledger.Contents{CompleteSince: then, Entries: []ledger.Entry{}}.Write(cm))
	w.create(cm)
}

// emptyLedger does what helm upgrade --force does: it replaces the ledger by what the chart has, which is no data.
func (w *world) emptyLedger() {
	w.Helper()
	w.must(api.Update(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: ledger.Name}}))
}

// ledger lists the UIDs of the nodes in the ledger.
func (w *world) ledger() []string {
	w.Helper()
	l := deletion.Ledger{Reader: api, Namespace: w.ns, ReadOnly: true}
	read, err := l.Read(w.ctx, w.clock.Now(), true)
	w.must(err)
	var uids []string
	for _, d := range read.Deletions {
		uids = append(uids, d.NodeUID)
	}
	return uids
}

// fill enters the deletions of other nodes in the ledger.
func (w *world) fill(entries int) {
	w.Helper()
	for i := range entries {
		l := deletion.Ledger{Reader: api, Writer: api, Namespace: w.ns}
		have, err := l.Read(w.ctx, w.clock.Now(), true)
		w.must(err)
		e := ledger.Entry{Time: metav1.NewTime(w.clock.Now()), Node: "other", UID: fmt.Sprintf("other-%d", i), Kind: owner.Node}
		w.must(l.Append(w.ctx, e, have.Version))
	}
}

// pods lists our pods, of one node if a name is given.
func (w *world) pods(node string) []corev1.Pod {
	w.Helper()
	var list corev1.PodList
	w.must(api.List(w.ctx, &list, client.InNamespace(w.ns), client.MatchingLabels{workerpod.LabelComponent: workerpod.Component}))
	var out []corev1.Pod
	for _, p := range list.Items {
		if node == "" || p.Annotations[workerpod.AnnotationNode] == node {
			out = append(out, p)
		}
	}
	return out
}

// kubelets lets every worker go on: one that terminates is gone, one that runs ends as w.exit says. Leaders see them before.
func (w *world) kubelets(leaders ...*leader) (acted bool) {
	w.Helper()
	pods := w.pods("")
	for _, l := range leaders {
		l.showPods(pods)
	}
	for _, p := range pods {
		switch {
		case p.DeletionTimestamp != nil && (w.lingers || w.holds != nil && w.holds(&p)):
		case p.DeletionTimestamp != nil:
			w.must(client.IgnoreNotFound(api.Delete(w.ctx, &p, client.GracePeriodSeconds(0))))
			acted = true
		case p.Status.Phase == corev1.PodPending:
			code := w.exit(&p)
			if code != stays && (code != pulls || len(p.Status.ContainerStatuses) == 0) {
				w.terminate(&p, code)
				acted = true
			}
		}
	}
	return acted
}

func (w *world) terminate(p *corev1.Pod, code int) {
	w.Helper()
	switch code {
	case rejects:
		w.status(p, `{"status":{"phase":"Failed","reason":"OutOfcpu","message":"Pod was rejected: Node didn't have enough resource: cpu"}}`)
		return
	case runs:
		w.status(p, fmt.Sprintf(`{"status":{"phase":"Running","containerStatuses":[{"name":"worker","image":"i",
			"imageID":"i","ready":true,"restartCount":0,"state":{"running":{"startedAt":%q}}}]}}`, time.Now().UTC().Format(time.RFC3339)))
		return
	case pulls:
		w.status(p, `{"status":{"containerStatuses":[{"name":"worker","image":"i","imageID":"","ready":false,"restartCount":0,"state":{"waiting":{"reason":"ErrImagePull","message":"no route to the registry"}}}]}}`)
		return
	}
	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	at := time.Now().UTC().Format(time.RFC3339)
	w.status(p, fmt.Sprintf(`{"status":{"phase":%q,"containerStatuses":[{"name":"worker","image":"i","imageID":"i","ready":false,"restartCount":0,
		"state":{"terminated":{"exitCode":%d,"startedAt":%q,"finishedAt":%q}}}]}}`, phase, code, at, at))
}

func (w *world) status(p *corev1.Pod, patch string) {
	w.Helper()
	err := api.Status().Patch(w.ctx, p.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
	w.must(client.IgnoreNotFound(err))
}
