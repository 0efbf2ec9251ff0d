package effects

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// referee watches every write that is carried out, whoever leads, and faults what must never happen.
type referee struct {
	world *world

	mu      sync.Mutex
	births  map[string]int    // of pods, by name
	deleted map[string]string // nodes and NodeClaims that were deleted: kind/name to UID
	events  map[string]map[string]int
	ruled   map[string]ruled // nodes, by name
}

// Emit counts an event, by node and reason, and by key.
func (r *referee) Emit(n *corev1.Node, _ time.Time, e decide.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events == nil {
		r.events = map[string]map[string]int{}
	}
	of := n.Name + " " + e.Reason.Name
	if r.events[of] == nil {
		r.events[of] = map[string]int{}
	}
	r.events[of][e.Key]++
}

// emitted counts the different events of a reason on a node: those with one key become one object.
func (r *referee) emitted(node string, reason decide.Reason) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.events[node+" "+reason.Name])
}

// creates carries a creation out. A pod must be the first of its name, and the only one that occupies its node.
func (r *referee) creates(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if err := api.Create(ctx, o, opts...); err != nil {
		return err
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	r.mu.Lock()
	if r.births == nil {
		r.births = map[string]int{}
	}
	r.births[pod.Namespace+"/"+pod.Name]++
	again := r.births[pod.Namespace+"/"+pod.Name] > 1
	r.mu.Unlock()
	if again {
		r.world.Errorf("pod %s was created twice", pod.Name)
	}
	if pod.Labels[workerpod.LabelPurpose] != workerpod.PurposeVerify {
		return nil
	}
	var pods corev1.PodList
	if err := api.List(ctx, &pods, client.MatchingLabels{
		workerpod.LabelNodeUID: pod.Labels[workerpod.LabelNodeUID], workerpod.LabelPurpose: workerpod.PurposeVerify}); err != nil {
		return err
	}
	var occupying []string
	for i := range pods.Items {
		if workerpod.Observe(&pods.Items[i]).Occupies {
			occupying = append(occupying, pods.Items[i].Name)
		}
	}
	if len(occupying) > 1 {
		r.world.Errorf("several workers occupy one node: %v", occupying)
	}
	return nil
}

// deletes carries a deletion out. A worker whose result nobody has recorded must stay, and what is deleted must be the one
// that was decided on.
func (r *referee) deletes(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	options := client.DeleteOptions{}
	options.ApplyOptions(opts)
	if options.Preconditions == nil || options.Preconditions.UID == nil {
		r.world.Errorf("%s %s is deleted whatever its UID", kind(o), o.GetName())
	}
	dry := len(options.DryRun) > 0
	if pod, ok := o.(*corev1.Pod); ok && !dry {
		r.unrecorded(ctx, pod)
	}
	if err := api.Delete(ctx, o, opts...); err != nil || dry {
		return err
	}
	if _, ok := o.(*corev1.Pod); !ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.deleted == nil {
			r.deleted = map[string]string{}
		}
		r.deleted[kind(o)+"/"+o.GetName()] = string(*options.Preconditions.UID)
	}
	return nil
}

func (r *referee) unrecorded(ctx context.Context, o *corev1.Pod) {
	pod, n := &corev1.Pod{}, &corev1.Node{}
	if api.Get(ctx, client.ObjectKeyFromObject(o), pod) != nil || pod.Labels[workerpod.LabelPurpose] != workerpod.PurposeVerify ||
		api.Get(ctx, client.ObjectKey{Name: pod.Annotations[workerpod.AnnotationNode]}, n) != nil {
		return
	}
	seen, rec := workerpod.Observe(pod), marks.Observe(n, r.world.cfg.Vocabulary()).Record
	if seen.Attempt.Result != nil && seen.Attempt.Number > rec.Sequence && !seen.Recorded {
		r.world.Errorf("worker %s is deleted, and nobody has recorded its result", pod.Name)
	}
}

// gone lists what was deleted.
func (r *referee) gone() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.deleted)
}

func (r *referee) born(purpose string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.births {
		if _, name, _ := strings.Cut(name, "/"); strings.HasPrefix(name, purpose) {
			n++
		}
	}
	return n
}

// result is what a node came to.
type result struct {
	Gone, Gated, Labelled bool
	Record                string
	Attempts              int32
	Inconclusive          int32
	Sequence              int32
	Condition             string
	Deletion              string
	Events                string
	Ledger, Deleted       int
	Pods                  int
	// Rules are the rules' taints on the node, and Added and Removed how often one was put on and taken off.
	Rules          string
	Added, Removed int
}

func (w *world) result(node string) result {
	w.Helper()
	n, f := w.get(node)
	res := result{Gone: n == nil, Gated: f.Gated, Labelled: f.Labelled, Ledger: len(w.ledger()), Deleted: len(w.gone()), Pods: len(w.pods(node)),
		Attempts: f.Record.Attempts, Inconclusive: f.Record.Inconclusive, Sequence: f.Record.Sequence,
		Record: fmt.Sprintf("%s %s held=%s verified=%t", f.Record.LastOutcome, f.Record.LastReason, f.Record.Held, f.Record.VerifiedTime != nil)}
	if c := f.Condition; c != nil {
		res.Condition = string(c.Status) + " " + c.Reason
	}
	res.Rules, res.Added, res.Removed = w.rulesOn(n)
	if d := f.Record.Deletion; d != nil {
		res.Deletion = d.Kind + "/" + d.Name
	}
	return res
}
