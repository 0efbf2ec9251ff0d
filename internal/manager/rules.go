package manager

import (
	"fmt"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/controller/node"
	"github.com/kube-node-ready/kube-node-ready/internal/controller/rule"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
)

// serveRules makes the rule room, registers it with the manager, and has the node room ask it. writer writes rules.
func serveRules(cfg *config.Config, mgr ctrl.Manager, rc *rest.Config, o Options, namespace string, writer client.Client, events emitter, nodes *node.Reconciler) error {
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
	rules := &rule.Rules{Config: cfg.Rules, Gating: cfg.Vocabulary().Gating, Nodes: mgr.GetClient(), Now: time.Now, Rehearsing: o.DryRun,
		Counters: metrics.NewRuleCounters(), Events: events, WakeNode: nodes.Wake}
	room := &rule.Room{Rules: rules, Live: mgr.GetAPIReader(), Writer: writer}
	rules.WakeRule = room.Wake
	if err := room.Setup(mgr); err != nil {
		return fmt.Errorf("set up the rule room: %w", err)
	}
	nodes.Rules = rules
	watch := &rule.Watch{Rules: rules, Kubernetes: typed, Dynamic: untyped, Cache: mgr.GetCache(), Identity: namespace + "/" + cfg.LeaderElection.ID}
	if err := mgr.Add(watch); err != nil {
		return err
	}
	collector := metrics.NewRuleCollector(rules.View, elected(mgr))
	for _, m := range append(rules.Counters.Collectors(), collector) {
		if err := ctrlmetrics.Registry.Register(m); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}
