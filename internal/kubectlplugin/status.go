package kubectlplugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// whyWidth is how much of a reason status shows without -o wide.
const whyWidth = 72

func status(ctx context.Context, v *invocation) error {
	list, err := v.subjects(ctx)
	if v.unverified {
		list = slices.DeleteFunc(list, func(s subject) bool { return !slices.Contains(attention, s.status(v.now)) })
	}
	if v.output == "json" {
		if err != nil {
			return err
		}
		nodes := []summary{} // [] and not null in JSON
		for _, s := range list {
			nodes = append(nodes, s.summary(v.now))
		}
		out := map[string]any{"nodes": nodes}
		if trouble := v.cluster.rules.trouble(ctx); trouble != "" {
			out["rules"] = trouble
		}
		return printJSON(&v.out, out)
	}
	if len(list) > 0 {
		v.print(v.table(list), func(row, column int, text string) string {
			if column == 1 && (row > 0 || v.noHeaders) {
				return coloured(text)
			}
			return text
		})
	} else if err == nil {
		fmt.Fprintln(&v.out, "No nodes found.")
	}
	if trouble := v.cluster.rules.trouble(ctx); trouble != "" {
		fmt.Fprintln(&v.out, plain(trouble))
	}
	return err
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
		header = []string{"NODE", "STATUS", "SINCE", "RETRIES", "INCONCLUSIVE", "LAST", "POOL", "PROFILE", "TAINTED", "WORKER", "NEXT", "WHY"}
	}
	if !v.noHeaders {
		rows = append(rows, header)
	}
	for _, s := range list {
		n := s.summary(v.now)
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
		row := []string{n.Name, n.Status, orDash(age(s.since(), v.now)), orDash(retries)}
		if wide {
			row = append(row, fmt.Sprint(n.Inconclusive), orDash(last), orDash(n.Pool), orDash(n.Profile), fmt.Sprint(len(n.Taints) > 0), orDash(worker))
		} else {
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

func printJSON(w *bytes.Buffer, x any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(x)
}
