package daemonset

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// A node that passes is released by one patch, after one of its condition, and the process waits to be ended.
func TestPasses(t *testing.T) {
	s := begin(t, gate, foreign)
	s.pass()
	p := s.through()
	process := s.start()
	n, f := s.becomes("released", released)
	if !slices.Contains(n.Spec.Taints, foreign) || len(n.Spec.Taints) != 1 {
		s.Errorf("taints %v", n.Spec.Taints)
	}
	if r := f.Record; r.Sequence != 1 || r.LastOutcome != attempt.Passed || r.NodeUID != string(n.UID) || r.BootID != "boot-1" || r.VerifiedTime == nil {
		s.Errorf("record %+v", r)
	}
	if f.Condition == nil || f.Condition.Status != corev1.ConditionTrue || f.Condition.Reason != marks.ReasonChecksPassed {
		s.Errorf("condition %+v", f.Condition)
	}
	time.Sleep(2 * time.Second) // for a write that must not come
	if got := p.seen(); !slices.Equal(got, []string{"/status", ""}) {
		s.Errorf("writes %q", got)
	}
	for _, line := range []string{fmt.Sprintf("node_check_status{node=%q} 1", s.name), fmt.Sprintf(`node_check_failures_total{node=%q,check="gate"} 0`, s.name), fmt.Sprintf("node_check_completion_timestamp{node=%q} 1", s.name)} {
		if got := s.scrape(); !strings.Contains(got, line) {
			s.Errorf("no %s in\n%s", line, got)
		}
	}
	s.ends(process)
}

// A node that never had the taint is verified and labelled too.
func TestUntainted(t *testing.T) {
	s := begin(t)
	s.pass()
	s.start()
	s.becomes("labelled", released)
}

// A node that fails stays gated and says why; it is tried again with backoff, a restart goes on from the record, and once it passes it
// is released.
func TestFailsAndRecovers(t *testing.T) {
	s := begin(t, gate)
	process := s.start()
	_, f := s.becomes("exhausted", says(marks.ReasonRetriesExhausted))
	if f.Record.Attempts != 2 || f.Record.LastCheck != "gate" || !f.Gated || f.Labelled {
		s.Errorf("record %+v", f.Record)
	}
	// 0.8 s at least lie between the first two attempts, and they are not one.
	if first, second := f.Condition.LastTransitionTime.Time, *f.Record.LastTime; second.Sub(first.Truncate(time.Second)) < 800*time.Millisecond {
		s.Errorf("two attempts within %s", second.Sub(first))
	}
	for _, line := range []string{fmt.Sprintf("node_check_status{node=%q} 0", s.name), fmt.Sprintf(`node_check_failures_total{node=%q,check="gate"} `, s.name)} {
		if got := s.scrape(); !strings.Contains(got, line) || strings.Contains(got, `check="gate"} 0`) {
			s.Errorf("no %s in\n%s", line, got)
		}
	}
	s.becomes("tried again", func(f marks.Facts) bool { return f.Record.Sequence > 2 })
	process.Kill()
	_, before := s.node()
	process = s.start()
	_, f = s.becomes("tried after the restart", func(f marks.Facts) bool { return f.Record.Sequence > before.Record.Sequence })
	if f.Record.Attempts != 2 || f.Record.LastTime.Sub(*before.Record.LastTime) < 2*time.Second {
		s.Errorf("before %+v, after %+v: it did not go on from the record", before.Record, f.Record)
	}
	s.pass()
	_, f = s.becomes("released", released)
	if !says(marks.ReasonChecksPassed)(f) {
		s.Errorf("condition %+v", f.Condition)
	}
	s.ends(process)
}

