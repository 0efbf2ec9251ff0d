// Package controller is what the rooms that act on nodes have in common: one view of a node and its worker pods, and the
// effects on those pods. The rooms are node (verification) and deletion.
package controller

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// ErrRulesUnknown is returned for every node until it is known which NodeReadinessRules there are, and who serves them: a
// gate must not be skipped because a cache is filling.
var ErrRulesUnknown = errors.New("the NodeReadinessRules are not known yet")

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
	// Sights are when this process saw what, on its own clock.
	Sights *Sights
	// Departing says why a node is leaving that does not show it; empty where it is not.
	Departing func(n *corev1.Node, k marks.Karpenter) string
}

// Observe is what decisions need of a node apart from its pods.
func (v *View) Observe(n *corev1.Node) decide.Input {
	return v.input(n, marks.Observe(n, v.Config.Vocabulary()))
}

func (v *View) input(n *corev1.Node, facts marks.Facts) decide.Input {
	in := decide.Input{Config: v.Config, Profile: v.Config.For(n.Labels), Selected: v.Config.Selects(n.Labels), Node: facts}
	in.Checks = v.Builder.Checks(in.Profile.Profile)
	if in.Node.Leaving == "" {
		in.Node.Leaving = v.Departing(n, in.Node.Karpenter)
	}
	return in
}

// Gather is Observe with the node's pods and what was seen of them. ErrVanished is returned while one has left the cache and the event that says
// so has not come: what became of its attempt is in that, and until then it would look as if there had been none.
func (v *View) Gather(ctx context.Context, n *corev1.Node) (decide.Input, error) {
	in := v.Observe(n)
	missing := v.Sights.UnderWay(n.Name, n.UID) // before the list: events come after the cache has changed
	var list corev1.PodList
	if err := v.Cache.List(ctx, &list, client.InNamespace(v.Builder.Namespace), client.MatchingFields{indexNodeUID: in.Node.UID}, client.UnsafeDisableDeepCopy); err != nil {
		return in, err
	}
	t := workerpod.Target{Name: in.Node.Name, UID: in.Node.UID}
	for i := range list.Items {
		if workerpod.Ours(&list.Items[i], v.Builder.Namespace, t) {
			in.Pods = append(in.Pods, v.Sights.observe(&list.Items[i]))
		}
		missing = slices.DeleteFunc(missing, func(uid types.UID) bool { return uid == list.Items[i].UID })
	}
	if len(missing) > 0 {
		return in, ErrVanished
	}
	in.Pods = v.unseen(in.Pods, workerpod.LabelNodeUID, in.Node.UID)
	in.NeededSince = v.Sights.neededSince(in)
	in.Vanished, in.Rehearsed = v.Sights.ofNode(in.Node.Name, types.UID(in.Node.UID))
	for _, p := range in.Pods {
		in.Rehearsed = in.Rehearsed || v.Sights.Rehearsing && p.Recorded
	}
	return in, nil
}

// ErrVanished says that a pod is gone and the watch event that says what that means has not come.
var ErrVanished = errors.New("the worker pod is gone, and the watch has not shown it yet")

// GatherFresh is Gather of a node that was just read from the API server, and reads those of its pods that have no result from there too.
func (v *View) GatherFresh(ctx context.Context, live client.Reader, n *corev1.Node) (decide.Input, error) {
	in, err := v.Gather(ctx, n)
	if err != nil {
		return in, err
	}
	for i, p := range in.Pods {
		if p.Attempt.Result != nil {
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
		in.Pods[i] = v.Sights.observe(pod)
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
			out = append(out, v.Sights.observe(p))
		}
	}
	return v.unseen(out, workerpod.LabelProbeGroup, group), nil
}

// unseen adds the pods with the label that this process created and that no watch has shown yet: a cache that lags behind our own writes
// would have them made twice.
func (v *View) unseen(pods []workerpod.Observation, label, value string) []workerpod.Observation {
	var more []*corev1.Pod
	for name, p := range v.Sights.Unseen() {
		if p != nil && p.Labels[label] == value && !slices.ContainsFunc(pods, func(o workerpod.Observation) bool { return o.Name == name }) {
			more = append(more, p)
		}
	}
	for _, p := range more {
		pods = append(pods, v.Sights.observe(p))
	}
	return pods
}

// Ours reports whether the pod is one that the controller makes for the node that it names.
func (v *View) Ours(p *corev1.Pod) bool {
	return workerpod.Ours(p, v.Builder.Namespace, workerpod.TargetOf(p))
}
