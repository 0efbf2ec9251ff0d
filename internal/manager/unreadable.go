package manager

import (
	"cmp"
	"context"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// unreadableEvery is the time between two checks of why the caches do not fill. It is longer than a leader's lease. So
// a Lease that is the same at both checks has no holder.
const unreadableEvery = 20 * time.Second

// unreadable sets the condition of nodes while the API server refuses to list worker pods. Until they are listed, no
// replica is elected, so every replica does it. A replica does not do it while another one leads.
type unreadable struct {
	view   *controller.View
	client client.Client // not held to leadership
	// election is the Lease of the election; empty where there is none.
	election client.ObjectKey
	log      logr.Logger

	lease string // its version at the last look
}

// reportUnreadable starts the checks before the manager starts. They end with ctx.
func reportUnreadable(ctx context.Context, cfg *config.Config, mgr ctrl.Manager, rc *rest.Config, namespace string,
	view *controller.View) error {
	c, err := client.New(rc, client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return err
	}
	u := &unreadable{view: view, client: c, log: mgr.GetLogger()}
	if *cfg.LeaderElection.Enabled {
		u.election = client.ObjectKey{Namespace: cmp.Or(cfg.LeaderElection.Namespace, namespace), Name: cfg.LeaderElection.ID}
	}
	go u.run(ctx, mgr.GetCache())
	return nil
}

// run checks until the caches are synced or ctx is done.
func (u *unreadable) run(ctx context.Context, caches cache.Cache) {
	synced := func() bool {
		now, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		return caches.WaitForCacheSync(now)
	}
	_ = wait.PollUntilContextCancel(ctx, unreadableEvery, false, func(ctx context.Context) (bool, error) {
		if synced() {
			return true, nil
		}
		if err := u.look(ctx); err != nil && ctx.Err() == nil {
			u.log.Error(err, "cannot write the conditions that show why nodes are not verified")
		}
		return false, nil
	}) // it fails with ctx alone
}

// look writes the condition of the nodes that must be verified, if listing pods is refused and no replica leads.
func (u *unreadable) look(ctx context.Context) error {
	led, err := u.led(ctx)
	if led || err != nil {
		return err
	}
	err = u.client.List(ctx, &corev1.PodList{}, client.InNamespace(u.view.Builder.Namespace), client.Limit(1))
	why := apierr.Refusal(err, apierr.Read)
	if why == "" {
		return nil
	}
	var nodes corev1.NodeList
	if err := u.client.List(ctx, &nodes); err != nil {
		return err
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		in := u.view.Observe(n)
		c := decide.RequestRefused(in, why, time.Now()).Condition
		if c == nil || c.Same(in.Node.Condition) {
			continue
		}
		patch := client.RawPatch(types.StrategicMergePatchType, c.Patch(in.Node.UID, in.Node.Condition))
		if err := u.client.Status().Patch(ctx, controller.PatchTarget(n.Name), patch); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// led reports whether the Lease has changed since the last check. Then another replica leads.
func (u *unreadable) led(ctx context.Context) (bool, error) {
	if u.election.Name == "" {
		return false, nil
	}
	lease := &coordinationv1.Lease{}
	if err := u.client.Get(ctx, u.election, lease); client.IgnoreNotFound(err) != nil {
		return false, err
	}
	version := "at " + lease.ResourceVersion
	same := u.lease == version
	u.lease = version
	return !same, nil
}
