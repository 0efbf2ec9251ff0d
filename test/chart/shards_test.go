package chart

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
)

// shard is an installation for the nodes of one label, in a namespace of its own. One worker at a time, so that a worker of another
// installation that is counted here holds everything up.
const shard = `
fullnameOverride: %[1]s
rules: {installCRD: false}
priorityAndFairness: {enabled: true}
controller:
  replicas: 0 # the controller is a local process
  image: {tag: local}
  config:
    rules: {enabled: false}
    worker: {timeoutSeconds: 300, checkTimeoutSeconds: %[2]d}
    reconciliation: {maxConcurrentVerifications: 1, maxRetries: 1}
    nodeManagement:
      deleteFailedNodes: true
      nodeSelector: {matchLabels: {shard: %[1]s}}
      remediation: {maxUnhealthy: 100%%}
`

// Installations may share a cluster by node labels, as docs/design/performance.md proposes for very large ones. They do
// not affect each other. Each of them leads at the same time, with its workers, Lease and ledger in its own namespace.
// A worker of one takes no slot of another, and the metrics of each are about its own nodes. If priorityAndFairness is
// on, each has its own share of the API server.
func TestInstallationsSideBySide(t *testing.T) {
	missing.Request(t, "NIGHTLY", "make test-nightly")
	t.Parallel()
	c, client := startCluster(t, cluster.Options{})
	agent := startAgent(t, c)
	names := []string{"east", "west"}
	controllers := map[string]*install.Controller{}
	for _, name := range names {
		createNamespace(t, client, name)
		// Queries that vanish, or are refused, are made again for all of a check's time.
		values := fmt.Sprintf(shard, name, map[string]int{"east": 300, "west": 3}[name])
		args := append([]string{name, chartDir, "--namespace", name}, valuesFile(t, values)...)
		helmOn(t, c, append([]string{"install"}, args...)...)
		configuration, err := install.Configuration([]byte(helmOn(t, c, append([]string{"template"}, args...)...)))
		if err != nil {
			t.Fatal(err)
		}
		beginLedger(t, c, name)
		controller, err := install.StartControllerIn(t.Context(), c, name, name+"-controller", name, configuration)
		if err != nil {
			t.Fatal(err)
		}
		controllers[name] = controller
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the log of %s:\n%s", name, readFile(t, controller.LogFile))
			}
		})
	}

	gate := []corev1.Taint{{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	add := func(name, shard string, dns nodeagent.DNSMode) {
		t.Helper()
		if _, err := agent.AddNode(t.Context(), nodeagent.NodeSpec{Name: name, Labels: map[string]string{"shard": shard}, DNS: dns, ProviderID: "test://" + name, Taints: gate}); err != nil {
			t.Fatal(err)
		}
	}
	workers := func(namespace string) (nodes []string) {
		t.Helper()
		pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=worker"})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods.Items {
			nodes = append(nodes, p.Spec.NodeName)
		}
		return nodes
	}
	// A worker whose queries vanish has the only slot of east.
	add("east-slow", "east", nodeagent.DNSDrops)
	eventually(t, "a worker is on east-slow", func() bool { return len(workers("east")) == 1 })
	add("west-1", "west", nodeagent.DNSWorks)
	add("west-2", "west", nodeagent.DNSWorks)
	for _, node := range []string{"west-1", "west-2"} {
		eventually(t, node+" is verified", func() bool { return verified(t, client, node) })
	}
	if got := workers("east"); len(got) != 1 || got[0] != "east-slow" {
		t.Errorf("workers of east are on %q", got)
	}
	for _, name := range names {
		lease, err := client.CoordinationV1().Leases(name).Get(t.Context(), name+"-controller", metav1.GetOptions{})
		if err != nil || ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
			t.Errorf("the Lease of %s: %v, %v", name, err, lease)
		}
	}

	for _, name := range names {
		for _, account := range []string{name + "-controller", name + "-worker"} {
			eventually(t, "the API server gives the requests of "+account+" shares of their own", func() bool { return flowSchema(t, c, name, account) == account })
		}
	}

	add("west-broken", "west", nodeagent.DNSRefuses)
	entries := func(namespace string) string {
		t.Helper()
		cm, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), ledger.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return cm.Data[ledger.KeyDeletions]
	}
	eventually(t, "west enters its deletion", func() bool { return strings.Contains(entries("west"), "west-broken") })
	if got := entries("east"); got != "[]" {
		t.Errorf("the ledger of east holds %s", got)
	}

	for _, name := range names {
		response, err := http.Get(controllers[name].MetricsURL)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		other := names[0]
		if name == other {
			other = names[1]
		}
		if strings.Contains(string(text), other+"-") || !strings.Contains(string(text), `node="`+name+"-") {
			t.Errorf("the metrics of %s:\n%s", name, text)
		}
		if want := fmt.Sprintf(`kube_node_ready_nodes{state="verified"} %d`, map[string]int{"east": 0, "west": 2}[name]); !strings.Contains(string(text), want) {
			t.Errorf("the metrics of %s lack %s", name, want)
		}
	}
}

// flowSchema is the name of the FlowSchema that the API server applies to requests of a service account
// (https://kubernetes.io/docs/reference/debug-cluster/flow-control/#debug-response-headers).
func flowSchema(t *testing.T, c *cluster.Cluster, namespace, account string) string {
	t.Helper()
	kubeconfig, err := c.KubeconfigFor(t.Context(), namespace, account)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Get(config.Host + "/version")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	schemas, err := kubernetes.NewForConfigOrDie(c.Config()).FlowcontrolV1().FlowSchemas().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range schemas.Items {
		if string(s.UID) == response.Header.Get("X-Kubernetes-Pf-Flowschema-Uid") {
			return s.Name
		}
	}
	return ""
}
