package workerpod

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/node"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/workerconfig"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func builder() (Builder, config.Effective) {
	c := &config.Config{}
	c.SetDefaults()
	return Builder{Namespace: "ns", Image: "img:1", Worker: c.Worker, Logging: c.Logging, Gating: c.GatingTaints()}, c.For(nil)
}

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + "." + strings.Repeat("c", 63) + "." + strings.Repeat("d", 61)
	if len(long) != 253 {
		t.Fatal(len(long))
	}
	seen := map[string]bool{}
	for _, n := range []string{"n", "ip-10-0-0-1.eu-west-1.compute.internal", "a.b", "a-b", "0.1.2.3", long, long[:252] + "e", strings.Repeat("x", 40) + "." + "y"} {
		for _, uid := range []string{"u1", "u2"} {
			for _, attempt := range []int32{1, 2, 99999} {
				name := VerifyName(Target{Name: n, UID: uid}, attempt)
				if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
					t.Errorf("%q: %v", name, errs)
				}
				if seen[name] {
					t.Errorf("%q names two attempts", name)
				}
				seen[name] = true
			}
		}
	}
	if VerifyName(Target{Name: "n", UID: "u"}, 1) != VerifyName(Target{Name: "n", UID: "u", BootID: "other"}, 1) {
		t.Error("the same attempt has two names")
	}
}

func TestVerifyPod(t *testing.T) {
	b, profile := builder()
	b.Worker.PodLabels = map[string]string{"team": "infra", LabelComponent: "forged"}
	target := Target{Name: "node-a", UID: "u1", BootID: "b1"}
	pod, err := b.Verify(target, profile, 3, config.SchedulingDirect)
	if err != nil {
		t.Fatal(err)
	}
	if pod.Spec.NodeName != "node-a" {
		t.Errorf("a direct pod is not bound: %q", pod.Spec.NodeName)
	}
	if queued, _ := b.Verify(target, profile, 3, config.SchedulingScheduler); queued.Spec.NodeName != "" {
		t.Error("a pod for the scheduler is bound already")
	}
	term := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0]
	if term.Key != "metadata.name" || term.Values[0] != "node-a" {
		t.Errorf("pinned by %+v", term)
	}
	if pod.Labels[LabelComponent] != Component || pod.Labels["team"] != "infra" || pod.Labels[LabelNodeUID] != "u1" || pod.Annotations[AnnotationNode] != "node-a" {
		t.Errorf("labels %v annotations %v", pod.Labels, pod.Annotations)
	}
	o := pod.OwnerReferences[0]
	if o.Kind != "Node" || o.UID != "u1" || *o.BlockOwnerDeletion {
		t.Errorf("owner %+v", o)
	}
	for _, taint := range []corev1.Taint{
		{Key: "node-ready/unverified", Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeNetworkUnavailable, Effect: corev1.TaintEffectNoSchedule},
		{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute},
	} {
		tolerated := false
		for _, tol := range pod.Spec.Tolerations {
			tolerated = tolerated || tol.Key == taint.Key && (tol.Effect == "" || tol.Effect == taint.Effect)
		}
		if !tolerated {
			t.Errorf("does not tolerate %s:%s", taint.Key, taint.Effect)
		}
	}
	for _, e := range pod.Spec.Containers[0].Env {
		if e.Name != workerconfig.EnvVar {
			continue
		}
		if _, err := workerconfig.Load([]byte(e.Value), e.Name); err != nil {
			t.Errorf("the worker would refuse its configuration: %v", err)
		}
	}
	if !Ours(pod, "ns", target) {
		t.Error("our own pod is taken for another's")
	}
}

func TestForgedPodsAreNotOurs(t *testing.T) {
	b, profile := builder()
	target := Target{Name: "node-a", UID: "u1"}
	for name, forge := range map[string]func(*corev1.Pod){
		"another name":            func(p *corev1.Pod) { p.Name = "verify-node-a" },
		"another namespace":       func(p *corev1.Pod) { p.Namespace = "default" },
		"no owner":                func(p *corev1.Pod) { p.OwnerReferences = nil },
		"owned by another node":   func(p *corev1.Pod) { p.OwnerReferences[0].UID = "u2" },
		"for another node":        func(p *corev1.Pod) { p.Annotations[AnnotationNode] = "node-b" },
		"on another node":         func(p *corev1.Pod) { p.Spec.NodeName = "node-b" },
		"another attempt":         func(p *corev1.Pod) { p.Annotations[AnnotationAttempt] = "2" },
		"attempt 0":               func(p *corev1.Pod) { p.Annotations[AnnotationAttempt] = "0"; p.Name = VerifyName(target, 0) },
		"attempt is not a number": func(p *corev1.Pod) { p.Annotations[AnnotationAttempt] = "one" },
		"a probe's purpose":       func(p *corev1.Pod) { p.Labels[LabelPurpose] = PurposeProbe },
		"no purpose":              func(p *corev1.Pod) { delete(p.Labels, LabelPurpose) },
		"not a worker":            func(p *corev1.Pod) { p.Labels[LabelComponent] = "controller" },
	} {
		pod, err := b.Verify(target, profile, 1, config.SchedulingDirect)
		if err != nil {
			t.Fatal(err)
		}
		forge(pod)
		if Ours(pod, "ns", target) {
			t.Errorf("%s: taken for ours", name)
		}
	}
}

