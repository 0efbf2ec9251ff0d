// Package kubectlplugin is kubectl node-ready: where the verification of nodes stands, as the marks on the nodes and
// their worker pods say, and how to start one again. It shows what the controller wrote, and predicts nothing.
package kubectlplugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/nodepool"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
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
	// exitUnchecked: doctor: nothing wrong was found, and not all could be checked.
	exitUnchecked = 6
)

// coded is an error with an exit code of its own.
type coded struct {
	error
	code int
}

// refused is an error in the command line.
func refused(format string, a ...any) error { return coded{fmt.Errorf(format, a...), exitUsage} }

// invocation is a command line and what it works on.
type invocation struct {
	cluster    *cluster
	connection *genericclioptions.ConfigFlags
	configPath string
	terminal   bool
	args       []string
	out        bytes.Buffer // what the command prints, written when it ends
	stream     io.Writer    // for what must appear at once
	warnings   io.Writer
	time       *serverTime
	now        time.Time // by it, when the command began or last looked
	colour     bool
	colourMode string
	output     string
	selector   string
	container  string
	done       []done

	ruleSet []rule.Rule // NodeReadinessRules, as far as they were read

	unverified, noHeaders, followLog, all, watch, dead bool
	timeout                                            time.Duration
}

// Streams are the process's input and output.
type Streams struct {
	Out, Err io.Writer
	// Terminal says that Out is one that takes colours.
	Terminal bool
}

// Run is the plugin's main: args are the command line's without the program's name. It
// returns the exit code: 0, or one of those above.
func Run(ctx context.Context, args []string, s Streams) int {
	v := &invocation{stream: s.Out, warnings: s.Err, terminal: s.Terminal}
	v.connection = genericclioptions.NewConfigFlags(true)
	v.connection.CacheDir = nil // nothing is cached
	root := v.root()
	root.SetArgs(args)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	err := root.ExecuteContext(ctx)
	if _, failed := s.Out.Write(v.out.Bytes()); err == nil {
		err = failed
	}
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintf(s.Err, "error: %v\n", connectionError(err)) // there is nobody to tell if that fails
	var faults strictyaml.Faults
	var own coded
	switch {
	case errors.As(err, &faults):
		return exitUsage
	case errors.As(err, &own):
		return own.code
	}
	return exitError
}

// connectionError makes one line of an error of the connection to the API server, and leaves others as they are.
func connectionError(err error) error {
	var failed *url.Error
	if !errors.As(err, &failed) || errors.Is(err, context.Canceled) {
		return err
	}
	server := failed.URL
	if u, err := url.Parse(server); err == nil {
		server = u.Host
	}
	return fmt.Errorf("the API server %s cannot be reached: %s", server, plain(failed.Err.Error()))
}

// done is what a command did to an object, in the output of -o json.
type done struct {
	Name   string `json:"name"`
	Result string `json:"result"`
}

// changed reports what was done to an object.
func (v *invocation) changed(name, result string) {
	switch v.output {
	case "":
		fmt.Fprintf(&v.out, "%s: %s\n", name, result)
	case "name":
		fmt.Fprintln(&v.out, name)
	default:
		v.done = append(v.done, done{name, result})
	}
}

// printVersion prints which build this is.
func printVersion(_ context.Context, v *invocation) error {
	if v.output != "" {
		return v.printObject(map[string]string{
			"version": version.Version, "commit": version.Commit, "buildDate": version.BuildDate})
	}
	fmt.Fprintln(&v.out, "kubectl-node_ready "+version.String())
	return nil
}

// useColour decides whether colours are printed.
func (v *invocation) useColour() error {
	switch v.colourMode {
	case "always":
		v.colour = true
	case "auto":
		v.colour = v.terminal
	case "never":
	default:
		return refused("--color must be auto, always or never, not %q", v.colourMode)
	}
	return nil
}

// connect makes the clients.
func (v *invocation) connect() error {
	rc, err := v.connection.ToRESTConfig()
	if err != nil {
		return err
	}
	rc.UserAgent = "kubectl-node_ready/" + version.Version
	rc.QPS, rc.Burst = 50, 300 // kubectl's own; doctor asks much
	v.time = &serverTime{}
	rc.Wrap(v.time.observe)
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return err
	}
	other, err := dynamic.NewForConfig(rc)
	v.cluster = &cluster{
		client: client, core: client.CoreV1(), leases: client.CoordinationV1(),
		reviews: client.AuthorizationV1().SubjectAccessReviews(), pools: other.Resource(nodepool.Resource),
		owners: func(r schema.GroupVersionResource) dynamic.NamespaceableResourceInterface { return other.Resource(r) },
		rules:  other.Resource(v1alpha1.GroupVersion.WithResource(v1alpha1.Resource)),
	}
	return err
}

// configure finds the controller's configuration.
func (v *invocation) configure(ctx context.Context) error {
	err := v.cluster.configure(ctx, v.configPath, *v.connection.Namespace, func(text string) {
		_, _ = fmt.Fprintf(v.warnings, "warning: %s\n", text)
	})
	v.now = v.time.now()
	return err
}
