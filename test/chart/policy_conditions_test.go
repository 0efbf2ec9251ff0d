package chart

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// acting is an installation that sets a condition on failed nodes.
const acting = `
controller:
  replicas: 0
  image: {tag: local}
  config:
    nodeManagement:
      deleteFailedNodes: true
      remediation: {action: condition, condition: {type: example.com/Repair}}
`

// fields are those of a condition in a strategic merge patch.
type fields = map[string]any

// Our accounts set the configured condition with our reason alone, and remove what has our reason under every configuration. They
// touch no other condition.
func (f fortress) testConditions() {
	t := f.T
	f.upgrade(acting)
	const repair, ours, theirs = "example.com/Repair", marks.ReasonVerificationFailed, "Theirs"
	verified := fields{"type": marks.ConditionType, "status": "False", "reason": "ChecksFailed"}
	set := func(kind, reason string) fields { return fields{"type": kind, "status": "True", "reason": reason} }
	remove := func(kind string) fields { return fields{"type": kind, "$patch": "delete"} }
	try := func(as client.Client, node string, conditions ...fields) error {
		return f.patched(as, node, true, types.StrategicMergePatchType, fields{"status": fields{"conditions": conditions}})
	}
	// Each node has what another program wrote between what may be removed.
	for node, conditions := range map[string][]fields{
		"bare":    {{"type": "Ready", "status": "True"}},
		"foreign": {set("example.com/Problem", theirs), set(repair, theirs), {"type": "Ready", "status": "True"}},
		"ours":    {set("example.com/Earlier", ours), set("example.com/Problem", theirs), verified, set(repair, ours), set("Ready", theirs)},
	} {
		f.must(f.admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}))
		f.must(try(f.admin, node, conditions...))
	}
	cases := []struct {
		what, node string
		change     []fields
		// allowed where the configuration has us set the type example.com/Repair, and always.
		acting, always bool
	}{
		{"node-ready/Verified", "bare", []fields{verified}, true, true},
		{"the configured type", "bare", []fields{set(repair, ours)}, true, false},
		{"the configured type, with another reason", "bare", []fields{set(repair, theirs)}, false, false},
		{"the configured type, without a reason", "bare", []fields{{"type": repair, "status": "True"}}, false, false},
		{"another type", "bare", []fields{set("example.com/Third", ours)}, false, false},
		{"our condition's status", "ours", []fields{{"type": repair, "status": "False"}}, true, false},
		{"our condition's reason", "ours", []fields{set(repair, theirs)}, false, false},
		{"a foreign condition of the configured type", "foreign", []fields{set(repair, ours)}, false, false},
		{"its message", "foreign", []fields{{"type": repair, "message": "m"}}, false, false},
		{"its removal", "foreign", []fields{remove(repair)}, false, false},
		{"removal of ours", "ours", []fields{remove(repair)}, true, true},
		{"removal of ours of another type", "ours", []fields{remove("example.com/Earlier")}, true, true},
		{"removal of both, and node-ready/Verified", "ours", []fields{remove(repair), remove("example.com/Earlier"), {"type": marks.ConditionType, "status": "True"}}, true, true},
		{"the message of ours of another type", "ours", []fields{{"type": "example.com/Earlier", "message": "m"}}, false, false},
		{"the status of ours of another type", "ours", []fields{{"type": "example.com/Earlier", "status": "False"}}, false, false},
		{"the reason of ours of another type", "ours", []fields{set("example.com/Earlier", theirs)}, false, false},
		{"removal of a foreign condition", "foreign", []fields{remove("example.com/Problem")}, false, false},
		{"removal of one without a reason", "bare", []fields{remove("Ready")}, false, false},
		{"removal of ours beside a foreign condition", "ours", []fields{remove(repair), remove("example.com/Problem")}, false, false},
		{"our reason for a foreign condition", "foreign", []fields{set("example.com/Problem", ours)}, false, false},
		{"a foreign condition's status", "ours", []fields{remove(repair), {"type": "example.com/Problem", "status": "False"}}, false, false},
	}
	k := f.as(ourController)
	every := func(configuration string, acting bool) {
		t.Helper()
		for _, user := range []string{ourController, ourWorker} {
			for _, c := range cases {
				if err := try(f.as(user), c.node, c.change...); c.always || acting && c.acting {
					f.allowed(configuration+": "+c.what, err)
				} else {
					f.denied("nodes", configuration+": "+c.what, err)
				}
			}
		}
		n := &corev1.Node{}
		f.must(f.admin.Get(t.Context(), types.NamespacedName{Name: "foreign"}, n))
		slices.Reverse(n.Status.Conditions)
		f.denied("nodes", configuration+": another order", k.Status().Update(t.Context(), n))
		f.denied("nodes", configuration+": deletion of a node", k.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}))
	}
	sets := func(kind string) error { return try(k, "bare", set(kind, ours)) }

	eventually(t, "the policy is in force", func() bool { return sets(repair) == nil })
	every("acting", true)
	f.upgrade(acting, "controller.config.nodeManagement.deleteFailedNodes=false")
	eventually(t, "no type may be set", func() bool { return deniedBy("nodes", sets(repair)) })
	every("off", false)
	const another = "controller.config.nodeManagement.remediation.condition.type=example.com/Other"
	f.upgrade(acting, another)
	eventually(t, "another type may be set", func() bool { return sets("example.com/Other") == nil })
	every("another type", false)
	f.upgrade(acting, another, "controller.config.nodeManagement.remediation.dryRun=true")
	eventually(t, "none may be set in a dry run", func() bool { return deniedBy("nodes", sets("example.com/Other")) })
	every("dry run", false)
	f.upgrade(strings.Replace(acting, ", condition: {type: example.com/Repair}", "", 1))
	eventually(t, "the default type may be set", func() bool { return sets("node-ready/RemediationRequired") == nil })
	every("default type", false)
}
