package daemonset

import (
	"context"
	"maps"
	"net/url"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/verdict"
)

// waits lists the prerequisites that do not hold, in the order of the configuration. Only the node's own objects are read.
func (p *Process) waits(ctx context.Context, n *corev1.Node, pre config.Prerequisites, look *next) []decide.Unmet {
	waits := []decide.Unmet{}
	add := func(kind, name, why string) {
		if why != "" {
			waits = append(waits, decide.Unmet{Kind: kind, Name: name, Message: why})
		}
	}
	if pre.NodeReady {
		add(verdict.KindNodeReady, string(corev1.NodeReady), verdict.Condition(n, verdict.NodeReady))
	}
	for _, c := range pre.Conditions {
		add(verdict.KindConditions, verdict.ConditionName(c), verdict.Condition(n, c))
	}
	for _, pods := range pre.Pods {
		add(verdict.KindPods, verdict.PodsName(pods), p.pods(ctx, pods, look))
	}
	if len(pre.CSINodes) > 0 {
		found, err := list[*storagev1.CSINode](ctx, p, "/apis/storage.k8s.io/v1/csinodes", field("metadata.name", p.Node), look)
		var own *storagev1.CSINode
		if len(found) > 0 {
			own = found[0]
		}
		for _, c := range pre.CSINodes {
			why := verdict.CSINode(c, n, own)
			if err != nil {
				why = verdict.UnreadCSINode(c, unread(err))
			}
			add(verdict.KindCSINodes, c.Driver, why)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pre.Allocatable)) {
		add(verdict.KindAllocatable, string(name), verdict.Allocatable(n, name, pre.Allocatable[name]))
	}
	return waits
}

// pods says what is missing of the pods of one prerequisite.
func (p *Process) pods(ctx context.Context, want config.PodPrerequisite, look *next) string {
	query := field("spec.nodeName", p.Node)
	query.Set("labelSelector", metav1.FormatLabelSelector(&want.Selector))
	found, err := list[*corev1.Pod](ctx, p, "/api/v1/namespaces/"+url.PathEscape(want.Namespace)+"/pods", query, look)
	if err != nil {
		return verdict.NoPods(want, unread(err))
	}
	var revisions []*appsv1.ControllerRevision
	if want.CurrentRevision {
		if revisions, err = list[*appsv1.ControllerRevision](ctx, p, "/apis/apps/v1/namespaces/"+url.PathEscape(want.Namespace)+"/controllerrevisions", url.Values{}, look); err != nil {
			return verdict.NoPods(want, unread(err))
		}
	}
	return verdict.Pods(want, found, func(uid string) []*appsv1.ControllerRevision {
		return slices.DeleteFunc(slices.Clone(revisions), func(r *appsv1.ControllerRevision) bool {
			c := metav1.GetControllerOf(r)
			return c == nil || string(c.UID) != uid
		})
	})
}
