// Package controller is what the reconcilers that change nodes share: one view of a node and its worker pods, and the
// effects on those pods. They are node (verification) and deletion.
package controller

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	indexNodeUID = "worker/node-uid"
	indexGroup   = "worker/probe-group"
)

// Index adds the indexes that a View reads by to the cache.
func Index(ctx context.Context, i client.FieldIndexer) error {
	for name, label := range map[string]string{indexNodeUID: workerpod.LabelNodeUID, indexGroup: workerpod.LabelProbeGroup} {
		if err := i.IndexField(ctx, &corev1.Pod{}, name, func(o client.Object) []string {
			if v := o.GetLabels()[label]; v != "" {
				return []string{v}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// Emitter writes events on nodes. It never blocks.
type Emitter interface {
	Emit(n *corev1.Node, at time.Time, e decide.Event)
}

// View reads nodes and our pods on them from the caches.
type View struct {
	Config *config.Config
	// Cache reads from the informers, with the indexes of Index.
	Cache client.Reader
	// Builder knows the pods that are ours.
	Builder *workerpod.Builder
	// Tracker knows when this process saw what, on its own clock.
	Tracker *Tracker
	// OwnerTerminating says which owner of a node is being deleted, which the Node may not show; empty where none is.
	OwnerTerminating func(n *corev1.Node, shown marks.Facts) string
	// Namespaces knows where workers may run that Cache does not show; nil where nobody keeps account.
	Namespaces *Namespaces
}

// pageOfWorkers is how many pods Begin lists at a time.
const pageOfWorkers = 500

// Begin learns of the pods that earlier leaders created and that the cache does not show yet. It must be called once this process leads,
// and return before the first worker is created. live must not be a cache. Where the API server does not list the pods, the log says so
// and nothing is held up: the cache could be read, so it is late at most. The error is the context's.
func (v *View) Begin(ctx context.Context, live client.Reader) error {
	var last error
	backoff := wait.Backoff{Duration: time.Second, Steps: beginTries}
	err := wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		last = v.begin(ctx, live)
		return last == nil, nil
	})
	if last != nil && ctx.Err() == nil {
		log.FromContext(ctx).Error(last, "an earlier leader's last workers are known once the watch shows them")
	}
	if ctx.Err() != nil {
		return err
	}
	return nil
}

func (v *View) begin(ctx context.Context, live client.Reader) error {
	empty := func() *corev1.PodList { return &corev1.PodList{} }
	var failed error
	use := func(page *corev1.PodList, _ bool) bool {
		for i := range page.Items {
			if p := &page.Items[i]; v.Ours(p) && workerpod.Observe(p).Occupies {
				failed = errors.Join(failed, v.predecessor(ctx, p))
			}
		}
		return true
	}
	err := apiread.Pages(ctx, live, pageOfWorkers, empty, use, client.InNamespace(v.Builder.Namespace),
		client.MatchingLabels{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: workerpod.Component})
	return errors.Join(err, failed)
}

// predecessor accounts for a pod of an earlier leader, unless the cache shows it. It looks there last: the watch may show it meanwhile.
func (v *View) predecessor(ctx context.Context, p *corev1.Pod) error {
	v.Tracker.Predecessor(p)
	shown := &corev1.Pod{}
	err := v.Cache.Get(ctx, client.ObjectKeyFromObject(p), shown)
	if err == nil && shown.UID == p.UID {
		v.Tracker.Shown(p.Name)
	}
	return client.IgnoreNotFound(err)
}

// Observe is what decisions need of a node apart from its pods. It accounts for whether the node is Ready.
func (v *View) Observe(n *corev1.Node) decide.Input {
	in := v.input(n, marks.Observe(n, v.Config.Vocabulary()))
	v.Tracker.SeeNode(in.Node)
	return in
}

func (v *View) input(n *corev1.Node, facts marks.Facts) decide.Input {
	in := decide.Input{Config: v.Config, Profile: v.Config.For(n.Labels), Selected: v.Config.Selects(n.Labels), Node: facts}
	in.FormerNamespaces = v.Namespaces.Former()
	in.Checks = v.Builder.Checks(in.Profile.Profile)
	if in.Node.Leaving == "" {
		in.Node.Leaving = v.OwnerTerminating(n, in.Node)
	}
	return in
}

// Gather is Observe with the node's pods and what was seen of them. ErrVanished is returned while one has left the cache and the event that says
// so has not come: what became of its attempt is in that, and until then it would look as if there had been none.
func (v *View) Gather(ctx context.Context, n *corev1.Node) (decide.Input, error) {
	in := v.Observe(n)
	missing := v.Tracker.UnderWay(n.Name, n.UID) // before the list: events come after the cache has changed
	var list corev1.PodList
	if err := v.Cache.List(ctx, &list, client.InNamespace(v.Builder.Namespace), client.MatchingFields{indexNodeUID: in.Node.UID}, client.UnsafeDisableDeepCopy); err != nil {
		return in, err
	}
	t := workerpod.Target{Name: in.Node.Name, UID: in.Node.UID}
	for i := range list.Items {
		if workerpod.Ours(&list.Items[i], v.Builder.Namespace, t) {
			in.Pods = append(in.Pods, v.Tracker.observe(&list.Items[i]))
		}
		missing = slices.DeleteFunc(missing, func(uid types.UID) bool { return uid == list.Items[i].UID })
	}
	if len(missing) > 0 {
		return in, ErrVanished
	}
	in.Pods = v.unseen(in.Pods, workerpod.LabelNodeUID, in.Node.UID)
	in.NeedsVerificationSince = v.Tracker.neededSince(in)
	v.Tracker.ofNode(&in)
	for _, p := range in.Pods {
		in.DryRunDone = in.DryRunDone || v.Tracker.DryRun && p.Recorded
	}
	return in, nil
}

// ErrVanished says that a pod is gone, or was made, and that the watch has not shown it yet.
var ErrVanished = errors.New("the watch has not shown yet what became of a worker pod")

// GatherFresh is Gather of a node that was just read from the API server. It reads those of its pods from there too
// that have no result, or are terminating and still occupy the node.
func (v *View) GatherFresh(ctx context.Context, live client.Reader, n *corev1.Node) (decide.Input, error) {
	in, err := v.Gather(ctx, n)
	if err != nil {
		return in, err
	}
	for i, p := range in.Pods {
		if p.Attempt.Result != nil && (!p.Terminating || !p.Occupies) {
			continue
		}
		pod := &corev1.Pod{}
		err := live.Get(ctx, client.ObjectKey{Namespace: v.Builder.Namespace, Name: p.Name}, pod)
		switch {
		case apierrors.IsNotFound(err), err == nil && string(pod.UID) != p.UID:
			return in, ErrVanished
		case err != nil:
			return in, err
		}
		in.Pods[i] = v.Tracker.observe(pod)
	}
	return in, nil
}

// Probes lists the control probes of a group, wherever they run.
func (v *View) Probes(ctx context.Context, group string) ([]workerpod.Observation, error) {
	var list corev1.PodList
	if err := v.Cache.List(ctx, &list, client.InNamespace(v.Builder.Namespace), client.MatchingFields{indexGroup: group}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var out []workerpod.Observation
	for i := range list.Items {
		if p := &list.Items[i]; v.Ours(p) && p.Labels[workerpod.LabelPurpose] == workerpod.PurposeProbe {
			out = append(out, v.Tracker.observe(p))
		}
	}
	return v.unseen(out, workerpod.LabelProbeGroup, group), nil
}

// unseen adds the pods with the label that this process created and that no watch has shown yet: a cache that lags behind our own writes
// would have them made twice.
func (v *View) unseen(pods []workerpod.Observation, label, value string) []workerpod.Observation {
	var more []*corev1.Pod
	for name, p := range v.Tracker.Unseen() {
		if p != nil && p.Labels[label] == value && !slices.ContainsFunc(pods, func(o workerpod.Observation) bool { return o.Name == name }) {
			more = append(more, p)
		}
	}
	for _, p := range more {
		pods = append(pods, v.Tracker.observe(p))
	}
	return pods
}

// Ours reports whether the pod is one that the controller makes for the node that it names.
func (v *View) Ours(p *corev1.Pod) bool {
	return workerpod.Ours(p, v.Builder.Namespace, workerpod.TargetOf(p))
}
