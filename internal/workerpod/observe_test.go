package workerpod

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
)

// status is a pod of nodeA's first attempt as a kubelet reports it.
func status(t testing.TB, change ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	b, profile := builder(t)
	pod := b.Verify(nodeA, profile, 1, config.SchedulingDirect)
	pod.CreationTimestamp, pod.UID = metav1.NewTime(start), "p1"
	pod.Status.Phase = corev1.PodPending
	for _, f := range change {
		f(pod)
	}
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

// whole makes the kubelet end the whole pod.
func whole(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, reason, "details"
	}
}

// pastDeadline makes the kubelet end the pod at its deadline. The worker started late, counted from the pod's start.
func pastDeadline(late time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		whole("DeadlineExceeded")(p)
		p.Status.StartTime = &metav1.Time{Time: start.Add(time.Second - late)}
	}
}

func deleted(p *corev1.Pod) {
	p.DeletionTimestamp = &metav1.Time{Time: start.Add(9 * time.Second)}
}

// without is a pod that was deleted without grace. A finalizer keeps it.
func without(finalizer string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Finalizers, p.DeletionGracePeriodSeconds = []string{finalizer}, new(int64)
	}
}

func running(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: Container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(start)}}}}
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func conditioned(c corev1.PodCondition) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Conditions = append(p.Status.Conditions, c) }
}

func initContainer(state corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "warm", State: state}}
	}
}

func reportOf(nodeName string, checks ...result.Check) string {
	return reportAs(result.Failed, nodeName, checks...)
}

func reportAs(outcome result.Outcome, nodeName string, checks ...result.Check) string {
	return string(result.Report{Version: result.Version, Node: nodeName, Outcome: outcome, Checks: checks}.Encode())
}

