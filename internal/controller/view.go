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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/apiread"
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
)

// Index adds the indexes that a View reads by to the cache.
func Index(ctx context.Context, i client.FieldIndexer) error {
	var errs []error
	for name, value := range map[string]func(*corev1.Pod) string{
		indexNodeUID:  func(p *corev1.Pod) string { return p.Labels[workerpod.LabelNodeUID] },
		indexGroup:    func(p *corev1.Pod) string { return p.Labels[workerpod.LabelProbeGroup] },
		indexOccupies: func(p *corev1.Pod) string { return strconv.FormatBool(workerpod.Observe(p).Occupies) },
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

// Store is the store of an informer (client-go's cache.Store), which knows the resource version up to which it is
// complete. Unlike the events of a watch, that version also covers a relist. Read it before the cache, because a later
// read of the cache then shows at least this version.
type Store interface {
	LastStoreSyncResourceVersion() string
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
	// Pods is the store of the pods' informer. Nil means a store that always has this process's writes.
	Pods Store

	reserved  reservations
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

const (
	// pageOfWorkers is how many pods Begin lists at a time.
	pageOfWorkers = 500
	// beginTries is how often Begin tries the list, a second apart.
	beginTries = 5
	// shownWithin is how long Begin waits for the cache to hold them.
	shownWithin = 15 * time.Second
)

// Begin waits until the cache holds the pods that earlier leaders created. Call it once this process leads, and create
// no worker before it returns. live must not be a cache. If the API server does not list the pods, or the cache does
// not get them in time, it logs that and continues. The error is the context's.
func (v *View) Begin(ctx context.Context, live client.Reader) error {
	var workers []*corev1.Pod
	var last error
	backoff := wait.Backoff{Duration: time.Second, Steps: beginTries}
	_ = wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		workers, last = v.workers(ctx, live)
		return last == nil, nil
	})
	if last == nil {
		last = wait.PollUntilContextTimeout(ctx, shownWithin/100, shownWithin, true, func(ctx context.Context) (bool, error) {
			synced := v.synced()
			workers = slices.DeleteFunc(workers, func(p *corev1.Pod) bool {
				shown := &corev1.Pod{}
				err := v.Cache.Get(ctx, client.ObjectKeyFromObject(p), shown)
				return err == nil && shown.UID == p.UID || holds(synced, p.ResourceVersion)
			})
			return len(workers) == 0, nil
		})
	}
	if last != nil && ctx.Err() == nil {
		log.FromContext(ctx).Error(last, "waiting until the watch shows the last workers of the previous leader")
	}
	return ctx.Err()
}

// workers lists the pods that occupy nodes.
func (v *View) workers(ctx context.Context, live client.Reader) (found []*corev1.Pod, err error) {
	use := func(page *corev1.PodList, first bool) bool {
		if first {
			found = nil
		}
		for i := range page.Items {
			if p := &page.Items[i]; v.Ours(p) && workerpod.Observe(p).Occupies {
				found = append(found, p.DeepCopy()) // the page is not kept for its sake
			}
		}
		return true
	}
	err = apiread.Pages(ctx, live, pageOfWorkers, func() *corev1.PodList { return &corev1.PodList{} }, use,
		client.InNamespace(v.Builder.Namespace),
		client.MatchingLabels{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: workerpod.Component})
	return found, err
}

// synced is the version up to which the store of pods is complete, or empty if that is unknown.
func (v *View) synced() string {
	if v.Pods == nil {
		return ""
	}
	return v.Pods.LastStoreSyncResourceVersion()
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

// Gather is Observe with the node's pods and their observations. It returns ErrVanished while the cache and the
// observations disagree about a pod of the node. Otherwise an attempt whose end is missing would look as if it had
// never been made.
func (v *View) Gather(ctx context.Context, n *corev1.Node) (decide.Input, error) {
	in := v.Observe(n)
	pods, err := v.shown(ctx, n)
	if err != nil {
		return in, err
	}
	return v.complete(in, pods), nil
}

// shown is what the cache shows of the node's pods.
func (v *View) shown(ctx context.Context, n *corev1.Node) (pods []workerpod.Observation, err error) {
	// Both are read before the list, because the store changes first and its events come after that.
	missing, synced := v.Tracker.UnderWay(n.Name, n.UID), v.synced()
	list, err := v.podsOf(ctx, n)
	if err != nil {
		return nil, err
	}
	t := workerpod.Target{Name: n.Name, UID: string(n.UID)}
	listed := map[types.UID]bool{}
	for i := range list {
		if workerpod.Ours(&list[i], v.Builder.Namespace, t) {
			pods = append(pods, v.Tracker.observe(&list[i]))
		}
		listed[list[i].UID] = true
	}
	if slices.ContainsFunc(missing, func(uid types.UID) bool { return !listed[uid] }) {
		return nil, ErrVanished
	}
	gone, err := v.reserved.settle(string(n.UID), synced, listed)
	for _, p := range gone {
		v.Tracker.PodGone(workerpod.Observe(p), p)
	}
	return pods, err
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

// Hosts reports whether the cache has a pod of ours for the node: a worker, or a control probe that it hosts.
func (v *View) Hosts(ctx context.Context, n *corev1.Node) (bool, error) {
	pods, err := v.podsOf(ctx, n)
	return len(pods) > 0, err
}

// podsOf lists the pods in the cache that carry the node's UID. They must not be modified.
func (v *View) podsOf(ctx context.Context, n *corev1.Node) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := v.Cache.List(ctx, &list, client.InNamespace(v.Builder.Namespace),
		client.MatchingFields{indexNodeUID: string(n.UID)}, client.UnsafeDisableDeepCopy)
	return list.Items, err
}

// ErrVanished means that a pod left the cache but its delete event is pending, or that it was created but is not in the
// cache yet. It also means that the record of a node changed while its pods were read. Requeue the node.
var ErrVanished = errors.New("the watch has not reported the end of a worker pod yet")

// freshTries is how often Fresh reads a node. The second time is for a cached node that is behind.
const freshTries = 2

// Fresh is Gather of what the API server has: it reads the node's pods, and then the node. A worker is deleted only
// after its result is in the node's record. So the record that is read last counts each worker that was gone when the
// pods were read, and no attempt starts a second time.
//
// The cached node says which pods to read. If another node has its name, or another sequence, pods and node are read
// once more. The error is ErrVanished if they still differ, and NotFound if the node is gone.
func (v *View) Fresh(ctx context.Context, live client.Reader, cached *corev1.Node) (*corev1.Node, decide.Input, error) {
	for range freshTries {
		pods, err := v.freshPods(ctx, live, cached)
		if err != nil {
			return nil, decide.Input{}, err
		}
		n := &corev1.Node{}
		if err := live.Get(ctx, client.ObjectKeyFromObject(cached), n); err != nil {
			return nil, decide.Input{}, err
		}
		if n.UID == cached.UID && v.sequence(n) == v.sequence(cached) {
			return n, v.complete(v.Observe(n), pods), nil
		}
		cached = n
	}
	return nil, decide.Input{}, ErrVanished
}

// sequence is the number of the last attempt in the node's record.
func (v *View) sequence(n *corev1.Node) int32 {
	return marks.Observe(n, v.Config.Vocabulary()).Record.Sequence
}

// freshPods lists the node's pods in the cache. It reads those from the API server that have no result, or that are
// terminating and still occupy the node.
func (v *View) freshPods(ctx context.Context, live client.Reader, n *corev1.Node) ([]workerpod.Observation, error) {
	pods, err := v.shown(ctx, n)
	if err != nil {
		return nil, err
	}
	for i, p := range pods {
		if p.Attempt.Result != nil && (!p.Terminating || !p.Occupies) {
			continue
		}
		pod := &corev1.Pod{}
		err := live.Get(ctx, client.ObjectKey{Namespace: v.Builder.Namespace, Name: p.Name}, pod)
		switch {
		case apierrors.IsNotFound(err), err == nil && string(pod.UID) != p.UID:
			return nil, ErrVanished
		case err != nil:
			return nil, err
		}
		pods[i] = v.Tracker.observe(pod)
	}
	return pods, nil
}

// Probes lists the control probes of groups, wherever they run. It returns ErrVanished while a created probe is not in
// the cache yet. Two nodes that fail together have two probes, because a probe's name derives from its failure.
func (v *View) Probes(ctx context.Context, groups ...string) ([]workerpod.Observation, error) {
	var out []workerpod.Observation
	for _, group := range groups {
		if v.reserved.probing(group, "", v.synced()) {
			return nil, ErrVanished
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
