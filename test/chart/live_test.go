package chart

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

// deleting is the installation that the test below runs. The limits are loose because three nodes
// are no fleet.
const deleting = `
admissionPolicy: {enabled: true}
controller:
  replicas: 0 # the controller is a local process
  image: {tag: local}
  config:
    reconciliation: {maxRetries: 2, maxBackoffSeconds: 1}
    nodeManagement:
      deleteFailedNodes: true
      remediation: {maxUnhealthy: 100%}
      reverify: {onConditions: [{type: KernelDeadlock}]}
`

// What needs a scheduler has one together.
func TestOnOneControlPlane(t *testing.T) {
	t.Parallel()
	c, client := startCluster(t, cluster.Options{})
	createNamespace(t, client, namespace)
	t.Run("places of replicas", func(t *testing.T) { testPlacesOfReplicas(t, c, client) })
	t.Run("an installation and its dashboard", func(t *testing.T) {
		testInstallationRunsAndTheDashboardShowsIt(t, c, client)
	})
}

// A controller that runs with the chart's configuration, permissions and admission policies verifies and deletes nodes.
// The command "helm test" passes. A real Prometheus scrapes the controller, and then every query of the dashboard has
// an answer.
func testInstallationRunsAndTheDashboardShowsIt(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	installOn(t, c, deleting)
	beginLedger(t, c, namespace)
	agent := startAgent(t, c)
	configuration := decoded(t, render(t, deleting))
	controller, err := install.StartController(t.Context(), c, "controller", configuration)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the controller's log:\n%s", readFile(t, controller.LogFile))
		}
	})
	prometheus := startPrometheus(t, c, controller.MetricsURL)

	gate := []corev1.Taint{{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	add := func(name string, dns nodeagent.DNSMode) {
		t.Helper()
		if _, err := agent.AddNode(t.Context(), nodeagent.NodeSpec{Name: name, DNS: dns, ProviderID: "test://" + name, Taints: gate}); err != nil {
			t.Fatal(err)
		}
	}
	add("well", nodeagent.DNSWorks)
	eventually(t, "node well is verified", func() bool { return verified(t, client, "well") })
	add("broken", nodeagent.DNSRefuses)
	eventually(t, "node broken is deleted", func() bool {
		_, err := client.CoreV1().Nodes().Get(t.Context(), "broken", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	// One that somebody wants to look at: it stays, held.
	add("spared", nodeagent.DNSRefuses)
	if _, stderr, err := kubectl(t, c, "annotate", "node", "spared", "node-ready/do-not-delete=true"); err != nil {
		t.Fatal(stderr)
	}
	eventually(t, "the deletion of node spared is held", func() bool {
		return len(prometheus.query(t, `kube_node_ready_remediation_held{guard="doNotDelete"} == 1`)) == 1
	})
	add("well-2", nodeagent.DNSWorks)
	eventually(t, "node well-2 is verified", func() bool { return verified(t, client, "well-2") })

	// That the controller answers behind its Service is asked by an init container, which needs a real kubelet: the end-to-end run has it.
	helmOn(t, c, "upgrade", "kube-node-ready", chartDir, "--reuse-values", "--set", "service.enabled=false")
	helmOn(t, c, "test", "kube-node-ready", "--timeout", "60s")
	if _, err := client.CoreV1().Pods(namespace).Get(t.Context(), "kube-node-ready-test", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod of a test that passed is left for helm uninstall to miss: %v", err)
	}

	for _, p := range renderedDashboard(t).Panels {
		for _, target := range p.Targets {
			for _, fault := range unknownNames(t, prometheus, target.Expr) {
				t.Errorf("panel %q: %s has %s", p.Title, target.Expr, fault)
			}
			expression := strings.NewReplacer("$job", ".+", "$cluster", "c1", "$__rate_interval", "1m").Replace(target.Expr)
			eventually(t, fmt.Sprintf("panel %q: %s", p.Title, expression), func() bool {
				for _, value := range prometheus.query(t, expression) {
					if !math.IsNaN(value) {
						return true
					}
				}
				return false
			})
		}
	}
}

// unknownNames lists the metrics in a query that the controller does not have. It also lists labels that none of the
// query's metrics has, because a query that groups by such a label still returns a value.
func unknownNames(t *testing.T, p prometheus, expression string) (faults []string) {
	t.Helper()
	documented := map[string]string{} // labels by metric
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| \\w+ \\| (.*?) \\|").FindAllStringSubmatch(readFile(t, "../../docs/reference/metrics.md"), -1) {
		documented[row[1]] = row[2]
	}
	known := []string{"job", "cluster", "namespace", "le"}
	for _, match := range regexp.MustCompile(`(\w+)\{`).FindAllStringSubmatch(expression, -1) {
		metric := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(match[1], "")
		labels, ok := documented[metric]
		if ok {
			known = append(known, regexp.MustCompile(`\w+`).FindAllString(labels, -1)...)
			continue
		}
		if strings.HasPrefix(metric, "kube_node_ready_") {
			faults = append(faults, "no metric "+metric)
		}
		known = append(known, p.labels(t, match[1])...)
	}
	for _, match := range regexp.MustCompile(`(\w+)=~?"|by \(([^)]*)\)`).FindAllStringSubmatch(expression, -1) {
		for _, label := range regexp.MustCompile(`\w+`).FindAllString(match[1]+match[2], -1) {
			if !slices.Contains(known, label) {
				faults = append(faults, "no label "+label)
			}
		}
	}
	return faults
}

// planes holds a place for each control plane that runs. One that waits for its test's turn on a processor computes all the
// same, a 20th of a core, so more at once only makes each of them slower.
var planes = make(chan struct{}, 4)

// startCluster starts a control plane for a test, with an administrator's client.
func startCluster(t *testing.T, o cluster.Options) (*cluster.Cluster, kubernetes.Interface) {
	t.Helper()
	planes <- struct{}{}
	t.Cleanup(func() { <-planes })
	c, err := cluster.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c, kubernetes.NewForConfigOrDie(c.Config())
}

// beginLedger has the ledger begin long ago: one that was just made holds deletions for an hour.
func beginLedger(t *testing.T, c *cluster.Cluster, namespace string) {
	t.Helper()
	if _, stderr, err := kubectl(t, c, "-n", namespace, "patch", "configmap", ledger.Name, "--type=merge",
		`--patch={"data":{"deletions.json":"[]","since":"2026-01-01T00:00:00Z"}}`); err != nil {
		t.Fatal(stderr)
	}
}

func startAgent(t *testing.T, c *cluster.Cluster) *nodeagent.Agent {
	t.Helper()
	dns, err := c.StartDNS(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	images, err := install.Images()
	if err != nil {
		t.Fatal(err)
	}
	agent, err := nodeagent.Start(t.Context(), c, nodeagent.Options{Images: images, DNS: dns})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(agent.Stop)
	return agent
}

func verified(t *testing.T, client kubernetes.Interface, name string) bool {
	n, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	return err == nil && n.Labels["node-ready/verified"] == "true" && len(n.Spec.Taints) == 0
}

// patience bounds every wait; the machine may be busy with other tests.
const patience = 2 * time.Minute

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// prometheus is a running Prometheus' address.
type prometheus string

// startPrometheus scrapes one target twice a second.
func startPrometheus(t *testing.T, c *cluster.Cluster, target string) prometheus {
	t.Helper()
	ports, err := cluster.FreePorts("127.0.0.1", 1)
	if err != nil {
		t.Fatal(err)
	}
	host, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf(`global: {scrape_interval: 500ms}
scrape_configs:
- job_name: kube-node-ready
  static_configs: [{targets: [%q], labels: {cluster: c1, namespace: %s}}]
`, host.Host, namespace)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	p, err := c.Processes().Start(process.Spec{
		Path: tool("prometheus"), Dir: dir, Stdout: log, Stderr: log,
		Args: []string{"--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=" + address},
	})
	if err != nil {
		t.Fatalf("%v (test/tools/build.sh prometheus builds it)", err)
	}
	t.Cleanup(func() {
		c.Stop() // it writes into dir until it ends
		if t.Failed() {
			t.Logf("Prometheus' log:\n%s", readFile(t, log.Name()))
		}
	})
	eventually(t, "Prometheus is ready", func() bool {
		select {
		case <-p.Done():
			t.Fatalf("Prometheus ended:\n%s", readFile(t, log.Name()))
		default:
		}
		response, err := http.Get("http://" + address + "/-/ready")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return prometheus(address)
}

// ask reads the data of an answer of Prometheus' API.
func (p prometheus) ask(t *testing.T, path string, data any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+string(p)+"/api/v1/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	if answer.Status != "success" {
		t.Fatalf("%s: %s", path, answer.Error)
	}
}

// labels are the names of a metric's labels.
func (p prometheus) labels(t *testing.T, metric string) (names []string) {
	t.Helper()
	p.ask(t, "labels?match[]="+url.QueryEscape(metric), &names)
	return names
}

// query returns the values of an instant query, which must be a valid one.
func (p prometheus) query(t *testing.T, expression string) []float64 {
	t.Helper()
	var data struct {
		Result []struct {
			Value [2]any
		}
	}
	p.ask(t, "query?query="+url.QueryEscape(expression), &data)
	var values []float64
	for _, sample := range data.Result {
		text, _ := sample.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, value)
	}
	return values
}