func TestClassification(t *testing.T) {
	dns := result.Check{Name: "dns", Type: "dns", Severity: "required", Outcome: result.Failed, Reason: "Timeout", Message: "no answer"}
	unclear := result.Check{Name: "api", Type: "kubernetesAPI", Severity: "required", Outcome: result.Inconclusive, Reason: "Forbidden", Message: "403"}
	unshown, warning := dns, dns
	unshown.Reason, warning.Severity = "no reason", "warning"
	hostile := `{"version":1,"node":"node-a","outcome":"failed","checks":[{"name":"` + strings.Repeat("x", 1<<16) + `"}]}`
	initFailed := initContainer(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}})
	type changes = []func(*corev1.Pod)
	const passed, failed, inconclusive = attempt.Passed, attempt.Failed, attempt.Inconclusive
	for name, tc := range map[string]struct {
		pod     changes
		state   State
		outcome attempt.Outcome // empty: no result yet
		check   string
		reason  string
	}{
		"just created":                      {changes{}, Pending, "", "", ""},
		"container is being created":        {changes{wait("ContainerCreating")}, Pending, "", "", ""},
		"running":                           {changes{running}, Running, "", "", ""},
		"exit 0":                            {changes{exit(0, "Completed", "")}, Ended, passed, "", ""},
		"exit 0 with a report of failures":  {changes{exit(0, "Completed", reportOf("node-a", dns))}, Ended, passed, "", ""},
		"exit 0, the pod still runs":        {changes{exit(0, "Completed", ""), phase(corev1.PodRunning)}, Ended, passed, "", ""},
		"exit 1 with its report":            {changes{exit(1, "Error", reportOf("node-a", dns))}, Ended, failed, "dns", "Timeout"},
		"exit 1, a reason without its form": {changes{exit(1, "Error", reportOf("node-a", unshown))}, Ended, failed, "dns", attempt.ReasonChecksFailed},
		"exit 1 without a report":           {changes{exit(1, "Error", "")}, Ended, inconclusive, "", attempt.ReasonNoReport},
		"exit 1, report cut":                {changes{exit(1, "Error", reportOf("node-a", dns)[:60])}, Ended, inconclusive, "", attempt.ReasonNoReport},
		"exit 1, report cut after a check":  {changes{exit(1, "Error", strings.TrimSuffix(reportOf("node-a", dns, unclear), "\"}]}"))}, Ended, failed, "dns", "Timeout"},
		"exit 1, not JSON":                  {changes{exit(1, "Error", "panic: oh no")}, Ended, inconclusive, "", attempt.ReasonNoReport},
		"exit 1, JSON that is no report":    {changes{exit(1, "Error", `{"level":"fatal","msg":"oh no"}`)}, Ended, inconclusive, "", attempt.ReasonNoReport},
		"exit 1, another node's report":     {changes{exit(1, "Error", reportOf("node-b", dns))}, Ended, inconclusive, "", attempt.ReasonNoReport},
		"exit 1, nobody's report":           {changes{exit(1, "Error", reportOf("", dns))}, Ended, inconclusive, "", attempt.ReasonNoReport},
		"exit 1, hostile report":            {changes{exit(1, "Error", hostile)}, Ended, inconclusive, "", attempt.ReasonNoReport},
		"exit 1, no failure reported":       {changes{exit(1, "Error", reportOf("node-a", unclear))}, Ended, inconclusive, "", attempt.ReasonNoReport},
		"exit 1, a warning failed":          {changes{exit(1, "Error", reportOf("node-a", warning))}, Ended, inconclusive, "", attempt.ReasonNoReport},
		"exit 1, it reports a pass":         {changes{exit(1, "Error", reportAs(result.Passed, "node-a", dns))}, Ended, inconclusive, "", attempt.ReasonNoReport},
		"exit 1, it reports exit 4":         {changes{exit(1, "Error", reportAs(result.Inconclusive, "node-a", unclear))}, Ended, inconclusive, "", attempt.ReasonNoReport},
		"exit 2 with its report":            {changes{exit(2, "Error", reportAs(result.ConfigError, "node-a", dns))}, Ended, inconclusive, "", attempt.ReasonConfigRefused},
		"exit 2, Go's own crash":            {changes{exit(2, "Error", "")}, Ended, inconclusive, "", attempt.ReasonNoReport},
		"exit 2, it reports failures":       {changes{exit(2, "Error", reportOf("node-a", dns))}, Ended, inconclusive, "", attempt.ReasonNoReport},
		"exit 3 with its report":            {changes{exit(3, "Error", reportAs(result.ClientError, "node-a", dns))}, Ended, inconclusive, "", attempt.ReasonClientSetup},
		"exit 3 without a report":           {changes{exit(3, "Error", "")}, Ended, inconclusive, "", attempt.ReasonNoReport},
		"exit 4 with its report":            {changes{exit(4, "Error", reportAs(result.Inconclusive, "node-a", unclear))}, Ended, inconclusive, "api", "Forbidden"},
		"exit 4 without a report":           {changes{exit(4, "Error", "")}, Ended, inconclusive, "", attempt.ReasonNoReport},
		"exit 10 with its report":           {changes{exit(10, "Error", reportAs(result.InternalError, "node-a", dns))}, Ended, inconclusive, "", attempt.ReasonInternalError},
		"exit 10 without a report":          {changes{exit(10, "Error", "")}, Ended, inconclusive, "", attempt.ReasonNoReport},
		"exit 126, a shell as entry point":  {changes{exit(126, "Error", "")}, Ended, inconclusive, "", attempt.ReasonUnknownExit},
		"exit 128, it cannot be started":    {changes{exit(128, "StartError", "exec format error")}, Ended, inconclusive, "", attempt.ReasonUnknownExit},
		"exit 137":                          {changes{exit(137, "Error", "")}, Ended, inconclusive, "", attempt.ReasonUnknownExit},
		"unknown exit code":                 {changes{exit(42, "Error", "")}, Ended, inconclusive, "", attempt.ReasonUnknownExit},
		"a negative exit code":              {changes{exit(-1, "Error", "")}, Ended, inconclusive, "", attempt.ReasonUnknownExit},
		"OOMKilled":                         {changes{exit(137, "OOMKilled", "")}, Ended, inconclusive, "", attempt.ReasonOOMKilled},
		"OOMKilled with exit 1":             {changes{exit(1, "OOMKilled", "")}, Ended, inconclusive, "", attempt.ReasonOOMKilled},
		"ErrImagePull":                      {changes{wait("ErrImagePull")}, Pending, inconclusive, "", attempt.ReasonImagePull},
		"ImagePullBackOff":                  {changes{wait("ImagePullBackOff")}, Pending, inconclusive, "", attempt.ReasonImagePull},
		"InvalidImageName":                  {changes{wait("InvalidImageName")}, Pending, inconclusive, "", attempt.ReasonImagePull},
		"an init container's image":         {changes{initContainer(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}})}, Pending, inconclusive, "", attempt.ReasonImagePull},
		"CreateContainerConfigError":        {changes{wait("CreateContainerConfigError")}, Pending, inconclusive, "", attempt.ReasonContainerConfig},
		"RunContainerError":                 {changes{wait("RunContainerError")}, Pending, inconclusive, "", attempt.ReasonContainerConfig},
		"OutOfcpu":                          {changes{whole("OutOfcpu")}, Ended, inconclusive, "", attempt.ReasonKubeletRejected},
		"UnexpectedAdmissionError":          {changes{whole("UnexpectedAdmissionError")}, Ended, inconclusive, "", attempt.ReasonKubeletRejected},
		"Evicted":                           {changes{whole("Evicted")}, Ended, inconclusive, "", attempt.ReasonEvicted},
		"Evicted while it ran":              {changes{exit(137, "Error", ""), whole("Evicted")}, Ended, inconclusive, "", attempt.ReasonEvicted},
		"Evicted as it failed":              {changes{exit(1, "Error", reportOf("node-a", dns)), whole("Evicted")}, Ended, inconclusive, "", attempt.ReasonEvicted},
		"NodeLost":                          {changes{running, func(p *corev1.Pod) { p.Status.Reason = "NodeLost" }}, Running, inconclusive, "", attempt.ReasonNodeLost},
		"phase Unknown":                     {changes{phase(corev1.PodUnknown)}, Pending, inconclusive, "", attempt.ReasonNodeLost},
		"node shutdown":                     {changes{exit(1, "Error", ""), whole("Terminated")}, Ended, inconclusive, "", attempt.ReasonNodeShutdown},
		"deadline before the start":         {changes{whole("DeadlineExceeded")}, Ended, inconclusive, "", attempt.ReasonStartTimeout},
		"deadline after the start":          {changes{exit(137, "Error", ""), pastDeadline(time.Second)}, Ended, failed, "", attempt.ReasonTimeout},
		"deadline, it had its time":         {changes{exit(137, "Error", ""), pastDeadline(330 * time.Second)}, Ended, failed, "", attempt.ReasonTimeout},
		"deadline, it started too late":     {changes{exit(137, "Error", ""), pastDeadline(331 * time.Second)}, Ended, inconclusive, "", attempt.ReasonStartedLate},
		"deadline, said to run still":       {changes{running, pastDeadline(time.Hour)}, Ended, inconclusive, "", attempt.ReasonStartedLate},
		"deadline, its start is not known":  {changes{exit(137, "Error", ""), whole("DeadlineExceeded")}, Ended, inconclusive, "", attempt.ReasonStartedLate},
		"deleted while it runs":             {changes{running, deleted}, Running, "", "", ""},
		"deleted before it started":         {changes{deleted}, Pending, inconclusive, "", attempt.ReasonPodDeleted},
		"deleted, exit 1":                   {changes{exit(1, "Error", reportOf("node-a", dns)), deleted}, Ended, inconclusive, "", attempt.ReasonPodDeleted},
		"deleted, it passed all the same":   {changes{exit(0, "Completed", ""), deleted}, Ended, passed, "", ""},
		"failed, nothing to read":           {changes{phase(corev1.PodFailed)}, Ended, inconclusive, "", attempt.ReasonUnknownPodStatus},
		"another container's success":       {changes{exit(0, "Completed", ""), func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Name = "sidecar" }}, Ended, inconclusive, "", attempt.ReasonUnknownPodStatus},
		"init container failed":             {changes{phase(corev1.PodFailed), initFailed}, Ended, inconclusive, "", attempt.ReasonInitFailed},
		"init container to be restarted":    {changes{initFailed}, Pending, "", "", ""},
		"eviction by the API":               {changes{running, conditioned(corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler"})}, Running, inconclusive, "", attempt.ReasonEvicted},
		"unschedulable is for decisions":    {changes{conditioned(corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable})}, Pending, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observe(status(t, tc.pod...))
			r := attempt.Result{}
			if o.Attempt.Result != nil {
				r = *o.Attempt.Result
			}
			if o.State != tc.state || r.Outcome != tc.outcome || r.Check != tc.check || r.Reason != tc.reason {
				t.Errorf("%s %s check %q reason %q (%s); want %s %s %q %q", o.State, r.Outcome, r.Check, r.Reason, r.Message, tc.state, tc.outcome, tc.check, tc.reason)
			}
			if len(r.Message) > attempt.MaxMessage || (r.Message == "") != (tc.outcome == "") {
				t.Errorf("message %q", r.Message)
			}
			if o.Occupies != (tc.state != Ended) {
				t.Errorf("occupies the node: %v", o.Occupies)
			}
		})
	}
}