// The process may be killed before and after any write: what it leaves is finished by the next, and nothing is half.
func TestKilledAtEveryWrite(t *testing.T) {
	for _, c := range []struct {
		write int
		after bool
	}{{1, false}, {1, true}, {2, false}, {2, true}} {
		t.Run(fmt.Sprintf("%d %v", c.write, c.after), func(t *testing.T) {
			s := begin(t, gate)
			s.pass()
			s.killedAt(c.write, c.after)
			if _, f := s.node(); f.Labelled == f.Gated || f.Labelled && !says(marks.ReasonChecksPassed)(f) {
				s.Errorf("left gated %v, labelled %v, condition %+v", f.Gated, f.Labelled, f.Condition)
			}
			if _, f := s.node(); !f.Labelled { // else its DaemonSet makes no other
				s.start()
			}
			_, f := s.becomes("released", released)
			if f.Record.Sequence != 1 || f.Record.LastOutcome != attempt.Passed || !says(marks.ReasonChecksPassed)(f) {
				s.Errorf("record %+v, condition %+v", f.Record, f.Condition)
			}
		})
	}
}

// The process is killed around a failure, on a node without the taint. Taint and record are written together or not at
// all, and no attempt counts twice. If the condition is missing, the next process sets it.
func TestKilledAroundAFailure(t *testing.T) {
	for _, c := range []struct {
		write int
		after bool
	}{{1, false}, {1, true}, {2, false}, {2, true}} {
		t.Run(fmt.Sprintf("%d %v", c.write, c.after), func(t *testing.T) {
			s := begin(t)
			writes := s.killedAt(c.write, c.after)
			if want := []string{"", "/status"}[:c.write]; !slices.Equal(writes, want) {
				s.Fatalf("writes %q, should be %q", writes, want)
			}
			_, f := s.node()
			if f.Labelled || f.Gated != (f.Record.LastOutcome == attempt.Failed) || int(f.Record.Attempts) != int(f.Record.Sequence) || c.write == 2 && !f.Gated {
				s.Errorf("left gated %v, labelled %v, record %+v", f.Gated, f.Labelled, f.Record)
			}
			left := f.Record.Sequence
			s.start()
			_, f = s.becomes("exhausted", says(marks.ReasonRetriesExhausted))
			if !f.Gated || f.Labelled || f.Record.Attempts != 2 || f.Record.Sequence < 2 {
				s.Errorf("gated %v, labelled %v, record %+v", f.Gated, f.Labelled, f.Record)
			}
			began := regexp.MustCompile(`starting the checks.*"attempt":(\d+)`).FindStringSubmatch(s.log())
			if len(began) != 2 || began[1] != strconv.Itoa(int(left)+1) {
				s.Errorf("with attempt %d recorded the next process began %q", left, began)
			}
		})
	}
}

// killedAt starts the process, kills it before or after its write of that number, and returns the writes that it sent.
func (s *scene) killedAt(write int, after bool) []string {
	s.Helper()
	p := s.through()
	killed := make(chan struct{})
	started := make(chan int, 1)
	p.meet(func(number int, done bool) {
		if number == write && done == after {
			pid := <-started
			_ = syscall.Kill(pid, syscall.SIGKILL)
			close(killed)
		}
	})
	process := s.start()
	started <- process.Pid()
	<-killed
	<-process.Done()
	time.Sleep(200 * time.Millisecond) // a request that was sent is still handled
	writes := p.seen()
	p.meet(nil)
	return writes
}

// A label given by hand releases the node, whatever the checks found, and that stays to be seen.
func TestALabelByHandReleases(t *testing.T) {
	label := func(s *scene) {
		s.Helper()
		s.must(k8s.CoreV1().Nodes().Patch(s.Context(), s.name, types.MergePatchType, []byte(`{"metadata":{"labels":{"node-ready/verified":"true"}}}`), metav1.PatchOptions{}))
	}
	t.Run("seen", func(t *testing.T) {
		s := begin(t, gate, foreign)
		s.start()
		s.becomes("failed", says(marks.ReasonRetriesExhausted))
		label(s)
		n, f := s.becomes("released", released)
		if len(n.Spec.Taints) != 1 || f.Record.LastOutcome != attempt.Failed || f.Condition.Status != corev1.ConditionFalse {
			s.Errorf("taints %v, record %+v, condition %+v", n.Spec.Taints, f.Record, f.Condition)
		}
	})
	// Its DaemonSet is faster: the process is told to end before it has seen the label.
	t.Run("told to end", func(t *testing.T) {
		s := begin(t, gate)
		process := s.start()
		s.becomes("failed", says(marks.ReasonRetriesExhausted))
		process.Signal(syscall.SIGSTOP)
		label(s)
		process.Signal(syscall.SIGTERM)
		process.Signal(syscall.SIGCONT)
		s.becomes("released", released)
		<-process.Done()
	})
}

