package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
)

// checkTypes lists all checks that a worker may be told to run, with their types.
func checkTypes(cfg *config.Config) map[string]string {
	types := map[string]string{}
	for _, e := range cfg.Variants() {
		for _, s := range (worker.Config{Checks: e.Checks, DNSTestDomains: e.DNSTestDomains}).Expand() {
			types[s.Name] = string(s.Type)
		}
	}
	return types
}

// elected returns a function that reports whether this replica leads.
func elected(mgr ctrl.Manager) func() bool {
	return func() bool {
		select {
		case <-mgr.Elected():
			return true
		default:
			return false
		}
	}
}

// serveStatus registers metrics and health checks.
func serveStatus(cfg *config.Config, mgr ctrl.Manager, s *controller.Snapshotter, counters *metrics.Counters,
	c *contact) error {
	synced := func() bool {
		now, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		return mgr.GetCache().WaitForCacheSync(now)
	}
	leader := elected(mgr)
	upToDate := func() bool { return synced() && c.recent(time.Now()) }
	collector := metrics.NewCollector(cfg.Metrics.PerNode, s.Snapshot, s.View.Tracker.Waiting, upToDate, leader, time.Now)
	for _, m := range append(counters.Collectors(), collector) {
		if err := ctrlmetrics.Registry.Register(m); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("caches", func(*http.Request) error {
		if !synced() {
			return errors.New("the caches are not synchronized with the API server yet")
		}
		return nil
	})
}