// A worker whose exit code counts for nothing shows what its container, or the program in its place, said.
func TestExitWithoutAReportSaysWhy(t *testing.T) {
	dns := result.Check{Name: "dns", Type: "dns", Severity: "required", Outcome: result.Failed, Reason: "Timeout"}
	for want, change := range map[string]func(*corev1.Pod){
		"the worker ended with exit code 1, and left no report of this attempt that can be read (Error: exec /kube-node-ready-worker: exec format error)":                                                                                                                exit(1, "Error", "exec /kube-node-ready-worker: exec format error"),
		"the worker ended with exit code 2, and left no report of this attempt that can be read: it crashed, perhaps for lack of threads or file descriptors; see the node's limits of processes (pids) and open files (Error: runtime: failed to create new OS thread)": exit(2, "Error", "runtime: failed to create new OS thread"),
		"the worker ended with exit code 2, and left no report of this attempt that can be read: it crashed, perhaps for lack of threads or file descriptors; see the node's limits of processes (pids) and open files (Error: pipe2: too many open files)":              exit(2, "Error", "pipe2: too many open files"),
		"the worker ended with exit code 1, and left no report of this attempt that can be read (Error)":                                                                                                                                                                 exit(1, "Error", ""),
		`the worker ended with exit code 1, and left no report of this attempt that can be read (Error; the report is of node "node-b")`:                                                                                                                                 exit(1, "Error", reportOf("node-b", dns)),
		"the worker ended with exit code 1, and its report names no required check that failed (Error)":                                                                                                                                                                  exit(1, "Error", reportOf("node-a")),
		"the worker ended with exit code 2, and its report has another outcome: failed (Error)":                                                                                                                                                                          exit(2, "Error", reportOf("node-a", dns)),
		"the worker ended with exit code 128 (StartError: failed to start: exec format error)":                                                                                                                                                                           exit(128, "StartError", "failed to start: exec format error"),
	} {
		if r := Observe(status(t, change)).Attempt.Result; r.Message != want {
			t.Errorf("%q, want %q", r.Message, want)
		}
	}
}

