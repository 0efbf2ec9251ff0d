package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// drives has the node's agent report in boot "b".
func drives(status corev1.ConditionStatus) func(*corev1.Node) {
	return others(func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: driverReady, Status: status, Message: "b"}}
	})
}

// boots has the node boot again.
func boots(n *corev1.Node) { n.Status.NodeInfo.BootID = "b2" }

// replaces is a writer that replaces all taints by none.
func replaces(n *corev1.Node) {
	n.Spec.Taints, n.Annotations[annotationTaints] = nil, fmt.Sprint(len(n.Annotations[annotationTaints]))
}

// pod makes pod w of the controller's for node n.
func (t *tale) pod(change func(*corev1.Pod)) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "w", UID: "w", Annotations: map[string]string{workerpod.AnnotationNode: "n"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "Node", UID: "u"}}}}
	p.Spec.NodeName = "n"
	change(p)
	t.tell("pods/"+namespace+"/w", p)
}

// wait lets as many seconds pass in which nothing of note is changed.
func (t *tale) wait(seconds int) { t.revision += int64(seconds) }

func altered(p *corev1.Pod) { p.Annotations[annotationAltered] = "owner" }

// Each of the four rules faults what breaks it, and nothing else.
func TestFourRules(t *testing.T) {
	later := &ran{Node: "u", Boot: "b2", Checks: "checks-a"}
	wrapped := &ran{Node: "u", Boot: "b", Checks: "checks-a", Exit: 1, Unreported: true}
	for name, tc := range map[string]struct {
		tell func(*tale)
		want string // part of the faults; empty for none
	}{
		"released in the boot of its agent's report": {func(t *tale) {
			t.node(drives(corev1.ConditionTrue))
			t.worker(1, well)
			t.node(releases)
		}, ""},
		"released without a report of its agent": {func(t *tale) {
			t.node(others(same))
			t.worker(1, well)
			t.node(releases)
		}, "released, and chaos.example/DriverReady is missing"},
		"released while its agent is not ready": {func(t *tale) {
			t.node(drives(corev1.ConditionTrue))
			t.worker(1, well)
			t.node(drives(corev1.ConditionFalse))
			t.node(releases)
		}, "released, and chaos.example/DriverReady is False"},
		"released by what its agent reported before the reboot": {func(t *tale) {
			t.node(drives(corev1.ConditionTrue))
			t.node(others(boots))
			t.worker(1, later)
			t.node(releases)
		}, "released, and chaos.example/DriverReady is of boot b"},
		"released long after the reboot, and its agent did not report": {func(t *tale) {
			t.node(drives(corev1.ConditionTrue))
			t.node(others(boots))
			t.wait(10)
			t.worker(1, later)
			t.node(releases)
		}, ""},
		"released before it is initialized": {func(t *tale) {
			t.node(drives(corev1.ConditionTrue))
			t.node(others(func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: uninitialized}) }))
			t.worker(1, well)
			t.node(func(n *corev1.Node) {
				comes(attempt.Passed, 0)(n)
				n.Spec.Taints, n.Labels[verifiedLabel] = n.Spec.Taints[1:], "true"
			})
		}, "released, and it is not initialized"},
		"opened by somebody else": {func(t *tale) {
			t.node(others(same))
			t.node(others(replaces))
		}, ""},
		"an exit code counts that no report explains": {func(t *tale) {
			t.node(others(same))
			t.worker(1, wrapped)
			t.node(comes(attempt.Failed, 1))
		}, "no worker of it failed"},
		"deleted for a deadline": {func(t *tale) {
			t.node(others(same))
			t.node(records(func(r *marks.Record) { r.Deletion = &marks.Deletion{Kind: "Node", Name: "n", UID: "u"} }))
		}, "the deletion is intended, and no report names a failed check"},
		"a pod that a policy changed is deleted": {func(t *tale) {
			t.node(others(same))
			t.pod(altered)
			t.wait(5)
			t.pod(func(p *corev1.Pod) { altered(p); ends(p) })
			t.wait(60)
		}, ""},
		"a pod that a policy changed stays": {func(t *tale) {
			t.node(others(same))
			t.pod(altered)
			t.wait(25)
		}, "a policy changed it when it was created (owner)"},
		"a pod for one node is on another": {func(t *tale) {
			t.node(others(same))
			t.pod(func(p *corev1.Pod) { p.Spec.NodeName = "m" })
			t.wait(25)
		}, "it is for another node than m"},
		"a critical pod on a node that somebody else opened": {func(t *tale) {
			t.node(others(same))
			t.pod(func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" })
			t.node(others(replaces))
			t.wait(25)
		}, "it is critical, and its node is open"},
		"a gate that is lost in silence": {func(t *tale) {
			t.node(others(same))
			t.wait(5)
			t.node(others(replaces))
			t.c.calm = time.Unix(1000+t.revision, 0)
			t.wait(25)
		}, "somebody else opened its gate at"},
		"a gate that is lost in silence, and a watch showed it": {func(t *tale) {
			t.node(others(same))
			t.c.showed = t.showsOnly(t.revision)
			t.wait(5)
			t.node(others(replaces))
			t.c.calm = time.Unix(1000+t.revision, 0)
			t.wait(25)
		}, "somebody else opened its gate at"},
		"a gate that came and went, and a watch showed only what was before and after": {func(t *tale) {
			t.node(others(func(n *corev1.Node) { n.Spec.Taints = nil }))
			before := t.revision
			t.node(others(gateReturns))
			t.wait(5)
			t.node(others(replaces))
			t.c.showed = t.showsOnly(before, t.revision)
			t.c.calm = time.Unix(1000+t.revision, 0)
			t.wait(25)
		}, ""},
		"a worker ends whose gate was lost and is back": {func(t *tale) {
			t.node(others(same))
			t.worker(1, nil)
			t.node(others(replaces))
			t.node(others(func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: gatingKey, Effect: corev1.TaintEffectNoSchedule}}
			}))
			t.worker(1, nil, ends)
		}, ""},
		"a gate that is lost before anybody sees it": {func(t *tale) {
			t.node(others(same))
			t.node(others(replaces))
			t.c.calm = time.Unix(1000+t.revision, 0)
			t.wait(25)
		}, ""},
		"a gate whose loss is shown": {func(t *tale) {
			t.node(others(same))
			t.wait(5)
			t.node(others(replaces))
			t.node(func(n *corev1.Node) {
				n.Status.Conditions = []corev1.NodeCondition{{Type: "node-ready/Verified", Status: corev1.ConditionUnknown, Reason: gateRemoved}}
			})
			t.c.calm = time.Unix(1000+t.revision, 0)
			t.wait(25)
		}, ""},
		"a gate that is put back although nobody promised it": {func(t *tale) {
			t.node(others(same))
			t.wait(5)
			t.node(others(replaces))
			t.node(func(n *corev1.Node) {
				records(func(r *marks.Record) { r.LastReason = gateRemoved })(n)
				n.Spec.Taints = []corev1.Taint{{Key: gatingKey, Effect: corev1.TaintEffectNoSchedule}}
			})
		}, "admission does not promise it"},
	} {
		story := &tale{c: newChecker(settings{maxRetries: 2, inFlight: 1, perHour: 5, maxUnhealthy: 100, timeout: time.Second, action: deleteOwner, waits: true}),
			have: map[string]runtime.Object{}}
		story.c.led = time.Unix(1000, 0)
		tc.tell(story)
		story.c.overdue(time.Unix(1000+story.revision, 0), true)
		switch faults := strings.Join(story.c.violations(), "\n"); {
		case tc.want == "" && faults != "":
			t.Errorf("%s: %s", name, faults)
		case tc.want != "" && !strings.Contains(faults, tc.want):
			t.Errorf("%s: %q, want %q", name, faults, tc.want)
		}
	}
}
