package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kube-node-ready/kube-node-ready/internal/worker"
)

// Output formats.
const (
	outputText = "text"
	outputJSON = "json"
)

// kubeconfigHelp is the help of --kubeconfig.
const kubeconfigHelp = "kubeconfig `file` for --dry-run outside a cluster; default KUBECONFIG, else ~/.kube/config"

// flags are the command line of a command, with the environment's defaults. Each command has some of them.
type flags struct {
	set                                             *pflag.FlagSet
	config, kubeconfig, output, logLevel, logFormat string
	only, skip                                      []string
	dryRun, list, version                           bool
}

func newFlags(command string) *flags {
	set := pflag.NewFlagSet(command, pflag.ContinueOnError)
	set.Usage = func() {}
	set.SortFlags = false
	return &flags{set: set}
}

// addCommon adds the flags that every command has, with the defaults of the level and the format. The help texts follow
// the values that each may have.
func (f *flags) addCommon(level, levelHelp, format, formatHelp string) {
	f.set.StringVar(&f.logLevel, "log-level", level, "`level`: debug, info, warn or error"+levelHelp+" (LOG_LEVEL)")
	f.set.StringVar(&f.logFormat, "log-format", format, "`format`: json or console"+formatHelp+" (LOG_FORMAT)")
	f.set.BoolVar(&f.version, "version", false, "print the version")
}

// parseFlags parses the command line; terminal reports whether standard output is one.
func parseFlags(args []string, getenv func(string) string, terminal bool) (*flags, error) {
	f := newFlags(program)
	f.set.StringVar(&f.config, "config", "",
		"configuration `file`; default: the environment variable KUBE_NODE_READY_CONFIG, or else the built-in checks")
	f.set.BoolVar(&f.dryRun, "dry-run", false, "write no termination log; outside a cluster, checks that use the API "+
		"server need a kubeconfig")
	f.set.StringVar(&f.kubeconfig, "kubeconfig", "", kubeconfigHelp)
	f.set.StringVarP(&f.output, "output", "o", "",
		"output format of the report: `text or json`; default text on a terminal, else json")
	f.set.StringSliceVar(&f.only, "only", nil, "run only the checks with these `names`")
	f.set.StringSliceVar(&f.skip, "skip", nil, "do not run the checks with these `names`")
	f.set.BoolVar(&f.list, "list", false, "list the checks and do not run them")
	f.addCommon(getenv("LOG_LEVEL"), "; default info, with text output error", getenv("LOG_FORMAT"), "; default json")

	if err := f.set.Parse(args); err != nil {
		return f, err
	}
	if rest := f.set.Args(); len(rest) > 0 && !slices.Equal(rest, []string{"verify"}) {
		return f, fmt.Errorf("unknown command %q; the first argument must be verify (the default), report or daemonset",
			strings.Join(rest, " "))
	}
	if f.kubeconfig != "" && !f.dryRun {
		return f, errors.New("--kubeconfig needs --dry-run: without --dry-run, a worker uses the service account of its pod")
	}
	if f.output == "" && terminal {
		f.output = outputText
	}
	f.output = cmp.Or(f.output, outputJSON)
	if f.output != outputText && f.output != outputJSON {
		return f, fmt.Errorf("--output %s: must be text or json", f.output)
	}
	if f.logLevel == "" && f.output == outputText {
		f.logLevel = "error"
	}
	f.logLevel, f.logFormat = cmp.Or(f.logLevel, worker.DefaultLogLevel), cmp.Or(f.logFormat, worker.DefaultLogFormat)
	_, err := newLogger(f.logLevel, f.logFormat, io.Discard)
	return f, err
}

func (f *flags) usage() string {
	return `Verifies the node that it runs on. Other commands report an agent's health, or run in a DaemonSet's pod.

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
  4   a required check was inconclusive: the cause may not be the node
  10  unexpected internal error, or stopped before all checks ended

Environment:
  NODE_NAME, POD_NAMESPACE, KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT, LOG_LEVEL, LOG_FORMAT
  KUBE_NODE_READY_CONFIG              the configuration, in the format of a --config file
  KUBE_NODE_READY_SERVICEACCOUNT_DIR  default /var/run/secrets/kubernetes.io/serviceaccount
  KUBE_NODE_READY_RESOLV_CONF         default /etc/resolv.conf
  KUBE_NODE_READY_TERMINATION_LOG     default /dev/termination-log
`
}
