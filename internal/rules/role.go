package rules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

const (
	// annotationUnheld has NRC's Leases that nobody held while rules were served, by namespace, with their
	// resourceVersions.
	annotationUnheld = "node-ready/unheld"

	// roleRenewal is the time between two renewals of the role.
	roleRenewal = 5 * time.Second
	// roleFence is the age of the last renewal at which rules are no longer served; nodes wait for the next.
	roleFence = 20 * time.Second
	// roleDuration is how long another installation waits after the last renewal that it observed. The time between
	// roleFence and roleDuration is for a write in flight.
	roleDuration = 45 * time.Second
)

// role records which installation serves rules, as far as this process has observed.
type role struct {
	// renewed is when the last renewal of ours was sent; zero before the first.
	renewed time.Time
	// other is the Lease if another installation holds it.
	other observedLease
	// dryRun: a dry run takes no role, and does not stand back for another installation.
	dryRun bool
	// refused is the reason why the API server refuses to read or write the Lease, or empty if it does not.
	refused string
}

const roleLease = rule.LeaseNamespace + "/" + rule.LeaseName

func (r role) state(now time.Time) (rule.ServingState, string) {
	switch {
	case r.other.held(now):
		return rule.StandingBack, fmt.Sprintf("installation %s serves rules (Lease %s); only one installation in a "+
			"cluster does", r.other.holder, roleLease)
	case r.dryRun || now.Sub(r.renewed) < roleFence && !r.renewed.IsZero():
		return rule.Serving, ""
	case r.refused != "":
		return rule.Forbidden, fmt.Sprintf("Lease %s is not renewed: %s%s", roleLease, r.refused, grant)
	}
	return rule.Unknown, fmt.Sprintf("Lease %s is not renewed", roleLease)
}

// Role is the Lease by which one of several installations serves rules: the client of an election whose candidates are
// installations, not processes. It records what the API server answers, and writes to the Lease how rules stand.
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

// run takes part in the election until ctx is done. Only the process that holds the controller's own Lease runs it. The
// role is not released at the end, because the next process of the installation has the same identity and renews it.
func (r *Role) run(ctx context.Context) {
	r.logger = log.FromContext(ctx)
	if r.Rules.DryRun { // it takes no role, and watches whether another installation has it
		read := func(ctx context.Context) { _, _ = r.Get(ctx, rule.LeaseName, metav1.GetOptions{}) }
		wait.UntilWithContext(ctx, read, roleRenewal)
		return
	}
	// The age of the last renewal decides whether rules are served, and not the callbacks. A process that was stopped for
	// a while knows that age, too.
	callbacks := leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}}
	election := leaderelection.LeaderElectionConfig{Name: rule.LeaseName, Lock: r.Lock(), ReleaseOnCancel: false,
		LeaseDuration: roleDuration, RenewDeadline: roleFence, RetryPeriod: roleRenewal, Callbacks: callbacks}
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
	r.record(ctx, client.IgnoreNotFound(err), func(now *role) {
		now.dryRun = r.Rules.DryRun
		if err != nil || now.other.resourceVersion == lease.ResourceVersion {
			return
		}
		if other := observeLease(lease, r.Rules.Now()); other.holder != "" && other.holder != r.Identity {
			now.other, now.renewed = other, time.Time{}
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
	sent := r.Rules.Now() // other installations count from later: when they observe the renewal
	r.annotate(lease, sent)
	written, err := send(ctx)
	if err == nil {
		r.logged = ""
	}
	r.record(ctx, err, func(now *role) { *now = role{renewed: sent} })
	return written, err
}

// record records an answer of the API server. change is called for an answer without an error.
func (r *Role) record(ctx context.Context, err error, change func(*role)) {
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
		r.logger.Error(err, "cannot renew the Lease for serving NodeReadinessRules", "lease", roleLease)
	}
}

// annotate writes the state of serving to the Lease, as it will be once the Lease is renewed.
func (r *Role) annotate(lease *coordinationv1.Lease, now time.Time) {
	r.Rules.mu.Lock()
	renewed := r.Rules.serving
	renewed.role = role{renewed: now}
	state, why := renewed.state(r.Rules.set != nil, now)
	unheld := map[string]string{}
	for namespace, l := range renewed.nrc {
		if l.resourceVersion != "" {
			unheld[namespace] = l.resourceVersion
		}
	}
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

// recall reads which of NRC's Leases had no holder when rules were last served. If the API server refuses that, or the
// annotation cannot be read, nothing is remembered. Rules then wait until NRC's Leases have had no holder for a minute,
// as they do after NRC has ended.
func (r *Role) recall(ctx context.Context) error {
	lease, err := r.LeaseInterface.Get(ctx, rule.LeaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || controller.Refusal(err) != "" {
		return nil
	}
	if err == nil && json.Unmarshal([]byte(lease.Annotations[annotationUnheld]), &r.remembered) != nil {
		r.remembered = nil
	}
	return err
}
