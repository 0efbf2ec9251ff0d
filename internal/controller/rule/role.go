package rule

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

const (
	// annotationUnheld remembers NRC's Leases that nobody held while rules were served, by namespace, with their resourceVersions.
	annotationUnheld = "node-ready/unheld"

	// roleRenewal is the time between two renewals of the role.
	roleRenewal = 5 * time.Second
	// roleFence is the age of the last renewal from which on rules are not served; nodes wait for the next.
	roleFence = 20 * time.Second
	// roleDuration is how long another installation waits after the last renewal that it saw. What lies between it and
	// roleFence is for the write in flight.
	roleDuration = 45 * time.Second
)

// role is which installation serves rules, as far as this process has seen.
type role struct {
	// renewed is when the last renewal of ours was sent; zero before the first.
	renewed time.Time
	// other is the Lease while another installation holds it.
	other decide.LeaseSight
	seen  string // resourceVersion of other
	// rehearsing: a dry run takes no role, and is in nobody's way.
	rehearsing bool
}

func (r role) state(now time.Time) (decide.RulesState, string) {
	switch {
	case r.other.Held(now):
		return decide.RulesStandingBack, fmt.Sprintf("installation %s serves rules (Lease %s/%s): of several in a cluster one does", r.other.Holder, decide.RulesLeaseNamespace, decide.RulesLease)
	case r.rehearsing || now.Sub(r.renewed) < roleFence && !r.renewed.IsZero():
		return decide.RulesServing, ""
	}
	return decide.RulesUnknown, fmt.Sprintf("Lease %s/%s is not renewed", decide.RulesLeaseNamespace, decide.RulesLease)
}

// Claim holds the role for this installation, and says in it how rules stand.
type Claim struct {
	Rules  *Rules
	Leases coordinationclient.LeaseInterface // of decide.RulesLeaseNamespace
	// Identity is the installation's, not the process's: a successor goes on at once.
	Identity string

	remembered map[string]string
}

// run renews the role until ctx is done. What NRC's Leases were when rules were last served is read before.
func (c *Claim) run(ctx context.Context) {
	tick := time.NewTicker(roleRenewal)
	defer tick.Stop()
	for {
		if err := c.Renew(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "the role of serving NodeReadinessRules is not renewed", "lease", decide.RulesLeaseNamespace+"/"+decide.RulesLease)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Renew takes the role where nobody else holds it, and renews it.
func (c *Claim) Renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roleRenewal)
	defer cancel()
	lease, err := c.Leases.Get(ctx, decide.RulesLease, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: decide.RulesLease}}
	case err != nil:
		return err
	}
	now := c.Rules.Now()
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != "" && holder != c.Identity {
		held := false
		c.Rules.update(ctx, func(s *serving) {
			if s.role.seen != lease.ResourceVersion {
				s.role.seen, s.role.renewed = lease.ResourceVersion, time.Time{}
				s.role.other = decide.LeaseSight{Holder: holder, Duration: time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second, Changed: now}
			}
			held = s.role.other.Held(now)
		})
		if held {
			return nil
		}
	}
	if c.Rules.Rehearsing {
		c.Rules.update(ctx, func(s *serving) { s.role = role{rehearsing: true} })
		return nil
	}
	c.fill(lease, now)
	if lease.ResourceVersion == "" {
		_, err = c.Leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		_, err = c.Leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return err // a conflict is another installation that was quicker
	}
	c.Rules.update(ctx, func(s *serving) { s.role = role{renewed: now} })
	return nil
}

// fill writes our claim into the Lease.
func (c *Claim) fill(lease *coordinationv1.Lease, now time.Time) {
	if ptr.Deref(lease.Spec.HolderIdentity, "") != c.Identity {
		lease.Spec.AcquireTime = ptr.To(metav1.NewMicroTime(now))
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
	}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = &c.Identity, ptr.To(metav1.NewMicroTime(now))
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(roleDuration / time.Second))
	state, why := c.Rules.State()
	if state == decide.RulesUnknown { // because the role is not renewed yet
		state, why = "", ""
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	if state != "" {
		lease.Annotations[decide.RulesStateAnnotation] = string(state) + ": " + why
	}
	switch state {
	case decide.RulesServing:
		b, err := json.Marshal(c.Rules.unheld())
		if err != nil {
			panic(err) // strings only
		}
		lease.Annotations[annotationUnheld] = string(b)
	case decide.RulesStandingBack:
		delete(lease.Annotations, annotationUnheld)
	}
}

// recall reads which of NRC's Leases were unheld when rules were last served.
func (c *Claim) recall(ctx context.Context) error {
	lease, err := c.Leases.Get(ctx, decide.RulesLease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if json.Unmarshal([]byte(lease.Annotations[annotationUnheld]), &c.remembered) != nil {
		c.remembered = nil // then we wait
	}
	return nil
}

// unheld are the resourceVersions of NRC's Leases, by namespace.
func (r *Rules) unheld() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.serving.nrcVer)
}