// The init phase lasts from the start of the first init container to the end of the last one. That includes image pulls
// in between. A sidecar has passed it once it has started.
func TestInitContainer(t *testing.T) {
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
	done := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	failed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
	began := ptr.To(true)
	for name, tc := range map[string]struct {
		first, second corev1.ContainerStatus
		change        func(*corev1.Pod)
		want          string
	}{
		"none has started":       {corev1.ContainerStatus{State: waits}, corev1.ContainerStatus{State: waits}, nil, ""},
		"the first runs":         {corev1.ContainerStatus{State: runs, Started: began}, corev1.ContainerStatus{State: waits}, nil, "first"},
		"the second waits":       {corev1.ContainerStatus{State: done}, corev1.ContainerStatus{State: waits}, nil, "second"},
		"the second runs":        {corev1.ContainerStatus{State: done}, corev1.ContainerStatus{State: runs}, nil, "second"},
		"one failed":             {corev1.ContainerStatus{State: failed}, corev1.ContainerStatus{State: waits}, nil, "first"},
		"both have ended":        {corev1.ContainerStatus{State: done}, corev1.ContainerStatus{State: done}, nil, ""},
		"the worker runs":        {corev1.ContainerStatus{State: done}, corev1.ContainerStatus{State: done}, running, ""},
		"a sidecar, started":     {corev1.ContainerStatus{State: runs, Started: began}, corev1.ContainerStatus{State: done}, sidecar, ""},
		"a sidecar, not started": {corev1.ContainerStatus{State: runs}, corev1.ContainerStatus{State: waits}, sidecar, "first"},
	} {
		pod := status(t)
		pod.Spec.InitContainers = []corev1.Container{{Name: "first"}, {Name: "second"}}
		tc.first.Name, tc.second.Name = "first", "second"
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{tc.first, tc.second}
		if tc.change != nil {
			tc.change(pod)
		}
		if got := Observe(pod).InitContainer; got != tc.want {
			t.Errorf("%s: at %q, want %q", name, got, tc.want)
		}
	}
	late := status(t, initContainer(runs), whole("DeadlineExceeded"))
	late.Spec.InitContainers = []corev1.Container{{Name: "warm"}}
	if r := Observe(late).Attempt.Result; r.Reason != attempt.ReasonInitTimeout || r.Outcome != attempt.Inconclusive || !strings.Contains(r.Message, "warm") {
		t.Errorf("past the pod's deadline: %+v", r)
	}
}

