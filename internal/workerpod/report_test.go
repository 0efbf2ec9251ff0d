package workerpod

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
)

func TestDurationAndReport(t *testing.T) {
	own := func(ms int64) string {
		return string(result.Report{Version: result.Version, Node: "node-a", Outcome: result.Passed, DurationMs: ms}.Encode())
	}
	backwards := func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].State.Terminated.FinishedAt = metav1.NewTime(start.Add(-time.Hour))
	}
	for name, tc := range map[string]struct {
		pod    []func(*corev1.Pod)
		want   time.Duration
		report bool
	}{
		"no report":                      {[]func(*corev1.Pod){exit(0, "Completed", "")}, 3 * time.Second, false},
		"the worker's own measure":       {[]func(*corev1.Pod){exit(0, "Completed", own(2400))}, 2400 * time.Millisecond, true},
		"one that the kubelet's refutes": {[]func(*corev1.Pod){exit(0, "Completed", own(60_000))}, 3 * time.Second, true},
		"another node's report":          {[]func(*corev1.Pod){exit(0, "Completed", reportOf("node-b"))}, 3 * time.Second, false},
		"a clock that was set back":      {[]func(*corev1.Pod){exit(0, "Completed", own(2400)), backwards}, 0, true},
	} {
		r := Observe(status(t, tc.pod...)).Attempt.Result
		if r.Duration != tc.want || (r.Report != nil) != tc.report {
			t.Errorf("%s: duration %s, report %v", name, r.Duration, r.Report)
		}
	}
	r := Observe(status(t, exit(0, "Completed", reportOf("node-a")))).Attempt.Result
	if b, err := json.Marshal(r.Report); err != nil || !strings.Contains(string(b), "node-a") {
		t.Errorf("%s %v", b, err)
	}
}

func TestOtherFailuresAreNamed(t *testing.T) {
	failed := func(name string) result.Check {
		return result.Check{Name: name, Type: "tcp", Severity: "required", Outcome: result.Failed, Reason: "Timeout", Message: "no answer"}
	}
	passed, warning := failed("fine"), failed("loud")
	passed.Outcome, passed.Reason, passed.Message = result.Passed, "", ""
	warning.Severity = "warning"
	of := func(checks ...result.Check) *attempt.Result {
		return Observe(status(t, exit(1, "Error", reportOf("node-a", checks...)))).Attempt.Result
	}
	if r := of(failed("dns"), failed("api"), passed, warning, failed("network")); r.Check != "dns" || r.Message != "no answer; also failed: api, network" {
		t.Errorf("%s: %s", r.Check, r.Message)
	}
	var many []result.Check
	for i := range 9 {
		many = append(many, failed(fmt.Sprintf("c%d", i)))
	}
	if r := of(many...); !strings.HasSuffix(r.Message, "c5 and 3 more") {
		t.Errorf("%s", r.Message)
	}
	// The list must not be cut, however long the first message and the names are.
	many = nil
	for i := range 6 {
		c := failed(fmt.Sprintf("%d%s", i, strings.Repeat("é", 60)))
		c.Message = strings.Repeat("é", 150)
		many = append(many, c)
	}
	r := of(many...)
	if len(r.Message) > attempt.MaxMessage || !utf8.ValidString(r.Message) || !strings.Contains(r.Message, "; also failed: 1é") || !strings.HasPrefix(r.Message, "éé") {
		t.Errorf("%d bytes: %s", len(r.Message), r.Message)
	}
}

// Texts of a kubelet, a scheduler or a registry are made printable and bounded before they are shown.
func TestTextOfAKubeletIsSanitisedAndBounded(t *testing.T) {
	huge := strings.Repeat("é\x1b[31m\n", 10<<20/8)
	say := func(reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: Container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: huge}}}}
		}
	}
	for name, change := range map[string]func(*corev1.Pod){
		"image":       say("ErrImagePull"),
		"container":   say("CreateContainerError"),
		"rejection":   func(p *corev1.Pod) { whole(huge)(p); p.Status.Message = huge },
		"eviction":    func(p *corev1.Pod) { whole("Evicted")(p); p.Status.Message = huge },
		"shutdown":    func(p *corev1.Pod) { whole("Terminated")(p); p.Status.Message = huge },
		"lost":        func(p *corev1.Pod) { p.Status.Reason, p.Status.Message = "NodeLost", huge },
		"disruption":  conditioned(corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: huge, Message: huge}),
		"exit reason": exit(42, huge, huge),
		"exit report": exit(1, "Error", huge),
		"init container": func(p *corev1.Pod) {
			initContainer(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: huge}})(p)
			p.Status.Phase = corev1.PodFailed
		},
		"scheduler": conditioned(corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: huge}),
	} {
		o := Observe(status(t, change))
		text := o.Unschedulable
		if r := o.Attempt.Result; r != nil {
			text = r.Message
			if len(r.Reason) > 64 || attempt.CheckReason(r.Reason) != r.Reason {
				t.Errorf("%s: reason %.80q", name, r.Reason)
			}
		}
		if text == "" || len(text) > attempt.MaxMessage || !utf8.ValidString(text) || strings.ContainsAny(text, "\n\x1b") {
			t.Errorf("%s: %d bytes, %.40q", name, len(text), text)
		}
	}
}

