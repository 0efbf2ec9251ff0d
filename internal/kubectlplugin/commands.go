package kubectlplugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
)

// root is kubectl node-ready.
func (v *invocation) root() *cobra.Command {
	root := &cobra.Command{
		Use: "kubectl-node_ready", Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl node-ready"},
		Short: "Show where the verification of nodes stands, and start it again",
		Long: `Show where the verification of nodes stands, and start it again.

The controller's configuration is read from the ConfigMap that its chart makes. kubectl's flags for the
connection (--kubeconfig, --server, --token, --as, ...) are accepted too.`,
		Example: "  kubectl node-ready status\n  kubectl node-ready explain NODE\n  kubectl node-ready doctor",
		Args:    command, RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceErrors: true, SilenceUsage: true, SuggestionsMinimumDistance: 2,
	}
	flags := root.PersistentFlags()
	v.connection.AddFlags(flags)
	flags.Lookup("namespace").Usage = "The controller's namespace, where there is more than one controller"
	var connection []*pflag.Flag
	flags.VisitAll(func(f *pflag.Flag) { connection = append(connection, f) })
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) { // they are completed, and listed by "kubectl options"
		for _, f := range connection {
			f.Hidden = f.Name != "context" && f.Name != "namespace"
		}
		help(c, args)
	})
	flags.StringVar(&v.configPath, "config", "", "The controller's configuration file, in place of its ConfigMap")
	flags.StringVar(&v.colourMode, "color", "auto", "One of: (auto, always, never)")
	complete(root, "color", "auto", "always", "never")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if words := c.Flags().Args(); c.HasSubCommands() && len(words) > 0 {
			return command(c, words)
		}
		return refused("%w; see '%s --help'", err, c.CommandPath())
	})
	file := &cobra.Command{
		Use: "config", Short: "Work on the controller's configuration", Args: command, SuggestionsMinimumDistance: 2,
		RunE: func(*cobra.Command, []string) error { return refused("config needs a command: validate") },
	}
	file.AddCommand(v.offline("validate FILE",
		"Say of a configuration file, - for the standard input, what the controller would at its start",
		"kubectl node-ready config validate config.yaml", cobra.ExactArgs(1), validate))
	pages := v.offline("coming-from [NAME]", "Print how to move here from another controller, or list these controllers",
		"kubectl node-ready coming-from node-readiness-controller", cobra.MaximumNArgs(1), comingFrom)
	pages.ValidArgsFunction = func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		return beginning(comingFromNames(), word, args, 1), cobra.ShellCompDirectiveNoFileComp
	}
	root.AddCommand(file, pages, v.offline("version", "Print this program's version",
		"kubectl node-ready version -o json", cobra.NoArgs, printVersion, "json", "yaml"))
	root.AddCommand(v.online()...)
	return root
}

// command refuses a word that is none of the commands, and names those that are alike.
func command(c *cobra.Command, words []string) error {
	if len(words) == 0 {
		return nil
	}
	if alike := c.SuggestionsFor(words[0]); len(alike) > 0 {
		return refused("unknown command %q, did you mean %s?", words[0], strings.Join(alike, " or "))
	}
	return refused("unknown command %q; see '%s --help'", words[0], c.CommandPath())
}

