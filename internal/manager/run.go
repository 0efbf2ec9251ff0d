// Package manager wires the controller: clients, caches, the reconcilers, leader election, health and metrics.
package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/controller/adoption"
	"github.com/kube-node-ready/kube-node-ready/internal/controller/autoscaler"
	"github.com/kube-node-ready/kube-node-ready/internal/controller/backfill"
	"github.com/kube-node-ready/kube-node-ready/internal/controller/node"
	"github.com/kube-node-ready/kube-node-ready/internal/controller/remediation"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/leader"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
	"github.com/kube-node-ready/kube-node-ready/internal/nodecache"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/watch"
	backends "github.com/kube-node-ready/kube-node-ready/internal/remediation"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Options are what the command line adds to the configuration.
type Options struct {
	// Kubeconfig overrides kubernetes.kubeconfigPath.
	Kubeconfig string
	// DryRun runs workers and changes nothing on nodes.
	DryRun bool
	Log    logr.Logger
}

func init() { // before any client reads the scheme
	utilruntime.Must(v1alpha1.AddToScheme(scheme.Scheme))
}

// Run serves until ctx is done or leadership is lost.
func Run(ctx context.Context, cfg *config.Config, o Options) error {
	rc, namespace, err := connect(cfg, o.Kubeconfig)
	if err != nil {
		return err
	}
	workerNamespace := cmp.Or(cfg.Worker.Namespace, namespace)
	contact := newContact("/api/v1/nodes", "/api/v1/namespaces/"+workerNamespace+"/pods")
	rc.Wrap(contact.observe)
	direct := rest.CopyConfig(rc) // not held to leadership
	ctrl.SetLogger(o.Log)

	hook, err := newWebhook(cfg, rest.CopyConfig(direct), namespace, o)
	if err != nil {
		return err
	}
	metricsServer, err := metricsOptions(cfg.Metrics, rest.CopyConfig(direct))
	if err != nil {
		return err
	}
	fence, err := elect(cfg, rc, namespace)
	if err != nil {
		return err
	}
	tracker := controller.NewTracker(time.Now, o.DryRun)
	options := ctrl.Options{
		Scheme:                 scheme.Scheme, // Karpenter's types are in it too (sigs.k8s.io/karpenter/pkg/apis/v1)
		Logger:                 o.Log,
		Cache:                  cacheOptions(cfg, workerNamespace, tracker.PodsUnwatched),
		Metrics:                metricsServer,
		PprofBindAddress:       cfg.Health.PprofBindAddress,
		HealthProbeBindAddress: fmt.Sprintf(":%d", cfg.Health.Port),
		Controller:             ctrlconfig.Controller{CacheSyncTimeout: 5 * time.Minute},
	}
	if hook != nil && hook.certificates != nil {
		watchCertificates(&options.Cache, hook.certificates)
	}
	if fence != nil {
		fenced(&options, cfg, fence)
		rc.Wrap(fence.Transport)
	}
	mgr, err := ctrl.NewManager(rc, options)
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	snapshotter, counters, err := build(cfg, mgr, rc, o, tracker, namespace, workerNamespace)
	if err != nil {
		return err
	}
	view := snapshotter.View
	if err := serveStatus(cfg, mgr, snapshotter, counters, contact); err != nil {
		return err
	}
	o.Log.Info("starting", "version", version.Version, "commit", version.Commit, "namespace", namespace,
		"workerNamespace", workerNamespace, "image", view.Builder.Image, "dryRun", o.DryRun)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !o.DryRun {
		if err := reportUnreadable(ctx, cfg, mgr, direct, namespace, view); err != nil {
			return err
		}
	}
	if hook == nil {
		return mgr.Start(ctx)
	}
	if err := hook.add(mgr); err != nil {
		return err
	}
	return hook.Beside(ctx, mgr.Start)
}

