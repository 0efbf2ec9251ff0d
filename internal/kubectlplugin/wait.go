package kubectlplugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// wait waits until every node that was asked for is verified. One that is not there yet is waited for by its name; by a selector
// those count that are there.
func wait(ctx context.Context, v *invocation) error {
	pending := map[string]string{} // what the nodes that are not verified say
	for _, name := range v.args {
		pending[name] = "it is not there"
	}
	if v.selector != "" {
		list, err := v.cluster.nodes(ctx, v.selector)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return fmt.Errorf("no node matches %s", v.selector)
		}
		for _, s := range list {
			pending[s.node.Name] = ""
		}
	}
	if l := v.leader(ctx); l.Dead && v.output == "" {
		_, _ = fmt.Fprintf(v.stream, "%s\n", plain(l.line(v.now)))
	}
	if v.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, v.timeout)
		defer cancel()
	}
	var never error
	err := v.follow(ctx, func(name string, s *subject) bool {
		if _, asked := pending[name]; !asked {
			return true
		}
		if s == nil {
			pending[name] = "it is gone"
			if v.selector != "" {
				never = coded{fmt.Errorf("node %s is gone", name), exitNever}
			}
			return never == nil
		}
		n := s.summary(v.now)
		switch n.Status {
		case string(decide.StatusVerified):
			text := "node/" + name
			if v.output == "" {
				text += " is verified"
			}
			_, _ = fmt.Fprintln(v.stream, text)
			delete(pending, name)
		case excluded, unmanaged, deleting:
			never = coded{fmt.Errorf("node %s is %s: it will not be verified", name, n.Status), exitNever}
		default:
			pending[name] = strings.TrimSuffix(n.Status+": "+plain(n.Why), ": ")
		}
		return never == nil && len(pending) > 0
	})
	if errors.Is(err, context.DeadlineExceeded) {
		var left []string
		for name, why := range pending {
			left = append(left, fmt.Sprintf("node %s: %s", name, why))
		}
		slices.Sort(left)
		const most = 20
		if more := len(left) - most; more > 0 {
			left = append(left[:most], fmt.Sprintf("and %d more", more))
		}
		return coded{fmt.Errorf("not verified after %s:\n%s", v.timeout.Round(time.Millisecond), strings.Join(left, "\n")), exitTime}
	}
	return errors.Join(never, err)
}