func sidecar(p *corev1.Pod) {
	p.Spec.InitContainers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
}

// A container that runs in its grace period occupies the node.
func TestOccupies(t *testing.T) {
	initRuns := initContainer(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"pending":                          {status(t), true},
		"running":                          {status(t, running), true},
		"running, on its way":              {status(t, running, deleted), true},
		"pending, on its way":              {status(t, deleted), true},
		"no image":                         {status(t, wait("ErrImagePull")), true},
		"running, held by a finalizer":     {status(t, running, deleted, without("x/y")), true},
		"never started, deleted at once":   {status(t, deleted, without("x/y")), false},
		"an init container runs, the same": {status(t, deleted, without("x/y"), initRuns), true},
		"ended":                            {status(t, exit(0, "", "")), false},
		"ended, on its way":                {status(t, exit(1, "", ""), deleted), false},
		"rejected":                         {status(t, whole("OutOfcpu")), false},
		"worker ended, one not":            {status(t, exit(0, "", ""), phase(corev1.PodRunning)), false},
	} {
		if o := Observe(tc.pod); o.Occupies != tc.want || o.Terminating != (tc.pod.DeletionTimestamp != nil) {
			t.Errorf("%s: occupies %v, terminating %v", name, o.Occupies, o.Terminating)
		}
	}
}

// A kubelet's clock that is minutes behind or ahead changes no input of a decision.
func TestObservationsHoldNoForeignTime(t *testing.T) {
	for name, change := range map[string][]func(*corev1.Pod){
		"pending":       {conditioned(corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable})},
		"running":       {running},
		"ended":         {exit(1, "Error", "")},
		"deleted":       {exit(1, "Error", ""), deleted},
		"past deadline": {exit(137, "Error", ""), pastDeadline(time.Minute)},
		"started late":  {exit(137, "Error", ""), pastDeadline(time.Hour)},
	} {
		want := Observe(status(t, change...))
		for _, skew := range []time.Duration{-time.Hour, -5 * time.Minute, 5 * time.Minute, 24 * time.Hour} {
			pod := status(t, change...)
			shift(reflect.ValueOf(pod).Elem(), skew)
			if pod.CreationTimestamp.Time.Equal(start) {
				t.Fatal("nothing was shifted")
			}
			if got := Observe(pod); !reflect.DeepEqual(got, want) {
				t.Errorf("%s, clocks %s off: %+v, want %+v", name, skew, got, want)
			}
		}
	}
}

// shift moves every time in a value.
func shift(v reflect.Value, d time.Duration) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			shift(v.Elem(), d)
		}
	case reflect.Slice:
		for i := range v.Len() {
			shift(v.Index(i), d)
		}
	case reflect.Struct:
		if at, ok := v.Addr().Interface().(*metav1.Time); ok {
			*at = metav1.NewTime(at.Add(d))
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				shift(v.Field(i), d)
			}
		}
	}
}