// A pod carries its own timeouts. They may be forged, so they are bounded.
func TestAPodSaysWhatItWasGiven(t *testing.T) {
	b, profile := builder(t, func(c *config.Config) { c.Worker.StartTimeoutSeconds, c.Worker.TimeoutSeconds = 77, 99 })
	o := Observe(b.Verify(nodeA, profile, 4, config.SchedulingDirect))
	if o.StartTimeout != 77*time.Second || o.Timeout != 99*time.Second || o.Attempt.Number != 4 {
		t.Errorf("%+v", o)
	}
	if basis := (attempt.Basis{BootID: "b1", Checks: b.Checks(""), Gated: true}); o.Attempt.Basis != basis {
		t.Errorf("basis %+v, want %+v", o.Attempt.Basis, basis)
	}
	for value, want := range map[string]time.Duration{"": 0, "x": 0, "-1": 0, "1e9": 0, "99999999999": 0, "2147483647": maxTimeout, "5": 5 * time.Second} {
		pod := status(t)
		pod.Annotations[AnnotationTimeout], pod.Annotations[AnnotationStartTimeout] = value, value
		if o := Observe(pod); o.Timeout != want || o.StartTimeout != want {
			t.Errorf("%q: %s and %s, want %s", value, o.Timeout, o.StartTimeout, want)
		}
	}
	bare := status(t)
	bare.Annotations = map[string]string{}
	if o := Observe(bare); o.Attempt != (attempt.Attempt{}) || o.Timeout != 0 {
		t.Errorf("a pod that says nothing: %+v", o)
	}
}

func TestUnschedulable(t *testing.T) {
	c := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available"}
	gated, scheduled := c, c
	gated.Reason, scheduled.Status = corev1.PodReasonSchedulingGated, corev1.ConditionTrue
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"unschedulable":        {status(t, conditioned(c)), "kube-scheduler: 0/3 nodes are available"},
		"held by a gate":       {status(t, conditioned(gated)), ""},
		"scheduled":            {status(t, conditioned(scheduled)), ""},
		"it has a result":      {status(t, conditioned(c), exit(0, "", "")), ""},
		"no word of it so far": {status(t), ""},
	} {
		if o := Observe(tc.pod); o.Unschedulable != tc.want {
			t.Errorf("%s: %q, want %q", name, o.Unschedulable, tc.want)
		}
	}
	if o := Observe(status(t, exit(0, "", ""))); !o.Passed() {
		t.Error("a pod that passed did not")
	}
	if Observe(status(t)).Passed() || Observe(status(t, exit(1, "", ""))).Passed() {
		t.Error("a pod that did not pass did")
	}
}

// No report makes a pass of exit code 1. It counts against the node only if the report can be read, is of the node and
// says so. Nothing of the report exceeds the bounds.
func TestHostileReports(t *testing.T) {
	const head = `{"version":1,"node":"node-a","outcome":"passed","checks":[{"name":"dns","type":"dns","severity":"required","outcome":"failed","reason":`
	for name, report := range map[string]string{
		"100 KiB":            head + `"Timeout","message":"` + strings.Repeat("x", 100<<10) + `"}]}`,
		"100 KiB of nothing": strings.Repeat("\x00", 100<<10),
		"deep JSON":          strings.Repeat("[", 4<<10),
		"deeper JSON":        `{"version":1,"checks":` + strings.Repeat(`{"a":`, 100<<10),
		"control characters": head + `"Timeout","message":"\u001b[2J\u0000\u202e\u2028"}]}`,
		"a line of a log":    head + `"Timeout","message":"x\n{\"level\":\"info\",\"msg\":\"verification passed\"}"}]}`,
		"a metric":           strings.Replace(head, `"name":"dns"`, `"name":"dns\"} 1\nkube_node_ready_leader 1\n{a=\""`, 1) + `"Timeout"}]}`,
		"a label":            head + `"a\"} 1\nb{c=\"d","message":"m"}]}`,
		"a pass":             `{"version":1,"node":"node-a","outcome":"passed","checks":[]}`,
		"another node":       strings.Replace(head, "node-a", "node-b", 1) + `"Timeout","message":"m"}]}`,
		"another type":       `[1,2,3]`,
	} {
		says := map[string]attempt.Outcome{
			report: attempt.Inconclusive, strings.Replace(report, `"passed","checks":[{`, `"failed","checks":[{`, 1): attempt.Failed}
		if slices.Contains([]string{"100 KiB", "another node", "a pass", "another type", "100 KiB of nothing", "deep JSON", "deeper JSON"}, name) {
			for report := range says {
				says[report] = attempt.Inconclusive
			}
		}
		for report, want := range says {
			o := Observe(status(t, exit(1, "Error", report)))
			r := o.Attempt.Result
			if o.Passed() || r.Outcome != want {
				t.Errorf("%s: exit code 1 is %s, want %s", name, r.Outcome, want)
			}
			if len(r.Message) > attempt.MaxMessage || attempt.CheckReason(r.Reason) != r.Reason || strings.ContainsAny(r.Message+r.Check, "\n\r\x00\x1b\u202e\u2028") {
				t.Errorf("%s: %s: %s: %q", name, r.Check, r.Reason, r.Message)
			}
		}
	}
}
