package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/admission/cases"
)

func TestTaintsOnCreation(t *testing.T) {
	for _, group := range cases.Groups {
		c, err := config.Parse([]byte(group.Config), group.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range group.Cases {
			got := slices.Clone(tc.Brings)
			for _, added := range TaintsOnCreation(tc.Node("n"), c) {
				got = append(got, cases.String(corev1.Taint{Key: added.Key, Value: added.Value, Effect: added.Effect}))
			}
			if !slices.Equal(got, tc.Want) {
				t.Errorf("%s, %s: %q, want %q", group.Name, tc.Name, got, tc.Want)
			}
		}
	}
}

// arrived is a node that was created a minute ago without any taint, and what is observed of it.
func arrived(t *testing.T, file string, change ...func(*corev1.Node)) (*corev1.Node, Input) {
	t.Helper()
	c, err := config.Parse([]byte(file), "file")
	if err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u1", ResourceVersion: "7", CreationTimestamp: metav1.NewTime(now.Add(-time.Minute)),
		Labels: map[string]string{}, Annotations: map[string]string{}}}
	for _, f := range change {
		f(n)
	}
	return n, Input{Config: c, Profile: c.For(n.Labels), Selected: c.Selects(n.Labels), Node: marks.Observe(n, c.Vocabulary())}
}

const backfills = "admission: {backfill: true}\n"

