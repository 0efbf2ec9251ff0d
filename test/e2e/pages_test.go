//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/realnode"
	"github.com/kube-node-ready/kube-node-ready/test/docs/commands"
)

// What the pages call the reader's own registry, and where it is.
const (
	readersRegistry         = "registry.example.com"
	readersRegistryAddress  = "10.250.0.1:5001"
	readersPool             = "group"
	readersNode, brokenNode = "node-k", "node-l"
)

// stranger is a person who has the repository, a cluster and the pages. They follow the pages in order, from the README
// to the deletion of broken nodes, and back.
type stranger struct {
	*suite
	// names are what stands in the place of the pages' placeholders.
	names map[string]string
	// events are what the pages wait for, in their words. The world makes it happen.
	events map[string]func(context.Context, *testing.T)
	// happened are those that happened.
	happened map[string]bool
	home     string
	env      []string
	known    map[types.UID]nodeClaim
}

// A person begins with the README and has only the text, and nodes like those of "make cluster". The commands run
// exactly as they are on the page. Each ends with exit code 0, and prints what the page shows below it.
func (s *suite) pages(ctx context.Context, t *testing.T) {
	s.helm(ctx, t, "uninstall", release, "--ignore-not-found", "--wait", "--timeout", "60s")
	// The cases before took passes back more often in this hour than a person does, which doctor would report.
	s.kubectl(ctx, t, "annotate", "nodes", "--all", recordKey+"-")
	s.emptyPrometheus(t)
	r := &stranger{suite: s, home: t.TempDir(), names: map[string]string{"NODE": "node-a", "POOL": readersPool}, happened: map[string]bool{}}
	caches, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOCACHE").Output()
	must(t, err)
	modules, compiled, _ := strings.Cut(strings.TrimSpace(string(caches)), "\n")
	r.env = append(os.Environ(), "KUBECONFIG="+s.cluster.ControlPlane.Kubeconfig(), "HOME="+r.home,
		"GOMODCACHE="+modules, "GOCACHE="+compiled, // the home is new, and nothing is downloaded or compiled again
		fmt.Sprintf("PATH=%s:%s/.local/bin:%s", s.cluster.ControlPlane.Bin(), r.home, os.Getenv("PATH")))
	r.events = map[string]func(context.Context, *testing.T){
		"your registry has the image":                            r.imagePushed,
		"Prometheus' operator is there":                          r.operatorComes,
		"Prometheus has the rules":                               r.operatorReads,
		"a node of the pool has joined":                          r.nodeJoins,
		"a node of the pool has failed":                          r.nodeFails,
		"an hour has passed and Karpenter has replaced the node": r.hourPasses,
	}
	t.Cleanup(func() { r.leave(context.WithoutCancel(ctx), t) })

	r.follow(ctx, t, "README.md")
	s.awaitVerified(ctx, t, 30*time.Second, "node-a") // "within seconds"
	r.untainted(ctx, t, "node-a")
	if out := s.kubectl(ctx, t, "-n", namespace, "get", "pods", "-l", "app.kubernetes.io/component=test", "-o", "name"); out != "" {
		t.Errorf("left behind: %s", out)
	}
	r.follow(ctx, t, "docs/install.md")
	r.names["NODE"] = "node-b"
	s.startKarpenter(ctx, t)
	s.kubectl(ctx, t, "apply", "--server-side", "-f", filepath.Join(s.root, "test", "e2e", "testdata", "karpenter-group.yaml"))
	r.known = s.nodeClaims(ctx, t)
	r.follow(ctx, t, "docs/first-hour.md")
	for _, name := range []string{"node-b", readersNode} {
		must(t, s.verified(ctx, name))
		r.untainted(ctx, t, name)
	}
	r.follow(ctx, t, "docs/guides/uninstall.md")
	eventually(ctx, t, time.Minute, "nothing of the product is left", func() error {
		left, err := s.objectsLeft(ctx)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left: %s", strings.Join(left, ", "))
		}
		return err
	})
	nodes := s.kubectl(ctx, t, "get", "nodes", "-o", "yaml")
	if mark := regexp.MustCompile(`(?m)(?:^|[^-\w])node-ready/\w+|NodeReadyVerificationFailed`).FindString(nodes); mark != "" {
		t.Errorf("%s is left on a node:\n%s", mark, nodes)
	}
	for event := range r.events {
		if !r.happened[event] {
			t.Errorf("no page waits for %q", event)
		}
	}
}