// status is what a kubelet reports of a pod.
func status(change func(*corev1.Pod)) *corev1.Pod {
	b, profile := builder()
	pod, err := b.Verify(Target{Name: "node-a", UID: "u1"}, profile, 1, config.SchedulingDirect)
	if err != nil {
		panic(err)
	}
	pod.CreationTimestamp = metav1.NewTime(start)
	pod.Status.Phase = corev1.PodPending
	change(pod)
	return pod
}

func exit(code int32, reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodFailed
		if code == 0 {
			p.Status.Phase = corev1.PodSucceeded
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: Container, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: reason, Message: message, StartedAt: metav1.NewTime(start.Add(time.Second)), FinishedAt: metav1.NewTime(start.Add(4 * time.Second)),
		}}}}
	}
}

func wait(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: Container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "details"}}}}
	}
}

func whole(reason string, change ...func(*corev1.Pod)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, f := range change {
			f(p)
		}
		p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, reason, "details"
	}
}

func both(fs ...func(*corev1.Pod)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, f := range fs {
			f(p)
		}
	}
}

func deletedAt(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		g := int64(5)
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: at.Add(5 * time.Second)}, &g
	}
}

func running(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: Container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(start)}}}}
}

func reportOf(nodeName string, checks ...result.Check) string {
	return string(result.Report{Version: result.Version, Node: nodeName, Outcome: result.Failed, Checks: checks}.Encode())
}

