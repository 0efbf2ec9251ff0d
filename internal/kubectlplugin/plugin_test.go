package kubectlplugin_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/kubectlplugin"
	"github.com/kube-node-ready/kube-node-ready/internal/nodestatus"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// ran is what a command did.
type ran struct {
	code     int
	out, err string
}

func run(ctx context.Context, terminal bool, args ...string) ran {
	var out, err bytes.Buffer
	code := kubectlplugin.Run(ctx, args, kubectlplugin.Streams{Out: &out, Err: &err, Terminal: terminal})
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
		{[]string{"status", "-o", "yaml"}, 2, "", "the output of status can be wide or json"},
		{[]string{"status", "a", "-l", "b=c"}, 2, "", "give either names of nodes or --selector"},
		{[]string{"status", "--follow"}, 2, "", "status does not take --follow"},
		{[]string{"status", "--color", "blue"}, 2, "", "--color must be auto, always or never"},
		{[]string{"explain"}, 2, "", "explain needs the name of a node"},
		{[]string{"explain", "a", "b"}, 2, "", `explain takes one node, and there is "b" too`},
		{[]string{"reverify", "a", "-o", "json"}, 2, "", "reverify does not take --output"},
		{[]string{"status", "--kubeconfig", "/nowhere/at/all"}, 1, "", "/nowhere/at/all"},
	} {
		got := run(t.Context(), false, test.args...)
		if got.code != test.code || !strings.Contains(got.out, test.out) || !strings.Contains(got.err, test.err) {
			t.Errorf("%q: code %d, output %q, error %q; want %d, %q, %q", test.args, got.code, got.out, got.err, test.code, test.out, test.err)
		}
	}
}

// TestKubectlFindsIt runs the binary of make build through kubectl, which finds plugins by
// their names in PATH.
func TestKubectlFindsIt(t *testing.T) {
	root, err := cluster.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, ".cache", "tools", "bin", "kubectl"), "node-ready", "version")
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(root, "bin"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "kubectl-node_ready ") {
		t.Errorf("kubectl node-ready version: %v: %s (is bin/kubectl-node_ready built? run make build)", err, out)
	}
}

const configuration = `
worker: {image: {repository: ghcr.io/kube-node-ready/kube-node-ready, tag: local}, checkTimeoutSeconds: 2, timeoutSeconds: 20}
reconciliation: {maxRetries: 2, initialBackoffSeconds: 1, maxBackoffSeconds: 1, exhaustedRetrySeconds: -1}
leaderElection: {enabled: false}
`

