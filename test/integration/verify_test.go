package integration

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// The five nodes of the demo, as assertions.
func TestRaceFiveNodes(t *testing.T) {
	// A healthy node's API server may take seconds to answer on a busy machine.
	s := begin(t, set("reconciliation", map[string]any{"maxRetries": 3}), set("worker", map[string]any{"checkTimeoutSeconds": 4}))
	s.controller()
	healthy := []*nodeagent.Node{s.node("a"), s.node("b"), s.node("c")}
	recovers := s.node("d", dns(nodeagent.DNSDrops))
	broken := s.node("e", dns(nodeagent.DNSRefuses))

	s.becomes(recovers.Name, "failed twice", func(f marks.Facts) bool { return f.Record.Attempts >= 2 })
	if err := recovers.SetDNS(nodeagent.DNSWorks); err != nil {
		t.Fatal(err)
	}
	for _, n := range healthy {
		if f := s.becomes(n.Name, "verified", isVerified); f.Record.Sequence != 1 || f.Record.Attempts != 0 {
			t.Errorf("%s took %d attempts, %d failed", n.Name, f.Record.Sequence, f.Record.Attempts)
		}
	}
	if f := s.becomes(recovers.Name, "verified", isVerified); f.Record.Attempts != 2 || f.Record.Sequence != 3 {
		t.Errorf("%s: %+v", recovers.Name, f.Record)
	}
	f := s.becomes(broken.Name, "exhausted", says(marks.ReasonRetriesExhausted))
	if !f.Gated || f.Labelled || f.Record.Attempts != 3 || !strings.Contains(f.Record.LastCheck, "dns") || !strings.Contains(f.Condition.Message, "dns") {
		t.Errorf("%s: %+v, %s", broken.Name, f.Record, f.Condition.Message)
	}
	// What repeats after the retries are exhausted is no event. The start of an attempt is one where that takes five seconds.
	for _, of := range []struct {
		node string
		want map[string]int
	}{{broken.Name, map[string]int{"VerificationFailed": 3, "RetriesExhausted": 1}}, {healthy[0].Name, map[string]int{"VerificationPassed": 1}}} {
		got := s.hasEvents(of.node, of.want)
		if delete(got, "VerificationStarted"); len(got) != len(of.want) {
			t.Errorf("events of %s: %v", of.node, got)
		}
	}
	s.eventually("worker pods are gone but for the last failed one", func() string {
		if left := s.workers(""); len(left) != 1 || left[0].Annotations[workerpod.AnnotationNode] != broken.Name {
			return fmt.Sprint(len(left))
		}
		return ""
	})
	if n := s.created.of(healthy[0].Name) + s.created.of(healthy[1].Name) + s.created.of(healthy[2].Name) + s.created.of(recovers.Name); n != 3+3 {
		t.Errorf("%d worker pods for the nodes that passed, want 6", n)
	}
}

func (s *suite) patchNode(name, patch string) {
	s.Helper()
	s.must(k8s.CoreV1().Nodes().Patch(s.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
}

// Two others write taints and labels in a tight loop while we untaint; nothing of theirs may be lost.
func TestForeignWritersLoseNothing(t *testing.T) {
	s := begin(t)
	s.controller()
	n := s.node("a")
	stop := make(chan struct{})
	finished := make(chan int, 2)
	for w := range 2 {
		go func() {
			i := 0
			defer func() { finished <- i }()
			for ; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				have, err := k8s.CoreV1().Nodes().Get(s.ctx, n.Name, metav1.GetOptions{})
				if err != nil {
					continue
				}
				key := fmt.Sprintf("w%d", w)
				taints := []corev1.Taint{{Key: key, Value: fmt.Sprint(i), Effect: corev1.TaintEffectPreferNoSchedule}}
				for _, tt := range have.Spec.Taints {
					if tt.Key != key {
						taints = append(taints, tt)
					}
				}
				have.Spec.Taints = taints
				have.Labels[key] = fmt.Sprint(i)
				if _, err := k8s.CoreV1().Nodes().Update(s.ctx, have, metav1.UpdateOptions{}); err != nil {
					i-- // not written
				}
			}
		}()
	}
	s.becomes(n.Name, "verified amid the writes", isVerified)
	time.Sleep(200 * time.Millisecond)
	close(stop)
	writes := []int{<-finished, <-finished}
	have, _ := s.get(n.Name)
	for w := range 2 {
		key, found := fmt.Sprintf("w%d", w), ""
		for _, tt := range have.Spec.Taints {
			if tt.Key == key {
				found = tt.Value
			}
		}
		if found == "" || have.Labels[key] != found {
			t.Errorf("writer %d: taint %q, label %q", w, found, have.Labels[key])
		}
	}
	t.Logf("%d writes by others while the node was verified", writes[0]+writes[1])
}

func TestInvalidConfigurationNamesEveryFault(t *testing.T) {
	for _, program := range []string{"kube-node-ready-controller", "kube-node-ready-worker"} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		write(t, path, "worker:\n  checkTimeoutSeconds: -1\n  checkz: []\n  dnsTestDomains: 7\n")
		out, err := exec.Command(binary(program), "--config", path).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Errorf("%s: %v, want exit code 2\n%s", program, err, out)
		}
		for _, want := range []string{":2: worker.checkTimeoutSeconds", ":3: worker.checkz", ":4: worker.dnsTestDomains"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s does not name %s:\n%s", program, want, out)
			}
		}
	}
}

