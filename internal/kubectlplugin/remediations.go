package kubectlplugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// ledgerView is what the ledger says of the limit and the pause.
type ledgerView struct {
	// Begun is since when the ledger has every remediation; nil where it was not begun yet.
	Begun *time.Time `json:"begun,omitempty"`
	// Paused is why nothing is done about failed nodes.
	Paused string `json:"paused,omitempty"`
	// LastHour is how many actions were begun within the last hour, Limit the most that there may be.
	LastHour int   `json:"lastHour"`
	Limit    int32 `json:"limit"`
}

// remediationView is an action on a node: an entry of the ledger, with its result.
type remediationView struct {
	ledger.Entry
	Action config.RemediationAction `json:"action"`
	// State is one of the state constants.
	State string `json:"state"`
}

// The values of remediationView.State.
const (
	stateDeleting  = "deleting"  // of a deletion: the node or its owner is being deleted
	stateWithdrawn = "withdrawn" // of a deletion: it was not carried out, because a guard began to hold
	stateSet       = "set"       // of a condition: the node carries it now
	stateRemoved   = "removed"   // of a condition: the node does not carry it
	stateRecovered = "recovered" // the node has passed since
	stateGone      = "gone"      // the node is gone
	stateUnknown   = "unknown"   // the nodes cannot be read
)

// target is what the action deleted or set, as one word.
func (r remediationView) target() string {
	if r.Action == config.ActionCondition {
		return r.Name
	}
	return r.Kind + "/" + r.Name
}

// line is the view as text.
func (l ledgerView) line() string {
	text := fmt.Sprintf("%d of at most %d in the last hour", l.LastHour, l.Limit)
	if l.Paused != "" {
		text += "; paused: " + attempt.Text(l.Paused)
	}
	return text
}

// ledger reads the ledger; the entries come in its order, the newest last.
func (v *invocation) ledger(ctx context.Context) (ledgerView, []ledger.Entry, error) {
	out := ledgerView{Limit: *v.cluster.config.NodeManagement.Remediation.MaxDeletionsPerHour}
	namespace, err := v.cluster.controllers(ctx)
	if err != nil {
		return out, nil, err
	}
	cm, err := v.cluster.client.CoreV1().ConfigMaps(namespace).Get(ctx, ledger.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		cm = nil
	} else if err != nil {
		return out, nil, err
	}
	c, err := ledger.Parse(cm)
	if err != nil {
		return out, nil, err
	}
	if !c.CompleteSince.IsZero() {
		out.Begun = &c.CompleteSince
	}
	out.Paused, out.LastHour = c.Paused, len(ledger.NewerThan(c.Entries, v.now, time.Hour))
	return out, c.Entries, nil
}

// remediations prints what was done about failed nodes, and why.
func remediations(ctx context.Context, v *invocation) error {
	view, entries, err := v.ledger(ctx)
	if err != nil {
		return err
	}
	nodes, err := v.cluster.nodes(ctx, "")
	if err != nil { // whoever may read the ledger alone still sees what was done
		v.warn("cannot find out the results of the actions: %v", err)
	}
	list := remediationsOf(entries, nodes, err == nil)
	switch {
	case v.structured():
		return v.printObject(struct {
			ledgerView
			Remediations []remediationView `json:"remediations"`
		}{view, list})
	case v.output == "name":
		for _, r := range list {
			fmt.Fprintln(&v.out, singleLine(r.objectName()))
		}
		return nil
	}
	fmt.Fprintf(&v.out, "Remediations: %s\n", view.line())
	if view.Begun != nil {
		fmt.Fprintf(&v.out, "Counted since: %s\n", v.timestamp(view.Begun))
	}
	if len(list) == 0 {
		fmt.Fprintln(&v.out, "No action was taken.")
		return nil
	}
	rows := [][]string{{"AGE", "NODE", "ACTION", "OBJECT", "STATE", "POOL", "ZONE", "REASON"}}
	if v.output == "wide" {
		rows[0] = slices.Insert(rows[0], 2, "NODE-UID")
	}
	for _, r := range list {
		row := []string{age(&r.Time.Time, v.now), r.Node, string(r.Action), r.target(), r.State, cmp.Or(r.Pool, "-"),
			cmp.Or(r.Zone, "-"), cmp.Or(r.Reason, "-")}
		if v.output == "wide" {
			row = slices.Insert(row, 2, cmp.Or(r.UID, "-"))
		}
		rows = append(rows, row)
	}
	v.print(rows, nil)
	return nil
}