// TestOnCluster: a real control plane, a controller and four nodes: one that passes, one whose
// DNS is broken until its retries are exhausted, one that opts out and one that was there before.
func TestOnCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	e := start(ctx, t)

	// Until there is a ConfigMap, the defaults are assumed, and that is said.
	if got := e.run(ctx, "status"); got.code != 0 || !strings.Contains(got.err, "its defaults are assumed") || !strings.Contains(got.out, "No nodes found.") {
		t.Errorf("without a ConfigMap: %+v", got)
	}
	e.createConfigMap(ctx, "kube-node-ready", "controller", configuration)

	taint := []corev1.Taint{{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	e.add(ctx, nodeagent.NodeSpec{Name: "good", Taints: taint, Labels: map[string]string{"pool": "a"}})
	bad := e.add(ctx, nodeagent.NodeSpec{Name: "bad", Taints: taint, DNS: nodeagent.DNSRefuses})
	e.add(ctx, nodeagent.NodeSpec{Name: "skipped", Taints: taint, Annotations: map[string]string{"node-ready/skip": "true"}})
	e.add(ctx, nodeagent.NodeSpec{Name: "old"})
	e.await(ctx, "good", func(n nodestatus.Node) bool { return n.Status == "verified" })
	e.await(ctx, "bad", func(n nodestatus.Node) bool { return n.Status == "failed" && n.Attempts == 2 })

	t.Run("status", func(t *testing.T) {
		got := e.run(ctx, "status")
		want := []string{
			`^NODE +STATUS +SINCE +RETRIES +NEXT +WHY$`,
			`^bad +failed +\d+s +2/2 +never +check dns: .+$`,
			`^good +verified +\d+s +0/2 +-$`,
			`^old +unmanaged +- +- +- +never had a gating taint and never was verified$`,
			`^skipped +excluded +- +- +- +annotation node-ready/skip opts it out$`,
		}
		matchLines(t, got, want)
		if strings.Contains(got.out, "\x1b") {
			t.Error("there are colours, and the output is no terminal")
		}
		if got := run(ctx, true, "status", "--kubeconfig", e.cluster.Kubeconfig()); !strings.Contains(got.out, "\x1b[32mverified\x1b[0m") {
			t.Errorf("on a terminal: no colours in %q", got.out)
		}
		matchLines(t, e.run(ctx, "status", "--unverified", "--no-headers"), want[1:2])
		matchLines(t, e.run(ctx, "status", "-l", "pool=a", "--no-headers"), want[2:3])
		if got := e.run(ctx, "status", "-o", "wide", "bad"); !strings.Contains(got.out, "PROFILE") || !strings.Contains(got.out, "no further attempt") {
			t.Errorf("wide: %+v", got)
		}
		if got := e.run(ctx, "status", "good", "none"); got.code != 1 || !strings.Contains(got.out, "verified") || !strings.Contains(got.err, `nodes "none" not found`) {
			t.Errorf("a node that is not there: %+v", got)
		}
	})

	t.Run("explain", func(t *testing.T) {
		got := e.run(ctx, "explain", "bad")
		for _, want := range []string{
			`(?m)^Status +failed$`, `(?m)^Why +check dns: `, `(?m)^Next +no further attempt; kubectl node-ready reverify bad starts one$`,
			`(?m)^Retries +2 of 2 spent, 0 attempts inconclusive$`, `(?m)^Gating taints +node-ready/unverified=true:NoSchedule$`,
			`(?m)^Verified label +no node-ready/verified=true$`, `(?m)^Condition +node-ready/Verified=False RetriesExhausted: `,
			`(?m)^  failed +dns +dns `, `(?m)^  passed +api +kubernetesAPI `, `(?m) +Warning +RetriesExhausted +All 2 attempts failed`,
		} {
			if !regexp.MustCompile(want).MatchString(got.out) {
				t.Errorf("no %s in\n%s%s", want, got.out, got.err)
			}
		}
		var parsed struct {
			nodestatus.Node
			Report *struct{ Outcome string }
		}
		if err := json.Unmarshal([]byte(e.run(ctx, "explain", "bad", "-o", "json").out), &parsed); err != nil || parsed.Report == nil || parsed.Report.Outcome != "failed" || parsed.Last.Check != "dns" {
			t.Errorf("json: %+v, %v", parsed, err)
		}
	})

	t.Run("logs", func(t *testing.T) {
		e.serveLogs(ctx, "bad")
		if got := e.run(ctx, "logs", "bad"); got.code != 0 || !strings.Contains(got.out, `"check":"dns"`) {
			t.Errorf("logs of the kept worker: %+v", got)
		}
		if got := e.run(ctx, "logs", "good"); got.code != 1 || !strings.Contains(got.err, "node good has no worker pod; its status is verified. Attempt 1 (passed) is gone") {
			t.Errorf("logs of a node without a worker: %+v", got)
		}
	})

	t.Run("reverify", func(t *testing.T) {
		if got := e.run(ctx, "reverify", "skipped"); got.code != 1 || !strings.Contains(got.err, "annotation node-ready/skip opts it out") {
			t.Errorf("skipped: %+v", got)
		}
		if err := bad.SetDNS(nodeagent.DNSWorks); err != nil {
			t.Fatal(err)
		}
		got := e.run(ctx, "reverify", "good", "bad")
		matchLines(t, got, []string{`^node/good: attempt 2 starts as soon as`, `^node/bad: attempt 3 starts as soon as`})
		e.await(ctx, "good", func(n nodestatus.Node) bool { return n.Status == "verified" && n.Last.Number == 2 })
		e.await(ctx, "bad", func(n nodestatus.Node) bool {
			return n.Status == "verified" && n.Last.Number == 3 && len(n.Taints) == 0
		})
	})

	t.Run("two controllers", func(t *testing.T) {
		e.createConfigMap(ctx, "default", "other", configuration)
		if got := e.run(ctx, "status"); got.code != 1 || !strings.Contains(got.err, "default/other, kube-node-ready/controller") {
			t.Errorf("%+v", got)
		}
		if got := e.run(ctx, "status", "-n", "kube-node-ready"); got.code != 0 {
			t.Errorf("with --namespace: %+v", got)
		}
	})
}

// environment is a cluster with a controller in it.
type environment struct {
	t       *testing.T
	cluster *cluster.Cluster
	agent   *nodeagent.Agent
	client  kubernetes.Interface
}

func start(ctx context.Context, t *testing.T) *environment {
	t.Helper()
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dns, err := c.StartDNS(ctx, nil)
	must(err)
	must(install.Rights(ctx, c))
	images, err := install.Images()
	must(err)
	agent, err := nodeagent.Start(ctx, c, nodeagent.Options{Images: images, DNS: dns})
	must(err)
	t.Cleanup(agent.Stop)
	var settings map[string]any
	must(yaml.Unmarshal([]byte(configuration), &settings))
	_, err = install.StartController(ctx, c, "controller", settings)
	must(err)
	client, err := kubernetes.NewForConfig(c.Config())
	must(err)
	return &environment{t: t, cluster: c, agent: agent, client: client}
}

func (e *environment) run(ctx context.Context, args ...string) ran {
	return run(ctx, false, append(args, "--kubeconfig", e.cluster.Kubeconfig())...)
}

func (e *environment) add(ctx context.Context, spec nodeagent.NodeSpec) *nodeagent.Node {
	e.t.Helper()
	n, err := e.agent.AddNode(ctx, spec)
	if err != nil {
		e.t.Fatal(err)
	}
	return n
}

// createConfigMap makes a ConfigMap as the chart does.
func (e *environment) createConfigMap(ctx context.Context, namespace, name, content string) {
	e.t.Helper()
	_, err := e.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: "controller"}},
		Data:       map[string]string{"config.yaml": content},
	}, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
}

