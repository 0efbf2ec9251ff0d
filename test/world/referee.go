package world

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

// Referee watches every write that is carried out, whoever leads, and faults what must never happen.
type Referee struct {
	world *World

	mu        sync.Mutex
	creations map[string]int    // of pods, by name
	most      int               // pods that occupied nodes at once
	deleted   map[string]string // nodes and NodeClaims that were deleted: kind/name to UID
	Events    map[string]map[string]int
	ruled     map[string]ruled // nodes, by name
}

// Emit counts an event, by node and reason, and by key.
func (r *Referee) Emit(n *corev1.Node, _ time.Time, e decide.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Events == nil {
		r.Events = map[string]map[string]int{}
	}
	of := n.Name + " " + e.Reason.Name
	if r.Events[of] == nil {
		r.Events[of] = map[string]int{}
	}
	r.Events[of][e.Key]++
}

// EventCount counts the different events of a reason on a node: those with one key become one object.
func (r *Referee) EventCount(node string, reason decide.Reason) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.Events[node+" "+reason.Name])
}

// Creates carries a creation out. A pod must be the first of its name, and the only one that occupies its node. One that
// a policy changes is deleted at once, and another one may get its name.
func (r *Referee) Creates(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if pod, ok := o.(*corev1.Pod); ok && r.world.Policy != nil {
		sent := pod.DeepCopy()
		if r.world.Policy(pod); workerpod.Altered(sent, pod) != "" {
			return r.world.API.Create(ctx, o, opts...)
		}
	}
	if err := r.world.API.Create(ctx, o, opts...); err != nil {
		return err
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	r.mu.Lock()
	if r.creations == nil {
		r.creations = map[string]int{}
	}
	r.creations[pod.Namespace+"/"+pod.Name]++
	again := r.creations[pod.Namespace+"/"+pod.Name] > 1
	r.mu.Unlock()
	if again {
		r.world.Errorf("pod %s was created twice", pod.Name)
	}
	occupying, err := r.occupying(ctx)
	if err != nil || pod.Labels[workerpod.LabelPurpose] != workerpod.PurposeVerify {
		return err
	}
	var beside []string
	for _, p := range occupying {
		if p.Labels[workerpod.LabelPurpose] == workerpod.PurposeVerify && p.Labels[workerpod.LabelNodeUID] == pod.Labels[workerpod.LabelNodeUID] {
			beside = append(beside, p.Name)
		}
	}
	if len(beside) > 1 {
		r.world.Errorf("several workers occupy one node: %v", beside)
	}
	return nil
}

// Loses has somebody else delete a pod at once. Its attempt may start again under the pod's name.
func (r *Referee) Loses(pod *corev1.Pod) {
	r.world.Must(r.world.API.Delete(r.world.Ctx, pod, client.GracePeriodSeconds(0)))
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.creations, pod.Namespace+"/"+pod.Name)
}

// occupying lists the world's workers and probes that occupy nodes, and counts them for MostAtOnce.
func (r *Referee) occupying(ctx context.Context) (occupying []corev1.Pod, err error) {
	for namespace := range r.world.podNamespaces {
		var pods corev1.PodList
		if err := r.world.API.List(ctx, &pods, client.InNamespace(namespace), client.HasLabels{workerpod.LabelPurpose}); err != nil {
			return nil, err
		}
		for _, p := range pods.Items {
			if workerpod.Observe(&p).Occupies {
				occupying = append(occupying, p)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.most = max(r.most, len(occupying))
	return occupying, nil
}

// MostAtOnce is how many workers and probes occupied the world's nodes at once, at most.
func (r *Referee) MostAtOnce() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most
}

// deletes carries a deletion out. A worker whose result nobody has recorded must stay, and what is deleted must be the one
// that was decided on.
func (r *Referee) deletes(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	options := client.DeleteOptions{}
	options.ApplyOptions(opts)
	if options.Preconditions == nil || options.Preconditions.UID == nil {
		r.world.Errorf("%s %s is deleted whatever its UID", kind(o), o.GetName())
	}
	dry := len(options.DryRun) > 0
	if pod, ok := o.(*corev1.Pod); ok && !dry {
		r.unrecorded(ctx, pod)
	}
	if err := r.world.API.Delete(ctx, o, opts...); err != nil || dry {
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

func (r *Referee) unrecorded(ctx context.Context, o *corev1.Pod) {
	pod, n := &corev1.Pod{}, &corev1.Node{}
	if r.world.API.Get(ctx, client.ObjectKeyFromObject(o), pod) != nil || pod.Labels[workerpod.LabelPurpose] != workerpod.PurposeVerify ||
		r.world.API.Get(ctx, client.ObjectKey{Name: pod.Annotations[workerpod.AnnotationNode]}, n) != nil {
		return
	}
	seen, rec := workerpod.Observe(pod), marks.Observe(n, r.world.Config.Vocabulary()).Record
	if seen.Attempt.Result != nil && seen.Attempt.Number > rec.Sequence && !seen.Recorded {
		r.world.Errorf("worker %s is deleted, and nobody has recorded its result", pod.Name)
	}
}

// Deleted lists what was deleted.
func (r *Referee) Deleted() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.deleted)
}

// Created counts the pods whose names begin with the purpose.
func (r *Referee) Created(purpose string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.creations {
		if _, name, _ := strings.Cut(name, "/"); strings.HasPrefix(name, purpose) {
			n++
		}
	}
	return n
}

// Result is what a node came to.
type Result struct {
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

func (w *World) result(node string) Result {
	w.Helper()
	n, f := w.Get(node)
	res := Result{Gone: n == nil, Gated: f.Gated, Labelled: f.Labelled, Ledger: len(w.Ledger()), Deleted: len(w.Deleted()), Pods: len(w.Pods(node)),
		Attempts: f.Record.Attempts, Inconclusive: f.Record.Inconclusive, Sequence: f.Record.Sequence,
		Record: fmt.Sprintf("%s %s held=%s verified=%t", f.Record.LastOutcome, f.Record.LastReason, f.Record.Held, f.Record.VerifiedTime != nil)}
	if c := f.Condition; c != nil {
		res.Condition = string(c.Status) + " " + c.Reason
	}
	res.Rules, res.Added, res.Removed = w.RulesOn(n)
	if d := f.Record.Deletion; d != nil {
		res.Deletion = d.Kind + "/" + d.Name
	}
	return res
}
