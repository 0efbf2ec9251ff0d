// Package controller holds what the reconcilers of nodes share: the view of a node and its worker pods, the tracker of
// observations, slots, the fleet, and the effects on pods.
package controller

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/apiread"
	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Names of the cache's indexes on worker pods.
const (
	indexNodeUID  = "worker/node-uid"
	indexGroup    = "worker/probe-group"
	indexOccupies = "worker/occupies"
	indexAltered  = "worker/altered-probe"
)

// Index adds the indexes that a View reads by to the cache.
func Index(ctx context.Context, i client.FieldIndexer) error {
	var errs []error
	for name, value := range map[string]func(*corev1.Pod) string{
		indexNodeUID:  func(p *corev1.Pod) string { return p.Labels[workerpod.LabelNodeUID] },
		indexGroup:    func(p *corev1.Pod) string { return p.Labels[workerpod.LabelProbeGroup] },
		indexOccupies: func(p *corev1.Pod) string { return strconv.FormatBool(workerpod.Observe(p).Occupies) },
		indexAltered: func(p *corev1.Pod) string {
			host, _ := workerpod.AlteredProbe(p, p.Namespace)
			return host
		},
	} {
		errs = append(errs, i.IndexField(ctx, &corev1.Pod{}, name, func(o client.Object) []string {
			if v := value(o.(*corev1.Pod)); v != "" {
				return []string{v}
			}
			return nil
		}))
	}
	return errors.Join(errs...)
}

// Emitter writes events on nodes. It never blocks.
type Emitter interface {
	Emit(n *corev1.Node, at time.Time, e decide.Event)
}

// View reads nodes, and our pods on them, from the caches.
type View struct {
	Config *config.Config
	// Cache reads from the informers, with the indexes of Index.
	Cache client.Reader
	// Builder knows the pods that are ours.
	Builder *workerpod.Builder
	// Tracker knows when this process first observed each state, on its own clock.
	Tracker *Tracker
	// OwnerTerminating returns the owner of a node that is being deleted, which the Node may not show; empty for none.
	OwnerTerminating func(n *corev1.Node, shown marks.Facts) string

	installed atomic.Pointer[time.Time]
}

// SetInstalled records when the controller was installed; see decide.Input.Installed.
func (v *View) SetInstalled(at time.Time) { v.installed.Store(&at) }

