package kubectlplugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
)

// CompletionName is the name under which kubectl looks for a program that completes the plugin's command line
// (k8s.io/kubectl pkg/cmd/plugin). It calls it with the words so far, the last one being what is to be completed, and reads what
// cobra's __complete prints: a candidate to a line, then a directive.
const CompletionName = "kubectl_complete-node_ready"

// Directives of cobra (github.com/spf13/cobra completions.go).
const (
	completeFiles   = ":0"
	completeNoFiles = ":4"
)

// complete prints what the last word of v.args may be.
func complete(ctx context.Context, v *invocation, flags *pflag.FlagSet, connect func() error) {
	words, last := v.args, ""
	if n := len(words); n > 0 {
		words, last = words[:n-1], words[n-1]
	}
	offer := func(candidates []string) {
		slices.Sort(candidates)
		for _, c := range candidates {
			if strings.HasPrefix(c, last) {
				fmt.Fprintln(&v.out, c)
			}
		}
		fmt.Fprintln(&v.out, completeNoFiles)
	}
	var name, before string
	var given []string // names of nodes
	for _, w := range words {
		switch {
		case takesValue(flags, before):
		case name == "" && !strings.HasPrefix(w, "-"):
			name = w
		case !strings.HasPrefix(w, "-"):
			given = append(given, w)
		}
		before = w
	}
	c, known := commands[name]
	switch {
	case !known:
		offer(append(slices.Collect(maps.Keys(commands)), "version", "help"))
	case before == "-o" || before == "--output":
		offer(slices.Clone(c.formats))
	case strings.HasPrefix(last, "-"):
		var names []string
		flags.VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && c.takes(f.Name) {
				names = append(names, "--"+f.Name)
			}
		})
		offer(names)
	case name == "config" && len(given) == 0:
		offer([]string{"validate"})
	case name == "config":
		fmt.Fprintln(&v.out, completeFiles)
	case name == "coming-from" && len(given) == 0:
		offer(comingFromNames())
	case !c.nodes || c.most >= 0 && len(given) >= c.most || connect() != nil:
		offer(nil)
	default:
		var names []string
		_ = pages(ctx, v.cluster.core.Nodes().List, "", func(page *corev1.NodeList) { // there is nobody to tell
			for _, n := range page.Items {
				if !slices.Contains(given, n.Name) {
					names = append(names, n.Name)
				}
			}
		})
		offer(names)
	}
}

// takesValue reports whether the word after this one is a flag's value.
func takesValue(flags *pflag.FlagSet, word string) bool {
	if !strings.HasPrefix(word, "-") || strings.Contains(word, "=") {
		return false
	}
	f := flags.Lookup(strings.TrimLeft(word, "-"))
	if len(word) == 2 {
		f = flags.ShorthandLookup(word[1:])
	}
	return f != nil && f.NoOptDefVal == ""
}