// follow runs what a page gives, in its order.
func (r *stranger) follow(ctx context.Context, t *testing.T, page string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(r.root, page))
	must(t, err)
	blocks, err := commands.Of(string(content))
	must(t, err)
	blocks = slices.DeleteFunc(blocks, func(b commands.Block) bool { return b.RunBy != "test/e2e" })
	if len(blocks) == 0 {
		t.Fatalf("%s has no commands for this run", page)
	}
	queries := commands.QueriesOf(string(content))
	ask := func(before int) {
		t.Helper()
		for len(queries) > 0 && queries[0].Line < before {
			r.happens(ctx, t, page, queries[0].Once)
			r.ask(ctx, t, fmt.Sprintf("%s:%d", page, queries[0].Line), queries[0])
			queries = queries[1:]
		}
	}
	for _, b := range blocks {
		ask(b.Line)
		r.happens(ctx, t, page, b.Once)
		began := time.Now()
		out, err := r.shell(ctx, r.fill(b.Script))
		if err != nil {
			t.Fatalf("%s:%d: %v\n%s", page, b.Line, err, out)
		}
		t.Logf("%s:%d: %.1f s\n%s", page, b.Line, time.Since(began).Seconds(), out)
		lines := strings.Split(out, "\n")
		for _, shown := range b.Shows {
			at := slices.IndexFunc(lines, func(line string) bool { return commands.Matches(r.fill(shown), line) })
			if at < 0 {
				t.Fatalf("%s:%d: the page shows a line that is not there, or not in this order: %s\n%s", page, b.Line, r.fill(shown), out)
			}
			lines = lines[at+1:]
		}
	}
	ask(1 << 30)
}

// untainted insists that a node has no taint: one that a page sets and nobody knows would stay.
func (r *stranger) untainted(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	if taints := r.kubectl(ctx, t, "get", "node", name, "-o", "jsonpath={.spec.taints}"); taints != "" {
		t.Fatalf("%s has taints: %s", name, taints)
	}
}

// happens makes happen what a page waits for, once.
func (r *stranger) happens(ctx context.Context, t *testing.T, page, event string) {
	t.Helper()
	if event == "" || r.happened[event] {
		return
	}
	happen, ok := r.events[event]
	if !ok {
		t.Fatalf("%s waits for %q, and nobody makes that happen", page, event)
	}
	happen(ctx, t)
	r.happened[event] = true
}

// fill puts names into the placeholders of a page.
func (r *stranger) fill(text string) string {
	for placeholder, name := range r.names {
		text = regexp.MustCompile(`\b`+placeholder+`\b`).ReplaceAllLiteralString(text, name)
	}
	return text
}

