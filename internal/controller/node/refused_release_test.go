package node_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// refusing is an API server that answers patches of nodes in its own way.
type refusing struct {
	client.Client
	refuse func(patch string) error // nil: the patch is accepted
}

func (c refusing) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	patch, err := p.Data(o)
	if err != nil {
		return err
	}
	if err := c.refuse(string(patch)); err != nil {
		return err
	}
	return c.Client.Patch(ctx, o, p, opts...)
}

// removesTheGate reports whether a merge patch removes the gating taint.
func removesTheGate(patch string) bool {
	return strings.Contains(patch, `"taints":`) && !strings.Contains(patch, config.DefaultTaintKey+`"`)
}

// poolTaint is the answer of AKS' webhook to who removes a taint of a node pool (AKS#2934). No two are the same.
func poolTaint(try int) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusBadRequest, Message: fmt.Sprintf(
		`admission webhook "aks-node-validating-webhook.azmk8s.io" denied the request: (UID: %d) Taint delete request refused`, try)}}
}

// The API server refuses the patch that removes the taint for good. The condition has a reason of its own and quotes
// the answer, an event says so once, and the node is released as soon as it is accepted.
func TestReleaseRefused(t *testing.T) {
	const refused = "Unknown ReleaseRefused: The API server refuses the patch that removes the gating taint: "
	answers := func(code int) func(int) error { return func(int) error { return world.Refusal(code, "patch Node") } }
	for name, tc := range map[string]struct {
		settings string
		exit     int
		refuses  func(patch string) bool // nil: removesTheGate
		answer   func(try int) error     // nil: poolTaint
		passes   bool                    // it does so for three seconds only
		says     string
		events   int
	}{
		"a pool's taint":          {says: refused + `admission webhook "aks-node-validating-webhook.azmk8s.io" denied the request: (UID: `, events: 1},
		"a policy":                {answer: answers(422), says: refused, events: 1},
		"no right":                {answer: answers(403), refuses: func(string) bool { return true }, says: refused, events: 1},
		"a list of what is left":  {answer: answers(405), says: refused, events: 1},
		"released past deadline":  {settings: releasedAfter30s, exit: 4, says: "False DeadlineExceeded: Not verified within 30s (since ", events: 1},
		"for three seconds":       {passes: true, says: "True ChecksPassed"},
		"the API server is down":  {answer: answers(503), says: ""},
		"the record of a failure": {exit: 1, refuses: func(string) bool { return true }, answer: answers(403), says: "Unknown Verifying: The API server refuses a request of the controller: "},
		"a failure is recorded":   {exit: 1, says: "False RetriesExhausted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, tc.settings)
			w.Exit = world.VerifyExits(tc.exit)
			n := w.Node("n")
			tries, allowed, begun := 0, false, time.Time{}
			lead := func() *world.Leader {
				l := w.Lead()
				l.Nodes.Nodes = refusing{l.Nodes.Nodes, func(patch string) error {
					if refuses := tc.refuses; allowed || refuses == nil && !removesTheGate(patch) || refuses != nil && !refuses(patch) {
						return nil
					}
					if begun.IsZero() {
						begun = w.Clock.Now()
					}
					if tc.passes && w.Clock.Now().Sub(begun) >= 3*time.Second {
						return nil
					}
					tries++
					if tc.answer != nil {
						return tc.answer(tries)
					}
					return poolTaint(tries)
				}}
				return l
			}
			lead().RunFor(2 * time.Minute)
			l := lead() // a successor says nothing new
			l.RunFor(2 * time.Minute)
			w.ExpectCondition(n.Name, tc.says)
			if got := w.EventCount(n.Name, decide.EventReleaseRefused); got != tc.events {
				t.Errorf("%d events, want %d", got, tc.events)
			}
			if _, f := w.Get(n.Name); f.Labelled != tc.passes || f.Gated == tc.passes {
				t.Errorf("gated %t, labelled %t", f.Gated, f.Labelled)
			}
			if said := w.ConditionText(n.Name); strings.HasPrefix(said, "False Deadline") && !strings.Contains(said, "the patch that removes the gating taint: admission webhook") {
				t.Errorf("past its deadline it says %q", said)
			}
			if allowed = true; tc.exit == 0 {
				l.RunFor(time.Minute)
				w.ExpectCondition(n.Name, "True ChecksPassed")
			}
		})
	}
}

// releasedAfter30s opens the gate of a node past its deadline.
const releasedAfter30s = `{"worker": {"startTimeoutSeconds": 20, "timeoutSeconds": 20, "checkTimeoutSeconds": 10},
	"reconciliation": {"verificationDeadlineSeconds": 30, "onDeadline": "release", "initialBackoffSeconds": 300, "maxBackoffSeconds": 300}}`

// The reason is that of a node that waits behind its gate: who opens it then, opens it unverified.
func TestReleaseRefusedAndOpened(t *testing.T) {
	t.Parallel()
	w := world.WithManagedFields(t, "")
	n := w.Node("n")
	l := w.Lead()
	l.Nodes.Nodes = refusing{l.Nodes.Nodes, func(patch string) error {
		if removesTheGate(patch) {
			return poolTaint(1)
		}
		return nil
	}}
	l.RunFor(time.Minute)
	w.ExpectCondition(n.Name, "Unknown ReleaseRefused")
	for _, p := range w.Pods(n.Name) {
		w.Must(w.API.Delete(w.Ctx, &p))
	}
	writes("aks-service", `{"spec":{"taints":[{"key":"other","effect":"NoSchedule"}]}}`)(w, n)
	w.Lead().RunFor(10 * time.Second)
	if _, f := w.Get(n.Name); f.Condition == nil || f.Condition.Status != corev1.ConditionUnknown {
		t.Errorf("condition %+v", f.Condition)
	}
	w.ExpectCondition(n.Name, "Unknown GateRemoved")
}