func TestRebootReverifies(t *testing.T) {
	s := begin(t)
	s.controller()
	n := s.node("a")
	before := s.becomes(n.Name, "verified", isVerified)
	if err := n.Reboot(s.ctx); err != nil {
		t.Fatal(err)
	}
	after := s.becomes(n.Name, "verified for its new boot", func(f marks.Facts) bool {
		return isVerified(f) && f.Record.BootID == f.BootID && f.Record.BootID != before.Record.BootID
	})
	if after.Record.Sequence < 2 {
		t.Errorf("%+v", after.Record)
	}
}

func TestAgeReverifies(t *testing.T) {
	s := begin(t, set("nodeManagement", map[string]any{"reverify": map[string]any{"interval": "3s", "taint": true}}))
	s.controller()
	n := s.node("a")
	s.becomes(n.Name, "verified", isVerified)
	s.becomes(n.Name, "tainted for its re-verification", func(f marks.Facts) bool { return f.Gated })
	s.becomes(n.Name, "verified again", func(f marks.Facts) bool { return isVerified(f) && f.Record.Sequence > 1 })
}

func TestUntouchedNodes(t *testing.T) {
	s := begin(t)
	s.controller()
	skipped := s.node("skipped", func(n *nodeagent.NodeSpec) { n.Annotations = map[string]string{"node-ready/skip": "true"} })
	old := s.node("old", untainted)
	plane := s.node("plane", untainted, func(n *nodeagent.NodeSpec) { n.Labels[marks.LabelControlPlane] = "" })
	other := s.node("other", func(n *nodeagent.NodeSpec) { n.Labels[testLabel] = "nobody" })
	t.Cleanup(func() { _ = other.Remove(t.Context()) })
	s.becomes(s.node("canary").Name, "verified, after all of them were there", isVerified)
	for _, n := range []*nodeagent.Node{skipped, plane, old, other} {
		s.stays(2*resync, n.Name, "left alone", func(f marks.Facts) bool { return !f.HasRecord && !f.Labelled && f.Condition == nil })
	}
	if s.created.count() != 1 {
		t.Errorf("%d worker pods, want the canary's alone", s.created.count())
	}
	// What kept the controller away was that and nothing else: without it each is verified, by its first worker.
	s.patchNode(skipped.Name, `{"metadata":{"annotations":{"node-ready/skip":null}}}`)
	s.patchNode(old.Name, `{"spec":{"taints":[{"key":"node-ready/unverified","value":"true","effect":"NoSchedule"}]}}`)
	s.patchNode(plane.Name, `{"spec":{"taints":[{"key":"node-ready/unverified","value":"true","effect":"NoSchedule"}]}}`)
	s.patchNode(other.Name, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, testLabel, s.name))
	for _, n := range []*nodeagent.Node{skipped, plane, old, other} {
		if f := s.becomes(n.Name, "verified", isVerified); f.Record.Sequence != 1 {
			t.Errorf("%s: %+v", n.Name, f.Record)
		}
	}
}

