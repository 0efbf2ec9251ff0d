package kubectlplugin

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// ran is what a command did.
type ran struct {
	code     int
	out, err string
}

func run(ctx context.Context, terminal bool, args ...string) ran {
	var out, err bytes.Buffer
	code := Run(ctx, args, Streams{Out: &out, Err: &err, Terminal: terminal})
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
		{[]string{"version"}, 0, "kubectl-node_ready ", ""},
		{[]string{"statsu"}, 2, "", `unknown command "statsu"`},
		{[]string{"status", "--nope"}, 2, "", "unknown flag: --nope"},
		{[]string{"status", "-o", "xml"}, 2, "", "the output of status can be wide or json or yaml or name"},
		{[]string{"resume", "a"}, 2, "", `resume takes no argument, and there is "a"`},
		{[]string{"status", "a", "-l", "b=c"}, 2, "", "give either names of nodes or --selector"},
		{[]string{"status", "--follow"}, 2, "", "status does not take --follow"},
		{[]string{"status", "--color", "blue"}, 2, "", "--color must be auto, always or never"},
		{[]string{"status", "--watch", "-o", "yaml"}, 2, "", "--watch prints a table, not yaml"},
		{[]string{"config"}, 2, "", "config takes validate FILE"},
		{[]string{"config", "check", "f"}, 2, "", `config takes validate FILE, not "check"`},
		{[]string{"config", "validate", "/nowhere/at/all"}, 1, "", "/nowhere/at/all"},
		{[]string{"config", "validate", "../../examples/controller-config.yaml"}, 0, "../../examples/controller-config.yaml is valid\n", ""},
		{[]string{"config", "validate", "testdata/faulty.yaml"}, 2, "", `worker.timeoutSecond`},
		{[]string{"__complete", "stat"}, 0, "status\n:4\n", ""},
		{[]string{"__complete", "status", "-o", "w"}, 0, "wide\n:4\n", ""},
		{[]string{"__complete", "wait", "--ti"}, 0, "--timeout\n:4\n", ""},
		{[]string{"__complete", "config", ""}, 0, "validate\n:4\n", ""},
		{[]string{"__complete", "config", "validate", ""}, 0, ":0\n", ""},
		{[]string{"__complete", "explain", "a", ""}, 0, ":4\n", ""},
		{[]string{"explain"}, 2, "", "explain needs the name of a node"},
		{[]string{"coming-from"}, 0, "nidhogg\nnode-readiness-controller\nnodetaintshandler\noriginal\n", ""},
		{[]string{"coming-from", "nidhogg"}, 0, "# Coming from Nidhogg\n", ""},
		{[]string{"coming-from", "../admission"}, 2, "", `coming-from takes nidhogg, node-readiness-controller, nodetaintshandler, original, not "../admission"`},
		{[]string{"__complete", "coming-from", "node"}, 0, "node-readiness-controller\nnodetaintshandler\n:4\n", ""},
		{[]string{"explain", "a", "b"}, 2, "", `explain takes one name, and there is "b" too`},
		{[]string{"reverify", "a", "-o", "json"}, 2, "", "reverify does not take --output"},
		{[]string{"status", "--kubeconfig", "/nowhere/at/all"}, 1, "", "/nowhere/at/all"},
	} {
		got := run(t.Context(), false, test.args...)
		if got.code != test.code || !strings.Contains(got.out, test.out) || !strings.Contains(got.err, test.err) {
			t.Errorf("%q: code %d, output %q, error %q; want %d, %q, %q", test.args, got.code, got.out, got.err, test.code, test.out, test.err)
		}
	}
}
