package rules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
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
	other rule.LeaseObservation
	seen  string // resourceVersion of other
	// dryRun: a dry run takes no role, and is in nobody's way.
	dryRun bool
	// refused says why the API server refuses to read the Lease or to write it; empty where it does not.
	refused string
}

func (r role) state(now time.Time) (rule.ServingState, string) {
	switch {
	case r.other.Held(now):
		return rule.StandingBack, fmt.Sprintf("installation %s serves rules (Lease %s/%s): of several in a cluster one does", r.other.Holder, rule.LeaseNamespace, rule.LeaseName)
	case r.dryRun || now.Sub(r.renewed) < roleFence && !r.renewed.IsZero():
		return rule.Serving, ""
	case r.refused != "":
		return rule.Forbidden, fmt.Sprintf("Lease %s/%s is not renewed: %s%s",
			rule.LeaseNamespace, rule.LeaseName, r.refused, grant)
	}
	return rule.Unknown, fmt.Sprintf("Lease %s/%s is not renewed", rule.LeaseNamespace, rule.LeaseName)
}

// servedElsewhere reports whether another installation serves rules.
func (r *Rules) servedElsewhere() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.serving.role.other.Held(r.Now())
}

// Role is the Lease by which one of several installations serves rules: the client of an election whose candidates are
// installations and not processes. It notes what the API server answers, and says in the Lease how rules stand.
type Role struct {
	coordinationclient.LeaseInterface // of rule.LeaseNamespace

	Rules *Rules
	// Identity is the installation's.
	Identity string

	remembered map[string]string
	logger     logr.Logger
	logged     string // the last error; a refusal may last for good
}

// Lock is the lock of the election.
func (r *Role) Lock() resourcelock.Interface {
	return &resourcelock.LeaseLock{Client: r, LeaseMeta: metav1.ObjectMeta{Name: rule.LeaseName},
		LockConfig: resourcelock.ResourceLockConfig{Identity: r.Identity}}
}

// run takes part in the election until ctx is done. Only the process that holds the controller's own Lease runs it.
// Nothing frees the role when it ends: the next process of the installation has the same identity and renews it.
func (r *Role) run(ctx context.Context) {
	r.logger = log.FromContext(ctx)
	if r.Rules.DryRun { // it takes no role, and looks whether another installation has it
		look := func(ctx context.Context) { _, _ = r.Get(ctx, rule.LeaseName, metav1.GetOptions{}) }
		wait.UntilWithContext(ctx, look, roleRenewal)
		return
	}
	election := leaderelection.LeaderElectionConfig{Name: rule.LeaseName, Lock: r.Lock(), ReleaseOnCancel: false,
		LeaseDuration: roleDuration, RenewDeadline: roleFence, RetryPeriod: roleRenewal,
		// What follows from the role follows from the age of the last renewal, which a process that was stopped knows too.
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}}}
	quiet := klog.NewContext(ctx, logr.Discard()) // the elector logs every error at each try
	wait.UntilWithContext(quiet, func(ctx context.Context) { leaderelection.RunOrDie(ctx, election) }, roleRenewal)
}

// Leases implements coordinationclient.LeasesGetter for the lock.
func (r *Role) Leases(string) coordinationclient.LeaseInterface { return r }

// Get reads the Lease.
func (r *Role) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, roleRenewal)
	defer cancel()
	lease, err := r.LeaseInterface.Get(ctx, name, o)
	r.note(ctx, client.IgnoreNotFound(err), func(now *role) {
		now.dryRun = r.Rules.DryRun
		if err != nil || now.seen == lease.ResourceVersion {
			return
		}
		if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != "" && holder != r.Identity {
			now.seen, now.renewed = lease.ResourceVersion, time.Time{}
			duration := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
			now.other = rule.LeaseObservation{Holder: holder, Duration: duration, Changed: r.Rules.Now()}
		}
	})
	return lease, err
}

// Create writes the first renewal.
func (r *Role) Create(ctx context.Context, lease *coordinationv1.Lease,
	o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return r.renew(ctx, lease, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return r.LeaseInterface.Create(ctx, lease, o)
	})
}

// Update writes a renewal.
func (r *Role) Update(ctx context.Context, lease *coordinationv1.Lease,
	o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return r.renew(ctx, lease, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return r.LeaseInterface.Update(ctx, lease, o)
	})
}

func (r *Role) renew(ctx context.Context, lease *coordinationv1.Lease,
	send func(context.Context) (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, roleRenewal)
	defer cancel()
	sent := r.Rules.Now() // the other installations count from later: when they see the renewal
	r.annotate(lease, sent)
	written, err := send(ctx)
	if err == nil {
		r.logged = ""
	}
	r.note(ctx, err, func(now *role) { *now = role{renewed: sent} })
	return written, err
}

// note accounts for an answer: change is what one without an error changes.
func (r *Role) note(ctx context.Context, err error, change func(*role)) {
	why := controller.Refusal(err)
	if err == nil || why != "" {
		r.Rules.update(log.IntoContext(ctx, r.logger), func(s *serving) {
			if why != "" {
				s.role.refused = why
			} else {
				change(&s.role)
			}
		})
	}
	if err != nil && !apierrors.IsConflict(err) && err.Error() != r.logged && !errors.Is(err, context.Canceled) {
		r.logged = err.Error()
		lease := rule.LeaseNamespace + "/" + rule.LeaseName
		r.logger.Error(err, "the role of serving NodeReadinessRules is not renewed", "lease", lease)
	}
}

// annotate says in the Lease how rules stand once it is renewed.
func (r *Role) annotate(lease *coordinationv1.Lease, now time.Time) {
	r.Rules.mu.Lock()
	renewed, unheld := r.Rules.serving, maps.Clone(r.Rules.serving.nrcVersions)
	renewed.role = role{renewed: now}
	state, why := renewed.why(r.Rules.set != nil, now)
	r.Rules.mu.Unlock()
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	if state != rule.Unknown {
		lease.Annotations[rule.StateAnnotation] = string(state) + ": " + why
	}
	switch state {
	case rule.Serving:
		b, err := json.Marshal(unheld)
		if err != nil {
			panic(err) // strings only
		}
		lease.Annotations[annotationUnheld] = string(b)
	case rule.StandingBack:
		delete(lease.Annotations, annotationUnheld)
	}
}

// recall reads which of NRC's Leases were unheld when rules were last served. Where the API server refuses that,
// nothing is remembered: then a minute without a holder is waited for, as after NRC's own end.
func (r *Role) recall(ctx context.Context) error {
	lease, err := r.LeaseInterface.Get(ctx, rule.LeaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || controller.Refusal(err) != "" {
		return nil
	}
	if err != nil {
		return err
	}
	if json.Unmarshal([]byte(lease.Annotations[annotationUnheld]), &r.remembered) != nil {
		r.remembered = nil // then we wait
	}
	return nil
}
