package marks

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// vocabulary has the gating taint of the file, and that of a profile.
var vocabulary = Vocabulary{
	Gating:   []Taint{{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}, {Key: "gpu/unverified", Effect: corev1.TaintEffectNoExecute}},
	Verified: Label{Key: "node-ready/verified", Value: "true"},
}

func taint(key string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Effect: effect}
}

// node is one of UID u1 with these taints.
func node(taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u1", ResourceVersion: "7", Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec: corev1.NodeSpec{Taints: taints}}
}

// A taint gates by key and effect, whatever its value and whichever profile names it.
func TestTheUnionOfTaintsGates(t *testing.T) {
	for name, tc := range map[string]struct {
		taints []corev1.Taint
		want   bool
	}{
		"none":            {nil, false},
		"the file's own":  {[]corev1.Taint{taint("node-ready/unverified", corev1.TaintEffectNoSchedule)}, true},
		"another value":   {[]corev1.Taint{{Key: "node-ready/unverified", Value: "x", Effect: corev1.TaintEffectNoSchedule}}, true},
		"a profile's":     {[]corev1.Taint{taint("gpu/unverified", corev1.TaintEffectNoExecute)}, true},
		"another effect":  {[]corev1.Taint{taint("node-ready/unverified", corev1.TaintEffectNoExecute)}, false},
		"foreign":         {[]corev1.Taint{taint("node.kubernetes.io/not-ready", corev1.TaintEffectNoSchedule)}, false},
		"ours among many": {[]corev1.Taint{taint("a", corev1.TaintEffectNoSchedule), taint("gpu/unverified", corev1.TaintEffectNoExecute), taint("b", corev1.TaintEffectNoSchedule)}, true},
	} {
		if got := Observe(node(tc.taints...), vocabulary).Gated; got != tc.want {
			t.Errorf("%s: gated %v", name, got)
		}
	}
}

func TestTaints(t *testing.T) {
	foreign := []corev1.Taint{taint("node.kubernetes.io/not-ready", corev1.TaintEffectNoSchedule), taint("node-ready/unverified", corev1.TaintEffectNoExecute), taint("x", corev1.TaintEffectNoSchedule)}
	have := append([]corev1.Taint{{Key: "node-ready/unverified", Value: "another", Effect: corev1.TaintEffectNoSchedule}}, foreign...)

	kept := vocabulary.without(have)
	if len(kept) != len(foreign) {
		t.Errorf("kept %v, want the foreign ones, one of them with our key and another effect", kept)
	}
	all := with(kept, vocabulary.Gating)
	if len(all) != len(foreign)+2 || len(with(all, vocabulary.Gating)) != len(all) {
		t.Errorf("added %v", all)
	}
	if got := with(have, vocabulary.Gating); got[0].Value != "another" || len(got) != len(have)+1 {
		t.Errorf("a taint that is there with another value was touched: %v", got)
	}
	if len(have) != len(foreign)+1 || have[0].Value != "another" {
		t.Errorf("the node of the cache was changed: %v", have)
	}
}

func TestObserve(t *testing.T) {
	n := node(taint("gpu/unverified", corev1.TaintEffectNoExecute))
	n.Labels = map[string]string{"node-ready/verified": "true", LabelControlPlane: ""}
	n.Annotations = map[string]string{AnnotationRecord: Record{NodeUID: "u1", BootID: "b1", Sequence: 3, LastOutcome: "passed"}.Encode(), AnnotationSkip: "true"}
	n.Status = corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "b2"}, Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}, {Type: ConditionType, Status: corev1.ConditionTrue}}}
	f := Observe(n, vocabulary)
	if f.Name != "n" || f.UID != "u1" || f.BootID != "b2" || !f.Gated || !f.Labelled || !f.Skip || f.DoNotDelete || !f.ControlPlane || f.Deleting || f.Ready || !f.Lost ||
		!f.HasRecord || f.Record.Sequence != 3 || f.RecordProblem != "" || f.Condition == nil || f.Condition.Status != corev1.ConditionTrue || f.Owner.Managed {
		t.Errorf("%+v", f)
	}
	n.Labels["node-ready/verified"] = "false"
	n.UID, n.DeletionTimestamp = "u2", &metav1.Time{}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	f = Observe(n, vocabulary)
	if f.Labelled || !reflect.DeepEqual(f.Record, Record{}) || f.RecordProblem != "" || !f.HasRecord || !f.Deleting || !f.Ready || f.Lost || f.Condition != nil {
		t.Errorf("a label of another value, another node's record: %+v", f)
	}
	if f = Observe(node(), Vocabulary{Verified: Label{Key: "k"}}); f.Labelled || f.Lost {
		t.Errorf("no label is not one with an empty value, and no Ready condition is not an Unknown one: %+v", f)
	}
}

// Each distribution labels its control-plane nodes in its own way. The value of the label does not count.
func TestControlPlane(t *testing.T) {
	for label, want := range map[string]bool{
		"node-role.kubernetes.io/control-plane":    true, // kubeadm, k3s, RKE2
		"node-role.kubernetes.io/master":           true, // kubeadm before 1.24, k3s
		"node-role.kubernetes.io/controlplane":     true, // RKE
		"node-role.kubernetes.io/etcd":             true, // RKE, RKE2: it may be of this role alone
		"node.kubernetes.io/microk8s-controlplane": true,
		"node.kubernetes.io/microk8s-worker":       false,
		"node-role.kubernetes.io/worker":           false,
		"node-role.kubernetes.io/infra":            false, // OpenShift
		"microk8s.io/cluster":                      false,
		"example.com/controlplane":                 false,
	} {
		for _, value := range []string{"", "true", "x"} {
			n := node()
			n.Labels[label] = value
			if got := Observe(n, vocabulary).ControlPlane; got != want {
				t.Errorf("%s=%s: %v", label, value, got)
			}
		}
	}
}

