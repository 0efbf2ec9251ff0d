// Package kubectlplugin is kubectl node-ready: where the verification of nodes stands, as the marks on the nodes and their
// worker pods say, and how to start one again. It shows what the controller wrote, and predicts nothing.
package kubectlplugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/dynamic"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kube-node-ready/kube-node-ready/internal/nodepool"
	"github.com/kube-node-ready/kube-node-ready/internal/strictyaml"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
)

// Exit codes.
const (
	exitError = 1
	exitUsage = 2 // the command line or the configuration was refused
	exitTime  = 3 // wait: not all nodes were verified in time; check: there is no result
	exitNever = 4 // wait: one will not be
	// exitFailed: check: a required check did not pass, or could not tell.
	exitFailed = 5
)

// coded is an error with an exit code of its own.
type coded struct {
	error
	code int
}

const usage = `Where the verification of nodes stands, and how to start one again.

Usage:
  kubectl node-ready status [NODE...]   where each node stands, and why
  kubectl node-ready wait NODE...       until nodes are verified (or -l SELECTOR)
  kubectl node-ready explain NODE       everything about one node: checks, attempts, events
  kubectl node-ready check NODE         run a node's checks now; changes nothing on it
  kubectl node-ready reverify NODE...   verify nodes again now
  kubectl node-ready skip NODE...       leave nodes alone; unskip ends that
  kubectl node-ready logs NODE          the log of the node's last worker
  kubectl node-ready doctor             what is set up wrong, and how to mend it
  kubectl node-ready deletions          what was deleted, and why
  kubectl node-ready pause [WHY...]     delete nothing, from now on
  kubectl node-ready resume             delete again as the configuration says
  kubectl node-ready config validate FILE
  kubectl node-ready coming-from [NAME] how to move here from another controller
  kubectl node-ready version

Flags:
%s
kubectl's flags for the connection (--kubeconfig, --context, --server, --token, --as, ...) are accepted too.
The controller's configuration is read from the ConfigMap that its chart makes.
`

// command is one of the plugin's commands.
type command struct {
	run func(context.Context, *invocation) error
	// arguments: the least and the most, -1 for any number.
	least, most int
	// nodes: the arguments are names of nodes. offline: no cluster is needed.
	nodes, offline bool
	// flags that the command takes besides those of all.
	flags []string
	// formats of --output, besides the empty one.
	formats []string
}

var commands = map[string]command{
	"status":    {run: status, nodes: true, most: -1, flags: []string{"output", "selector", "unverified", "no-headers", "all", "watch"}, formats: []string{"wide", "json", "yaml", "name"}},
	"wait":      {run: wait, nodes: true, most: -1, flags: []string{"selector", "timeout"}},
	"explain":   {run: explain, nodes: true, least: 1, most: 1, flags: []string{"output"}, formats: []string{"json", "yaml"}},
	"check":     {run: check, nodes: true, least: 1, most: 1, flags: []string{"timeout"}},
	"reverify":  {run: reverify, nodes: true, least: 1, most: -1},
	"skip":      {run: skip, nodes: true, least: 1, most: -1},
	"unskip":    {run: unskip, nodes: true, least: 1, most: -1},
	"logs":      {run: logs, nodes: true, least: 1, most: 1, flags: []string{"follow", "container"}},
	"deletions": {run: deletions, flags: []string{"output"}, formats: []string{"json", "yaml"}},
	"doctor":    {run: doctor, flags: []string{"output"}, formats: []string{"json", "yaml"}},
	"pause":     {run: pause, most: -1},
	"resume":    {run: resume},
	"config":    {run: validate, offline: true, least: 2, most: 2},

	"coming-from": {run: comingFrom, offline: true, most: 1},
}

// invocation is a command line and what it works on.
type invocation struct {
	cluster   *cluster
	args      []string
	out       bytes.Buffer // what the command prints, written when it ends
	stream    io.Writer    // for what must appear at once
	time      *serverTime
	now       time.Time // by it, when the command began or last looked
	colour    bool
	output    string
	selector  string
	container string

	unverified, noHeaders, followLog, all, watch, dead bool
	timeout                                            time.Duration
}

// Streams are the process's input and output.
type Streams struct {
	Out, Err io.Writer
	// Terminal says that Out is one, so that colours can be used.
	Terminal bool
}