// await waits until status tells what is wanted of a node.
func (e *environment) await(ctx context.Context, name string, done func(nodestatus.Node) bool) {
	e.t.Helper()
	for {
		got := e.run(ctx, "status", name, "-o", "json")
		var list struct{ Nodes []nodestatus.Node }
		if err := json.Unmarshal([]byte(got.out), &list); err != nil || got.code != 0 || len(list.Nodes) != 1 {
			e.t.Fatalf("status of %s: %+v, %v", name, got, err)
		}
		if done(list.Nodes[0]) {
			return
		}
		select {
		case <-ctx.Done():
			e.t.Fatalf("node %s ended as %+v", name, list.Nodes[0])
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// serveLogs answers for a node what its kubelet would: the API server asks it for logs. The
// content is the real worker's.
func (e *environment) serveLogs(ctx context.Context, name string) {
	e.t.Helper()
	kubelet := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // containerLogs/namespace/pod/container
		pod, err := e.client.CoreV1().Pods(parts[1]).Get(ctx, parts[2], metav1.GetOptions{})
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		content, err := os.ReadFile(e.agent.LogFile(pod, parts[3]))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(content)
	}))
	kubelet.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	kubelet.StartTLS()
	e.t.Cleanup(kubelet.Close)
	host, port, err := net.SplitHostPort(kubelet.Listener.Addr().String())
	if err != nil {
		e.t.Fatal(err)
	}
	patch := `{"status":{"addresses":[{"type":"InternalIP","address":"` + host + `"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":` + port + `}}}}`
	if _, err := e.client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		e.t.Fatal(err)
	}
}

// matchLines compares a command's output with regular expressions, line by line.
func matchLines(t *testing.T, got ran, want []string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(got.out, "\n"), "\n")
	ok := got.code == 0 && len(lines) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = regexp.MustCompile(want[i]).MatchString(lines[i])
	}
	if !ok {
		t.Errorf("code %d, error %q, output\n%s\nwant\n%s", got.code, got.err, got.out, strings.Join(want, "\n"))
	}
}
