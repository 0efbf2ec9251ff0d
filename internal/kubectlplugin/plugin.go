// Package kubectlplugin is kubectl node-ready: it shows the verification of nodes from the marks on nodes and worker
// pods, and starts a verification again. It shows what the controller wrote, and predicts nothing.
package kubectlplugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
	"github.com/kube-node-ready/kube-node-ready/internal/strictyaml"
)

// Exit codes.
const (
	exitError = 1
	exitUsage = 2 // the command line or the configuration was refused
	exitTime  = 3 // wait: not all nodes were verified in time; check: there is no result
	exitNever = 4 // wait: a node will not be verified
	// exitFailed: check: a required check did not pass, or was inconclusive.
	exitFailed = 5
	// exitUnchecked: doctor: nothing wrong was found, and not everything could be checked.
	exitUnchecked = 6
)

// codedError is an error with an exit code of its own.
type codedError struct {
	error
	code int
}

// usageErrorf is an error in the command line.
func usageErrorf(format string, a ...any) error {
	return codedError{fmt.Errorf(format, a...), exitUsage}
}

// invocation is a command line and what it works on.
type invocation struct {
	cluster    *cluster
	connection *genericclioptions.ConfigFlags
	terminal   bool
	args       []string
	out        bytes.Buffer // what the command prints, written when it ends
	stream     io.Writer    // for what must appear at once
	warnings   io.Writer
	time       *serverTime
	now        time.Time // the API server's, when the command began or last looked
	colour     bool
	results    []map[string]string // name and result of each object, for -o json
	ruleSet    []rule.Rule         // NodeReadinessRules, as far as they could be read
	notServed  string              // why rules are not served, as a rule or a node reports it
	noLeader   bool
	unchanging bool // the controller makes a dry run

	// Flags.
	configPath, colourMode, output, selector, container string
	verifiedLabel                                       string
	gatingTaints                                        []string
	unverified, noHeaders, followLog, all, watch, await bool
	force, dryRun                                       bool
	timeout                                             time.Duration
}

// Run is the plugin's main: args are the command line's without the program's name, and terminal reports whether out is
// a terminal that shows colours. It returns the exit code: 0, or one of those above.
func Run(ctx context.Context, args []string, out, warnings io.Writer, terminal bool) int {
	v := &invocation{stream: out, warnings: warnings, terminal: terminal}
	v.connection = genericclioptions.NewConfigFlags(true)
	v.connection.CacheDir = nil // nothing is cached
	root := v.root()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(warnings)
	err := root.ExecuteContext(ctx)
	if _, failed := out.Write(v.out.Bytes()); err == nil {
		err = failed
	}
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintf(warnings, "error: %v\n", connectionError(err)) // a failure cannot be reported anywhere else
	var invalid strictyaml.Faults
	var own codedError
	switch {
	case errors.As(err, &invalid):
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
	return fmt.Errorf("the API server %s cannot be reached: %s", server, singleLine(failed.Err.Error()))
}
