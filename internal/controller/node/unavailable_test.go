package node_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// The controller lacks a permission to write. A node that needs no such write is still verified. Any other node reports
// the refused request within a minute.
func TestForbiddenWrites(t *testing.T) {
	t.Parallel()
	for write, want := range map[string]struct {
		gated bool
		says  string
	}{
		"patch Node/status": {false, ""},
		"patch Node":        {true, `Unknown ReleaseRefused: The API server refuses the patch that removes the gating taint: things is forbidden: user "controller" may not patch Node`},
		"create Pod":        {true, "Unknown WorkerInconclusive: PodRefused"},
		"delete Pod":        {false, "True ChecksPassed"},
	} {
		t.Run(strings.ReplaceAll(write, "/", " "), func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, "")
			n := w.Node("n")
			l := w.Lead(func(l *world.Leader) { l.Forbid = func(what string) bool { return what == write } })
			l.RunFor(time.Minute)
			w.ExpectCondition(n.Name, want.says)
			if _, facts := w.Get(n.Name); facts.Gated != want.gated {
				t.Errorf("gated: %v", facts.Gated)
			}
			countsRefusals(l, write)
		})
	}
}

// countsRefusals checks that a refused write of the condition, which is no error of the reconcile, is counted each time.
func countsRefusals(l *world.Leader, write string) {
	l.W.Helper()
	tries := 0
	for _, done := range l.Writes {
		if done == write {
			tries++
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(l.Nodes.Counters.Collectors()...)
	families, err := registry.Gather()
	l.W.Must(err)
	for _, f := range families {
		if f.GetName() != "kube_node_ready_controller_reconcile_errors_total" {
			continue
		}
		counted := int(f.GetMetric()[0].GetCounter().GetValue())
		if write == "patch Node/status" && (tries < 2 || counted != tries || len(l.Errs) > 0) {
			l.W.Errorf("%d of %d refusals are counted, errors %v", counted, tries, l.Errs)
		}
		return
	}
	l.W.Error("refusals are not counted")
}

// An admission policy without a reason answers as to an object that is not valid. That is a refusal, too.
func TestDeniedWrites(t *testing.T) {
	t.Parallel()
	const denied = "things is forbidden: a policy denied the request: "
	for write, want := range map[string]struct {
		gated bool
		says  string
	}{
		"patch Node":        {true, "Unknown ReleaseRefused: The API server refuses the patch that removes the gating taint: " + denied + "patch Node"},
		"patch Node/status": {false, ""},
		"create Pod":        {true, "Unknown WorkerInconclusive: PodRefused"},
		"delete Pod":        {false, "True ChecksPassed"},
	} {
		t.Run(strings.ReplaceAll(write, "/", " "), func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, "")
			n := w.Node("n")
			l := w.Lead(func(l *world.Leader) { l.Forbid, l.Denied = func(what string) bool { return what == write }, true })
			l.RunFor(time.Minute)
			w.ExpectCondition(n.Name, want.says)
			if _, facts := w.Get(n.Name); facts.Gated != want.gated {
				t.Errorf("gated: %v", facts.Gated)
			}
			countsRefusals(l, write)
		})
	}
}

// The controller may not delete a worker that must end before the next one starts. The node's condition says so.
func TestForbiddenToEndAWorker(t *testing.T) {
	t.Parallel()
	forbiddenToEndAWorker(t, false)
}

// An admission policy without a reason denies it.
func TestDeniedToEndAWorker(t *testing.T) {
	t.Parallel()
	forbiddenToEndAWorker(t, true)
}

func forbiddenToEndAWorker(t *testing.T, denied bool) {
	w := world.Begin(t, `{"worker":{"timeoutSeconds":10}}`)
	w.Exit = func(*corev1.Pod) int { return world.Stays }
	n := w.Node("n")
	l := w.Lead(func(l *world.Leader) {
		l.Forbid, l.Denied = func(what string) bool { return what == "delete Pod" }, denied
	})
	l.RunFor(10 * time.Second)
	for _, p := range w.Pods(n.Name) {
		w.Status(&p, `{"status":{"phase":"Running","containerStatuses":[{"name":"worker","image":"i","imageID":"i","ready":true,"restartCount":0,"state":{"running":{}}}]}}`)
	}
	l.RunFor(2 * time.Minute)
	if said := w.ConditionText(n.Name); !strings.Contains(said, "worker pods do not end: things is forbidden") {
		t.Errorf("it says %q", said)
	}
	if pods := w.Pods(n.Name); len(pods) != 1 || pods[0].Labels[workerpod.LabelPurpose] != workerpod.PurposeVerify {
		t.Errorf("%d workers", len(pods))
	}
	if _, facts := w.Get(n.Name); facts.Record.LastReason == "" || !facts.Gated || facts.Condition.Reason == marks.ReasonChecksPassed {
		t.Errorf("%+v", facts.Record)
	}
}
