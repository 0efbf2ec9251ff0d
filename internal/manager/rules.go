package manager

import (
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/controller/node"
	"github.com/kube-node-ready/kube-node-ready/internal/rules"
)

// serveRules creates the controller of rules and makes the node reconciler use it. The controller starts once rules are
// defined. writer writes rules. namespace is the controller's own.
func serveRules(cfg *config.Config, mgr ctrl.Manager, rc *rest.Config, o Options, namespace string,
	writer client.Client, events emitter, nodes *node.Reconciler) error {
	if !*cfg.Rules.Enabled {
		return nil
	}
	typed, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return err
	}
	untyped, err := dynamic.NewForConfig(rc)
	if err != nil {
		return err
	}
	served := &rules.Rules{Config: cfg.Rules, Gating: cfg.Vocabulary().Gating, Nodes: mgr.GetCache(),
		Now: time.Now, DryRun: o.DryRun,
		Counters: rules.NewCounters(), Events: events, EnqueueNode: nodes.Enqueue}
	reconciler := &rules.Reconciler{Rules: served, Live: mgr.GetAPIReader(), Writer: writer,
		Pod: types.NamespacedName{Namespace: namespace, Name: os.Getenv("POD_NAME")}}
	served.EnqueueRule = reconciler.Enqueue
	nodes.Rules = served
	watch := &rules.Watch{Rules: served, Kubernetes: typed, Dynamic: untyped, Cache: mgr.GetCache(),
		Live: mgr.GetAPIReader(), Begin: func() error { return reconciler.Setup(mgr) }}
	if err := mgr.Add(watch); err != nil {
		return err
	}
	collector := rules.NewCollector(cfg.Metrics.PerNode, served.View, elected(mgr))
	for _, m := range append(served.Counters.Collectors(), collector) {
		if err := ctrlmetrics.Registry.Register(m); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}
