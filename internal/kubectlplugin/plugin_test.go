package kubectlplugin

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// TestMain fails if a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ran is what a command did.
type ran struct {
	code     int
	out, err string
}

func run(ctx context.Context, terminal bool, args ...string) ran {
	var out, err bytes.Buffer
	code := Run(ctx, args, &out, &err, terminal)
	return ran{code, out.String(), err.String()}
}

func TestCommandLine(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	for _, test := range []struct {
		args     []string
		code     int
		out, err string
	}{
		{[]string{}, 0, "Usage:", ""},
		{[]string{"--help"}, 0, "kubectl node-ready status", ""},
		{[]string{"explain", "--help"}, 0, "Examples:\n  kubectl node-ready explain node-1\n", ""},
		{[]string{"statsu", "--nope"}, 2, "", `unknown command "statsu", did you mean status?`},
		{[]string{"wait"}, 2, "", "wait needs the names of nodes, or --selector"},
		{[]string{"version", "-o", "json"}, 0, `"version": "`, ""},
		{[]string{"completion", "bash"}, 0, "kubectl-node_ready", ""},
		{[]string{"status", "--server", "http://127.0.0.1:1"}, 1, "", "error: the API server 127.0.0.1:1 cannot be reached: dial tcp 127.0.0.1:1: connect: connection refused\n"},
		{[]string{"version"}, 0, "kubectl-node_ready ", ""},
		{[]string{"statsu"}, 2, "", `error: unknown command "statsu", did you mean status?`},
		{[]string{"status", "--nope"}, 2, "", "unknown flag: --nope"},
		{[]string{"status", "-o", "xml"}, 2, "", "the output of status can be wide or json or yaml or name, not \"xml\""},
		{[]string{"resume", "a"}, 2, "", `unknown command "a" for "kubectl node-ready resume"; see 'kubectl node-ready resume --help'`},
		{[]string{"pause", "false"}, 2, "", "error: the reason \"false\" pauses nothing: to end a pause, run 'kubectl node-ready resume'; see 'kubectl node-ready pause --help'\n"},
		{[]string{"status", "a", "-l", "b=c"}, 2, "", "set either names of nodes or --selector"},
		{[]string{"status", "--follow"}, 2, "", "unknown flag: --follow; see 'kubectl node-ready status --help'"},
		{[]string{"status", "--color", "blue"}, 2, "", "--color must be auto, always or never"},
		{[]string{"status", "--watch", "-o", "yaml"}, 2, "", "--watch prints a table, not yaml"},
		{[]string{"config"}, 2, "", "config needs a command: validate"},
		{[]string{"config", "check", "f"}, 2, "", `unknown command "check"; see 'kubectl node-ready config --help'`},
		{[]string{"config", "validate", "/nowhere/at/all"}, 1, "", "/nowhere/at/all"},
		{[]string{"config", "validate", "../../examples/controller-config.yaml"}, 0, "../../examples/controller-config.yaml is valid\n", ""},
		{[]string{"config", "validate", "testdata/faulty.yaml"}, 2, "", `worker.timeoutSecond`},
		{[]string{"__complete", "stat"}, 0, "status\tShow the status of each node, and the reason\n:4\n", ""},
		{[]string{"__complete", "status", "-o", ""}, 0, "wide\njson\nyaml\nname\n:4\n", ""},
		{[]string{"__complete", "wait", "--ti"}, 0, "--timeout\tHow long to wait; 0 means no limit\n:4\n", ""},
		{[]string{"__complete", "config", ""}, 0, "validate\tValidate a configuration file (- for standard input) as the controller does on start\n:4\n", ""},
		{[]string{"__complete", "config", "validate", ""}, 0, ":0\n", ""},
		{[]string{"__complete", "explain", "a", ""}, 0, ":4\n", ""},
		{[]string{"remediations", "a"}, 2, "", `unknown command "a" for "kubectl node-ready remediations"`},
		{[]string{"__complete", "remove-marks", "--ta"}, 0, "--taint\tA gating taint to remove, as KEY:EFFECT; may be repeated\n:4\n", ""},
		{[]string{"__complete", "remed"}, 0, "remediations\tList the actions on failed nodes, their causes and their results\n:4\n", ""},
		{[]string{"__complete", "reverify", "--wa"}, 0, "--wait\tRequest a verification", ""},
		{[]string{"explain"}, 2, "", "accepts 1 arg(s), received 0"},
		{[]string{"coming-from"}, 0, "nidhogg\nnode-readiness-controller\nnodetaintshandler\noriginal\n", ""},
		{[]string{"coming-from", "nidhogg"}, 0, "# Coming from Nidhogg\n", ""},
		{[]string{"coming-from", "../admission"}, 2, "", `coming-from takes nidhogg, node-readiness-controller, nodetaintshandler, original, not "../admission"`},
		{[]string{"__complete", "coming-from", "node"}, 0, "node-readiness-controller\nnodetaintshandler\n:4\n", ""},
		{[]string{"explain", "a", "b"}, 2, "", "accepts 1 arg(s), received 2"},
		{[]string{"version", "-o", "name"}, 2, "", `the output of version can be json or yaml, not "name"`},
		{[]string{"logs", "a", "-o", "json"}, 2, "", "unknown shorthand flag: 'o' in -o"},
		{[]string{"status", "--kubeconfig", "/nowhere/at/all"}, 1, "", "/nowhere/at/all"},
	} {
		got := run(t.Context(), false, test.args...)
		if got.code != test.code || !strings.Contains(got.out, test.out) || !strings.Contains(got.err, test.err) {
			t.Errorf("%q: code %d, output %q, error %q; want %d, %q, %q", test.args, got.code, got.out, got.err, test.code, test.out, test.err)
		}
	}
}

// Each command has help with an example, and each that works on a cluster has every output format; a log is text.
func TestEachCommandHasHelpAndFormats(t *testing.T) {
	v := &invocation{connection: genericclioptions.NewConfigFlags(true)}
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			visit(sub)
		}
		if c.Short == "" || !strings.HasPrefix(c.Example, "  kubectl node-ready ") && !strings.HasPrefix(c.Example, "  # ") {
			t.Errorf("%s: short %q, example %q", c.Name(), c.Short, c.Example)
		}
		output := c.Flags().Lookup("output")
		switch c.Name() {
		case "kubectl-node_ready", "config", "validate", "coming-from", "version", "logs":
			return
		}
		if output == nil || output.Usage != "Output format. One of: (wide, json, yaml, name)" {
			t.Errorf("%s: output %+v", c.Name(), output)
		}
	}
	visit(v.root())
}
