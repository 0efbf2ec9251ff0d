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
		Use:         "kubectl-node_ready",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl node-ready"},
		Short:       "Show the verification of nodes, and start it again",
		Long: `Show the verification of nodes, and start it again.

The plugin reads the controller's configuration from the ConfigMap that the chart creates. kubectl's connection
flags (--kubeconfig, --server, --token, --as, ...) work too.`,
		Example: "  kubectl node-ready status\n  kubectl node-ready explain NODE\n  kubectl node-ready doctor",
		Args:    unknownCommand, RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceErrors: true, SilenceUsage: true, SuggestionsMinimumDistance: 2,
	}
	flags := root.PersistentFlags()
	v.connection.AddFlags(flags)
	flags.Lookup("namespace").Usage = "Namespace of the controller, if there is more than one controller"
	var connection []*pflag.Flag
	flags.VisitAll(func(f *pflag.Flag) { connection = append(connection, f) })
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		// Only the help hides them: completion does not offer hidden flags. "kubectl options" lists them.
		for _, f := range connection {
			f.Hidden = f.Name != "context" && f.Name != "namespace"
		}
		help(c, args)
	})
	flags.StringVar(&v.configPath, "config", "", "Configuration file of the controller, instead of its ConfigMap")
	flags.StringVar(&v.colourMode, "color", "auto", "One of: (auto, always, never)")
	complete(root, "color", "auto", "always", "never")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if words := c.Flags().Args(); c.HasSubCommands() && len(words) > 0 {
			return unknownCommand(c, words)
		}
		return usageErrorf("%w; see '%s --help'", err, c.CommandPath())
	})
	root.AddCommand(v.offline()...)
	root.AddCommand(v.readers()...)
	root.AddCommand(v.writers()...)
	return root
}

// unknownCommand refuses a word that is not a command, and suggests those that are spelled alike.
func unknownCommand(c *cobra.Command, words []string) error {
	if len(words) == 0 {
		return nil
	}
	if alike := c.SuggestionsFor(words[0]); len(alike) > 0 {
		return usageErrorf("unknown command %q, did you mean %s?", words[0], strings.Join(alike, " or "))
	}
	return usageErrorf("unknown command %q; see '%s --help'", words[0], c.CommandPath())
}

// offline are the commands that need no cluster.
func (v *invocation) offline() []*cobra.Command {
	file := &cobra.Command{
		Use: "config", Short: "Work with configuration files of the controller",
		Example: "  kubectl node-ready config validate config.yaml", Args: unknownCommand, SuggestionsMinimumDistance: 2,
		RunE: func(*cobra.Command, []string) error { return usageErrorf("config needs a command: validate") },
	}
	file.AddCommand(v.command(&cobra.Command{
		Use: "validate FILE", Short: "Validate a configuration file (- for standard input) as the controller does on start",
		Example: "  kubectl node-ready config validate config.yaml", Args: cobra.ExactArgs(1),
	}, validate))
	pages := v.command(&cobra.Command{
		Use: "coming-from [NAME]", Short: "Print how to migrate from another controller, or list these controllers",
		Example: "  kubectl node-ready coming-from node-readiness-controller", Args: cobra.MaximumNArgs(1),
	}, comingFrom)
	pages.ValidArgsFunction = func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		return candidates(comingFromNames(), word, args, 1), cobra.ShellCompDirectiveNoFileComp
	}
	return []*cobra.Command{file, pages, v.command(&cobra.Command{
		Use: "version", Short: "Print this program's version",
		Example: "  kubectl node-ready version -o json", Args: cobra.NoArgs,
	}, printVersion, "json", "yaml")}
}

