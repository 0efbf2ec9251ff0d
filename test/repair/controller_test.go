//go:build repair

package repair

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// gating is the default gating taint's key.
const gating = "node-ready/unverified"

// controller starts the controller that make build has built, with exactly the rights that the chart grants for its
// configuration. It sets a condition that asks for repair. Its workers are the real ones, with the default checks.
// The agent runs them, and a node fails if its path to DNS is broken (world.broken). change edits nodeManagement.
func (w *world) controller(change ...func(map[string]any)) {
	w.Helper()
	nodeManagement := map[string]any{
		"deleteFailedNodes": true, "verifyUntainted": true,
		"remediation": map[string]any{"neverVerifiedOnly": false, "action": "condition"},
	}
	for _, f := range change {
		f(nodeManagement)
	}
	image := w.image
	if image == nil {
		image = install.WorkerImage()
	}
	configuration := map[string]any{
		"worker": map[string]any{"image": image, "checkTimeoutSeconds": 2, "timeoutSeconds": 30},
		"reconciliation": map[string]any{"maxRetries": 2, "initialBackoffSeconds": 1, "maxBackoffSeconds": 2,
			"exhaustedRetrySeconds": 5, "intervalSeconds": 2},
		"nodeManagement": nodeManagement,
		"leaderElection": map[string]any{"enabled": false}, // there is one replica
	}
	content, err := yaml.Marshal(configuration)
	w.must(err)
	parsed, err := config.Parse(content, "the test's configuration")
	w.must(err)
	w.must(install.RightsOf(w.Context(), w.plane, parsed))
	// A new ledger would hold every action for an hour.
	begun := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: ledger.Name}}
	w.must(ledger.Contents{CompleteSince: time.Now().Add(-24 * time.Hour), Entries: []ledger.Entry{}}.Write(begun))
	_, err = w.client.CoreV1().ConfigMaps(install.Namespace).Create(w.Context(), begun, metav1.CreateOptions{})
	w.must(err)
	_, err = install.StartController(w.Context(), w.plane, "controller", configuration)
	w.must(err)
	w.showLog("controller")
}

// broken breaks the nodes' way to DNS, or repairs it.
func (w *world) broken(is bool, nodes ...string) {
	w.Helper()
	mode := nodeagent.DNSWorks
	if is {
		mode = nodeagent.DNSRefuses
	}
	for _, name := range nodes {
		w.must(w.agent.Node(name).SetDNS(mode))
	}
}

// ask requests a verification of the nodes, as a person does.
func (w *world) ask(id string, nodes ...string) {
	w.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, marks.AnnotationVerifyRequested, id)
	for _, name := range nodes {
		_, err := w.client.CoreV1().Nodes().Patch(w.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
		w.must(err)
	}
}

// pause pauses remediation, or resumes it.
func (w *world) pause(is bool) {
	w.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%t"}}}`, ledger.AnnotationPaused, is)
	_, err := w.client.CoreV1().ConfigMaps(install.Namespace).Patch(w.Context(), ledger.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	w.must(err)
}

// facts are the controller's marks on a node.
func (w *world) facts(node string) (marks.Facts, error) {
	object, err := w.client.CoreV1().Nodes().Get(w.Context(), node, metav1.GetOptions{})
	if err != nil {
		return marks.Facts{}, err
	}
	return marks.Observe(object, marks.Vocabulary{
		Gating:   []marks.Taint{{Key: gating, Effect: corev1.TaintEffectNoSchedule}},
		Verified: marks.Label{Key: "node-ready/verified", Value: "true"},
	}), nil
}

// verified waits until the nodes are verified and open.
func (w *world) verified(nodes ...string) {
	w.Helper()
	for _, name := range nodes {
		w.eventually("node "+name+" is verified", func() error {
			f, err := w.facts(name)
			if err == nil && (f.Gated || !f.Labelled || f.Record.LastOutcome != "passed") {
				err = fmt.Errorf("gated %t, verified %t, %+v", f.Gated, f.Labelled, f.Record)
			}
			return err
		})
	}
}

// shares waits until nodes that worked fail as verified nodes do: they stay open, with their label.
func (w *world) shares(nodes ...string) {
	w.Helper()
	for _, name := range nodes {
		w.eventually("node "+name+" shares a failure", func() error {
			f, err := w.facts(name)
			if err == nil && (f.Record.LastReason != attempt.ReasonSharedFailure || f.Gated || !f.Labelled) {
				err = fmt.Errorf("gated %t, verified %t, %+v", f.Gated, f.Labelled, f.Record)
			}
			return err
		})
	}
}

// carries waits until the gate is closed and the node has the condition on which repairers act.
func (w *world) carries(node string) {
	w.Helper()
	w.eventually("the gate is closed, and the condition is set", func() error {
		f, err := w.facts(node)
		if have := w.condition(node, condition); err != nil || !f.Gated || have.Status != corev1.ConditionTrue {
			return fmt.Errorf("%w, gated %t, %+v, %+v", err, f.Gated, have, f.Record)
		}
		return nil
	})
}

// recovered waits until the node is verified and no node has the condition, and checks that the ledger has it once.
func (w *world) recovered(node string) {
	w.Helper()
	w.verified(node)
	w.eventually("the condition is removed", w.spared)
	if have := w.entries(); len(have) != 1 || have[0] != marks.KindCondition {
		w.Errorf("the ledger has %v", have)
	}
}

// spared fails where a node has the condition on which repairers act.
func (w *world) spared() error {
	list, err := w.client.CoreV1().Nodes().List(w.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range list.Items {
		if slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == condition }) {
			return fmt.Errorf("node %s has condition %s", n.Name, condition)
		}
	}
	return nil
}

// entries are the kinds of the actions that the ledger has.
func (w *world) entries() (kinds []string) {
	w.Helper()
	object, err := w.client.CoreV1().ConfigMaps(install.Namespace).Get(w.Context(), ledger.Name, metav1.GetOptions{})
	w.must(err)
	contents, err := ledger.Parse(object)
	w.must(err)
	for _, e := range contents.Entries {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}