// online are the commands that need a cluster.
func (v *invocation) online() []*cobra.Command {
	one, some := cobra.ExactArgs(1), cobra.MinimumNArgs(1)
	selected := func(_ *cobra.Command, args []string) error {
		if len(args) > 0 && v.selector != "" {
			return errors.New("give either names of nodes or --selector")
		}
		return nil
	}
	status := v.nodes("status [NODE...]", "Show where each node stands, and why", `# All; of more than 50, the unverified
kubectl node-ready status
# Unverified nodes of a pool, as they change
kubectl node-ready status --unverified --watch -l karpenter.sh/nodepool=default
# The names of failed nodes
kubectl node-ready status -o json | jq -r '.nodes[] | select(.status == "failed").name'`,
		selected, status, "wide", "json", "yaml", "name")
	flags := status.Flags()
	flags.StringVarP(&v.selector, "selector", "l", "", "Label selector of the nodes")
	flags.BoolVar(&v.all, "all", false, "Every node, however many there are")
	flags.BoolVarP(&v.watch, "watch", "w", false, "Print nodes again as they change")
	flags.BoolVar(&v.unverified, "unverified", false, "Only nodes that are pending, verifying, failed or held")
	flags.BoolVar(&v.noHeaders, "no-headers", false, "Leave the table's header out")
	wait := v.nodes("wait NODE... | -l SELECTOR", "Wait until nodes are verified", `# A node that is yet to join
kubectl node-ready wait node-1 --timeout 5m
# All that there are now
kubectl node-ready wait -l karpenter.sh/nodepool=default`, func(c *cobra.Command, args []string) error {
		if len(args) == 0 && v.selector == "" {
			return errors.New("wait needs the names of nodes, or --selector")
		}
		return selected(c, args)
	}, wait, "name")
	wait.Flags().StringVarP(&v.selector, "selector", "l", "", "Label selector of the nodes")
	wait.Flags().DurationVar(&v.timeout, "timeout", 10*time.Minute, "How long to wait; 0 is no limit")
	check := v.nodes("check NODE", "Run a node's checks now; changes nothing on the node",
		"kubectl node-ready check node-1", one, check, "json", "yaml")
	check.Flags().DurationVar(&v.timeout, "timeout", 10*time.Minute, "How long to wait for the result")
	logs := v.nodes("logs NODE", "Print the log of the node's last worker", `kubectl node-ready logs node-1 -f
# An init container's
kubectl node-ready logs node-1 -c burn-in`, one, logs)
	logs.Flags().BoolVarP(&v.followLog, "follow", "f", false, "Stream the log")
	logs.Flags().StringVarP(&v.container, "container", "c", "worker", "Container of the worker pod")
	return []*cobra.Command{
		status, wait, check, logs,
		v.nodes("explain NODE", "Show everything about one node: checks, attempts, events",
			"kubectl node-ready explain node-1", one, explain, "json", "yaml"),
		v.nodes("reverify NODE...", "Verify nodes again now",
			"kubectl node-ready reverify node-1 node-2", some, reverify, "json", "yaml", "name"),
		v.nodes("skip NODE...", "Leave nodes alone: neither verify nor delete them",
			"kubectl node-ready skip node-1", some, skip, "json", "yaml", "name"),
		v.nodes("unskip NODE...", "End a skip: verify nodes as any other",
			"kubectl node-ready unskip node-1", some, unskip, "json", "yaml", "name"),
		v.command("doctor", "Say what is set up wrong, and how to fix it",
			"kubectl node-ready doctor", cobra.NoArgs, doctor, "json", "yaml"),
		v.command("deletions", "List what was deleted, and why",
			"kubectl node-ready deletions", cobra.NoArgs, deletions, "json", "yaml"),
		v.command("pause [WHY...]", "Delete nothing, from now on",
			"kubectl node-ready pause DNS outage, ticket 7", cobra.ArbitraryArgs, pause),
		v.command("resume", "Delete again as the configuration says",
			"kubectl node-ready resume", cobra.NoArgs, resume),
	}
}

// runner is what a command does.
type runner func(context.Context, *invocation) error

// nodes makes a command whose arguments are names of nodes.
func (v *invocation) nodes(use, short, examples string, arguments cobra.PositionalArgs, run runner, formats ...string,
) *cobra.Command {
	most := -1
	if !strings.Contains(use, "...") {
		most = 1
	}
	c := v.command(use, short, examples, arguments, run, formats...)
	c.ValidArgsFunction = func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		var names []string
		if (most < 0 || len(args) < most) && v.connect() == nil {
			_ = pages(c.Context(), v.cluster.core.Nodes().List, "", func(page *corev1.NodeList) { // there is nobody to tell
				for _, n := range page.Items {
					names = append(names, n.Name)
				}
			})
		}
		return beginning(names, word, args, most), cobra.ShellCompDirectiveNoFileComp
	}
	return c
}

// command makes a command that runs on a cluster.
func (v *invocation) command(use, short, examples string, arguments cobra.PositionalArgs, run runner, formats ...string,
) *cobra.Command {
	return v.offline(use, short, examples, arguments, func(ctx context.Context, v *invocation) error {
		if err := v.connect(); err != nil {
			return err
		}
		if err := v.configure(ctx); err != nil {
			return err
		}
		return run(ctx, v)
	}, formats...)
}

// offline makes a command that needs no cluster. It has a flag --output where there are formats. What is wrong with its
// command line is refused before it runs.
func (v *invocation) offline(use, short, examples string, arguments cobra.PositionalArgs, run runner, formats ...string,
) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Example: "  " + strings.ReplaceAll(examples, "\n", "\n  "),
		Args: func(c *cobra.Command, args []string) error {
			v.args = args
			switch err := arguments(c, args); {
			case err != nil:
				return refused("%w; see '%s --help'", err, c.CommandPath())
			case v.output != "" && !slices.Contains(formats, v.output):
				return refused("the output of %s can be %s, not %q", c.Name(), strings.Join(formats, " or "), v.output)
			case v.watch && v.output != "" && v.output != "wide":
				return refused("--watch prints a table, not %s", v.output)
			}
			return v.useColour()
		},
		RunE: func(c *cobra.Command, _ []string) error {
			err := run(c.Context(), v)
			if v.done != nil {
				err = errors.Join(err, v.printObject(map[string][]done{"objects": v.done}))
			}
			return err
		},
	}
	if len(formats) > 0 {
		c.Flags().StringVarP(&v.output, "output", "o", "", "Output format. One of: ("+strings.Join(formats, ", ")+")")
		complete(c, "output", formats...)
	}
	return c
}

// complete offers the values of a flag.
func complete(c *cobra.Command, flag string, values ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // it has it
}

// beginning is what begins with a word and is none of the arguments that are there, of which there may be most, or any
// number where that is negative.
func beginning(candidates []string, word string, args []string, most int) []string {
	if most >= 0 && len(args) >= most {
		return nil
	}
	return slices.DeleteFunc(candidates, func(c string) bool {
		return !strings.HasPrefix(c, word) || slices.Contains(args, c)
	})
}