func TestClassification(t *testing.T) {
	dns := result.Check{Name: "dns", Type: "dns", Severity: "required", Outcome: result.Failed, Reason: "Timeout", Message: "no answer"}
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		state   State
		outcome node.Outcome
		check   string
		reason  string
	}{
		"just created":                     {status(func(*corev1.Pod) {}), Pending, "", "", ""},
		"container is being created":       {status(wait("ContainerCreating")), Pending, "", "", ""},
		"running":                          {status(running), Running, "", "", ""},
		"exit 0":                           {status(exit(0, "Completed", "")), Finished, node.OutcomePassed, "", ""},
		"exit 0 with a report of failures": {status(exit(0, "Completed", reportOf("node-a", dns))), Finished, node.OutcomePassed, "", ""},
		"exit 1 with its report":           {status(exit(1, "Error", reportOf("node-a", dns))), Finished, node.OutcomeFailed, "dns", "Timeout"},
		"exit 1 without a report":          {status(exit(1, "Error", "")), Finished, node.OutcomeFailed, "", ReasonChecksFailed},
		"exit 1, report cut":               {status(exit(1, "Error", reportOf("node-a", dns)[:60])), Finished, node.OutcomeFailed, "", ReasonChecksFailed},
		"exit 1, not JSON":                 {status(exit(1, "Error", "panic: oh no")), Finished, node.OutcomeFailed, "", ReasonChecksFailed},
		"exit 1, another node's report":    {status(exit(1, "Error", reportOf("node-b", dns))), Finished, node.OutcomeFailed, "", ReasonChecksFailed},
		"exit 1, hostile report":           {status(exit(1, "Error", `{"version":1,"node":"node-a","outcome":"failed","checks":[{"name":"`+strings.Repeat("x", 1<<16)+`"}]}`)), Finished, node.OutcomeFailed, "", ReasonChecksFailed},
		"exit 2":                           {status(exit(2, "Error", "")), Finished, node.OutcomeInconclusive, "", ReasonConfigRefused},
		"exit 3":                           {status(exit(3, "Error", "")), Finished, node.OutcomeInconclusive, "", ReasonClientSetup},
		"exit 10":                          {status(exit(10, "Error", "")), Finished, node.OutcomeInconclusive, "", ReasonInternalError},
		"exit 137":                         {status(exit(137, "Error", "")), Finished, node.OutcomeInconclusive, "", ReasonUnknownExit},
		"unknown exit code":                {status(exit(42, "Error", "")), Finished, node.OutcomeInconclusive, "", ReasonUnknownExit},
		"OOMKilled":                        {status(exit(137, "OOMKilled", "")), Finished, node.OutcomeInconclusive, "", ReasonOOMKilled},
		"OOMKilled with exit 1":            {status(exit(1, "OOMKilled", "")), Finished, node.OutcomeInconclusive, "", ReasonOOMKilled},
		"ErrImagePull":                     {status(wait("ErrImagePull")), Finished, node.OutcomeInconclusive, "", ReasonImagePull},
		"ImagePullBackOff":                 {status(wait("ImagePullBackOff")), Finished, node.OutcomeInconclusive, "", ReasonImagePull},
		"InvalidImageName":                 {status(wait("InvalidImageName")), Finished, node.OutcomeInconclusive, "", ReasonImagePull},
		"CreateContainerConfigError":       {status(wait("CreateContainerConfigError")), Finished, node.OutcomeInconclusive, "", ReasonContainerConfig},
		"RunContainerError":                {status(wait("RunContainerError")), Finished, node.OutcomeInconclusive, "", ReasonContainerConfig},
		"OutOfcpu":                         {status(whole("OutOfcpu")), Finished, node.OutcomeInconclusive, "", ReasonKubeletRejected},
		"UnexpectedAdmissionError":         {status(whole("UnexpectedAdmissionError")), Finished, node.OutcomeInconclusive, "", ReasonKubeletRejected},
		"Evicted":                          {status(whole("Evicted")), Finished, node.OutcomeInconclusive, "", ReasonEvicted},
		"Evicted while it ran":             {status(whole("Evicted", exit(137, "Error", ""))), Finished, node.OutcomeInconclusive, "", ReasonEvicted},
		"NodeLost":                         {status(both(running, func(p *corev1.Pod) { p.Status.Reason = "NodeLost" })), Finished, node.OutcomeInconclusive, "", ReasonNodeLost},
		"phase Unknown":                    {status(func(p *corev1.Pod) { p.Status.Phase = corev1.PodUnknown }), Finished, node.OutcomeInconclusive, "", ReasonNodeLost},
		"node shutdown":                    {status(whole("Terminated", exit(1, "Error", ""))), Finished, node.OutcomeInconclusive, "", ReasonNodeRebooted},
		"deadline before the start":        {status(whole("DeadlineExceeded")), Finished, node.OutcomeInconclusive, "", ReasonStartTimeout},
		"deadline after the start":         {status(whole("DeadlineExceeded", exit(137, "Error", ""))), Finished, node.OutcomeFailed, "", ReasonTimeout},
		"deleted before it had a result":   {status(both(running, deletedAt(start.Add(time.Second)))), Finished, node.OutcomeInconclusive, "", ReasonPodDeleted},
		"deleted before it started":        {status(deletedAt(start.Add(time.Second))), Finished, node.OutcomeInconclusive, "", ReasonPodDeleted},
		"deleted, the worker exits 1":      {status(both(exit(1, "Error", reportOf("node-a", dns)), deletedAt(start.Add(3*time.Second)))), Finished, node.OutcomeInconclusive, "", ReasonPodDeleted},
		"failed before it was deleted":     {status(both(exit(1, "Error", reportOf("node-a", dns)), deletedAt(start.Add(9*time.Second)))), Finished, node.OutcomeFailed, "dns", "Timeout"},
		"passed while being deleted":       {status(both(exit(0, "Completed", ""), deletedAt(start.Add(3*time.Second)))), Finished, node.OutcomePassed, "", ""},
		"failed, nothing to read":          {status(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), Finished, node.OutcomeInconclusive, "", ReasonUnknownPodStatus},
		"another container's success":      {status(both(exit(0, "Completed", ""), func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Name = "sidecar" })), Finished, node.OutcomeInconclusive, "", ReasonUnknownPodStatus},
		"init container failed": {status(func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodFailed
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "warm", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}}}
		}), Finished, node.OutcomeInconclusive, "", ReasonInitFailed},
		"eviction by the API": {status(both(running, func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler"}}
		})), Finished, node.OutcomeInconclusive, "", ReasonEvicted},
		"unschedulable is for the deciders": {status(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(start)}}
		}), Pending, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observe(tc.pod)
			if o.State != tc.state || o.Outcome != tc.outcome || o.Check != tc.check || o.Reason != tc.reason {
				t.Errorf("%s %s check %q reason %q (%s); want %s %s %q %q", o.State, o.Outcome, o.Check, o.Reason, o.Message, tc.state, tc.outcome, tc.check, tc.reason)
			}
			if len(o.Message) > 1000 {
				t.Errorf("message of %d bytes", len(o.Message))
			}
		})
	}
}

func TestDurationAndReport(t *testing.T) {
	o := Observe(status(exit(0, "Completed", reportOf("node-a"))))
	if o.Duration() != 3*time.Second || o.Report == nil {
		t.Errorf("duration %s, report %v", o.Duration(), o.Report)
	}
	if b, err := json.Marshal(o.Report); err != nil || !strings.Contains(string(b), "node-a") {
		t.Errorf("%s %v", b, err)
	}
}

func TestOtherFailuresAreNamed(t *testing.T) {
	failed := func(name string) result.Check {
		return result.Check{Name: name, Type: "tcp", Severity: "required", Outcome: result.Failed, Reason: "Timeout", Message: "no answer"}
	}
	passed := failed("fine")
	passed.Outcome, passed.Reason, passed.Message = result.Passed, "", ""
	o := Observe(status(exit(1, "Error", reportOf("node-a", failed("dns"), failed("api"), passed, failed("network")))))
	if o.Check != "dns" || o.Message != "no answer; also failed: api, network" {
		t.Errorf("%s: %s", o.Check, o.Message)
	}
	many := []result.Check{failed("c0")}
	for i := range 8 {
		many = append(many, failed("c"+string(rune('1'+i))))
	}
	if o := Observe(status(exit(1, "Error", reportOf("node-a", many...)))); !strings.HasSuffix(o.Message, "c5 and 3 more") {
		t.Errorf("%s", o.Message)
	}
}