// readers are the commands that read a cluster, and wait for it.
func (v *invocation) readers() []*cobra.Command {
	namesOrSelector := func(_ *cobra.Command, args []string) error {
		if len(args) > 0 && v.selector != "" {
			return errors.New("set either names of nodes or --selector")
		}
		return nil
	}
	status := v.onNodes(&cobra.Command{
		Use: "status [NODE...]", Short: "Show the status of each node, and the reason", Args: namesOrSelector,
		Example: `  # All nodes; if there are more than 50, only those that are not verified
  kubectl node-ready status
  # The unverified nodes of a pool, as they change
  kubectl node-ready status --unverified --watch -l karpenter.sh/nodepool=default
  # The names of the failed nodes
  kubectl node-ready status -o json | jq -r '.nodes[] | select(.status == "failed").name'`,
	}, -1, status)
	flags := status.Flags()
	flags.StringVarP(&v.selector, "selector", "l", "", "Label selector of the nodes")
	flags.BoolVar(&v.all, "all", false, "Show every node, even if there are more than 50")
	flags.BoolVarP(&v.watch, "watch", "w", false, "Print nodes again as they change")
	flags.BoolVar(&v.unverified, "unverified", false, "Only nodes that are pending, verifying, failed or held")
	flags.BoolVar(&v.noHeaders, "no-headers", false, "Omit the header of the table")
	wait := v.onNodes(&cobra.Command{
		Use: "wait NODE... | -l SELECTOR", Short: "Wait until nodes are verified",
		Example: `  # A node that has not joined yet
  kubectl node-ready wait node-1 --timeout 5m
  # All nodes of a pool that exist now
  kubectl node-ready wait -l karpenter.sh/nodepool=default`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && v.selector == "" {
				return errors.New("wait needs the names of nodes, or --selector")
			}
			return namesOrSelector(c, args)
		},
	}, -1, reporting(wait))
	wait.Flags().StringVarP(&v.selector, "selector", "l", "", "Label selector of the nodes")
	wait.Flags().DurationVar(&v.timeout, "timeout", 10*time.Minute, "How long to wait; 0 means no limit")
	check := v.onNodes(&cobra.Command{
		Use: "check NODE", Short: "Run a node's checks now, without a change to the node",
		Example: "  kubectl node-ready check node-1", Args: cobra.ExactArgs(1),
	}, 1, check)
	check.Flags().DurationVar(&v.timeout, "timeout", 10*time.Minute, "How long to wait for the result")
	logs := v.command(v.completeNodes(&cobra.Command{
		Use: "logs NODE", Short: "Print the log of the node's last worker",
		Example: `  kubectl node-ready logs node-1 -f
  # An init container's
  kubectl node-ready logs node-1 -c burn-in`, Args: cobra.ExactArgs(1),
	}, 1), connected(logs))
	logs.Flags().BoolVarP(&v.followLog, "follow", "f", false, "Stream the log")
	logs.Flags().StringVarP(&v.container, "container", "c", "worker", "Container of the worker pod")
	return []*cobra.Command{status, wait, check, logs,
		v.onNodes(&cobra.Command{
			Use: "explain NODE", Short: "Show everything about one node: checks, attempts, events",
			Example: "  kubectl node-ready explain node-1", Args: cobra.ExactArgs(1),
		}, 1, explain),
		v.onCluster(&cobra.Command{
			Use: "doctor", Short: "Find problems of the setup, and show how to fix them",
			Example: "  kubectl node-ready doctor", Args: cobra.NoArgs,
		}, doctor),
		v.onCluster(&cobra.Command{
			Use: "remediations", Short: "List the actions on failed nodes, their causes and their results",
			Example: `  kubectl node-ready remediations
  # The nodes with a condition that asks a repairer to act on them
  kubectl node-ready remediations -o json | jq -r '.remediations[] | select(.state == "set").node'`,
			Args: cobra.NoArgs,
		}, remediations),
	}
}

// writers are the commands that change something.
func (v *invocation) writers() []*cobra.Command {
	reverify := v.onNodes(&cobra.Command{
		Use: "reverify NODE...", Short: "Verify nodes again now",
		Long: `Verify nodes again now.

Without --wait, a verified node loses its label until it passes again. With --wait, the command requests a
verification, waits for it, and prints the result. Meanwhile the node keeps its label and accepts workloads. It is
tainted only after a failure that no verified node shares.`,
		Example: `  kubectl node-ready reverify node-1 node-2
  # Keep the label of a verified node, and wait for the result
  kubectl node-ready reverify node-1 --wait --timeout 5m`, Args: cobra.MinimumNArgs(1),
	}, -1, reporting(reverify))
	reverify.Flags().BoolVar(&v.await, "wait", false,
		"Request a verification and wait for its result; a verified node keeps its label")
	reverify.Flags().DurationVar(&v.timeout, "timeout", 10*time.Minute, "How long to wait, with --wait; 0 means no limit")
	remove := v.onNodes(&cobra.Command{
		Use: "remove-marks [NODE...]", Short: "Uninstall: remove every mark of kube-node-ready from nodes",
		Long: `Uninstall: remove every mark of kube-node-ready from nodes, by default from all.

The marks are the verified label, the gating taints, the annotations of the controller, the taints and annotations of
its rules, and its conditions. The opt-outs node-ready/skip and node-ready/do-not-delete stay, because a person sets
them.

Run it after helm uninstall: a controller that runs would write the marks again. If the controller had its own taints,
verified label or completedAnnotation, set them with --taint and --label, or pass its configuration with --config.`,
		Example: `  # What would be removed
  kubectl node-ready remove-marks --dry-run
  kubectl node-ready remove-marks
  # Taints and a label of its own
  kubectl node-ready remove-marks --taint example.com/unverified:NoSchedule --label example.com/verified`,
		Args: cobra.ArbitraryArgs,
	}, -1, reporting(removeMarks))
	flags := remove.Flags()
	flags.StringArrayVar(&v.gatingTaints, "taint", nil, "A gating taint to remove, as KEY:EFFECT; may be repeated")
	flags.StringVar(&v.verifiedLabel, "label", "", "Key of the verified label to remove")
	flags.BoolVar(&v.dryRun, "dry-run", false, "Only print what would be removed")
	flags.BoolVar(&v.force, "force", false, "Remove the marks even if a controller still runs")
	return []*cobra.Command{reverify, remove,
		v.onNodes(&cobra.Command{
			Use: "skip NODE...", Short: "Exclude nodes from verification and remediation",
			Example: "  kubectl node-ready skip node-1", Args: cobra.MinimumNArgs(1),
		}, -1, reporting(skip)),
		v.onNodes(&cobra.Command{
			Use: "unskip NODE...", Short: "Undo a skip: verify the nodes like any other",
			Example: "  kubectl node-ready unskip node-1", Args: cobra.MinimumNArgs(1),
		}, -1, reporting(unskip)),
		v.onCluster(&cobra.Command{
			Use: "pause [WHY...]", Short: "Pause remediation: take no action on failed nodes",
			Long: `Pause remediation: take no action on failed nodes.

Within reconciliation.intervalSeconds, the controller also removes its conditions that ask a repairer to act on a
node.`,
			Example: "  kubectl node-ready pause DNS outage, ticket 7", Args: reasonToPause,
		}, reporting(pause)),
		v.onCluster(&cobra.Command{
			Use: "resume", Short: "Resume remediation: take the configured action on failed nodes again",
			Example: "  kubectl node-ready resume", Args: cobra.NoArgs,
		}, reporting(resume)),
	}
}

