package remediation

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
)

func isAsked(n *corev1.Node) bool    { return asked(n) }
func isNotAsked(n *corev1.Node) bool { return !asked(n) }

// Each reason for the condition to be absent makes it go within one look, and is the only difference to a node that
// keeps it. That each of them is one is decided by internal/decide (TestRemediationCondition). By day one of each way in
// which a cause comes about stands for the others.
func TestConditionGoes(t *testing.T) {
	all := &suite{T: t}
	defer all.end()
	all.begin()
	all.install("")
	marked := func(key string) func(*suite, string) {
		return func(s *suite, node string) { s.annotate(node, key, "true") }
	}
	remediation := func(keys string) string {
		return "controller: {config: {nodeManagement: {remediation: {" + keys + "}}}}\n"
	}
	all.node("keeps", true)
	all.becomes("keeps", "asked for", isAsked)
	for i, row := range []struct {
		name string
		// cause is done to a node with the condition; nil for a row that changes the configuration.
		cause func(s *suite, node string)
		// values change the configuration, for which the controller is started anew; empty for none.
		values string
		// night leaves the row to make test-nightly.
		night bool
		// once: the node gets the condition again when it fails again.
		once bool
		// after undoes the cause.
		after func(s *suite, node string)
	}{
		{name: "the node passes", cause: func(s *suite, node string) { s.must(agent.Node(node).SetDNS(nodeagent.DNSWorks)) }},
		{name: "skip", night: true, cause: marked(marks.AnnotationSkip)},
		{name: "do-not-delete", cause: marked(marks.AnnotationDoNotDelete)},
		{name: "Cluster API's skip-remediation", night: true, cause: marked(marks.AnnotationCAPISkipRemediation)},
		{name: "the record is removed", night: true, once: true, cause: func(s *suite, node string) { s.annotate(node, marks.AnnotationRecord, nil) }},
		{name: "the record is unreadable", night: true, cause: func(s *suite, node string) {
			s.annotate(node, marks.AnnotationRecord, fmt.Sprintf(`{"nodeUID":%q,"attempts":-1}`, s.get(node).UID))
		}},
		{name: "a reboot", once: true, cause: func(s *suite, node string) { s.must(agent.Node(node).Reboot(s.Context())) }},
		{name: "pause", cause: func(s *suite, _ string) { s.pause("for a while") }, after: func(s *suite, node string) {
			s.pause(nil)
			s.becomes(node, "asked for after the pause", isAsked)
		}},
		{name: "dryRun", night: true, values: remediation("dryRun: true")},
		{name: "deleteFailedNodes off", values: "controller: {config: {nodeManagement: {deleteFailedNodes: false}}}\n"},
		{name: "action delete", night: true, values: remediation("action: delete, maxDeletionsPerHour: 0")},
		{name: "another type", values: remediation("condition: {type: example.com/Repair}")},
		{name: "a selector", night: true, values: "controller: {config: {nodeManagement: {nodeSelector: {matchLabels: {included: 'true'}}}}}\n"},
		{name: "other checks", once: true, values: "controller: {config: {worker: {checkTimeoutSeconds: 3}}}\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.night {
				missing.Request(t, "NIGHTLY", "make test-nightly")
			}
			s := &suite{T: t, now: all.now, ordinal: 100 * (i + 1)}
			defer func() { all.now = s.now }()
			name := fmt.Sprint("goes-", i)
			s.node(name, true)
			s.becomes(name, "asked for", isAsked)
			if c := conditionOf(s.get(name), required); c == nil || c.Status != corev1.ConditionTrue || c.Reason != marks.ReasonVerificationFailed {
				t.Fatalf("the condition is %+v", c)
			}
			if row.values != "" {
				s.install(row.values)
			}
			if row.cause != nil {
				row.cause(s, name)
			}
			s.becomes(name, "no longer asked for", func(n *corev1.Node) bool { return conditionOf(n, required) == nil })
			if !row.once {
				time.Sleep(1500 * time.Millisecond) // more than one interval
				if c := conditionOf(s.get(name), required); c != nil {
					t.Errorf("it comes back: %+v", c)
				}
			}
			if row.after != nil {
				row.after(s, name)
			}
			if row.values != "" {
				s.install("")
			}
			s.becomes("keeps", "asked for", isAsked)
			s.annotate(name, marks.AnnotationSkip, "true")
		})
		if t.Failed() {
			break // the next row would stand on this one's configuration
		}
	}
	log, err := os.ReadFile(all.now.LogFile)
	all.must(err)
	if strings.Contains(string(log), "may change only the conditions") {
		t.Errorf("a policy refuses what the controller does: %s", log)
	}
}