// Told to end, a process that has not released its node leaves it gated.
func TestToldToEnd(t *testing.T) {
	s := begin(t, gate)
	process := s.start()
	s.becomes("failed", says(marks.ReasonRetriesExhausted))
	s.ends(process)
	if _, f := s.node(); !f.Gated || f.Labelled {
		s.Errorf("gated %v, labelled %v", f.Gated, f.Labelled)
	}
}

// Prerequisites about the node's own objects hold the checks back, and what makes them hold is noticed.
func TestPrerequisites(t *testing.T) {
	s := begin(t, gate)
	s.pass()
	s.more += `
nodeManagement: {prerequisites: {conditions: [{type: example.com/Warm}], allocatable: {example.com/gpu: 1},
  csiNodes: [{driver: disk.example.com}], pods: [{namespace: kube-system, selector: {matchLabels: {app: agent}}, currentRevision: true}]}}`
	s.start()
	_, f := s.becomes("waits", says(marks.ReasonWaitingForPrerequisites))
	for _, part := range []string{"condition example.com/Warm to be True", "1 example.com/gpu allocatable", "the node has no CSINode", "there is none on the node"} {
		if !strings.Contains(f.Condition.Message, part) {
			s.Errorf("no %q in %q", part, f.Condition.Message)
		}
	}
	n, _ := s.node()
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}
	s.must(k8s.StorageV1().CSINodes().Create(s.Context(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: s.name, OwnerReferences: []metav1.OwnerReference{owner}},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "disk.example.com", NodeID: "x"}}}}, metav1.CreateOptions{}))
	set := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "d1", Controller: new(true)}
	labels := map[string]string{"app": "agent", appsv1.DefaultDaemonSetUniqueLabelKey: "new"}
	s.must(k8s.AppsV1().ControllerRevisions("kube-system").Create(s.Context(), &appsv1.ControllerRevision{Revision: 2, Data: runtime.RawExtension{Raw: []byte(`{}`)},
		ObjectMeta: metav1.ObjectMeta{Name: "agent-new", Labels: labels, OwnerReferences: []metav1.OwnerReference{set}}}, metav1.CreateOptions{}))
	s.must(k8s.CoreV1().ServiceAccounts("kube-system").Create(s.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}, metav1.CreateOptions{}))
	pod, err := k8s.CoreV1().Pods("kube-system").Create(s.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-x", Labels: labels, OwnerReferences: []metav1.OwnerReference{set}},
		Spec: corev1.PodSpec{NodeName: s.name, ServiceAccountName: "agent", Containers: []corev1.Container{{Name: "a", Image: "a"}}}}, metav1.CreateOptions{})
	s.must(pod, err)
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	s.must(k8s.CoreV1().Pods("kube-system").UpdateStatus(s.Context(), pod, metav1.UpdateOptions{}))
	if _, f := s.node(); !f.Gated {
		s.Error("released although the condition is missing")
	}
	s.must(k8s.CoreV1().Nodes().Patch(s.Context(), s.name, types.StrategicMergePatchType,
		[]byte(`{"status":{"allocatable":{"example.com/gpu":"2"},"conditions":[{"type":"example.com/Warm","status":"True"}]}}`), metav1.PatchOptions{}, "status"))
	s.becomes("released", released)
}
