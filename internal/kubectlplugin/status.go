package kubectlplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// whyWidth is how much of a reason status shows without -o wide.
const whyWidth = 72

// maxRows is how many nodes status shows without --all; beyond it, only those that are not verified.
const maxRows = 50

func status(ctx context.Context, v *invocation) error {
	list, err := v.subjects(ctx)
	if v.unverified {
		list = slices.DeleteFunc(list, func(s subject) bool { return !slices.Contains(attention, s.status(v.now)) })
	}
	v.karpenter(ctx, list)
	v.rules(ctx, list)
	switch v.output {
	case "name":
		for _, s := range list {
			fmt.Fprintf(&v.out, "node/%s\n", s.node.Name)
		}
		return err
	case "json", "yaml":
		return errors.Join(err, v.printObject(v.object(ctx, list)))
	}
	h := v.head(ctx)
	v.dead = h.Leader.Dead
	if !v.noHeaders {
		counts := map[string]int{}
		for _, s := range list {
			counts[s.status(v.now)]++
		}
		rows := h.rows(v, counts)
		if held := heldByRules(list); held != "" {
			rows = append(rows, []string{"Held by rules", plain(held)})
		}
		v.print(rows, func(row, column int, text string) string {
			if column == 0 || row == 0 && v.dead {
				return "\x1b[1m" + text + "\x1b[0m"
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
		fmt.Fprintf(&v.out, "%d nodes are not shown: --all shows every node, -l chooses some\n", more)
	}
	if trouble := v.cluster.rulesTrouble(ctx); trouble != "" {
		fmt.Fprintln(&v.out, plain(trouble))
	}
	for _, line := range v.refusedRules() {
		fmt.Fprintln(&v.out, plain(line))
	}
	if v.watch && err == nil {
		return v.watchNodes(ctx, list)
	}
	return err
}

// object is what status -o json prints.
func (v *invocation) object(ctx context.Context, list []subject) any {
	h := v.head(ctx)
	v.dead = h.Leader.Dead
	nodes := []summary{} // [] and not null in JSON
	totals := map[string]int{}
	for _, s := range list {
		n := v.summary(s)
		nodes = append(nodes, n)
		totals[n.Status]++
	}
	return struct {
		Controller head           `json:"controller"`
		Totals     map[string]int `json:"totals"`
		Nodes      []summary      `json:"nodes"`
		Rules      string         `json:"rules,omitempty"`
	}{h, totals, nodes, v.cluster.rulesTrouble(ctx)}
}

// choose is what a table shows: all nodes of a small cluster, and of a large one those that something is to be done about, failed ones
// first.
func (v *invocation) choose(list []subject) []subject {
	if v.all || len(list) <= maxRows || len(v.args) > 0 {
		return list
	}
	order := []string{string(decide.StatusFailed), string(decide.StatusHeld), string(decide.StatusVerifying), string(decide.StatusPending)}
	var shown []subject
	for _, status := range order {
		for _, s := range list {
			if len(shown) < maxRows && s.status(v.now) == status {
				shown = append(shown, s)
			}
		}
	}
	for _, s := range list {
		if len(shown) < maxRows && !slices.Contains(order, s.status(v.now)) && heldByRule(s.rules) != "" {
			shown = append(shown, s)
		}
	}
	return shown
}

// summary is a node's, which has no next attempt while nobody leads.
func (v *invocation) summary(s subject) summary {
	n := s.summary(v.now)
	if v.dead {
		n.Next = nil
	}
	return n
}

func (v *invocation) printNodes(rows [][]string) {
	v.print(rows, func(row, column int, text string) string {
		if column == 1 && (row > 0 || v.noHeaders) {
			return coloured(text)
		}
		return text
	})
}

// watchNodes prints a node whenever it stands elsewhere than it did.
func (v *invocation) watchNodes(ctx context.Context, list []subject) error {
	stands := map[string]string{}
	for _, s := range list {
		n := v.summary(s)
		stands[n.Name] = n.Status + n.Why + heldByRule(n.Rules)
	}
	if _, err := v.stream.Write(v.out.Bytes()); err != nil {
		return err
	}
	v.out.Reset()
	v.noHeaders = true
	var failed error
	err := v.follow(ctx, func(name string, s *subject) bool {
		row := [][]string{{name, "gone"}}
		now := "gone"
		if s != nil {
			s.rules = v.evaluateRules(s.node)
			n := s.summary(v.now)
			now = n.Status + n.Why + heldByRule(n.Rules)
			row = v.table([]subject{*s})
		}
		if stands[name] == now || v.unverified && s != nil && !slices.Contains(attention, s.status(v.now)) && stands[name] == "" {
			return true
		}
		stands[name] = now
		v.printNodes(row)
		_, failed = v.stream.Write(v.out.Bytes())
		v.out.Reset()
		return failed == nil
	})
	if errors.Is(err, context.Canceled) {
		err = nil // by the person who watched
	}
	return errors.Join(failed, err)
}

// subjects are the nodes that were asked for. Those that cannot be read are in the error.
func (v *invocation) subjects(ctx context.Context) ([]subject, error) {
	if len(v.args) == 0 {
		return v.cluster.nodes(ctx, v.selector)
	}
	var list []subject
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

func (v *invocation) table(list []subject) (rows [][]string) {
	wide := v.output == "wide"
	header := []string{"NODE", "STATUS", "SINCE", "RETRIES", "NEXT", "WHY"}
	if wide {
		header = []string{"NODE", "STATUS", "SINCE", "RETRIES", "INCONCLUSIVE", "LAST", "POOL", "PROFILE", "TAINTED", "WORKER", "KARPENTER", "NEXT", "WHY"}
	}
	if !v.noHeaders {
		rows = append(rows, header)
	}
	for _, s := range list {
		n := v.summary(s)
		retries, last, worker, next, why := "", "", "", "", plain(n.Why)
		if n.Last != nil {
			retries, last = fmt.Sprintf("%d/%d", n.Attempts, n.MaxRetries), string(n.Last.Outcome)
		}
		if n.Worker != nil {
			worker = n.Worker.Namespace + "/" + n.Worker.Name
		}
		if n.Next != nil {
			next = until(n.Next.Time, v.now)
		}
		if held := plain(heldByRule(n.Rules)); held != "" {
			why = strings.TrimSuffix(held+"; "+why, "; ")
		}
		row := []string{n.Name, n.Status, orDash(age(s.since(), v.now)), orDash(retries)}
		if wide {
			row = append(row, fmt.Sprint(n.Inconclusive), orDash(last), orDash(n.Pool), orDash(n.Profile), fmt.Sprint(len(n.Taints) > 0), orDash(worker), orDash(n.Karpenter))
		} else {
			if n.Karpenter != "" {
				reason, _, _ := strings.Cut(n.Karpenter, ": ")
				why = strings.TrimSuffix("Karpenter: "+reason+"; "+why, "; ")
			}
			why = clip(why, whyWidth)
		}
		rows = append(rows, append(row, orDash(next), why))
	}
	return rows
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return plain(s)
}

// printObject prints x as --output says.
func (v *invocation) printObject(x any) error {
	if v.output == "yaml" {
		text, err := yaml.Marshal(x)
		v.out.Write(text)
		return err
	}
	e := json.NewEncoder(&v.out)
	e.SetIndent("", "  ")
	return e.Encode(x)
}