// Run is the plugin's main: args are the command line's without the program's name. It
// returns the exit code: 0, or one of those above.
func Run(ctx context.Context, args []string, s Streams) int {
	var (
		v          invocation
		rules      = clientcmd.NewDefaultClientConfigLoadingRules()
		overrides  clientcmd.ConfigOverrides
		configPath string
		colour     string
		help       bool
	)
	flags := pflag.NewFlagSet("kubectl node-ready", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	clientcmd.BindOverrideFlags(&overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	flags.VisitAll(func(f *pflag.Flag) { f.Hidden = f.Name != "context" && f.Name != "namespace" })
	flags.Lookup("namespace").Usage = "the controller's namespace, where there is more than one controller"
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "path to the kubeconfig file")
	flags.StringVar(&configPath, "config", "", "the controller's configuration file, in place of its ConfigMap")
	flags.StringVarP(&v.output, "output", "o", "", "wide or name (status), json, yaml")
	flags.StringVarP(&v.selector, "selector", "l", "", "label selector of the nodes (status, wait)")
	flags.BoolVar(&v.all, "all", false, "every node, however many there are (status)")
	flags.BoolVarP(&v.watch, "watch", "w", false, "print nodes again as they change (status)")
	flags.DurationVar(&v.timeout, "timeout", 10*time.Minute, "how long to wait; of wait, 0 is no limit (wait, check)")
	flags.BoolVar(&v.unverified, "unverified", false, "only nodes that are pending, verifying, failed or held (status)")
	flags.BoolVar(&v.noHeaders, "no-headers", false, "leave the table's header out (status)")
	flags.BoolVarP(&v.followLog, "follow", "f", false, "stream the log (logs)")
	flags.StringVarP(&v.container, "container", "c", "worker", "container of the worker pod (logs)")
	flags.StringVar(&colour, "color", "auto", "auto, always or never")
	flags.BoolVarP(&help, "help", "h", false, "show this")

	refuse := func(format string, a ...any) int {
		s.say("error: "+format+"\nSee 'kubectl node-ready --help'.", a...)
		return exitUsage
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &overrides)
	connects := func(ctx context.Context) error {
		return v.connect(ctx, loader, overrides.Context.Namespace, configPath, func(text string) { s.say("warning: %s", text) })
	}
	if len(args) > 0 && args[0] == "__complete" {
		v.args = args[1:]
		_ = flags.Parse(v.args[:max(0, len(v.args)-1)]) // what is half written need not be right
		complete(ctx, &v, flags, func() error { return connects(ctx) })
		return s.print(v.out.Bytes())
	}
	if err := flags.Parse(args); err != nil {
		return refuse("%v", err)
	}
	name := flags.Arg(0)
	if help || name == "" || name == "help" {
		return s.print(fmt.Appendf(nil, usage, flags.FlagUsages()))
	}
	if name == "version" {
		return s.print([]byte("kubectl-node_ready " + version.String() + "\n"))
	}
	v.args = flags.Args()[1:]
	c, ok := commands[name]
	if !ok {
		return refuse("unknown command %q", name)
	}
	if fault := c.refuse(name, flags, &v); fault != "" {
		return refuse("%s", fault)
	}
	switch colour {
	case "always":
		v.colour = true
	case "auto":
		v.colour = s.Terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" // https://no-color.org
	case "never":
	default:
		return refuse("--color must be auto, always or never, not %q", colour)
	}
	v.stream = s.Out
	var err error
	if !c.offline {
		err = connects(ctx)
	}
	if err == nil {
		err = c.run(ctx, &v)
	}
	code := s.print(v.out.Bytes())
	if err != nil {
		s.say("error: %v", err)
		var faults strictyaml.Faults
		if errors.As(err, &faults) {
			return exitUsage
		}
		var own coded
		if errors.As(err, &own) {
			return own.code
		}
		return exitError
	}
	return code
}

// say tells what is no output. There is nobody to tell if that fails.
func (s Streams) say(format string, a ...any) { _, _ = fmt.Fprintf(s.Err, format+"\n", a...) }

// print writes the output and returns the exit code.
func (s Streams) print(text []byte) int {
	if _, err := s.Out.Write(text); err != nil {
		s.say("error: %v", err)
		return exitError
	}
	return 0
}

// refuse says what is wrong with a command line; empty for nothing.
func (c command) refuse(name string, flags *pflag.FlagSet, v *invocation) string {
	if len(v.args) < c.least {
		if !c.nodes {
			return name + " takes validate FILE"
		}
		return name + " needs the name of a node"
	}
	if c.most == 0 && len(v.args) > 0 {
		return fmt.Sprintf("%s takes no argument, and there is %q", name, v.args[0])
	}
	if c.most >= 0 && len(v.args) > c.most {
		return fmt.Sprintf("%s takes one name, and there is %q too", name, v.args[c.most])
	}
	var foreign []string
	flags.Visit(func(f *pflag.Flag) {
		if !c.takes(f.Name) {
			foreign = append(foreign, f.Name)
		}
	})
	if len(foreign) > 0 {
		return fmt.Sprintf("%s does not take --%s", name, strings.Join(foreign, ", --"))
	}
	if v.output != "" && !slices.Contains(c.formats, v.output) {
		return fmt.Sprintf("the output of %s can be %s, not %q", name, strings.Join(c.formats, " or "), v.output)
	}
	if v.watch && v.output != "" && v.output != "wide" {
		return "--watch prints a table, not " + v.output
	}
	if len(v.args) > 0 && v.selector != "" {
		return "give either names of nodes or --selector"
	}
	return ""
}

// takes reports whether the command takes a flag: one of its own, or one that every command takes.
func (c command) takes(flag string) bool {
	if slices.Contains(c.flags, flag) {
		return true
	}
	for _, other := range commands {
		if slices.Contains(other.flags, flag) {
			return false
		}
	}
	return true
}

// connect makes the clients and finds the controller's configuration.
func (v *invocation) connect(ctx context.Context, loader clientcmd.ClientConfig, namespace, configPath string, warn func(string)) error {
	rc, err := loader.ClientConfig()
	if err != nil {
		return err
	}
	rc.UserAgent = "kubectl-node_ready/" + version.Version
	rc.QPS, rc.Burst = 50, 300 // kubectl's own; doctor asks much
	v.time = &serverTime{}
	rc.Wrap(v.time.observe)
	core, err := corev1client.NewForConfig(rc)
	if err != nil {
		return err
	}
	if v.cluster, err = connect(ctx, core, configPath, namespace, warn); err != nil {
		return err
	}
	v.now = v.time.now()
	if v.cluster.leases, err = coordinationclient.NewForConfig(rc); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(rc)
	if err != nil {
		return err
	}
	v.cluster.claims, v.cluster.pools = client.Resource(nodepool.Resource.GroupVersion().WithResource("nodeclaims")), client.Resource(nodepool.Resource)
	authorization, err := authorizationclient.NewForConfig(rc)
	if err != nil {
		return err
	}
	v.cluster.reviews = authorization.SubjectAccessReviews()
	return nil
}