// runner is what a command does.
type runner func(context.Context, *invocation) error

// reporting prints what a command reported as an object, where programs read the output.
func reporting(run runner) runner {
	return func(ctx context.Context, v *invocation) error {
		v.results = []map[string]string{} // [] and not null in JSON
		err := run(ctx, v)
		if v.structured() {
			err = errors.Join(err, v.printObject(map[string]any{"objects": v.results}))
		}
		return err
	}
}

// onNodes makes a command whose arguments are names of nodes: at most so many, or any number where that is negative.
func (v *invocation) onNodes(c *cobra.Command, most int, run runner) *cobra.Command {
	return v.onCluster(v.completeNodes(c, most), run)
}

// onCluster makes a command that prints what it read or did in a cluster.
func (v *invocation) onCluster(c *cobra.Command, run runner) *cobra.Command {
	return v.command(c, connected(run), formats...)
}

// connected runs a command on a cluster whose controller's configuration is known.
func connected(run runner) runner {
	return func(ctx context.Context, v *invocation) error {
		if err := v.connect(); err != nil {
			return err
		}
		if err := v.configure(ctx); err != nil {
			return err
		}
		return run(ctx, v)
	}
}

// completeNodes completes names of nodes.
func (v *invocation) completeNodes(c *cobra.Command, most int) *cobra.Command {
	c.ValidArgsFunction = func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		var names []string
		if (most < 0 || len(args) < most) && v.connect() == nil {
			_ = each(c.Context(), v.cluster.client.CoreV1().Nodes().List, "", func(n *corev1.Node) {
				names = append(names, n.Name)
			}) // a shell cannot show an error here
		}
		return candidates(names, word, args, most), cobra.ShellCompDirectiveNoFileComp
	}
	return c
}

// command completes a command. It has a flag --output where there are formats. An error in the command line is
// reported before the command runs.
func (v *invocation) command(c *cobra.Command, run runner, formats ...string) *cobra.Command {
	arguments := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		v.args = args
		switch err := arguments(c, args); {
		case err != nil:
			return usageErrorf("%w; see '%s --help'", err, c.CommandPath())
		case v.output != "" && !slices.Contains(formats, v.output):
			return usageErrorf("the output of %s can be %s, not %q", c.Name(), strings.Join(formats, " or "), v.output)
		case v.watch && v.output != "" && v.output != "wide":
			return usageErrorf("--watch prints a table, not %s", v.output)
		}
		return v.useColour()
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return run(c.Context(), v) }
	if len(formats) > 0 {
		c.Flags().StringVarP(&v.output, "output", "o", "", "Output format. One of: ("+strings.Join(formats, ", ")+")")
		complete(c, "output", formats...)
	}
	return c
}

// useColour decides whether colours are printed.
func (v *invocation) useColour() error {
	switch v.colourMode {
	case "always", "never":
		v.colour = v.colourMode == "always"
	case "auto":
		v.colour = v.terminal
	default:
		return usageErrorf("--color must be auto, always or never, not %q", v.colourMode)
	}
	return nil
}

// complete offers the values of a flag.
func complete(c *cobra.Command, flag string, values ...string) {
	completions := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	_ = c.RegisterFlagCompletionFunc(flag, completions) // it fails only for a flag that does not exist
}

// candidates are the words that begin with word and are not among the arguments yet, of which there may be most, or
// any number where that is negative.
func candidates(all []string, word string, args []string, most int) []string {
	if most >= 0 && len(args) >= most {
		return nil
	}
	return slices.DeleteFunc(all, func(c string) bool {
		return !strings.HasPrefix(c, word) || slices.Contains(args, c)
	})
}