// shell runs commands as a person in the repository, up to the first that fails.
func (r *stranger) shell(ctx context.Context, script string) (string, error) {
	// A grep that finds nothing is none that fails.
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", `grep() { command grep "$@" || [[ $? == 1 ]]; }`+"\n"+script)
	cmd.Dir, cmd.Env = r.root, r.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// ask puts a query of a page to Prometheus, which has a minute to have what the page says.
func (r *stranger) ask(ctx context.Context, t *testing.T, where string, q commands.Query) {
	t.Helper()
	eventually(ctx, t, time.Minute, where+": "+q.Expression+" is "+q.Value, func() error {
		got, err := r.prometheus.value(ctx, q.Expression)
		if err == nil && got != q.Value {
			err = fmt.Errorf("it is %s; alerts that fire: %s", got, strings.Join(r.prometheus.firingNow(), ", "))
		}
		return err
	})
}

// imagePushed has the reader's registry hold the image that the page's "make image" packs, where the nodes can pull it.
func (r *stranger) imagePushed(ctx context.Context, t *testing.T) {
	packer := os.Getenv("E2E_PACKER")
	if packer == "" {
		t.Fatal("E2E_PACKER must name the program that packs images; \"make e2e\" sets it")
	}
	_, tag, _ := strings.Cut(r.image, ":")
	archive := filepath.Join(r.home, "image.tar")
	pack := exec.CommandContext(ctx, packer, "--source", r.root, "--version", tag, "--repository", readersRegistry+"/kube-node-ready", "--out", archive)
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	registry, err := r.cluster.ControlPlane.Processes().Start(process.Spec{Path: packer, Args: []string{"--serve", readersRegistryAddress, archive}})
	must(t, err)
	t.Cleanup(registry.Kill)
	for _, name := range baseNodes {
		must(t, r.node(name).UseRegistry(readersRegistry, readersRegistryAddress))
	}
}

func (r *stranger) operatorComes(ctx context.Context, t *testing.T) {
	r.kubectl(ctx, t, "apply", "--server-side", "-f", filepath.Join(r.root, "test", "e2e", "testdata", "prometheus-operator.yaml"))
	r.kubectl(ctx, t, "wait", "--for=condition=Established", "--timeout=30s",
		"crd/servicemonitors.monitoring.coreos.com", "crd/prometheusrules.monitoring.coreos.com")
}

// operatorReads gives Prometheus the rules that are installed, as they are. It scrapes what a ServiceMonitor selects already.
func (r *stranger) operatorReads(ctx context.Context, t *testing.T) {
	spec := r.kubectl(ctx, t, "-n", namespace, "get", "prometheusrules", "-o", "jsonpath={.items[0].spec}")
	must(t, r.prometheus.useRules([]byte(spec))) // JSON is YAML
	content, err := os.ReadFile(filepath.Join(r.root, "docs", "operate", "runbooks", "README.md"))
	must(t, err)
	documented := regexp.MustCompile(`(?m)^\| \[(KubeNodeReady\w+)\]`).FindAllStringSubmatch(string(content), -1)
	eventually(ctx, t, 30*time.Second, "Prometheus evaluates the alerts that have a runbook", func() error {
		names, err := r.prometheus.alerts(ctx)
		if err == nil && len(names) != len(documented) {
			err = fmt.Errorf("it evaluates %d of %d: %s", len(names), len(documented), strings.Join(names, ", "))
		}
		return err
	})
}

// launched scales the pool up by one node, and boots a machine for Karpenter's NodeClaim, with the startupTaints that it has.
func (r *stranger) launched(ctx context.Context, t *testing.T, name string, replicas int) nodeClaim {
	t.Helper()
	r.kubectl(ctx, t, "scale", "deployment/group", fmt.Sprintf("--replicas=%d", replicas))
	claim := r.awaitClaimWith(ctx, t, r.known, nodeClaim.launched)
	r.known[claim.Metadata.UID] = claim
	unregistered := corev1.Taint{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}
	node, err := r.cluster.AddNode(ctx, name, realnode.NodeOptions{
		Taints:     append(claim.Spec.StartupTaints, unregistered),
		Registries: map[string]string{readersRegistry: readersRegistryAddress},
	})
	must(t, err)
	if name == brokenNode {
		_, err = node.DropDNS(ctx) // for good: the machine goes with it
		must(t, err)
	}
	must(t, r.cluster.AwaitNode(ctx, name, 40*time.Second))
	r.kubectl(ctx, t, "patch", "node", name, "--type=merge", "-p", `{"spec":{"providerID":"`+claim.Status.ProviderID+`"}}`)
	r.kubectl(ctx, t, "wait", "node", name, "--for=jsonpath={.metadata.labels.karpenter\\.sh/registered}=true", "--timeout=30s")
	r.names["NODE"] = name
	return claim
}

func (r *stranger) nodeJoins(ctx context.Context, t *testing.T) {
	claim := r.launched(ctx, t, readersNode, 1)
	r.awaitInitialized(ctx, t, claim)
}

// nodeFails has a node join whose DNS is broken, and waits until it has failed every attempt.
func (r *stranger) nodeFails(ctx context.Context, t *testing.T) {
	claim := r.launched(ctx, t, brokenNode, 2)
	r.names["NODECLAIM"] = claim.Metadata.Name
	r.awaitEvent(ctx, t, 5*time.Minute, brokenNode, "RetriesExhausted")
	r.awaitReason(ctx, t, "would delete NodeClaim "+claim.Metadata.Name)
}

// awaitReason waits until the broken node's deletion is held for a reason.
func (r *stranger) awaitReason(ctx context.Context, t *testing.T, reason string) {
	t.Helper()
	eventually(ctx, t, 90*time.Second, brokenNode+" is held: "+reason, func() error {
		m, err := r.marks(ctx, brokenNode)
		if err == nil && (m.reason != "RemediationHeld" || !strings.Contains(m.message, reason)) {
			err = fmt.Errorf("it is not: %s", m)
		}
		return err
	})
}

// hourPasses insists that the node is held for an hour after the dry run, lets that hour pass, and sees Karpenter take the node
// away and launch another.
func (r *stranger) hourPasses(ctx context.Context, t *testing.T) {
	r.awaitReason(ctx, t, "the ledger of remediations starts at ")
	since, err := json.Marshal(map[string]any{"data": map[string]string{"since": time.Now().Add(-61 * time.Minute).UTC().Format(time.RFC3339)}})
	must(t, err)
	r.kubectl(ctx, t, "-n", namespace, "patch", "configmap", "kube-node-ready-remediations", "--type=merge", "--patch="+string(since))
	r.kubectl(ctx, t, "-n", namespace, "rollout", "restart", "deployment/"+controllerName) // else it decides within ten minutes
	claim := r.names["NODECLAIM"]
	eventually(ctx, t, 2*time.Minute, "NodeClaim "+claim+" is deleted, and another one launched", func() error {
		for uid, c := range r.nodeClaims(ctx, t) {
			if c.Metadata.Name == claim {
				return fmt.Errorf("it is there, deleted=%t", c.Metadata.DeletionTimestamp != nil)
			}
			if _, ok := r.known[uid]; !ok && c.launched() {
				return nil
			}
		}
		return fmt.Errorf("there is no other")
	})
	r.removeNode(ctx, t, brokenNode)
}

// leave takes away what the reader brought.
func (r *stranger) leave(ctx context.Context, t *testing.T) {
	r.helm(ctx, t, "uninstall", release, "--ignore-not-found", "--wait", "--timeout", "60s")
	r.kubectl(ctx, t, "delete", "--ignore-not-found", "-f", filepath.Join(r.root, "test", "e2e", "testdata", "prometheus-operator.yaml"))
	if r.karpenter == nil {
		return
	}
	r.kubectl(ctx, t, "delete", "deployment", "group", "--ignore-not-found")
	r.kubectl(ctx, t, "delete", "nodepool", "group", "--ignore-not-found", "--timeout=60s")
	for _, name := range []string{readersNode, brokenNode} {
		r.removeNode(ctx, t, name)
	}
	r.karpenter.stop()
	r.karpenter = nil
}
