package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kube-node-ready/kube-node-ready/internal/logging"
)

// Output forms.
const (
	outputText = "text"
	outputJSON = "json"
)

// flags are the command line and the environment that stands in for it.
type flags struct {
	set       *pflag.FlagSet
	config    string
	dryRun    bool
	kube      string
	output    string
	only      []string
	skip      []string
	list      bool
	logLevel  string
	logFormat string
	version   bool
}

// parseFlags reads the command line; terminal says whether standard output is one.
func parseFlags(args []string, getenv func(string) string, terminal bool) (*flags, error) {
	f := &flags{set: pflag.NewFlagSet(program, pflag.ContinueOnError)}
	f.set.Usage = func() {}
	f.set.SortFlags = false
	f.set.StringVar(&f.config, "config", "", "configuration `file`; default the environment's KUBE_NODE_READY_CONFIG, else the built-in checks")
	f.set.BoolVar(&f.dryRun, "dry-run", false, "outside a cluster perform what needs no API server, and the rest with a kubeconfig; write no termination log")
	f.set.StringVar(&f.kube, "kubeconfig", "", "kubeconfig `file` for --dry-run outside a cluster; default KUBECONFIG, else ~/.kube/config")
	f.set.StringVarP(&f.output, "output", "o", "", "how the report is printed: `text or json`; default text on a terminal, else json")
	f.set.StringSliceVar(&f.only, "only", nil, "perform only the checks of these `names`")
	f.set.StringSliceVar(&f.skip, "skip", nil, "leave out the checks of these `names`")
	f.set.BoolVar(&f.list, "list", false, "list the checks and perform none")
	f.set.StringVar(&f.logLevel, "log-level", getenv("LOG_LEVEL"), "`level`: debug, info, warn or error; default info, with text output error (LOG_LEVEL)")
	f.set.StringVar(&f.logFormat, "log-format", getenv("LOG_FORMAT"), "`format`: json or console; default json (LOG_FORMAT)")
	f.set.BoolVar(&f.version, "version", false, "print the version")

	if err := f.set.Parse(args); err != nil {
		return f, err
	}
	switch rest := f.set.Args(); {
	case len(rest) == 0, slices.Equal(rest, []string{"verify"}):
	default:
		return f, fmt.Errorf("unknown command %q; there are verify, which is the default, and report and daemonset, which must come first", strings.Join(rest, " "))
	}
	if f.kube != "" && !f.dryRun {
		return f, errors.New("--kubeconfig is for --dry-run: a worker has its pod's service account")
	}
	if f.output == "" {
		f.output = outputJSON
		if terminal {
			f.output = outputText
		}
	}
	if f.output != outputText && f.output != outputJSON {
		return f, fmt.Errorf("--output %s: must be text or json", f.output)
	}
	if f.logLevel == "" {
		f.logLevel = "info"
		if f.output == outputText {
			f.logLevel = "error"
		}
	}
	if f.logFormat == "" {
		f.logFormat = "json"
	}
	if _, err := logging.New(f.logLevel, f.logFormat, io.Discard); err != nil {
		return f, fmt.Errorf("%w (--log-level, --log-format, LOG_LEVEL, LOG_FORMAT)", err)
	}
	return f, nil
}

func (f *flags) usage() string {
	return `Verifies the node that it runs on, once or as a DaemonSet's process, or reports an agent's health as its condition.

Usage:
  ` + program + ` [verify] [flags]
  ` + program + ` report [flags]      (` + program + ` report --help)
  ` + program + ` daemonset [flags]   (` + program + ` daemonset --help)

Flags:
` + f.set.FlagUsages() + `
Exit codes:
  0   every required check passed
  1   a required check failed: the node is at fault
  2   configuration error
  3   the Kubernetes client cannot be set up (no token, no CA)
  4   a required check could not tell whose fault it is
  10  unexpected internal error, or told to stop before the end

Environment:
  NODE_NAME, POD_NAMESPACE, KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT, LOG_LEVEL, LOG_FORMAT
  KUBE_NODE_READY_CONFIG              the configuration, in the form of a --config file
  KUBE_NODE_READY_SERVICEACCOUNT_DIR  default /var/run/secrets/kubernetes.io/serviceaccount
  KUBE_NODE_READY_RESOLV_CONF         default /etc/resolv.conf
  KUBE_NODE_READY_TERMINATION_LOG     default /dev/termination-log
`
}
