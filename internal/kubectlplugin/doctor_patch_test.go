package kubectlplugin

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// An answer of the API server to the patch: what it adds, or why it refuses the patch.
type patchAnswer struct {
	add func(*corev1.Node)
	err error
}

// Doctor tries the patch of a release as the controller, stores nothing, and names what others add to it.
func TestDoctorTriesTheReleasingPatch(t *testing.T) {
	nodes := corev1.Resource("nodes")
	denied := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 422, Reason: metav1.StatusReasonInvalid, Message: "ValidatingAdmissionPolicy 'r-nodes' denied request: annotation kyverno.io/seen"}}
	stranger := apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "c", errors.New(`User "me" cannot impersonate resource "serviceaccounts"`))
	kyverno := func(n *corev1.Node) { n.Annotations["kyverno.io/seen"] = "1"; n.Labels["team"] = "a" }
	for name, tc := range map[string]struct {
		node          []change
		none          bool // there is no pod of a controller
		as, own       patchAnswer
		finds, notes  string // none: nothing
		asked, andOwn bool
	}{
		"accepted":                    {node: []change{gated}, asked: true},
		"no controller":               {node: []change{gated}, none: true},
		"an open node":                {node: []change{labelled}, asked: true},
		"no node of ours":             {node: []change{gated, leaving}},
		"a policy adds":               {node: []change{gated}, as: patchAnswer{add: kyverno}, asked: true, notes: "another policy or webhook adds metadata.labels[team], metadata.annotations[kyverno.io/seen] to a patch of node n"},
		"and ours refuses it":         {node: []change{gated}, as: patchAnswer{err: denied}, own: patchAnswer{add: kyverno}, asked: true, andOwn: true, finds: "(ValidatingAdmissionPolicy 'r-nodes' denied request: annotation kyverno.io/seen), to which another policy or webhook adds metadata.labels[team], metadata.annotations[kyverno.io/seen]"},
		"another one refuses it":      {node: []change{gated}, as: patchAnswer{err: denied}, asked: true, andOwn: true, finds: "refuses the controller's patch of node n: ValidatingAdmissionPolicy 'r-nodes' denied request"},
		"all are refused":             {node: []change{gated}, as: patchAnswer{err: denied}, own: patchAnswer{err: denied}, asked: true, andOwn: true, finds: "refuses the controller's patch of node n: ValidatingAdmissionPolicy"},
		"no right to impersonate":     {node: []change{gated}, as: patchAnswer{err: stranger}, own: patchAnswer{add: kyverno}, asked: true, andOwn: true, notes: "adds metadata.labels[team], metadata.annotations[kyverno.io/seen]"},
		"nor to patch":                {node: []change{gated}, as: patchAnswer{err: stranger}, own: patchAnswer{err: apierrors.NewForbidden(nodes, "n", errors.New("no"))}, asked: true, andOwn: true, notes: `was not tried: nodes "n" is forbidden`},
		"no right to patch":           {node: []change{gated}, as: patchAnswer{err: apierrors.NewForbidden(nodes, "n", errors.New(`User "c" cannot patch resource "nodes"`))}, asked: true},
		"the taint comes back":        {node: []change{gated}, as: patchAnswer{add: gated}, asked: true, notes: "adds spec.taints to"},
		"another taint":               {node: []change{gated}, as: patchAnswer{add: tainted("other")}, asked: true, notes: "adds spec.taints to"},
		"another field of the spec":   {node: []change{gated}, as: patchAnswer{add: func(n *corev1.Node) { n.Spec.Unschedulable = true }}, asked: true, notes: "adds spec to"},
		"somebody else always writes": {node: []change{gated}, as: patchAnswer{err: apierrors.NewConflict(nodes, "n", errors.New("modified"))}, asked: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := makeNode(tc.node...)
			n.Name = "n"
			if n.Annotations == nil {
				n.Annotations = map[string]string{}
			}
			var tried []string
			answering := func(who string, a patchAnswer) *fake.Clientset {
				c := fake.NewClientset(n)
				c.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
					tried = append(tried, who)
					p := action.(clienttesting.PatchActionImpl)
					var patch struct {
						Spec struct{ Taints []corev1.Taint }
					}
					if err := json.Unmarshal(p.Patch, &patch); err != nil || !slices.Equal(p.PatchOptions.DryRun, []string{"All"}) {
						t.Errorf("%v: %s %+v", err, p.Patch, p.PatchOptions)
					}
					got := n.DeepCopy()
					got.Labels = maps.Clone(got.Labels)
					got.Labels[config.DefaultLabelKey], got.Spec.Taints = "true", patch.Spec.Taints
					if a.add != nil {
						a.add(got)
					}
					return true, got, a.err
				})
				return c
			}
			as := ""
			v := &invocation{now: now, cluster: &cluster{client: answering("own", tc.own), component: componentController, config: configuration(t, "{}"),
				as: func(user string) (kubernetes.Interface, error) { as = user; return answering("as", tc.as), nil }}}
			d := diagnosis{check: "patch"}
			if !tc.none {
				d.overview.pods = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "c-0"}, Spec: corev1.PodSpec{ServiceAccountName: "c"}}}
			}
			if err := examinePatch(t.Context(), v, &d); err != nil {
				t.Fatal(err)
			}
			for want, got := range map[string][]finding{"f" + tc.finds: d.Findings, "n" + tc.notes: d.Notes} {
				if want = want[1:]; (want == "") != (len(got) == 0) || len(got) > 1 || want != "" && (!strings.Contains(got[0].What, want) || got[0].Fix == "") {
					t.Errorf("%+v, want %q", got, want)
				}
			}
			if slices.Contains(tried, "as") != tc.asked || slices.Contains(tried, "own") != tc.andOwn || tc.asked && as != "system:serviceaccount:own:c" {
				t.Errorf("tried as %q: %v", as, tried)
			}
		})
	}
}
