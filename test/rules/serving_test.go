package rules

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/rules"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// events are those that were emitted on rules, by reason.
type events struct{ seen sync.Map }

func (e *events) Emit(*corev1.Node, time.Time, decide.Event) {}

func (e *events) EmitRule(_ *v1alpha1.NodeReadinessRule, _ time.Time, event decide.Event) {
	e.seen.Store(event.Reason, event.Message)
}

// watches starts what knows whether rules are served, on a clock that is ahead of the machine's by an offset.
func (w *world) watches(offset *atomic.Int64, emitted *events) *rules.Rules {
	w.Helper()
	return w.watchesAs("", offset, emitted)
}

// watchesAs is watches by a user other than the administrator.
func (w *world) watchesAs(user string, offset *atomic.Int64, emitted *events) *rules.Rules {
	w.Helper()
	config := rest.CopyConfig(control.Config())
	config.Impersonate.UserName = user
	nodes, err := cache.New(control.Config(), cache.Options{})
	w.must(err)
	untyped, err := dynamic.NewForConfig(config)
	w.must(err)
	typed, err := kubernetes.NewForConfig(config)
	w.must(err)
	ignore := func(string) {}
	served := &rules.Rules{Nodes: nodes, Now: func() time.Time { return time.Now().Add(time.Duration(offset.Load())) },
		Counters: rules.NewCounters(), Events: emitted, EnqueueNode: ignore, EnqueueRule: ignore}
	ctx, cancel := context.WithCancel(w.ctx)
	var all sync.WaitGroup
	all.Go(func() { _ = nodes.Start(ctx) })
	all.Go(func() {
		_ = (&rules.Watch{Rules: served, Kubernetes: typed, Dynamic: untyped, Cache: nodes, Begin: func() error { return nil }, Identity: install.Namespace + "/" + install.ControllerAccount}).Start(ctx)
	})
	w.Cleanup(func() { cancel(); all.Wait() })
	return served
}

func (w *world) becomes(rules *rules.Rules, want rule.ServingState) {
	w.Helper()
	w.eventually("rules are "+string(want), func() string {
		if state, why := rules.State(); state != want {
			return string(state) + ": " + why
		}
		return ""
	})
}

// Rules are served once nobody has held NRC's Lease for a minute, and a process that starts then need not wait. A Lease that is
// taken again, as in NRC's rollout, begins the minute anew; so does one that is deleted.
func TestTheMinuteAfterNRC(t *testing.T) {
	w := in(t)
	lease := w.holds("kube-system")
	w.rule("minute")
	var ahead atomic.Int64
	emitted := &events{}
	rules := w.watches(&ahead, emitted)
	pass := func(d time.Duration) { ahead.Add(int64(d)) }
	hold := func(by string) {
		t.Helper()
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &by, ptr.To[int32](15)
		w.must(api.Update(w.ctx, lease))
	}
	waits := func(why string) {
		t.Helper()
		w.eventually("it waits", func() string {
			if state, said := rules.State(); state != rule.StandingBack || !strings.Contains(said, why) {
				return string(state) + ": " + said
			}
			return ""
		})
	}
	waits("is held by nrr-controller-manager-0")
	hold("")
	waits("was held until just now")
	pass(50 * time.Second)
	waits("was held until just now")
	hold("nrr-controller-manager-1")
	waits("is held by nrr-controller-manager-1")
	pass(16 * time.Second) // it dies and does not release it
	waits("was held until just now")
	pass(50 * time.Second)
	waits("was held until just now")
	pass(10 * time.Second)
	w.becomes(rules, rule.Serving)
	w.eventually("an event says so", func() string {
		if _, said := emitted.seen.Load(rule.EventServed); !said {
			return "none"
		}
		return ""
	})
	w.eventually("it is remembered", func() string { return w.annotated("node-ready/unheld", "kube-system") })
	w.becomes(w.watches(&ahead, &events{}), rule.Serving)
	hold("nrr-controller-manager-2")
	w.becomes(rules, rule.StandingBack)
	w.must(api.Delete(w.ctx, lease))
	waits("was held until just now")
	pass(61 * time.Second)
	w.becomes(rules, rule.Serving)
}
