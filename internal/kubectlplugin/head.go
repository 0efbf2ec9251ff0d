package kubectlplugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// head is how the product stands: what status begins with.
type head struct {
	Leader   leaderView    `json:"leader"`
	Replicas *replicasView `json:"replicas,omitempty"`
	// Plugin is this program's version.
	Plugin string `json:"plugin"`
	// DryRun: workers run, and nothing on nodes changes.
	DryRun bool `json:"dryRun,omitempty"`
	// Deletes: nodes that fail for good are deleted; with DeletesDryRun it is only said which.
	Deletes       bool `json:"deletes"`
	DeletesDryRun bool `json:"deletesDryRun,omitempty"`
	// Deletions are those of the ledger; nil where deletion is off or it cannot be read.
	Deletions *deletionsView `json:"deletions,omitempty"`
	// Problem says what could not be read.
	Problem string `json:"problem,omitempty"`

	// pods are the replicas; unlisted is why they are not known.
	pods     []corev1.Pod
	unlisted error
}

// replicasView is the controller's pods.
type replicasView struct {
	Ready int `json:"ready"`
	Total int `json:"total"`
	// Images are those that they run, each once.
	Images []string `json:"images,omitempty"`
}

// head reads it. What may not be read is left out, and said.
func (v *invocation) head(ctx context.Context) head {
	n := v.cluster.config.NodeManagement
	h := head{Leader: v.leader(ctx), Plugin: version.Version, Deletes: n.DeleteFailedNodes, DeletesDryRun: n.Remediation.DryRun}
	if h.pods, h.unlisted = v.cluster.controllerPods(ctx); h.unlisted != nil {
		h.Problem = h.unlisted.Error()
	} else {
		h.Replicas = &replicasView{}
	}
	for _, p := range h.pods {
		h.Replicas.Total++
		if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }) {
			h.Replicas.Ready++
		}
		for _, c := range p.Spec.Containers {
			h.DryRun = h.DryRun || slices.ContainsFunc(c.Args, func(a string) bool { return a == "--dry-run" || a == "--dry-run=true" })
			if !slices.Contains(h.Replicas.Images, c.Image) {
				h.Replicas.Images = append(h.Replicas.Images, c.Image)
			}
		}
	}
	if h.Deletes {
		view, err := v.deletionsView(ctx)
		if err != nil {
			h.Problem = err.Error()
		} else {
			view.Deletions = nil // they have a command of their own
			h.Deletions = &view
		}
	}
	return h
}

// controllerPods are the replicas.
func (c *cluster) controllerPods(ctx context.Context) ([]corev1.Pod, error) {
	namespace, err := c.controllers(ctx)
	if err != nil {
		return nil, err
	}
	list, err := c.core.Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.Set{
		workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: c.component}.String()})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// rows are the head for people.
func (h head) rows(v *invocation, counts map[string]int) [][]string {
	rows := [][]string{{"Controller", h.Leader.line(v.now)}}
	add := func(name, value string) { rows = append(rows, []string{name, plain(value)}) }
	if r := h.Replicas; r != nil && r.Total > 0 {
		add("Replicas", fmt.Sprintf("%d of %d ready: %s", r.Ready, r.Total, strings.Join(r.Images, ", ")))
	}
	switch {
	case h.DryRun:
		add("Dry run", "workers run, and nothing on nodes changes")
	case !h.Deletes:
		add("Deletions", "off (nodeManagement.deleteFailedNodes)")
	case h.Deletions == nil:
		add("Deletions", "on; "+h.Problem)
	case h.DeletesDryRun:
		add("Deletions", "dry run: nodes say what would be deleted")
	default:
		add("Deletions", h.Deletions.line())
	}
	var totals []string
	for _, s := range append(statusNames(), excluded, unmanaged, deleting) {
		if counts[s] > 0 {
			totals = append(totals, fmt.Sprintf("%d %s", counts[s], s))
		}
	}
	if len(totals) > 0 {
		add("Nodes", strings.Join(totals, ", "))
	}
	return rows
}

func statusNames() (names []string) {
	for _, s := range decide.Statuses() {
		names = append(names, string(s))
	}
	return names
}
