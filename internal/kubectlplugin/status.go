package kubectlplugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/nodestatus"
)

// whyWidth is how much of a reason status shows without -o wide.
const whyWidth = 72

// attention lists the statuses that --unverified shows.
var attention = []string{string(decide.StatusPending), string(decide.StatusVerifying), string(decide.StatusFailed), string(decide.StatusHeld)}

func status(ctx context.Context, v *invocation) error {
	list, err := v.statuses(ctx)
	if v.unverified {
		list = slices.DeleteFunc(list, func(n nodestatus.Node) bool { return !slices.Contains(attention, n.Status) })
	}
	if v.output == "json" {
		if err != nil {
			return err
		}
		return printJSON(&v.out, map[string]any{"nodes": list})
	}
	if len(list) > 0 {
		v.table(list).print(&v.out, !v.noHeaders)
	} else if err == nil {
		fmt.Fprintln(&v.out, "No nodes found.")
	}
	return err
}

// statuses explains the nodes that were asked for. Those that cannot be read are in the error.
func (v *invocation) statuses(ctx context.Context) ([]nodestatus.Node, error) {
	list := []nodestatus.Node{} // [] and not null in JSON
	if len(v.args) == 0 {
		nodes, pods, err := v.cluster.nodes(ctx, v.selector)
		for i := range nodes {
			n := &nodes[i]
			list = append(list, nodestatus.Of(v.cluster.config, n, observe(n, pods[string(n.UID)]), v.now))
		}
		return list, err
	}
	var errs []error
	for _, name := range v.args {
		n, pods, err := v.cluster.node(ctx, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, nodestatus.Of(v.cluster.config, n, pods, v.now))
	}
	return list, errors.Join(errs...)
}

func (v *invocation) table(list []nodestatus.Node) *table {
	wide := v.output == "wide"
	t := &table{header: []string{"NODE", "STATUS", "SINCE", "RETRIES", "NEXT", "WHY"}}
	if wide {
		t.header = []string{"NODE", "STATUS", "SINCE", "RETRIES", "INCONCLUSIVE", "LAST", "POOL", "PROFILE", "TAINTED", "WORKER", "NEXT", "WHY"}
	}
	if v.colour {
		t.paint = func(column int, text string) string {
			if column == 1 {
				return coloured(text)
			}
			return text
		}
	}
	for _, n := range list {
		row := []string{n.Name, n.Status, orDash(v.since(n)), retries(n)}
		if wide {
			worker := ""
			if n.Worker != nil {
				worker = n.Worker.Namespace + "/" + n.Worker.Name
			}
			row = append(row, fmt.Sprint(n.Inconclusive), orDash(last(n)), orDash(n.Pool), orDash(n.Profile), fmt.Sprint(len(n.Taints) > 0), orDash(worker),
				plain(n.Next.Action)+suffix(when(n.Next.Time, v.now)), plain(n.Why))
		} else {
			row = append(row, v.briefly(n), clip(n.Why, whyWidth))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// since is how long ago the node came into its status, as far as that is told.
func (v *invocation) since(n nodestatus.Node) string {
	switch {
	case n.Status == nodestatus.Excluded || n.Status == nodestatus.Unmanaged || n.Status == nodestatus.Deleting:
		return ""
	case n.Worker != nil:
		return ago(&n.Worker.Created, v.now)
	case n.Status == string(decide.StatusVerified):
		return ago(n.VerifiedTime, v.now)
	case n.Last != nil:
		return ago(n.Last.Time, v.now)
	case n.Condition != nil:
		return ago(&n.Condition.LastTransitionTime, v.now)
	}
	return ""
}

// briefly is the next step for a narrow column.
func (v *invocation) briefly(n nodestatus.Node) string {
	if n.Worker != nil || !slices.Contains(attention, n.Status) {
		return "-"
	}
	if n.Next.Time != nil && n.Next.Time.After(v.now) {
		return when(n.Next.Time, v.now)
	}
	switch {
	case n.Next.Time != nil:
		return "overdue"
	case strings.HasPrefix(n.Next.Action, "no further"):
		return "never"
	case strings.HasSuffix(n.Next.Action, "now"):
		return "now"
	}
	return "-"
}

func retries(n nodestatus.Node) string {
	if n.Status == nodestatus.Excluded || n.Status == nodestatus.Unmanaged || n.Last == nil {
		return "-"
	}
	return fmt.Sprintf("%d/%d", n.Attempts, n.MaxRetries)
}

func last(n nodestatus.Node) string {
	if n.Last == nil {
		return ""
	}
	return string(n.Last.Outcome)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return plain(s)
}

func suffix(s string) string {
	if s == "" {
		return ""
	}
	return " " + s
}

func printJSON(w *bytes.Buffer, x any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(x)
}

// taintsOf lists the taints that are not the node's gating ones, for explain.
func taintsOf(n *corev1.Node, gating []string) []string {
	var others []string
	for _, t := range n.Spec.Taints {
		if text := t.ToString(); !slices.Contains(gating, text) {
			others = append(others, text)
		}
	}
	return others
}
