package kubectlplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// whyWidth is how much of a reason status shows without -o wide.
const whyWidth = 72

// maxRows is how many nodes status shows without --all; of more, only those that are not verified.
const maxRows = 50

func status(ctx context.Context, v *invocation) error {
	list, err := v.selectedNodes(ctx)
	if v.unverified {
		list = slices.DeleteFunc(list, func(s nodeState) bool { return !slices.Contains(attention, s.status(v.now)) })
	}
	if v.output == "name" {
		for _, s := range list {
			fmt.Fprintf(&v.out, "node/%s\n", s.node.Name)
		}
		return err
	}
	v.addKarpenter(ctx, list)
	v.addRules(ctx, list)
	o := v.overview(ctx)
	nodes, totals := []summary{}, map[string]int{} // [] and not null in JSON
	for _, s := range list {
		n := v.summary(s)
		nodes = append(nodes, n)
		totals[n.State]++
	}
	if v.structured() {
		return errors.Join(err, v.printObject(struct {
			Controller overview       `json:"controller"`
			Totals     map[string]int `json:"totals"`
			Nodes      []summary      `json:"nodes"`
			Rules      string         `json:"rules,omitempty"`
		}{o, totals, nodes, v.notServed}))
	}
	if !v.noHeaders {
		rows := o.rows(v, totals)
		if suspects := suspects(nodes); suspects != "" {
			rows = append(rows, []string{"Suspects", suspects})
		}
		if held := heldByRules(list); held != "" {
			rows = append(rows, []string{"Held by rules", held})
		}
		v.print(rows, func(row, column int, text string) string {
			if column == 0 || row == 0 && v.noLeader {
				return bold(text)
			}
			return text
		})
		fmt.Fprintln(&v.out)
	}
	shown := v.choose(list)
	if len(shown) > 0 {
		v.printNodes(v.table(shown))
	} else if err == nil && len(list) == 0 {
		fmt.Fprintln(&v.out, "No nodes found.")
	}
	if more := len(list) - len(shown); more > 0 {
		fmt.Fprintf(&v.out, "%d nodes are not shown: --all shows every node, -l selects some\n", more)
	}
	if v.notServed != "" {
		fmt.Fprintln(&v.out, singleLine(v.notServed))
	}
	for _, line := range v.refusedRules() {
		fmt.Fprintln(&v.out, singleLine(line))
	}
	if v.watch && err == nil {
		return v.watchNodes(ctx, list)
	}
	return err
}

// selectedNodes are the nodes that the command line names or selects. Those that cannot be read are in the error.
func (v *invocation) selectedNodes(ctx context.Context) ([]nodeState, error) {
	if len(v.args) == 0 {
		return v.cluster.nodes(ctx, v.selector)
	}
	var list []nodeState
	var errs []error
	for _, name := range v.args {
		s, err := v.cluster.node(ctx, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, s)
	}
	return list, errors.Join(errs...)
}

// choose selects the nodes that a table shows. For a small cluster, that is all nodes. For a large one, it is the nodes
// that are not verified, failed ones first, and then the nodes that a rule holds.
func (v *invocation) choose(list []nodeState) (shown []nodeState) {
	if v.all || len(list) <= maxRows || len(v.args) > 0 {
		return list
	}
	for _, status := range attention {
		for _, s := range list {
			if s.status(v.now) == status {
				shown = append(shown, s)
			}
		}
	}
	for _, s := range list {
		if !slices.Contains(attention, s.status(v.now)) && heldByRule(s.rules) != "" {
			shown = append(shown, s)
		}
	}
	return shown[:min(len(shown), maxRows)]
}

func (v *invocation) printNodes(rows [][]string) {
	v.print(rows, func(row, column int, text string) string {
		if column == 1 && (row > 0 || v.noHeaders) {
			return coloured(text)
		}
		return text
	})
}

// deselected is the state of a node that was shown, and whose labels the selector selects no more.
const deselected = "no longer selected"

// watchNodes prints a node whenever its state or its reason changes.
func (v *invocation) watchNodes(ctx context.Context, list []nodeState) error {
	last := map[string]string{}
	for _, s := range list {
		n := v.summary(s)
		last[n.Name] = n.State + n.Why + n.suspect() + heldByRule(n.Rules)
	}
	if _, err := v.out.WriteTo(v.stream); err != nil {
		return err
	}
	v.noHeaders = true
	selector, err := labels.Parse(v.selector)
	if err != nil {
		return err
	}
	var failed error
	err = v.follow(ctx, func(name string, s *nodeState) bool {
		row, now, shown := [][]string{{name, "gone"}}, "gone", last[name] != "" && last[name] != deselected
		switch {
		case s != nil && !selector.Matches(labels.Set(s.node.Labels)):
			row, now = [][]string{{name, deselected}}, deselected
		case s != nil:
			s.rules = v.evaluateRules(s.node)
			n := v.summary(*s)
			row, now = v.table([]nodeState{*s}), n.State+n.Why+n.suspect()+heldByRule(n.Rules)
			shown = !v.unverified || slices.Contains(attention, n.Status) || last[name] != ""
		}
		if last[name] == now || !shown {
			return true
		}
		last[name] = now
		v.printNodes(row)
		_, failed = v.out.WriteTo(v.stream)
		return failed == nil
	})
	if errors.Is(err, context.Canceled) {
		err = nil // the user ended the watch
	}
	return errors.Join(failed, err)
}

func (v *invocation) table(list []nodeState) (rows [][]string) {
	wide := v.output == "wide"
	header := "NODE STATE SINCE RETRIES NEXT WHY"
	if wide {
		header = "NODE STATE SINCE RETRIES INCONCLUSIVE LAST POOL PROFILE TAINTED WORKER KARPENTER NEXT WHY"
	}
	if !v.noHeaders {
		rows = append(rows, strings.Fields(header))
	}
	for _, s := range list {
		n := v.summary(s)
		retries, last, worker, next := "", "", "", ""
		why := joined("; ", singleLine(heldByRule(n.Rules)), singleLine(n.suspect()), singleLine(n.Why))
		if n.Last.Outcome != "" {
			retries, last = fmt.Sprintf("%d/%d", n.Attempts, n.MaxRetries), string(n.Last.Outcome)
		}
		if n.Worker.Name != "" {
			worker = n.Worker.Namespace + "/" + n.Worker.Name
		}
		if t := n.Next.Time; !t.IsZero() {
			next = until(t, v.now)
		}
		row := []string{n.Name, n.State, cmp.Or(age(s.since(), v.now), "-"), cmp.Or(retries, "-")}
		if wide {
			row = append(row, fmt.Sprint(n.Inconclusive), cmp.Or(last, "-"), cmp.Or(n.Pool, "-"), cmp.Or(n.Profile, "-"),
				fmt.Sprint(len(n.Taints) > 0), cmp.Or(worker, "-"), cmp.Or(n.Karpenter, "-"))
		} else {
			if n.Karpenter != "" {
				reason, _, _ := strings.Cut(n.Karpenter, ": ")
				why = joined("; ", "Karpenter: "+reason, why)
			}
			why = truncate(why, whyWidth)
		}
		rows = append(rows, append(row, cmp.Or(next, "-"), why))
	}
	return rows
}