// A condition with the controller's reason that the controller did not set, or that is of an earlier configuration, goes
// too. One of another reason stays, and holds the node.
func TestConditionsOfOthers(t *testing.T) {
	s := &suite{T: t}
	defer s.end()
	s.install("")
	s.node("passes", false)
	s.node("fails", true)
	s.becomes("passes", "verified", func(n *corev1.Node) bool { return n.Labels["node-ready/verified"] == "true" })
	s.becomes("fails", "asked for", isAsked)
	_, err := k8s.CoreV1().Nodes().Create(s.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "never-tried"}}, metav1.CreateOptions{})
	s.must(err)
	ours := corev1.NodeCondition{Type: required, Status: corev1.ConditionTrue, Reason: marks.ReasonVerificationFailed}
	for _, node := range []string{"passes", "never-tried"} {
		s.forge(node, ours)
		s.becomes(node, "no longer asked for", isNotAsked)
	}
	earlier := ours
	earlier.Type = "example.com/Earlier"
	s.forge("fails", earlier)
	s.becomes("fails", "without the earlier condition", func(n *corev1.Node) bool { return conditionOf(n, earlier.Type) == nil })
	if conditionOf(s.get("fails"), required) == nil {
		t.Error("its own condition goes too")
	}

	s.node("theirs", true)
	s.forge("theirs", corev1.NodeCondition{Type: required, Status: corev1.ConditionFalse, Reason: "Theirs", Message: "as it was"})
	s.becomes("theirs", "held by the guard condition", func(n *corev1.Node) bool {
		c := conditionOf(n, marks.ConditionType)
		return c != nil && c.Reason == marks.ReasonRemediationHeld && strings.Contains(c.Message, "another program set the condition")
	})
	if c := conditionOf(s.get("theirs"), required); c == nil || c.Reason != "Theirs" || c.Message != "as it was" {
		t.Errorf("the other program's condition is %+v", c)
	}
}

// A removal that the API server refuses is one event, holds up no verification, and is made once it is allowed.
func TestRefusedRemoval(t *testing.T) {
	s := &suite{T: t}
	defer s.end()
	s.install("")
	s.node("refused", true)
	s.becomes("refused", "asked for", isAsked)
	s.refuse("refused")
	s.must(agent.Node("refused").SetDNS(nodeagent.DNSWorks))
	released := func(n *corev1.Node) bool {
		return n.Labels["node-ready/verified"] == "true" && len(n.Spec.Taints) == 0
	}
	s.becomes("refused", "released", released)
	s.node("beside", false)
	s.becomes("beside", "released", released)
	time.Sleep(5 * time.Second) // some looks
	if !asked(s.get("refused")) {
		t.Fatal("the condition went, although its removal is refused")
	}
	if n := s.events("refused", "RemediationConditionStays"); n != 1 {
		t.Errorf("%d events", n)
	}
	s.allow()
	s.becomes("refused", "no longer asked for", isNotAsked)
}

const refusal = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refuses-removal}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [nodes/status]}]
  matchConditions:
    - {name: the-node, expression: "object.metadata.name == '%s' && request.userInfo.username == '%s'"}
  validations:
    - expression: "!oldObject.status.conditions.exists(c, c.reason == 'NodeReadyVerificationFailed') || object.status.conditions.exists(c, c.reason == 'NodeReadyVerificationFailed')"
      message: this condition stays
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refuses-removal}
spec: {policyName: refuses-removal, validationActions: [Deny]}
`

// refuse has the API server refuse to the controller what removes the condition from a node, and waits until it does.
func (s *suite) refuse(node string) {
	s.Helper()
	user := "system:serviceaccount:" + install.Namespace + ":" + install.ControllerAccount
	s.must(install.Apply(s.Context(), control, fmt.Appendf(nil, refusal, node, user)))
	as := rest.CopyConfig(control.Config())
	as.Impersonate = rest.ImpersonationConfig{UserName: user}
	client := kubernetes.NewForConfigOrDie(as)
	patch := []byte(`{"status":{"conditions":[{"$patch":"delete","type":"node-ready/RemediationRequired"}]}}`)
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		_, err := client.CoreV1().Nodes().Patch(s.Context(), node, types.StrategicMergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		if err != nil && strings.Contains(err.Error(), "this condition stays") {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("the policy refuses nothing: %v", err)
		}
	}
}

// allow ends refuse.
func (s *suite) allow() {
	s.Helper()
	ctx, policies := context.WithoutCancel(s.Context()), k8s.AdmissionregistrationV1()
	s.must(policies.ValidatingAdmissionPolicyBindings().Delete(ctx, "refuses-removal", metav1.DeleteOptions{}))
	s.must(policies.ValidatingAdmissionPolicies().Delete(ctx, "refuses-removal", metav1.DeleteOptions{}))
}
