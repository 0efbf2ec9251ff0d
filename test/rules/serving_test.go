package rules

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/rules"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
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
	as := rest.CopyConfig(control.Config())
	as.Impersonate.UserName = user
	nodes, err := cache.New(control.Config(), cache.Options{})
	w.must(err)
	untyped, err := dynamic.NewForConfig(as)
	w.must(err)
	typed, err := kubernetes.NewForConfig(as)
	w.must(err)
	ignore := func(string) {}
	served := &rules.Rules{Config: config.Rules{OtherControllerNamespaces: []string{"nrr-system", "kube-system"}}, Nodes: nodes, Now: func() time.Time { return time.Now().Add(time.Duration(offset.Load())) },
		Counters: rules.NewCounters(), Events: emitted, EnqueueNode: ignore, EnqueueRule: ignore}
	ctx, cancel := context.WithCancel(w.ctx)
	var all sync.WaitGroup
	all.Go(func() { _ = nodes.Start(ctx) })
	all.Go(func() {
		_ = (&rules.Watch{Rules: served, Kubernetes: typed, Dynamic: untyped, Cache: nodes, Begin: func() error { return nil }}).Start(ctx)
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

// Rules are served once NRC's Lease has not been renewed for a minute. A process that starts then waits 15 seconds for
// the first renewal. A renewal begins the minute anew, and the deletion of the Lease does not end it.
func TestTheMinuteAfterNRC(t *testing.T) {
	w := in(t)
	lease := w.holds("kube-system")
	w.rule("minute")
	var ahead atomic.Int64
	emitted := &events{}
	served := w.watches(&ahead, emitted)
	pass := func(d time.Duration) { ahead.Add(int64(d)) }
	renew := func() {
		t.Helper()
		lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
		w.must(api.Update(w.ctx, lease))
	}
	waits := func(served *rules.Rules) {
		t.Helper()
		w.eventually("it waits for the first renewal", func() string {
			if state, why := served.State(); state != rule.Unknown || !strings.Contains(why, "unless it is renewed") {
				return string(state) + ": " + why
			}
			return ""
		})
	}
	waits(served)
	renew()
	w.becomes(served, rule.StandingBack)
	pass(50 * time.Second)
	w.becomes(served, rule.StandingBack)
	pass(10 * time.Second)
	w.becomes(served, rule.Serving)
	w.eventually("an event says so", func() string {
		if _, said := emitted.seen.Load(rule.EventServed); !said {
			return "none"
		}
		return ""
	})
	later := w.watches(&ahead, &events{})
	waits(later)
	pass(15 * time.Second)
	w.becomes(later, rule.Serving)
	renew()
	w.becomes(served, rule.StandingBack)
	w.must(api.Delete(w.ctx, lease))
	w.becomes(served, rule.StandingBack)
	pass(61 * time.Second)
	w.becomes(served, rule.Serving)
}