// A dry run writes on no node: not on one that passes or fails, nor on one that admission missed.
func TestDryRun(t *testing.T) {
	s := begin(t, func(c map[string]any) { c["admission"] = map[string]any{"backfill": true} })
	s.controller("--dry-run")
	good, bad := s.node("good"), s.node("bad", dns(nodeagent.DNSRefuses))
	missed := s.node("missed", func(n *nodeagent.NodeSpec) { n.Taints = nil })
	before := map[string]string{}
	for _, n := range []*nodeagent.Node{good, bad, missed} {
		have, _ := s.get(n.Name)
		before[n.Name] = have.ResourceVersion
	}
	s.eventually("both workers ended and are marked", func() string {
		marked := 0
		for _, p := range s.workers("") {
			if p.Annotations[workerpod.AnnotationRecorded] == "true" {
				marked++
			}
		}
		if marked != 2 {
			return fmt.Sprint(marked)
		}
		return ""
	})
	time.Sleep(time.Second)
	for name, version := range before {
		if have, f := s.get(name); have.ResourceVersion != version || f.Gated == (name == missed.Name) || f.HasRecord {
			t.Errorf("a dry run changed %s: %+v", name, f)
		}
		if e := s.events(name); len(e) != 0 {
			t.Errorf("a dry run emitted %v about %s", e, name)
		}
	}
	if s.created.count() != 2 {
		t.Errorf("%d workers", s.created.count())
	}
	s.controllers[0].Terminate(5 * time.Second)
	s.controller()
	s.becomes(good.Name, "verified for real", isVerified)
}

// A NoExecute gating taint evicts nobody: onto a node that runs an ordinary pod it goes with effect NoSchedule, which a pass removes.
func TestANoExecuteTaintEvictsNobody(t *testing.T) {
	execute := corev1.Taint{Key: taintKey, Value: "true", Effect: corev1.TaintEffectNoExecute}
	s := begin(t, set("nodeManagement", map[string]any{"taints": []any{map[string]any{"key": taintKey, "value": "true", "effect": "NoExecute"}}}))
	s.controller()
	executed := func(n *nodeagent.NodeSpec) { n.Taints = []corev1.Taint{execute} }
	busy, idle := s.node("busy", executed), s.node("idle", executed)
	well := s.node("well", executed) // the failures of the others are their own
	s.becomes(well.Name, "verified", isVerified)
	for _, n := range []*nodeagent.Node{busy, idle} {
		s.becomes(n.Name, "verified", isVerified)
		s.must(nil, n.SetDNS(nodeagent.DNSRefuses))
	}
	ordinary, err := k8s.CoreV1().Pods(s.name).Create(s.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "ordinary"}, Spec: corev1.PodSpec{
		NodeName: busy.Name, ServiceAccountName: "kube-node-ready-worker",
		Containers: []corev1.Container{{Name: "c", Image: tools, Command: []string{"/bin/sleep", "3600"}}}}}, metav1.CreateOptions{})
	s.must(ordinary, err)
	has := func(name string, effect corev1.TaintEffect) func(marks.Facts) bool {
		return func(f marks.Facts) bool {
			n, _ := s.get(name)
			var effects []corev1.TaintEffect
			for _, t := range n.Spec.Taints {
				if t.Key == taintKey {
					effects = append(effects, t.Effect)
				}
			}
			return !f.Labelled && len(effects) == 1 && effects[0] == effect
		}
	}
	for _, n := range []*nodeagent.Node{busy, idle} {
		s.patchNode(n.Name, `{"metadata":{"labels":{"node-ready/verified":null}}}`)
	}
	s.becomes(idle.Name, "gated by the taint as it is configured", has(idle.Name, corev1.TaintEffectNoExecute))
	s.becomes(busy.Name, "gated by the taint with effect NoSchedule", has(busy.Name, corev1.TaintEffectNoSchedule))
	s.stays(2*time.Second, busy.Name, "gated so", has(busy.Name, corev1.TaintEffectNoSchedule))
	if p, err := k8s.CoreV1().Pods(s.name).Get(s.ctx, "ordinary", metav1.GetOptions{}); err != nil || p.UID != ordinary.UID || p.DeletionTimestamp != nil {
		t.Errorf("the ordinary pod was evicted: %v", err)
	}
	s.eventually("the event says so", func() string {
		l, err := k8s.CoreV1().Events("default").List(s.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + busy.Name + ",reason=VerificationFailed"})
		if err != nil {
			return err.Error()
		}
		for _, e := range l.Items {
			if strings.Contains(e.Message, "was added with effect NoSchedule instead of NoExecute: the node runs ordinary pods: "+s.name+"/ordinary") {
				return ""
			}
		}
		return fmt.Sprintf("%+v", l.Items)
	})
	for _, n := range []*nodeagent.Node{busy, idle} {
		s.must(nil, n.SetDNS(nodeagent.DNSWorks))
		s.becomes(n.Name, "verified, and of its taints none is left", func(f marks.Facts) bool {
			n, _ := s.get(f.Name)
			return isVerified(f) && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintKey })
		})
	}
}
