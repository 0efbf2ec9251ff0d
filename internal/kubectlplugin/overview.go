package kubectlplugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/leader"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// overview is the state of the installation: what status begins with.
type overview struct {
	Leader   leaderView    `json:"leader"`
	Replicas *replicasView `json:"replicas,omitempty"`
	// Plugin is this program's version.
	Plugin string `json:"plugin"`
	// DryRun: workers run, and nothing on nodes changes.
	DryRun bool `json:"dryRun,omitempty"`
	// Remediates: the action is taken on nodes that exhaust their retries; with RemediatesDryRun it is only reported on
	// which it would be.
	Remediates       bool `json:"remediates"`
	RemediatesDryRun bool `json:"remediatesDryRun,omitempty"`
	// Action is nodeManagement.remediation.action, with the condition that it sets.
	Action string `json:"action,omitempty"`
	// Remediations are those of the ledger; nil where the action is off or it cannot be read.
	Remediations *ledgerView `json:"remediations,omitempty"`
	// Problem is what could not be read.
	Problem string `json:"problem,omitempty"`

	// pods are the replicas; podsErr is why they are not known.
	pods    []corev1.Pod
	podsErr error
}

// replicasView is the controller's pods.
type replicasView struct {
	Ready int `json:"ready"`
	Total int `json:"total"`
	// Images are those that they run, each once.
	Images []string `json:"images,omitempty"`
}

// overview reads the state of the installation. What may not be read is left out, and reported as the problem.
func (v *invocation) overview(ctx context.Context) overview {
	n := v.cluster.config.NodeManagement
	o := overview{Leader: v.leader(ctx), Plugin: version.Version, Remediates: n.DeleteFailedNodes,
		RemediatesDryRun: n.Remediation.DryRun}
	v.noLeader = o.Leader.Dead
	if o.pods, o.podsErr = v.cluster.controllerPods(ctx); o.podsErr != nil {
		o.Problem = o.podsErr.Error()
	} else {
		o.Replicas = &replicasView{Total: len(o.pods)}
	}
	for _, p := range o.pods {
		if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			o.Replicas.Ready++
		}
		for _, c := range p.Spec.Containers {
			if !slices.Contains(o.Replicas.Images, c.Image) {
				o.Replicas.Images = append(o.Replicas.Images, c.Image)
			}
		}
	}
	o.DryRun = isDryRun(o.pods)
	v.unchanging = o.DryRun
	if o.Remediates {
		o.Action = string(n.Remediation.Action)
		if c := n.Remediation.Condition; n.Remediation.Action == config.ActionCondition {
			o.Action = fmt.Sprintf("%s %s=%s", o.Action, c.Type, c.Status)
		}
		view, _, err := v.ledger(ctx)
		if err != nil {
			o.Problem = err.Error()
		} else {
			o.Remediations = &view
		}
	}
	return o
}

// controllerPods are the replicas.
func (c *cluster) controllerPods(ctx context.Context) ([]corev1.Pod, error) {
	namespace, err := c.controllers(ctx)
	if err != nil {
		return nil, err
	}
	list, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.Set{
		workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: c.component}.String()})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// isDryRun reports whether the controller's pods make a dry run.
func isDryRun(pods []corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(p corev1.Pod) bool {
		return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
			return slices.Contains(c.Args, "--dry-run") || slices.Contains(c.Args, "--dry-run=true")
		})
	})
}

// dryRunText is what a dry run does.
const dryRunText = "workers run, and nothing on nodes changes"

// remediationsRow is the name of the overview's line about actions on failed nodes.
const remediationsRow = "Remediations"