func TestBackfill(t *testing.T) {
	labelled := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels[key] = value }
	}
	annotated := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Annotations[key] = value }
	}
	aged := func(d time.Duration) func(*corev1.Node) {
		return func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(now.Add(-d)) }
	}
	tainted := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
	}
	recorded := func(r marks.Record) func(*corev1.Node) { return annotated(marks.AnnotationRecord, r.Encode()) }
	failed := marks.Record{NodeUID: "u1", Checks: checks, Sequence: 2, Attempts: 2, LastOutcome: "failed", LastTime: ago(time.Second)}
	passed := marks.Record{NodeUID: "u1", Checks: checks, Sequence: 1, LastOutcome: "passed", LastTime: ago(time.Second), VerifiedTime: ago(time.Second)}
	before := passed
	before.NodeUID = "u0"
	putBack := marks.Record{NodeUID: "u1", LastReason: attempt.ReasonGateRemoved}
	taintsBy := func(manager string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: &metav1.Time{Time: now},
				FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:taints":{}}}`)}}
		}
	}
	waited := func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "node-ready/Verified", Status: corev1.ConditionUnknown,
			Reason: marks.ReasonWaitingForPrerequisites})
	}
	const gpu = "profiles: [{name: gpu, nodeSelector: {matchLabels: {gpu: a}}, taints: [{key: gpu/unverified, value: v, effect: NoExecute}, {key: node-ready/unverified, effect: NoSchedule}]}]\n"
	const ours = "node-ready/unverified:NoSchedule"
	for name, tc := range map[string]struct {
		file      string
		change    []func(*corev1.Node)
		workloads Workloads
		want      string
	}{
		"young and empty":                        {backfills, nil, Workloads{}, ours},
		"off":                                    {"", nil, Workloads{}, ""},
		"runs an ordinary pod":                   {backfills, nil, Workloads{Names: []string{"shop/web"}}, ""},
		"its pods cannot be listed":              {backfills, nil, Workloads{Problem: "forbidden"}, ""},
		"as old as may be":                       {backfills, []func(*corev1.Node){aged(10*time.Minute - time.Second)}, Workloads{}, ours},
		"too old":                                {backfills, []func(*corev1.Node){aged(10 * time.Minute)}, Workloads{}, ""},
		"older than a shorter limit":             {"admission: {backfill: true, backfillMaxAge: 30s}", nil, Workloads{}, ""},
		"created on a clock ahead of ours":       {backfills, []func(*corev1.Node){aged(-time.Minute)}, Workloads{}, ours},
		"gated":                                  {backfills, []func(*corev1.Node){tainted("node-ready/unverified", corev1.TaintEffectNoSchedule)}, Workloads{}, ""},
		"gated by a soft one beside a strict":    {backfills + "nodeManagement: {taints: [{key: a/soft, effect: PreferNoSchedule}, {key: node-ready/unverified, effect: NoSchedule}]}", []func(*corev1.Node){tainted("a/soft", corev1.TaintEffectPreferNoSchedule)}, Workloads{}, ours},
		"gated by another profile's taint":       {backfills + gpu, []func(*corev1.Node){tainted("gpu/unverified", corev1.TaintEffectNoExecute)}, Workloads{}, ""},
		"has a rule's taint":                     {backfills, []func(*corev1.Node){tainted("readiness.k8s.io/net", corev1.TaintEffectNoSchedule)}, Workloads{}, ours},
		"has the key with another effect":        {backfills, []func(*corev1.Node){tainted("node-ready/unverified", corev1.TaintEffectPreferNoSchedule)}, Workloads{}, ours},
		"labelled as verified":                   {backfills, []func(*corev1.Node){labelled("node-ready/verified", "true")}, Workloads{}, ""},
		"passed":                                 {backfills, []func(*corev1.Node){recorded(passed)}, Workloads{}, ""},
		"its predecessor passed":                 {backfills, []func(*corev1.Node){recorded(before)}, Workloads{}, ours},
		"failed, and somebody took the taint":    {backfills, []func(*corev1.Node){recorded(failed)}, Workloads{}, ours},
		"a record that nobody can read":          {backfills, []func(*corev1.Node){annotated(marks.AnnotationRecord, "{")}, Workloads{}, ""},
		"completed":                              {backfills + "nodeManagement: {completedAnnotation: a/b}", []func(*corev1.Node){annotated("a/b", "1")}, Workloads{}, ""},
		"completed, for another configuration":   {backfills, []func(*corev1.Node){annotated("a/b", "1")}, Workloads{}, ours},
		"skipped":                                {backfills, []func(*corev1.Node){annotated(marks.AnnotationSkip, "true")}, Workloads{}, ""},
		"not selected":                           {backfills + "nodeManagement: {nodeSelector: {matchLabels: {a: b}}}", nil, Workloads{}, ""},
		"selected":                               {backfills + "nodeManagement: {nodeSelector: {matchLabels: {a: b}}}", []func(*corev1.Node){labelled("a", "b")}, Workloads{}, ours},
		"control plane":                          {backfills, []func(*corev1.Node){labelled(marks.LabelControlPlane, "")}, Workloads{}, ""},
		"control plane, included":                {backfills + "nodeManagement: {includeControlPlane: true}", []func(*corev1.Node){labelled(marks.LabelControlPlane, "")}, Workloads{}, ours},
		"of AKS's system pool":                   {backfills, []func(*corev1.Node){labelled("kubernetes.azure.com/mode", "system")}, Workloads{}, ""},
		"being drained":                          {backfills, []func(*corev1.Node){tainted("ToBeDeletedByClusterAutoscaler", corev1.TaintEffectNoSchedule)}, Workloads{}, ""},
		"drained by a program that is named":     {backfills + "nodeManagement: {leavingTaints: [a/evacuate]}", []func(*corev1.Node){tainted("a/evacuate", corev1.TaintEffectNoExecute)}, Workloads{}, ""},
		"drained by one that nobody named":       {backfills, []func(*corev1.Node){tainted("a/evacuate", corev1.TaintEffectNoExecute)}, Workloads{}, ours},
		"a person took the taint":                {backfills, []func(*corev1.Node){taintsBy("kubectl-taint")}, Workloads{}, ""},
		"another program wrote the taints":       {backfills, []func(*corev1.Node){taintsBy("cloud-controller-manager")}, Workloads{}, ours},
		"the taint was put back once":            {backfills, []func(*corev1.Node){recorded(putBack)}, Workloads{}, ""},
		"it waited, and admission promised":      {"admission: {backfill: true, mode: policy}", []func(*corev1.Node){waited}, Workloads{}, ""},
		"it waited, and nothing promised":        {backfills, []func(*corev1.Node){waited}, Workloads{}, ours},
		"being deleted":                          {backfills, []func(*corev1.Node){func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: now} }}, Workloads{}, ""},
		"of a profile, whose taints it gets":     {backfills + gpu, []func(*corev1.Node){labelled("gpu", "a")}, Workloads{}, "gpu/unverified:NoSchedule " + ours},
		"of a profile that evicts by one key":    {backfills + "nodeManagement: {taints: [{key: a/b, effect: NoExecute}]}", nil, Workloads{}, "a/b:NoSchedule"},
		"of a profile with one key, two effects": {backfills + "nodeManagement: {taints: [{key: a/b, effect: NoExecute}, {key: a/b, effect: NoSchedule}]}", nil, Workloads{}, "a/b:NoSchedule"},
	} {
		n, in := arrived(t, tc.file, tc.change...)
		c, e, ok := Backfill(n, in, tc.workloads, now)
		var got []string
		for _, taint := range c.GateTaints {
			if id := taint.ID().String(); !slices.Contains(got, id) {
				got = append(got, id)
			}
		}
		if s := strings.Join(got, " "); s != tc.want || ok != (tc.want != "") {
			t.Errorf("%s: %q, want %q", name, s, tc.want)
			continue
		}
		if !ok {
			continue
		}
		if c.Gate != gateClose || !c.KeepRecord || c.Label != nil || e.Reason != EventBackfilled || e.Key != "7" {
			t.Errorf("%s: %+v, %+v", name, c, e)
		}
		for _, id := range got {
			if strings.Count(e.Message, id) != 1 {
				t.Errorf("%s: %s", name, e.Message)
			}
		}
		// A node that is tainted must be verified, and is not tainted twice.
		for _, taint := range c.GateTaints {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: taint.Key, Effect: taint.Effect})
		}
		in.Node = marks.Observe(n, in.Config.Vocabulary())
		if _, _, again := Backfill(n, in, Workloads{}, now); again || !NeedsVerification(in, now) || !Eligible(in) {
			t.Errorf("%s: again %v", name, again)
		}
	}
}
