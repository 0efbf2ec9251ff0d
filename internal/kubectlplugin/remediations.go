package kubectlplugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
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
	// Action is one of the action constants, State one of the state constants.
	Action string `json:"action"`
	State  string `json:"state"`
	// Until is when the checks run again, while the action is waited for.
	Until *time.Time `json:"until,omitempty"`
}

// The values of remediationView.Action: the keys of an entry of nodeManagement.remediation.actions.
const (
	actionDelete    = "delete"
	actionCondition = "condition"
	actionObject    = "object"
)

// The values of remediationView.State.
const (
	stateIntended  = "intended"  // written down, and maybe not carried out yet
	stateWaiting   = "waiting"   // carried out; the node is left alone until Until, or until it reboots
	stateVerifying = "verifying" // the checks run again
	stateFailed    = "failed"    // the node exhausted its retries once more
	stateReverting = "reverting" // it is about to be taken back
	stateEnded     = "ended"     // it was taken back without success, or another action follows it
	stateWithdrawn = "withdrawn" // it was taken back, or not carried out, since a guard began to hold
	stateRecovered = "recovered" // the node has passed since
	stateDeleting  = "deleting"  // the node or its owner is being deleted
	stateGone      = "gone"      // the node is gone
	stateUnknown   = "unknown"   // the nodes cannot be read
)

// actionOf is the action that has a target of the kind.
func actionOf(kind string) string {
	switch {
	case kind == marks.KindCondition:
		return actionCondition
	case slices.Contains(owner.Names(), kind):
		return actionDelete
	}
	return actionObject
}

// target is what the action deleted, set or created, as one word.
func (r remediationView) target() string {
	if r.Action == actionCondition {
		return r.Name
	}
	return strings.TrimSuffix(r.Kind+"/"+r.Name, "/")
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
	list := remediationsOf(entries, nodes, err == nil, v.now)
	switch {
	case v.structured():
		out := struct {
			ledgerView
			Remediations []remediationView `json:"remediations"`
			Deletions    []remediationView `json:"deletions,omitempty"` // the same, for users of the command's old name
		}{view, list, nil}
		if v.calledAs == "deletions" {
			out.Deletions = list
		}
		return v.printObject(out)
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
		state := r.State
		if r.Until != nil {
			state += " (" + until(*r.Until, v.now) + ")"
		}
		row := []string{age(&r.Time.Time, v.now), r.Node, r.Action, r.target(), state, cmp.Or(r.Pool, "-"),
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
	if r.Action == actionCondition {
		return "node/" + r.Node
	}
	return strings.ToLower(r.Kind) + "/" + r.Name[strings.Index(r.Name, "/")+1:]
}

// remediationsOf are the actions that the ledger or the record of a node has, the newest first, each with what the
// nodes show of it. The ledger of an older version has the last action on each node, the record of a node that is there
// those before it too.
func remediationsOf(entries []ledger.Entry, nodes []nodeState, known bool, now time.Time) []remediationView {
	out := []remediationView{} // [] and not null in JSON
	byUID := map[string]nodeState{}
	for _, s := range nodes {
		byUID[s.in.Node.UID] = s
	}
	for _, e := range entries {
		r := remediationView{Entry: e, Action: actionOf(e.Kind), State: stateUnknown}
		if s, there := byUID[e.UID]; there {
			r.State, r.Until = s.stateOf(r.Action, e, now)
		} else if known {
			r.State = stateGone
		}
		out = append(out, r)
	}
	for _, s := range nodes {
		n := s.in.Node
		for _, a := range n.Record.Remediations {
			e := ledger.Entry{Time: metav1.NewTime(a.Time), Node: n.Name, UID: n.UID, Pool: n.Owner.Pool, Zone: n.Zone,
				Kind: a.TargetKind(), Name: a.FullName()}
			if slices.ContainsFunc(entries, func(have ledger.Entry) bool { return have.UID == e.UID && isAbout(have, a) }) {
				continue
			}
			r := remediationView{Entry: e, Action: actionOf(e.Kind)}
			r.State, r.Until = s.stateOf(r.Action, e, now)
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b remediationView) int { return a.Time.Compare(b.Time.Time) })
	slices.Reverse(out) // of two of one second the later one comes first
	return out
}

// isAbout reports whether an entry is about the action that a record has, and not about one of before the node passed.
// An entry is written after the record, and its time is in whole seconds.
func isAbout(e ledger.Entry, a marks.Remediation) bool {
	return a.TargetKind() == e.Kind && a.FullName() == e.Name && !e.Time.Time.Before(a.Time.Truncate(time.Second))
}

// stateOf is what became of an action on a node that is there, as its record shows; see the state constants.
func (s nodeState) stateOf(action string, e ledger.Entry, now time.Time) (state string, until *time.Time) {
	r := s.in.Node.Record
	last := len(r.Remediations) - 1
	passedSince := r.VerifiedTime != nil && !r.VerifiedTime.Before(e.Time.Time)
	at := -1
	for i, a := range r.Remediations {
		if isAbout(e, a) {
			at = i
		}
	}
	switch {
	case action == actionDelete && (s.in.Node.Deleting || r.Deletion != nil) && !passedSince:
		return stateDeleting, nil
	case at < 0 && passedSince:
		return stateRecovered, nil
	case at < 0:
		return stateWithdrawn, nil
	}
	switch a := r.Remediations[at]; {
	case a.State == marks.RemediationIntended:
		return stateIntended, nil
	case a.State == marks.RemediationReverting:
		return stateReverting, nil
	case a.State == marks.RemediationEnded, at < last, r.Deletion != nil:
		return stateEnded, nil
	}
	if r.Sequence > r.Remediations[at].Sequence {
		if r.Attempts >= s.in.Config.Reconciliation.MaxRetries {
			return stateFailed, nil
		}
		return stateVerifying, nil
	}
	if end, ok := decide.ActionWaitEnd(s.in, now); ok && end.After(now) {
		return stateWaiting, &end
	}
	return stateVerifying, nil
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
