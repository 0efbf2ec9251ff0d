package kubectlplugin

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// TestADryRunIsWhyNodesArePending checks that status names the dry run in its header and for each node, which has no
// condition and no record. A node's own reason takes precedence.
func TestADryRunIsWhyNodesArePending(t *testing.T) {
	failed := marks.Record{Sequence: 1, LastOutcome: attempt.Inconclusive, LastReason: "PodPending", LastTime: after(-1)}
	for _, c := range []struct {
		name, arg string
		node      *corev1.Node
		why       string
	}{
		{"pending", "--dry-run", makeNode(gated), dryRunWhy},
		{"pending, another spelling", "--dry-run=true", makeNode(gated), dryRunWhy},
		{"no dry run", "--log-level=debug", makeNode(gated), ""},
		{"off", "--dry-run=false", makeNode(gated), ""},
		{"a condition of before", "--dry-run", makeNode(gated, condition("Waiting", "for a DaemonSet")), "for a DaemonSet"},
		{"a record of before", "--dry-run", makeNode(gated, having(failed)), "PodPending"},
		{"not gated", "--dry-run", makeNode(), ""},
	} {
		labels := map[string]string{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: componentController}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "c", Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "controller"}, {Args: []string{"--v", c.arg}}}}}
		cfg := configuration(t, "{}")
		v := &invocation{now: now, cluster: &cluster{client: fake.NewClientset(pod), component: componentController,
			controllerNamespace: "own", config: cfg}}
		var header []string
		for _, row := range v.overview(t.Context()).rows(v, nil) {
			header = append(header, row[0])
		}
		isDry := c.arg == "--dry-run" || c.arg == "--dry-run=true"
		if strings.Contains(strings.Join(header, " "), "Dry run") != isDry {
			t.Errorf("%s: the header has %q", c.name, header)
		}
		if got := v.summary(observe(cfg, c.node, nil)).Why; c.why == "" && got != "" || !strings.Contains(got, c.why) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.why)
		}
	}
}

// explain says in its header that a dry run changes nothing, before anything else about the node.
func TestExplainNamesTheDryRun(t *testing.T) {
	for args, isDry := range map[string]bool{"--dry-run": true, "--dry-run=true": true, "--dry-run=false": false, "--log-level=debug": false, "none": false} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "c", Labels: map[string]string{
			workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: componentController}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "controller", Args: []string{args}}}}}
		client := fake.NewClientset(makeNode(gated))
		if args != "none" {
			client = fake.NewClientset(makeNode(gated), pod)
		}
		for _, output := range []string{"", "json"} {
			v := &invocation{now: now, args: []string{"n"}, output: output, cluster: &cluster{client: client,
				component: componentController, controllerNamespace: "own", config: configuration(t, `{"rules":{"enabled":false}}`)}}
			if err := explain(t.Context(), v); err != nil {
				t.Fatal(err)
			}
			got := v.out.String()
			if header := strings.Contains(got, "Dry run: "+dryRunText+"\n\n"); header != (isDry && output == "") {
				t.Errorf("%s %s: the header is there: %t\n%s", args, output, header, got)
			}
			if at := strings.Index(got, "\nNode "); output == "" && isDry && at < strings.Index(got, dryRunText) {
				t.Errorf("%s: the node comes first:\n%s", args, got)
			}
		}
	}
}