// build creates the reconcilers and registers them with the manager. It returns the source of a scrape, and the
// counters.
func build(cfg *config.Config, mgr ctrl.Manager, rc *rest.Config, o Options, tracker *controller.Tracker,
	namespace, workerNamespace string) (*controller.Snapshotter, *metrics.Counters, error) {
	builder, err := workerpod.NewBuilder(cfg, workerNamespace, cfg.Worker.Image.Reference(version.Version))
	if err != nil {
		return nil, nil, err
	}
	if err := controller.Index(context.Background(), mgr.GetFieldIndexer()); err != nil {
		return nil, nil, err
	}
	watches, owners, err := watchOthers(cfg, rc, mgr)
	if err != nil {
		return nil, nil, err
	}
	// This client makes a dry run: the API server validates what it writes and stores nothing. Through this client,
	// nothing is deleted.
	marked := mgr.GetClient()
	if o.DryRun {
		marked = client.NewDryRunClient(marked)
		cfg.NodeManagement.Remediation.DryRun = true
		cfg.WithoutDeadlines() // they need records
	}
	unsynced := cache.BlockUntilSynced(false)
	nodeStore, err := nodecache.StoreOf(context.Background(), mgr.GetCache(), &corev1.Node{}, unsynced)
	if err != nil {
		return nil, nil, err
	}
	counters := metrics.NewCounters(checkTypes(cfg), cfg.SuspectTypes())
	events, err := newEvents(mgr, marked, counters)
	if err != nil {
		return nil, nil, err
	}
	view := &controller.View{Config: cfg, Cache: mgr.GetCache(), Builder: builder,
		Tracker: tracker, OwnerTerminating: owners.Terminating}
	fleet := controller.NewFleet(view)
	pods := controller.Pods{Writer: mgr.GetClient(), Namespace: workerNamespace}
	remediations := &remediation.Reconciler{
		View: view, Live: mgr.GetAPIReader(), Writer: marked, Fleet: fleet, Counters: counters, Events: events,
		Pods: pods,
		// A renewal of the lease allows writes for this long. So evidence that is no older covers the action.
		EvidenceFor: leader.RenewDeadline,
		Owners:      backends.New(mgr.GetAPIReader(), marked),
		Ledger: &remediation.Ledger{Reader: mgr.GetAPIReader(), Writer: marked, Namespace: namespace,
			Keep: decide.LookBack(cfg.NodeManagement.Remediation), ReadOnly: cfg.NodeManagement.Remediation.DryRun},
	}
	if err := remediations.Setup(mgr); err != nil {
		return nil, nil, fmt.Errorf("set up the remediation reconciler: %w", err)
	}
	workloads := func(ctx context.Context, node string) (decide.Workloads, error) {
		return remediation.OrdinaryPods(ctx, mgr.GetAPIReader(), node, true)
	}
	nodes := &node.Reconciler{
		View: view, Live: mgr.GetAPIReader(), Nodes: marked, Fleet: fleet,
		Counters: counters, Events: events,
		Pods:  pods,
		Slots: controller.NewSlots(view), Prerequisites: watches, Remediations: remediations,
		Workloads: workloads, Cached: nodecache.Nodes{Store: nodeStore},
		Warnings: controller.Warnings{Live: mgr.GetAPIReader(), Namespace: workerNamespace, Tracker: view.Tracker,
			Limit: controller.NewWarningsLimit()},
	}
	if err := serveRules(cfg, mgr, rc, o, namespace, marked, events, nodes); err != nil {
		return nil, nil, fmt.Errorf("serve NodeReadinessRules: %w", err)
	}
	started := time.Now()
	known := func(ctx context.Context) error {
		return errors.Join(owners.Known(ctx), setInstalled(ctx, view, cfg, mgr.GetAPIReader(), namespace, started),
			view.Begin(ctx, mgr.GetAPIReader()))
	}
	if err := nodes.Setup(mgr, watches.Events(), known); err != nil {
		return nil, nil, fmt.Errorf("set up the node reconciler: %w", err)
	}
	switch {
	case cfg.Admission.Backfill && o.DryRun:
		o.Log.Info("dry run: admission.backfill has no effect, because no node is tainted")
	case cfg.Admission.Backfill:
		late := &backfill.Reconciler{View: view, Live: mgr.GetAPIReader(), Writer: marked, Workloads: workloads,
			Counters: counters, Events: events, Limit: backfill.NewLimit()}
		if err := late.Setup(mgr); err != nil {
			return nil, nil, fmt.Errorf("set up the backfill reconciler: %w", err)
		}
	}
	if !o.DryRun {
		labelled := &adoption.Reconciler{View: view, Writer: marked, Counters: counters, Limit: adoption.NewLimit()}
		if err := labelled.Setup(mgr); err != nil {
			return nil, nil, fmt.Errorf("set up the adoption of nodes: %w", err)
		}
	}
	pools := &autoscaler.Poller{Gating: cfg.Vocabulary().Gating, Live: mgr.GetAPIReader(), Unsettled: fleet.Unsettled,
		Every: cfg.Reconciliation.Interval(),
		Emit:  events.emitPool, Count: counters.UnknownTaints}
	if err := mgr.Add(pools); err != nil {
		return nil, nil, err
	}
	snapshotter := &controller.Snapshotter{View: view}
	if cfg.Metrics.PerNode != config.PerNodeAll {
		snapshotter.Unsettled = fleet.Unsettled
	}
	return snapshotter, counters, nil
}

// setInstalled tells the view when the controller was installed: when the election's Lease was created or, without
// election, when this process started. It retries until the API server answers. The error is the context's.
func setInstalled(ctx context.Context, view *controller.View, cfg *config.Config, live client.Reader, namespace string,
	started time.Time) error {
	if !*cfg.LeaderElection.Enabled {
		view.SetInstalled(started)
		return nil
	}
	key := client.ObjectKey{Namespace: cmp.Or(cfg.LeaderElection.Namespace, namespace), Name: cfg.LeaderElection.ID}
	return wait.PollUntilContextCancel(ctx, leader.RetryPeriod, true, func(ctx context.Context) (bool, error) {
		lease := &coordinationv1.Lease{}
		switch err := live.Get(ctx, key, lease); {
		case apierrors.IsNotFound(err): // somebody deleted it, and the election creates it again
			view.SetInstalled(started)
		case err != nil:
			log.FromContext(ctx).Error(err, "no node is adopted until the election's Lease is read")
			return false, nil
		default:
			view.SetInstalled(lease.CreationTimestamp.Time)
		}
		return true, nil
	})
}

// watchOthers watches objects of other programs: those that prerequisites need, and the owners of nodes.
func watchOthers(cfg *config.Config, rc *rest.Config, mgr ctrl.Manager) (*watch.Watches, watch.Owners, error) {
	typed, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return nil, nil, err
	}
	untyped, err := dynamic.NewForConfig(rc)
	if err != nil {
		return nil, nil, err
	}
	clients := watch.Clients{Kubernetes: typed, Dynamic: untyped, Mapper: mgr.GetRESTMapper()}
	w, o := watch.New(cfg, clients), watch.NewOwners(clients)
	return w, o, errors.Join(mgr.Add(w), o.AddTo(mgr))
}