// Installed is what SetInstalled recorded; zero until then.
func (v *View) Installed() time.Time {
	if at := v.installed.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// pageOfWorkers is how many pods Begin lists at a time.
const pageOfWorkers = 500

// Begin lists the pods of earlier leaders that occupy nodes, because the cache may not show all of them yet. Call it
// once this process leads, and create no worker before it returns. live must not be a cache. If the API server does not
// list the pods, it logs that and continues: then the first workers may exceed maxConcurrentVerifications. The error is
// the context's.
func (v *View) Begin(ctx context.Context, live client.Reader) error {
	use := func(page *corev1.PodList, _ bool) bool {
		for i := range page.Items {
			if p := &page.Items[i]; v.Ours(p) && workerpod.Observe(p).Occupies {
				v.Tracker.inherits(p)
			}
		}
		return true
	}
	err := apiread.Pages(ctx, live, pageOfWorkers, func() *corev1.PodList { return &corev1.PodList{} }, use,
		client.InNamespace(v.Builder.Namespace),
		client.MatchingLabels{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: workerpod.Component})
	if err != nil && ctx.Err() == nil {
		log.FromContext(ctx).Error(err, "the workers of the previous leader cannot be listed")
	}
	return ctx.Err()
}

// Observe returns the input of a decision about a node, without its pods. It records whether the node is Ready.
func (v *View) Observe(n *corev1.Node) decide.Input {
	in := v.input(n, marks.Observe(n, v.Config.Vocabulary()))
	v.Tracker.observeNode(in.Node)
	v.Tracker.observeGroup(in)
	in.SuspectSince = v.Tracker.observeSuspects(in)
	return in
}

func (v *View) input(n *corev1.Node, facts marks.Facts) decide.Input {
	in := decide.Input{Config: v.Config, Profile: v.Config.For(n.Labels), Selected: v.Config.Selects(n.Labels),
		Node: facts, Installed: v.Installed()}
	in.Checks = v.Builder.Checks(in.Profile.Profile)
	if in.Node.Leaving == "" {
		in.Node.Leaving = v.OwnerTerminating(n, in.Node)
	}
	return in
}

// Closed reports whether the gate of a node is closed.
func (v *View) Closed(n *corev1.Node) bool {
	return v.input(n, marks.Observe(n, v.Config.Vocabulary())).Closed()
}

// Changed records what a watch has shown of a node that changed: its gate opened or closed, or it has another boot ID.
// A queue that merges events would hide what changes and changes back.
func (v *View) Changed(old, now *corev1.Node) {
	if old.UID != now.UID {
		return
	}
	if before, boot := marks.BootID(old), marks.BootID(now); before != "" && boot != "" && before != boot {
		v.Tracker.BootChanged(before, v.Observe(now))
	}
	if !equality.Semantic.DeepEqual(old.Spec.Taints, now.Spec.Taints) &&
		v.Closed(old) != v.Closed(now) {
		v.Tracker.GateChanged(v.Observe(now))
	}
}

// Gather is Observe with the node's pods and their observations. It returns ErrNotShown while a watch has not shown a
// pod of the node that was asked for.
func (v *View) Gather(ctx context.Context, n *corev1.Node) (decide.Input, error) {
	in := v.Observe(n)
	pods, err := v.shown(ctx, in.Node)
	if err != nil {
		return in, err
	}
	return v.complete(in, pods), nil
}

// shown is what the cache shows of the node's pods.
func (v *View) shown(ctx context.Context, n marks.Facts) ([]workerpod.Observation, error) {
	if v.Tracker.awaits(n) { // asked before the list, because the cache changes first and its events come after that
		return nil, ErrNotShown
	}
	list, err := v.podsOf(ctx, n.UID)
	return v.ours(n, list), err
}

// ours are the observations of those pods that are ours and for the node.
func (v *View) ours(n marks.Facts, list []corev1.Pod) (pods []workerpod.Observation) {
	t := workerpod.Target{Name: n.Name, UID: n.UID}
	for i := range list {
		if workerpod.Ours(&list[i], v.Builder.Namespace, t) {
			pods = append(pods, v.Tracker.observe(&list[i]))
		}
	}
	return pods
}

// complete is the input with the pods, and with what was observed of the node and of its pods before.
func (v *View) complete(in decide.Input, pods []workerpod.Observation) decide.Input {
	in.Pods = pods
	in.NeedsVerificationSince = v.Tracker.neededSince(in)
	v.Tracker.ofNode(&in)
	v.Tracker.ofGroup(&in)
	for _, p := range in.Pods {
		in.DryRunDone = in.DryRunDone || v.Tracker.DryRun && p.Recorded
	}
	return in
}

// Hosts reports whether the cache has a pod of ours for the node: a worker, or a control probe that it hosts, also one
// that was changed.
func (v *View) Hosts(ctx context.Context, n *corev1.Node) (bool, error) {
	pods, err := v.podsOf(ctx, string(n.UID))
	if err != nil || len(pods) > 0 {
		return len(pods) > 0, err
	}
	pods, err = v.AlteredProbes(ctx, n.Name)
	return len(pods) > 0, err
}

// AlteredProbes lists the control probes in the cache that were changed so that they are not ours any more, and that
// the node of the name hosts. They must not be modified.
func (v *View) AlteredProbes(ctx context.Context, host string) (altered []corev1.Pod, err error) {
	var list corev1.PodList
	err = v.Cache.List(ctx, &list, client.InNamespace(v.Builder.Namespace), client.MatchingFields{indexAltered: host},
		client.UnsafeDisableDeepCopy)
	for i := range list.Items {
		if on, is := v.AlteredProbe(&list.Items[i]); is && on == host {
			altered = append(altered, list.Items[i])
		}
	}
	return altered, err
}

// AlteredProbe returns the host of a control probe that was changed so that it is not ours any more, and whether the
// pod is one.
func (v *View) AlteredProbe(p *corev1.Pod) (host string, altered bool) {
	return workerpod.AlteredProbe(p, v.Builder.Namespace)
}

// podsOf lists the pods in the cache that carry a node's UID. They must not be modified.
func (v *View) podsOf(ctx context.Context, nodeUID string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := v.Cache.List(ctx, &list, client.InNamespace(v.Builder.Namespace),
		client.MatchingFields{indexNodeUID: nodeUID}, client.UnsafeDisableDeepCopy)
	return list.Items, err
}

// ErrNotShown means that a watch is behind: it has not shown a pod that was asked for, or the end of one. It also means
// that the record of a node changed while its pods were read. Requeue the node.
var ErrNotShown = errors.New("the watch has not shown a worker pod or its end yet")

// freshTries is how often Fresh reads a node. The second time is for a cached node that is behind.
const freshTries = 2

// Fresh is Gather of what the API server has: it reads the node's pods, and then the node. The controller deletes a
// worker only after its result is in the node's record. So the record that is read last counts each worker that was
// deleted before the pods were read, and no recorded attempt starts again.
//
// The cached node says which pods to read. If another node has its name, or its record is another one, pods and node
// are read once more. The error is ErrNotShown if they still differ, and NotFound if the node is gone.
func (v *View) Fresh(ctx context.Context, live client.Reader, cached *corev1.Node) (*corev1.Node, decide.Input, error) {
	for range freshTries {
		before := marks.Observe(cached, v.Config.Vocabulary())
		pods, err := v.freshPods(ctx, live, before)
		if err != nil {
			return nil, decide.Input{}, err
		}
		n := &corev1.Node{}
		if err := live.Get(ctx, client.ObjectKeyFromObject(cached), n); err != nil {
			return nil, decide.Input{}, err
		}
		now := marks.Observe(n, v.Config.Vocabulary())
		if now.UID == before.UID && now.Record.Sequence == before.Record.Sequence && recordLost(now) == recordLost(before) {
			return n, v.complete(v.Observe(n), pods), nil
		}
		cached = n
	}
	return nil, decide.Input{}, ErrNotShown
}

// recordLost reports whether a node had attempts, because it carries our condition, and has no readable record. Its
// attempts count from 1 again.
func recordLost(n marks.Facts) bool { return n.Condition != nil && n.Record.NodeUID != n.UID }

// freshPods lists the node's pods in the cache. It reads those from the API server that have no result, or that are
// terminating and still occupy the node, and the worker of the last attempt. If the node's record is lost, no number
// leads to its workers, and they are listed from the API server.
func (v *View) freshPods(ctx context.Context, live client.Reader, n marks.Facts) ([]workerpod.Observation, error) {
	pods, err := v.shown(ctx, n)
	if err != nil {
		return nil, err
	}
	if recordLost(n) {
		var list corev1.PodList
		err := live.List(ctx, &list, client.InNamespace(v.Builder.Namespace),
			client.MatchingLabels{workerpod.LabelNodeUID: n.UID})
		return v.ours(n, list.Items), err
	}
	for i, p := range pods {
		if p.Attempt.Result != nil && (!p.Terminating || !p.Occupies) {
			continue
		}
		pod := &corev1.Pod{}
		err := live.Get(ctx, client.ObjectKey{Namespace: v.Builder.Namespace, Name: p.Name}, pod)
		switch {
		case apierrors.IsNotFound(err), err == nil && string(pod.UID) != p.UID:
			return nil, ErrNotShown
		case err != nil:
			return nil, err
		}
		pods[i] = v.Tracker.observe(pod)
	}
	return v.withLast(ctx, live, n, pods)
}

// withLast adds the worker of the last recorded attempt to the pods, if the cache lacks it and it still occupies the
// node. The API server may have created it although it refused to, or an earlier leader did. A policy may have changed
// it so that it is not ours any more: then it must end too, and on another node nothing waits for that. A worker that
// passed has ended.
func (v *View) withLast(ctx context.Context, live client.Reader, n marks.Facts, pods []workerpod.Observation) (
	[]workerpod.Observation, error) {
	r, t := n.Record, workerpod.Target{Name: n.Name, UID: n.UID}
	name := workerpod.VerifyName(t, r.Sequence)
	named := func(p workerpod.Observation) bool { return p.Name == name }
	if r.Sequence == 0 || r.LastOutcome == attempt.Passed || slices.ContainsFunc(pods, named) {
		return pods, nil
	}
	pod := &corev1.Pod{}
	if err := live.Get(ctx, client.ObjectKey{Namespace: v.Builder.Namespace, Name: name}, pod); err != nil {
		return pods, client.IgnoreNotFound(err)
	}
	o, here := v.Tracker.observe(pod), pod.Spec.NodeName == "" || pod.Spec.NodeName == t.Name
	if !workerpod.Made(pod, v.Builder.Namespace, t) || !o.Occupies || o.Terminating && !here {
		return pods, nil
	}
	o.Purpose, o.Attempt.Number = workerpod.PurposeVerify, r.Sequence // which the policy may have changed
	return append(pods, o), nil
}

// Probes lists the control probes of groups, wherever they run. It returns ErrNotShown while a created probe is not in
// the cache yet. Two nodes that fail together have two probes, because a probe's name derives from its failure.
func (v *View) Probes(ctx context.Context, groups ...string) ([]workerpod.Observation, error) {
	var out []workerpod.Observation
	for _, group := range groups {
		if v.Tracker.awaitsProbe(group) {
			return nil, ErrNotShown
		}
		var list corev1.PodList
		if err := v.Cache.List(ctx, &list, client.InNamespace(v.Builder.Namespace), client.MatchingFields{indexGroup: group},
			client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		for i := range list.Items {
			if p := &list.Items[i]; v.Ours(p) && p.Labels[workerpod.LabelPurpose] == workerpod.PurposeProbe {
				out = append(out, v.Tracker.observe(p))
			}
		}
	}
	return out, nil
}

// Ours reports whether the pod is one that the controller makes for the node that it names.
func (v *View) Ours(p *corev1.Pod) bool {
	return workerpod.Ours(p, v.Builder.Namespace, workerpod.TargetOf(p))
}