// Nodes that run no workers are known by labels: of another operating system, or of a virtual node. A kubelet sets
// them, or a program that plays one.
func TestWhatRunsNoWorker(t *testing.T) {
	for name, tc := range map[string]struct {
		labels  map[string]string
		os      string
		virtual bool
	}{
		"no label":                {nil, "", false},
		"an empty one":            {map[string]string{"kubernetes.io/os": ""}, "", false},
		"Linux":                   {map[string]string{"kubernetes.io/os": "linux"}, "", false},
		"Windows":                 {map[string]string{"kubernetes.io/os": "windows"}, "windows", false},
		"Virtual Kubelet":         {map[string]string{"kubernetes.io/os": "linux", "type": "virtual-kubelet"}, "", true},
		"kwok":                    {map[string]string{"type": "kwok"}, "", true},
		"Liqo":                    {map[string]string{"liqo.io/type": "virtual-node"}, "", true},
		"a gateway of Liqo":       {map[string]string{"liqo.io/type": "gateway"}, "", false},
		"another type":            {map[string]string{"type": "spot"}, "", false},
		"EKS Fargate":             {map[string]string{"eks.amazonaws.com/compute-type": "fargate"}, "", true},
		"another kind of machine": {map[string]string{"eks.amazonaws.com/compute-type": "ec2"}, "", false},
	} {
		n := node()
		n.Labels = tc.labels
		if f := Observe(n, vocabulary); f.OtherOS != tc.os || f.Virtual != tc.virtual {
			t.Errorf("%s: operating system %q, virtual %v", name, f.OtherOS, f.Virtual)
		}
	}
}

func TestOptOuts(t *testing.T) {
	for name, tc := range map[string]struct {
		annotation, value string
		skip, doNotDelete bool
	}{
		"skip":                           {AnnotationSkip, "true", true, false},
		"skip of another value":          {AnnotationSkip, "yes", false, false},
		"do-not-delete":                  {AnnotationDoNotDelete, "true", false, true},
		"do-not-delete: false":           {AnnotationDoNotDelete, "false", false, false},
		"do-not-repair":                  {owner.AnnotationDoNotRepair, "true", false, true},
		"do-not-disrupt":                 {owner.AnnotationDoNotDisrupt, "true", false, true},
		"do-not-disrupt: a while":        {owner.AnnotationDoNotDisrupt, "30m", false, false},
		"Cluster API's, of no value":     {AnnotationCAPISkipRemediation, "", false, true},
		"Cluster API's, of any value":    {AnnotationCAPISkipRemediation, "false", false, true},
		"an annotation like one of ours": {AnnotationSkip + "s", "true", false, false},
	} {
		n := node()
		n.Annotations[tc.annotation] = tc.value
		if f := Observe(n, vocabulary); f.Skip != tc.skip || f.DoNotDelete != tc.doNotDelete {
			t.Errorf("%s: skip %v, do not delete %v", name, f.Skip, f.DoNotDelete)
		}
	}
}

// The fallback of a NoExecute taint gates a node like the taint itself, and a pass removes it.
func TestStandIns(t *testing.T) {
	all := WithFallbacks([]Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}, {Key: "b", Value: "v", Effect: corev1.TaintEffectNoExecute}})
	want := []Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}, {Key: "b", Value: "v", Effect: corev1.TaintEffectNoExecute}, {Key: "b", Value: "v", Effect: corev1.TaintEffectNoSchedule}}
	if !slices.Equal(all, want) {
		t.Errorf("%v", all)
	}
	n := node(taint("b", corev1.TaintEffectNoSchedule), taint("a", corev1.TaintEffectNoExecute))
	v := Vocabulary{Gating: all}
	if f := Observe(n, v); !f.Gated || len(f.GatedBy) != 1 || f.GatedBy[0].Key != "b" {
		t.Errorf("%+v", f)
	}
	if left := v.without(n.Spec.Taints); len(left) != 1 || left[0].Key != "a" {
		t.Errorf("a pass leaves %v", left)
	}
}

// A gating taint whose key has the prefix of rules does not belong to a rule. So the node does not wait for rules that
// cannot be served.
func TestAGatingTaintIsNoRules(t *testing.T) {
	gate := corev1.Taint{Key: RuleTaintPrefix + "node-ready", Effect: corev1.TaintEffectNoSchedule}
	v := Vocabulary{Gating: []Taint{{Key: gate.Key, Effect: gate.Effect}}}
	n := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{gate}}}
	if HasRuleTaint(n, v) {
		t.Error("a node with the gating taint alone counts as one with a rule's")
	}
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: RuleTaintPrefix + "agent", Effect: corev1.TaintEffectNoSchedule})
	if !HasRuleTaint(n, v) {
		t.Error("a rule's taint beside the gating one is not found")
	}
}
