package kubectlplugin

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// takenBack is a record of passes so long ago that somebody took back.
func takenBack(by string, passes ...time.Duration) change {
	r := passed
	r.TakenBack = &marks.TakenBack{By: by}
	for _, p := range passes {
		r.TakenBack.Passes = append(r.TakenBack.Passes, now.Add(-p))
	}
	return having(r)
}

// opens is a node that nothing of ours but a condition marks.
func opens(reason string) change {
	return func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: marks.ConditionType, Status: corev1.ConditionUnknown, Reason: reason,
			LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))})
	}
}

// refused is a node whose gating taint the controller may not remove.
func refused(n *corev1.Node) {
	gated(n)
	opens(marks.ReasonReleaseRefused)(n)
}

// Doctor names who takes back the passes of nodes, from the third in an hour on.
func TestDoctorOfMarks(t *testing.T) {
	const third = 20 * time.Minute
	often := func(by string) change { return takenBack(by, 2*third, third, time.Minute) }
	for name, test := range map[string]struct {
		nodes []change
		found []string
	}{
		"nobody":         {nodes: []change{having(passed), gated}},
		"twice":          {nodes: []change{takenBack("x", third, time.Minute)}},
		"long ago":       {nodes: []change{takenBack("x", 63*time.Minute, 62*time.Minute, 61*time.Minute)}},
		"a node group":   {nodes: []change{often("node-group")}, found: []string{"field manager node-group takes back the passes of n0:"}},
		"nobody knows":   {nodes: []change{often("")}, found: []string{"the API server's audit log does, takes back the passes of n0:"}},
		"one node twice": {nodes: []change{often("git"), often("talos"), often("git")}, found: []string{"manager git takes back the passes of n0, n2:", "manager talos takes back the passes of n1:"}},
		"many":           {nodes: []change{often("git"), often("git"), often("git"), often("git"), often("git")}, found: []string{"of n0, n1, n2 and 2 more:"}},
		"opened":         {nodes: []change{opens(marks.ReasonGateRemoved), gated, opens(marks.ReasonChecksPassed)}, found: []string{"removed the gating taint of n0 before"}},
		"release refused": {nodes: []change{refused, gated, opens(marks.ReasonReleaseRefused), func(n *corev1.Node) { gated(n); opens(marks.ReasonVerifying)(n) }, refused}, found: []string{
			"removes the gating taint of n0, n4", "removed the gating taint of n2 before"}},
		"a forged one": {nodes: []change{takenBack("x", -48*time.Hour, -47*time.Hour, -47*time.Hour), annotated(marks.AnnotationRecord, `{"nodeUID":"uid","takenBack":{"passes":null}}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes []runtime.Object
			for i, c := range test.nodes {
				nodes = append(nodes, makeNode(c, func(n *corev1.Node) { n.Name = "n" + string(rune('0'+i)) }))
			}
			v := &invocation{now: now, cluster: &cluster{client: fake.NewClientset(nodes...), config: configuration(t, "")}}
			d := diagnosis{check: "marks"}
			if err := examineMarks(t.Context(), v, &d); err != nil || len(d.Findings) != len(test.found) || len(d.Notes) > 0 {
				t.Fatalf("error %v, %+v", err, d)
			}
			for i, f := range d.Findings {
				if strings.HasPrefix(f.What, "opened") && strings.Contains(f.What, test.found[i]) {
					continue
				}
				if strings.HasPrefix(f.What, "release refused") && strings.HasSuffix(f.What, test.found[i]) && strings.Contains(f.Fix, "nodeInitializationTaints") {
					continue
				}
				if !strings.Contains(f.What, test.found[i]) || !strings.Contains(f.Fix, "Talos' nodeTaints") || !strings.Contains(f.Fix, "Git") {
					t.Errorf("%+v, want %q", f, test.found[i])
				}
			}
		})
	}
}
