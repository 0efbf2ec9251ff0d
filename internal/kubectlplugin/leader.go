package kubectlplugin

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/leader"
)

// leaderView is who acts, as the Lease says.
type leaderView struct {
	// Name is the leading pod; empty where none leads, or where that is not known.
	Name string `json:"name,omitempty"`
	// Version is that of the leader.
	Version string `json:"version,omitempty"`
	// Since is when it began to lead; Renewed when it last said that it does.
	Since   *time.Time `json:"since,omitempty"`
	Renewed *time.Time `json:"renewed,omitempty"`
	// Dead: nobody leads, so that nothing is verified.
	Dead bool `json:"dead"`
	// Problem says why nobody leads, or why it is not known.
	Problem string `json:"problem,omitempty"`
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
	lease, err := v.cluster.leases.Leases(namespace).Get(ctx, e.ID, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return leaderView{Dead: true, Problem: fmt.Sprintf("there is no Lease %s/%s: none ever led", namespace, e.ID)}
	case err != nil:
		return leaderView{Problem: "not known: " + err.Error()}
	case lease.Spec.RenewTime == nil:
		return leaderView{Dead: true, Problem: fmt.Sprintf("Lease %s/%s was never held", namespace, e.ID)}
	}
	view := leaderView{Version: lease.Labels[leader.LabelVersion], Renewed: &lease.Spec.RenewTime.Time}
	view.Name = ptr.Deref(lease.Spec.HolderIdentity, "")
	if i := strings.LastIndex(view.Name, "_"); i >= 0 {
		view.Name = view.Name[:i] // what follows tells a container from its predecessor
	}
	if lease.Spec.AcquireTime != nil {
		view.Since = &lease.Spec.AcquireTime.Time
	}
	lasts := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	switch {
	case view.Name == "":
		view.Dead, view.Problem = true, fmt.Sprintf("the last one ended %s ago", age(view.Renewed, v.now))
	case v.now.Sub(*view.Renewed) > lasts:
		view.Dead, view.Problem = true, fmt.Sprintf("%s was last heard of %s ago", view.Name, age(view.Renewed, v.now))
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