// objectName is the action's object in the form that kubectl takes; of a condition, its node.
func (r remediationView) objectName() string {
	if r.Action == config.ActionCondition {
		return "node/" + r.Node
	}
	return strings.ToLower(r.Kind) + "/" + r.Name
}

// remediationsOf are the entries of the ledger, the newest first, each with what the nodes show of it. known reports
// whether the nodes could be read.
func remediationsOf(entries []ledger.Entry, nodes []nodeState, known bool) []remediationView {
	out := []remediationView{} // [] and not null in JSON
	byUID := map[string]nodeState{}
	for _, s := range nodes {
		byUID[s.in.Node.UID] = s
	}
	for _, e := range slices.Backward(entries) {
		r := remediationView{Entry: e, Action: config.ActionDelete, State: stateUnknown}
		if e.Kind == marks.KindCondition {
			r.Action = config.ActionCondition
		}
		if s, there := byUID[e.UID]; there {
			r.State = s.stateOf(r)
		} else if known {
			r.State = stateGone
		}
		out = append(out, r)
	}
	return out
}

// stateOf is what became of an action on a node that is there; see the state constants.
func (s nodeState) stateOf(action remediationView) string {
	n := s.in.Node
	passed := n.Record.VerifiedTime
	switch {
	case passed != nil && !passed.Before(action.Time.Time):
		return stateRecovered
	case action.Action == config.ActionCondition && len(n.RemediationConditions) > 0:
		return stateSet
	case action.Action == config.ActionCondition:
		return stateRemoved
	case n.Deleting || n.Record.Deletion != nil:
		return stateDeleting
	}
	return stateWithdrawn
}

// reasonToPause refuses the reason with which the controller does not pause.
func reasonToPause(_ *cobra.Command, args []string) error {
	if strings.Join(args, " ") == ledger.NotPaused {
		return fmt.Errorf("the reason %q pauses nothing: to end a pause, run 'kubectl node-ready resume'", ledger.NotPaused)
	}
	return nil
}

// pause stops remediation: the controller reads the annotation before each action.
func pause(ctx context.Context, v *invocation) error {
	why := cmp.Or(strings.Join(v.args, " "), "true")
	namespace, err := v.patchLedger(ctx, why)
	if apierrors.IsNotFound(err) {
		_, err = v.cluster.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: ledger.Name, Labels: map[string]string{workerpod.LabelName: workerpod.Name},
				Annotations: map[string]string{ledger.AnnotationPaused: why}}}, metav1.CreateOptions{FieldManager: fieldManager})
	}
	if err == nil {
		v.reportLedger(namespace, "no action is taken on a node until 'kubectl node-ready resume'")
	}
	return err
}

// resume lets remediation go on.
func resume(ctx context.Context, v *invocation) error {
	namespace, err := v.patchLedger(ctx, nil)
	if err == nil {
		v.reportLedger(namespace, "remediation continues as configured")
	}
	return err
}

// patchLedger sets the annotation that pauses remediation, or removes it where why is nil.
func (v *invocation) patchLedger(ctx context.Context, why any) (namespace string, err error) {
	if namespace, err = v.cluster.controllers(ctx); err != nil {
		return "", err
	}
	_, err = v.cluster.client.CoreV1().ConfigMaps(namespace).Patch(ctx, ledger.Name, types.MergePatchType,
		annotationPatch(ledger.AnnotationPaused, why), metav1.PatchOptions{FieldManager: fieldManager})
	return namespace, err
}

func (v *invocation) reportLedger(namespace, result string) {
	name := "configmap/" + ledger.Name
	if v.text() {
		name += " in " + namespace
	}
	v.report(name, result)
}
