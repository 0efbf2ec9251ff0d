// Package remediation proves when the condition that asks a repairer to act is on a node, with the chart's rights and
// admission policies, on a real API server, scheduler and DNS server. The node agent runs each worker pod's container as a
// local process.
package remediation

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
	"github.com/kube-node-ready/kube-node-ready/test/helmrender"
)

const (
	chart = "../../deploy/helm/kube-node-ready"
	// patience bounds every wait; the machine may be busy.
	patience = 90 * time.Second
	required = corev1.NodeConditionType("node-ready/RemediationRequired")
)

var (
	control *cluster.Cluster
	agent   *nodeagent.Agent
	k8s     kubernetes.Interface
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx := context.Background()
	err := start(ctx)
	if control != nil {
		defer control.Stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer agent.Stop()
	return m.Run()
}

func start(ctx context.Context) (err error) {
	if control, err = cluster.Start(ctx, cluster.Options{}); err != nil {
		return err
	}
	k8s = kubernetes.NewForConfigOrDie(control.Config())
	definition, err := os.ReadFile(chart + "/files/nodereadinessrules.yaml")
	if err != nil {
		return err
	}
	for _, manifest := range []string{"apiVersion: v1\nkind: Namespace\nmetadata: {name: " + install.Namespace + "}\n", string(definition)} {
		if err := install.Apply(ctx, control, []byte(manifest)); err != nil {
			return err
		}
	}
	dns, err := control.StartDNS(ctx, nil)
	if err != nil {
		return err
	}
	images, err := install.Images()
	if err != nil {
		return err
	}
	agent, err = nodeagent.Start(ctx, control, nodeagent.Options{DNS: dns, Images: images})
	return err
}

// suite is a test with the installation that it changes.
type suite struct {
	*testing.T
	now     *install.Controller
	ordinal int
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// base asks a repairer to act after the first failure; nothing else limits it.
const base = `
admissionPolicy: {enabled: true, pods: true}
controller:
  config:
    worker: {checkTimeoutSeconds: 2, timeoutSeconds: 30, image: {repository: %s, tag: %s}}
    reconciliation: {maxRetries: 1, initialBackoffSeconds: 1, maxBackoffSeconds: 2, exhaustedRetrySeconds: 3, intervalSeconds: 1}
    nodeManagement:
      deleteFailedNodes: true
      nodeSelector: {matchExpressions: [{key: excluded, operator: DoesNotExist}]}
      remediation: {action: condition, controlProbe: false, maxUnhealthy: 100%%, maxInFlight: 100, maxDeletionsPerHour: 1000}
    rules: {enabled: false}
`

// install makes the objects of the chart that limit the controller, its roles and its policies, for the values of base
// and more, and starts the controller anew with their configuration.
func (s *suite) install(more string) {
	s.Helper()
	repository, tag, _ := strings.Cut(install.Image, ":")
	rendered := helmrender.Chart(s, install.Namespace, []string{fmt.Sprintf(base, repository, tag), more})
	var limits []byte
	for document := range strings.SplitSeq("\n"+rendered, "\n---\n") {
		var o struct{ Kind string }
		s.must(yaml.Unmarshal([]byte(document), &o))
		switch o.Kind {
		case "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			limits = append(limits, "---\n"+document+"\n"...)
		}
	}
	if s.now != nil {
		s.now.Terminate(10 * time.Second)
	}
	s.must(install.Apply(s.Context(), control, limits))
	configuration, err := install.Configuration([]byte(rendered))
	s.must(err)
	s.ordinal++
	s.now, err = install.StartController(s.Context(), control, fmt.Sprint("controller-", s.ordinal), configuration)
	s.must(err)
}

// begin makes the ledger as one that was begun long ago.
func (s *suite) begin() {
	s.Helper()
	begun := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ledger.Name}}
	s.must(ledger.Contents{CompleteSince: time.Now().Add(-24 * time.Hour), Entries: []ledger.Entry{}}.Write(begun))
	_, err := k8s.CoreV1().ConfigMaps(install.Namespace).Create(s.Context(), begun, metav1.CreateOptions{})
	s.must(err)
}

// end stops the controller and, if the test failed, shows what it logged.
func (s *suite) end() {
	if s.now == nil {
		return
	}
	s.now.Terminate(10 * time.Second)
	if log, err := os.ReadFile(s.now.LogFile); err == nil && s.Failed() {
		s.Logf("%s", log[max(0, len(log)-16<<10):])
	}
}

// node registers a gated node whose way to DNS is broken or not.
func (s *suite) node(name string, broken bool) {
	s.Helper()
	mode := nodeagent.DNSWorks
	if broken {
		mode = nodeagent.DNSRefuses
	}
	taint := corev1.Taint{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}
	_, err := agent.AddNode(s.Context(), nodeagent.NodeSpec{Name: name, Taints: []corev1.Taint{taint}, DNS: mode})
	s.must(err)
}

func (s *suite) get(name string) *corev1.Node {
	s.Helper()
	n, err := k8s.CoreV1().Nodes().Get(s.Context(), name, metav1.GetOptions{})
	s.must(err)
	return n
}

func (s *suite) patch(name, kind string, patch any, sub ...string) {
	s.Helper()
	content, err := json.Marshal(patch)
	s.must(err)
	_, err = k8s.CoreV1().Nodes().Patch(s.Context(), name, types.PatchType(kind), content, metav1.PatchOptions{}, sub...)
	s.must(err)
}

// annotate sets an annotation of a node; nil removes it.
func (s *suite) annotate(name, key string, value any) {
	s.Helper()
	s.patch(name, string(types.MergePatchType), map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
}

// pause sets why remediation is paused; nil resumes it.
func (s *suite) pause(why any) {
	s.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{ledger.AnnotationPaused: why}}})
	s.must(err)
	_, err = k8s.CoreV1().ConfigMaps(install.Namespace).Patch(s.Context(), ledger.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	s.must(err)
}

// forge sets a condition on a node, as a hostile kubelet may.
func (s *suite) forge(name string, c corev1.NodeCondition) {
	s.Helper()
	c.LastTransitionTime, c.LastHeartbeatTime = metav1.Now(), metav1.Now()
	s.patch(name, string(types.StrategicMergePatchType), map[string]any{"status": map[string]any{"conditions": []any{c}}}, "status")
}

func conditionOf(n *corev1.Node, of corev1.NodeConditionType) *corev1.NodeCondition {
	for i, c := range n.Status.Conditions {
		if c.Type == of {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// asked reports whether a condition of our reason is on the node.
func asked(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Reason == marks.ReasonVerificationFailed })
}

// becomes waits until a node is as wanted.
func (s *suite) becomes(name, what string, want func(*corev1.Node) bool) {
	s.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		n := s.get(name)
		if want(n) {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("%s does not become %s: %v, conditions %+v", name, what, n.Annotations, n.Status.Conditions)
		}
	}
}

// events counts the events of a reason about a node.
func (s *suite) events(name, reason string) (n int) {
	s.Helper()
	list, err := k8s.EventsV1().Events(metav1.NamespaceDefault).List(s.Context(), metav1.ListOptions{})
	s.must(err)
	for _, e := range list.Items {
		if e.Regarding.Name == name && e.Reason == reason {
			n++
		}
	}
	return n
}
