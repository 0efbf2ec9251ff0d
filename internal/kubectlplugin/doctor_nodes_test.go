package kubectlplugin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// Doctor finds worker pods that the API server rejects, and a fleet of which at least half is closed. It finds neither in
// nodes that have just joined, that another installation has, or that are left out.
func TestDoctorFindsWhatKeepsAFleetClosed(t *testing.T) {
	old := func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour)) }
	young := func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute)) }
	refused := inconclusive
	refused.LastReason, refused.LastMessage = attempt.ReasonPodRefused, "exceeded quota: critical"
	unquoted := refused
	unquoted.LastMessage = `pods "verify-n2" is forbidden: insufficient quota to match these scopes: [{PriorityClass In ` +
		`[system-node-critical system-cluster-critical]}]`
	open := []change{old, labelled, having(passed)}
	for name, tc := range map[string]struct {
		nodes  [][]change
		finds  []string // none: nothing is found
		number int
	}{
		"no node":                {nil, nil, 0},
		"all verified":           {[][]change{open, open}, nil, 0},
		"one of three is closed": {[][]change{open, open, {old, gated, having(failed)}}, nil, 0},
		"half are closed":        {[][]change{open, {old, gated, having(failed)}}, []string{"1 nodes older than 10m0s are closed by a gating taint, and 1 are verified and open; n1 is closed: check dns: NXDOMAIN"}, 1},
		"all are closed":         {[][]change{{old, gated}, {old, gated, having(failed)}}, []string{"2 nodes older", "0 are verified"}, 1},
		"all are new":            {[][]change{{young, gated}, {young, gated, having(failed)}}, nil, 0},
		"all are skipped":        {[][]change{{old, gated, annotated(marks.AnnotationSkip, "true")}}, nil, 0},
		"all are being deleted":  {[][]change{{old, gated, leaving}}, nil, 0},
		"never gated":            {[][]change{{old}, {old}}, nil, 0},
		"one is refused":         {[][]change{open, open, {young, gated, having(refused)}}, []string{"the API server rejects the worker pods of 1 of 3 nodes, among them n2: PodRefused: exceeded quota: critical"}, 1},
		"refused, an open node":  {[][]change{open, {old, having(refused)}}, []string{"of 1 of 2 nodes"}, 1},
		"all are refused":        {[][]change{{old, gated, having(refused)}, {old, gated, having(refused)}}, []string{"of 2 of 2 nodes", "2 nodes older"}, 2},
		"refused on GKE":         {[][]change{open, open, {young, gated, having(unquoted)}}, []string{"of 1 of 3 nodes", "set criticalPodsQuota.enabled to true"}, 1},
		"another effect": {[][]change{open, {old, labelled, having(passed), func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: config.DefaultTaintKey, Effect: corev1.TaintEffectNoExecute}}
		}}}, []string{"1 of 2 nodes carry the key of a gating taint with another effect, among them n1: node-ready/unverified:NoExecute gates nothing here, and nobody removes it"}, 1},
		"refused before, verified now": {[][]change{{old, labelled, having(passed)}}, nil, 0},
	} {
		client := fake.NewClientset()
		for i, changes := range tc.nodes {
			n := makeNode(changes...)
			n.Name, n.UID = fmt.Sprintf("n%d", i), types.UID("uid")
			if err := client.Tracker().Add(n); err != nil {
				t.Fatal(err)
			}
		}
		v := &invocation{now: now, cluster: &cluster{client: client, namespace: "ns", config: configuration(t, "")}}
		var d diagnosis
		if err := examineNodes(t.Context(), v, &d); err != nil {
			t.Fatal(err)
		}
		found := ""
		for _, f := range d.Findings {
			found += f.What + "\n" + f.Fix + "\n"
			if f.Fix == "" {
				t.Errorf("%s: %s: no fix", name, f.What)
			}
		}
		if len(d.Findings) != tc.number {
			t.Errorf("%s: %d findings: %s", name, len(d.Findings), found)
		}
		for _, want := range tc.finds {
			if !strings.Contains(found, want) {
				t.Errorf("%s: %q lacks %q", name, found, want)
			}
		}
	}
}
