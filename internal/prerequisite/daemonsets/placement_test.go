package daemonsets

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// daemonSet is one that runs everywhere, unless a change says otherwise.
func daemonSet(changes ...func(*corev1.PodSpec)) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "d", UID: "d"}}
	ds.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	for _, change := range changes {
		change(&ds.Spec.Template.Spec)
	}
	return ds
}

func tolerates(tolerations ...corev1.Toleration) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) { s.Tolerations = tolerations }
}

func selects(pool string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"pool": pool} }
}

// requires is a required node affinity.
func requires(terms ...corev1.NodeSelectorTerm) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
}

func taint(key string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Value: "5", Effect: effect}
}

// gating is the taint of a node that is not verified.
var gating = taint("node-ready/unverified", corev1.TaintEffectNoSchedule)

func TestRunsOn(t *testing.T) {
	label := func(operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "pool", Operator: operator, Values: values}}}
	}
	named := func(name string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}
	}
	host := func(s *corev1.PodSpec) { s.HostNetwork = true }
	gate := corev1.Toleration{Key: gating.Key, Operator: corev1.TolerationOpExists}
	for name, test := range map[string]struct {
		set    *appsv1.DaemonSet
		taints []corev1.Taint
		want   bool
	}{
		"tolerates all":             {daemonSet(), []corev1.Taint{gating, taint("a", corev1.TaintEffectNoExecute)}, true},
		"tolerates none":            {daemonSet(tolerates()), nil, true},
		"not the gate":              {daemonSet(tolerates()), []corev1.Taint{gating}, false},
		"the gate":                  {daemonSet(tolerates(gate)), []corev1.Taint{gating}, true},
		"the gate, not another":     {daemonSet(tolerates(gate)), []corev1.Taint{gating, taint("a", corev1.TaintEffectNoSchedule)}, false},
		"evicting":                  {daemonSet(tolerates(gate)), []corev1.Taint{gating, taint("a", corev1.TaintEffectNoExecute)}, false},
		"another effect":            {daemonSet(tolerates(corev1.Toleration{Key: gating.Key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})), []corev1.Taint{gating}, false},
		"another value":             {daemonSet(tolerates(corev1.Toleration{Key: gating.Key, Value: "true"})), []corev1.Taint{gating}, false},
		"greater than":              {daemonSet(tolerates(corev1.Toleration{Key: gating.Key, Operator: corev1.TolerationOpGt, Value: "4"})), []corev1.Taint{gating}, true},
		"rather not":                {daemonSet(tolerates()), []corev1.Taint{taint("a", corev1.TaintEffectPreferNoSchedule)}, true},
		"cordoned, under pressure":  {daemonSet(tolerates()), []corev1.Taint{taint(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule), taint(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule)}, true},
		"not ready, evicting":       {daemonSet(tolerates()), []corev1.Taint{taint(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)}, true},
		"not ready, not scheduling": {daemonSet(tolerates()), []corev1.Taint{taint(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule)}, false},
		"no network":                {daemonSet(tolerates()), []corev1.Taint{taint(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)}, false},
		"no network, host's":        {daemonSet(tolerates(), host), []corev1.Taint{taint(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)}, true},
		"selected":                  {daemonSet(selects("gpu")), nil, true},
		"not selected":              {daemonSet(selects("cpu")), nil, false},
		"required":                  {daemonSet(requires(label(corev1.NodeSelectorOpIn, "cpu"), label(corev1.NodeSelectorOpIn, "gpu"))), nil, true},
		"not required":              {daemonSet(requires(label(corev1.NodeSelectorOpNotIn, "gpu"))), nil, false},
		"required, not selected":    {daemonSet(requires(label(corev1.NodeSelectorOpExists)), selects("cpu")), nil, false},
		"by name":                   {daemonSet(requires(named("node-a"))), nil, true},
		"by another name":           {daemonSet(requires(named("node-b"))), nil, false},
		"not a selector":            {daemonSet(requires(label("About", "gpu"))), nil, false},
		"pinned":                    {daemonSet(func(s *corev1.PodSpec) { s.NodeName = "node-a" }), nil, true},
		"pinned elsewhere":          {daemonSet(func(s *corev1.PodSpec) { s.NodeName = "node-b" }), nil, false},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: map[string]string{"pool": "gpu"}}}
		n.Spec.Taints = test.taints
		if got := runsOn(slimDaemonSet(test.set).(*appsv1.DaemonSet), n); got != test.want {
			t.Errorf("%s: runs %v, want %v", name, got, test.want)
		}
	}
}