// rows are the overview's lines in status.
func (o overview) rows(v *invocation, counts map[string]int) [][]string {
	rows := [][]string{{"Controller", o.Leader.line(v.now)}}
	add := func(name, value string) { rows = append(rows, []string{name, value}) }
	if r := o.Replicas; r != nil && r.Total > 0 {
		add("Replicas", fmt.Sprintf("%d of %d ready: %s", r.Ready, r.Total, strings.Join(r.Images, ", ")))
	}
	switch {
	case o.DryRun:
		add("Dry run", dryRunText)
	case !o.Remediates:
		add(remediationsRow, "off (nodeManagement.deleteFailedNodes)")
	case o.Remediations == nil:
		add(remediationsRow, "on; "+o.Problem)
	case o.RemediatesDryRun:
		add(remediationsRow, "dry run: nodes say what would be done: "+o.Action)
	default:
		add(remediationsRow, o.Action+": "+o.Remediations.line())
	}
	var totals []string
	for _, s := range append(decide.States()[1:], opened, excluded, unmanaged, deleting) {
		if n := counts[string(s)]; n > 0 {
			totals = append(totals, fmt.Sprintf("%d %s", n, s))
		}
	}
	if len(totals) > 0 {
		add("Nodes", strings.Join(totals, ", "))
	}
	return rows
}

// leaderView is which pod leads, as the Lease has it.
type leaderView struct {
	// Name is the leading pod; empty where none leads, or where that is not known.
	Name string `json:"name,omitempty"`
	// Version is that of the leader.
	Version string `json:"version,omitempty"`
	// Since is when it began to lead; Renewed when it last renewed the Lease.
	Since   *time.Time `json:"since,omitempty"`
	Renewed *time.Time `json:"renewed,omitempty"`
	// Dead: no pod leads, so no node is verified.
	Dead bool `json:"dead"`
	// Problem is why no pod leads, or why that is not known.
	Problem string `json:"problem,omitempty"`
	// installed is when the first one was elected.
	installed time.Time
}

// leader reads the Lease of the election.
func (v *invocation) leader(ctx context.Context) leaderView {
	if v.cluster.component == componentDaemonSet {
		return leaderView{Problem: "none: in DaemonSet mode each node verifies itself"}
	}
	e := v.cluster.config.LeaderElection
	if !*e.Enabled {
		return leaderView{Problem: "not elected (leaderElection.enabled is false)"}
	}
	namespace := e.Namespace
	if namespace == "" {
		var err error
		if namespace, err = v.cluster.controllers(ctx); err != nil {
			return leaderView{Problem: "not known: " + err.Error()}
		}
	}
	lease, err := v.cluster.client.CoordinationV1().Leases(namespace).Get(ctx, e.ID, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return leaderView{Dead: true, Problem: fmt.Sprintf("Lease %s/%s does not exist, so no controller has ever led",
			namespace, e.ID)}
	case err != nil:
		return leaderView{Problem: "not known: " + err.Error()}
	case lease.Spec.RenewTime == nil:
		return leaderView{Dead: true, Problem: fmt.Sprintf("Lease %s/%s was never held", namespace, e.ID)}
	}
	view := leaderView{Version: lease.Labels[leader.LabelVersion], Renewed: &lease.Spec.RenewTime.Time,
		installed: lease.CreationTimestamp.Time}
	view.Name = ptr.Deref(lease.Spec.HolderIdentity, "")
	if i := strings.LastIndex(view.Name, "_"); i >= 0 {
		view.Name = view.Name[:i] // the suffix distinguishes a container from its predecessor
	}
	if lease.Spec.AcquireTime != nil {
		view.Since = &lease.Spec.AcquireTime.Time
	}
	lasts := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	switch {
	case view.Name == "":
		view.Dead, view.Problem = true, fmt.Sprintf("the last one ended %s ago", age(view.Renewed, v.now))
	case v.now.Sub(*view.Renewed) > lasts:
		view.Dead, view.Problem = true, fmt.Sprintf("%s last renewed its Lease %s ago", view.Name, age(view.Renewed, v.now))
	}
	return view
}

func (l leaderView) line(now time.Time) string {
	switch {
	case l.Dead:
		return "no leader: " + l.Problem + "; nothing is verified"
	case l.Problem != "":
		return l.Problem
	}
	text := l.Name + " leads"
	if l.Since != nil {
		text += " for " + age(l.Since, now)
	}
	if l.Version != "" {
		text += ", version " + l.Version
	}
	return text
}
