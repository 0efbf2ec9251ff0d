package workerpod

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
)

func uid(s string) types.UID { return types.UID(s) }

// State is where the worker container of a pod stands.
type State string

// The states of a worker container.
const (
	Pending State = "pending" // it has not started
	Running State = "running"
	Ended   State = "ended" // it has terminated, or never will start
)

// Observation is what decisions need to know of a worker pod. Its result and its occupancy of the node are separate: a
// pod whose image cannot be pulled has a result, inconclusive, and still occupies the node.
type Observation struct {
	Name, UID string
	// Node is the name of the node that the pod is pinned to.
	Node    string
	Purpose string
	// Attempt is the attempt that a verify pod runs. Of a probe, Number is 0.
	Attempt attempt.Attempt
	// Subject and Group are a probe's; see AnnotationSubject and LabelProbeGroup.
	Subject, Group string
	State          State
	// InitContainer is the init container that the pod is at. It is empty before the first one has started, and after all
	// have ended.
	InitContainer string
	// Beside says what is wrong with a container beside the worker, which only an admission webhook can have added, or
	// with a sidecar. It is empty if nothing is, or if the whole pod ends. Such a container decides nothing.
	Beside string
	// Occupies: a container of the pod runs on the node, or may still start.
	Occupies bool
	// HasRunningContainer: the status of a container, or init container, is running.
	HasRunningContainer bool
	// Terminating: the pod was deleted and has not ended.
	Terminating bool
	// Grace is the grace period of the deletion; 0 if it is not terminating.
	Grace time.Duration
	// Finalizers keep the object after its end. All of them belong to other programs.
	Finalizers []string
	// Recorded: its result is in the record, and the pod is kept for its logs.
	Recorded bool
	// StartTimeout, InitTimeout and Timeout are the times to start, of its init containers and to run that the pod was
	// created with; 0 if unknown.
	StartTimeout, InitTimeout, Timeout time.Duration
	// Startup says what a pod that has not started waits for, in the words of its status. It is empty once the pod has
	// started or has a result.
	Startup string
	// Unschedulable is what kube-scheduler says about a pod that it finds no node for; empty otherwise.
	Unschedulable string
	// Seen is when all this was first observed; zero if nobody tracks it.
	Seen FirstSeen
}

// FirstSeen is when the controller first observed what a pod shows, on its own clock: those of the kubelet, the
// scheduler and the API server may differ.
type FirstSeen struct {
	First, Running, Unschedulable, Result time.Time
	// Init is when its init containers were first observed to run, and InitEnded when they were first observed to have
	// ended; zero if that was not observed.
	Init, InitEnded time.Time
	// UnderWay: the pod was observed without a result, or the result has only just come.
	UnderWay bool
	// Terminating is when its deletion was first observed.
	Terminating time.Time
	// FinalizersGone is when it was first observed to be terminating without a finalizer.
	FinalizersGone time.Time
	// Witnessed: the pod was observed without a result before it had one, so Result is when it came.
	Witnessed bool
}

// Passed reports whether the pod's attempt has a result and passed.
func (o Observation) Passed() bool {
	return o.Attempt.Result != nil && o.Attempt.Result.Outcome == attempt.Passed
}

// Ours reports whether the controller could have created the pod for this node. Its name derives from the node's UID,
// its owner is this Node, it is pinned to the node, and its priority ends no workloads of an open node. Anybody who may
// create pods in the worker's namespace can create one that looks like ours: see the trust boundary in
// docs/design/security.md.
func Ours(pod *corev1.Pod, namespace string, t Target) bool {
	if pod.Namespace != namespace || pod.Labels[LabelName] != Name || pod.Labels[LabelComponent] != Component ||
		pod.Labels[LabelNodeUID] != t.UID || pod.Annotations[AnnotationNode] != t.Name {
		return false
	}
	if pod.Spec.NodeName != t.Name && (pod.Spec.NodeName != "" || !pinned(pod, t.Name)) {
		return false
	}
	if pod.Annotations[AnnotationGated] == "false" && critical(pod) {
		return false
	}
	owned := false
	for _, o := range pod.OwnerReferences {
		owned = owned || o.Kind == "Node" && o.UID == uid(t.UID)
	}
	if !owned {
		return false
	}
	switch pod.Labels[LabelPurpose] {
	case PurposeVerify:
		number, err := strconv.ParseInt(pod.Annotations[AnnotationAttempt], 10, 32)
		return err == nil && number > 0 && pod.Name == VerifyName(t, int32(number))
	case PurposeProbe:
		return pod.Name == ProbeName(t, pod.Annotations[AnnotationSubject])
	}
	return false
}

// TargetOf is the node that a pod says it is pinned to.
func TargetOf(pod *corev1.Pod) Target {
	return Target{Name: pod.Annotations[AnnotationNode], UID: pod.Labels[LabelNodeUID]}
}

// Observe reads a pod that is Ours.
func Observe(pod *corev1.Pod) Observation {
	number, _ := strconv.ParseInt(pod.Annotations[AnnotationAttempt], 10, 32) // Ours has checked it; 0 for a probe
	o := Observation{
		Name: pod.Name, UID: string(pod.UID), Node: pod.Annotations[AnnotationNode], Purpose: pod.Labels[LabelPurpose],
		Attempt: attempt.Attempt{Number: int32(number), Basis: attempt.Basis{
			BootID: pod.Annotations[AnnotationBootID], Checks: pod.Annotations[AnnotationChecks],
			Gated: pod.Annotations[AnnotationGated] == "true", Request: pod.Annotations[AnnotationRequest],
		}},
		Subject: pod.Annotations[AnnotationSubject], Group: pod.Labels[LabelProbeGroup],
		State:       stateOf(pod),
		Terminating: pod.DeletionTimestamp != nil, Recorded: pod.Annotations[AnnotationRecorded] == "true",
		StartTimeout: seconds(pod, AnnotationStartTimeout), InitTimeout: seconds(pod, AnnotationInitTimeout),
		Timeout:    seconds(pod, AnnotationTimeout),
		Finalizers: pod.Finalizers, HasRunningContainer: hasRunningContainer(pod),
	}
	if o.State == Pending {
		o.InitContainer = currentInitContainer(pod)
	}
	o.Occupies = o.State != Ended
	if o.Terminating {
		o.Grace = time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, grace)) * time.Second
		// The kubelet starts no container of a terminating pod. If the grace period is 0, it does not wait for any container
		// either, and only a finalizer keeps the object.
		o.Occupies = o.Occupies && (o.HasRunningContainer || o.Grace > 0)
	}
	o.Beside = beside(pod, o)
	o.Attempt.Result = resultOf(pod, o)
	c := condition(pod, corev1.PodScheduled)
	if o.Attempt.Result == nil && c != nil && c.Status == corev1.ConditionFalse &&
		c.Reason == corev1.PodReasonUnschedulable {
		o.Unschedulable = attempt.Text("kube-scheduler: " + c.Message + addedSelector(pod))
	}
	if o.State == Pending && o.Attempt.Result == nil {
		o.Startup = cmp.Or(o.Unschedulable, startup(pod))
	}
	return o
}

// maxTimeout bounds the timeouts that a pod may claim. The longest timeout that the configuration allows is a year.
const maxTimeout = 366 * 24 * time.Hour

func seconds(pod *corev1.Pod, annotation string) time.Duration {
	n, err := strconv.ParseInt(pod.Annotations[annotation], 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return min(time.Duration(n)*time.Second, maxTimeout)
}

func stateOf(pod *corev1.Pod) State {
	worker := container(pod.Status.ContainerStatuses, Container)
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return Ended
	case worker != nil && worker.State.Terminated != nil:
		return Ended
	case worker != nil && worker.State.Running != nil:
		return Running
	}
	return Pending
}

// currentInitContainer is the name of the init container that the pod is at. It is the first one that has not
// succeeded, once any init container has started. A sidecar does not end, so it counts as done once it has started. The
// name is empty if there is none.
func currentInitContainer(pod *corev1.Pod) string {
	if !slices.ContainsFunc(pod.Status.InitContainerStatuses, started) {
		return ""
	}
	for _, c := range pod.Spec.InitContainers {
		status := container(pod.Status.InitContainerStatuses, c.Name)
		sidecar := ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways
		switch {
		case status == nil:
			return c.Name
		case sidecar && ptr.Deref(status.Started, false):
		case !sidecar && status.State.Terminated != nil && status.State.Terminated.ExitCode == 0:
		default:
			return c.Name
		}
	}
	return ""
}

// startup says how far a pod that has not started came. A kubelet reports PodReadyToStartContainers since Kubernetes
// 1.29: the sandbox exists, has its network, and the volumes are mounted.
func startup(pod *corev1.Pod) string {
	ready := condition(pod, corev1.PodReadyToStartContainers)
	switch {
	case pod.Spec.NodeName == "":
		return "kube-scheduler has not bound it to the node"
	case pod.Status.StartTime == nil && ready == nil:
		return "the kubelet has not reported it"
	case ready != nil && ready.Status != corev1.ConditionTrue:
		return "its sandbox is not ready (network, address or volumes)"
	}
	text, needs := "", "its sandbox, its image or the container runtime"
	if ready != nil {
		text, needs = "its sandbox is ready", "its image or the container runtime"
	}
	status := container(pod.Status.ContainerStatuses, Container)
	if name := currentInitContainer(pod); name != "" {
		status = container(pod.Status.InitContainerStatuses, name)
	} else if init := pod.Status.InitContainerStatuses; len(init) > 0 && !started(init[0]) {
		status = &init[0]
	}
	if status == nil || status.State.Waiting == nil {
		return text
	}
	w := status.State.Waiting
	waits := fmt.Sprintf("container %s waits for %s (%s)", status.Name, needs,
		strings.Trim(w.Reason+": "+w.Message, ": "))
	return attempt.Text(strings.TrimPrefix(text+"; "+waits, "; "))
}

// hasRunningContainer reports whether the status shows a container or init container of the pod as running.
func hasRunningContainer(pod *corev1.Pod) bool {
	all := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	return slices.ContainsFunc(all, func(cs corev1.ContainerStatus) bool { return cs.State.Running != nil })
}

// EndsBy is when a terminating pod should have ended: its grace period and a minute after its deletion was first
// observed. It is zero for a pod that is not terminating, or that nobody tracks.
func (o Observation) EndsBy() time.Time {
	if !o.Terminating || o.Seen.Terminating.IsZero() {
		return time.Time{}
	}
	return o.Seen.Terminating.Add(o.Grace + terminationSlack)
}

// GoneBy is when a pod should no longer occupy its node: at EndsBy if it is terminating. Otherwise it is a grace period
// and a minute after its attempt was over, by its result or its timeouts. The controller asks for its deletion then,
// and the API server may refuse that. It is zero where that is not known.
func (o Observation) GoneBy() time.Time {
	var over time.Time
	switch seen := o.Seen; {
	case o.Terminating:
		return o.EndsBy()
	case !seen.Result.IsZero():
		over = seen.Result
	case !seen.Running.IsZero() && o.Timeout > 0:
		over = seen.Running.Add(o.Timeout)
	case seen.Running.IsZero() && !seen.First.IsZero() && o.StartTimeout > 0 &&
		(o.InitContainer == "" || o.InitTimeout > 0):
		over = seen.First.Add(o.StartTimeout + o.InitTimeout)
	default:
		return time.Time{}
	}
	return over.Add(time.Duration(grace)*time.Second + terminationSlack)
}

// DueBy is when a pod should have ended, a minute before GoneBy; zero where that is.
func (o Observation) DueBy() time.Time {
	gone := o.GoneBy()
	if gone.IsZero() {
		return gone
	}
	return gone.Add(-terminationSlack)
}

// resultOf is the result of the pod's attempt, or nil while there is none.
func resultOf(pod *corev1.Pod, o Observation) *attempt.Result {
	worker := container(pod.Status.ContainerStatuses, Container)
	if worker == nil || worker.State.Terminated == nil || killedByKubelet(pod) {
		return classify(pod, o, worker)
	}
	t := worker.State.Terminated
	r := resultOfExit(t, o.Node)
	switch {
	case r.Outcome == attempt.Passed:
	case o.Terminating:
		// The node is not at fault for what a deleted pod could not finish. Only the kubelet's clock could tell whether the
		// worker had ended before the deletion was requested.
		return attempt.NewInconclusive(attempt.ReasonPodDeleted, "the pod was deleted before it had a result")
	case o.Beside != "":
		r.Message = attempt.Text(r.Message + "; " + o.Beside)
	}
	return r
}

// beside is what Observation.Beside is of the pod. Before the worker has started, init containers keep it from
// starting, and are not beside it.
func beside(pod *corev1.Pod, o Observation) string {
	if o.Terminating || killedByKubelet(pod) {
		return ""
	}
	for _, cs := range pod.Status.ContainerStatuses {
		if p := problem(cs); p != "" && cs.Name != Container {
			return attempt.Text("beside it, injected container " + p)
		}
	}
	if w := container(pod.Status.ContainerStatuses, Container); w == nil || !started(*w) {
		return ""
	}
	for _, cs := range pod.Status.InitContainerStatuses {
		if p := problem(cs); p != "" {
			return attempt.Text("beside it, sidecar " + p)
		}
	}
	return ""
}

// problem says that a container waits for something other than its turn, or has failed; empty if it does neither.
func problem(cs corev1.ContainerStatus) string {
	switch w, t := cs.State.Waiting, cs.State.Terminated; {
	case w != nil && !slices.Contains([]string{"", "ContainerCreating", "PodInitializing"}, w.Reason):
		return fmt.Sprintf("%s waits: %s: %s", cs.Name, w.Reason, w.Message)
	case t != nil && t.ExitCode != 0:
		return fmt.Sprintf("%s ended with exit code %d (%s)", cs.Name, t.ExitCode, t.Reason)
	}
	return ""
}

// killedByKubelet reports whether the kubelet ended the whole pod. The container's exit code then means nothing, and
// status.reason gives the cause.
func killedByKubelet(pod *corev1.Pod) bool {
	return pod.Status.Reason != "" && pod.Status.Phase == corev1.PodFailed
}

// classify determines the result of a pod whose container has no usable exit code. It is nil while a result may still
// come.
func classify(pod *corev1.Pod, o Observation, worker *corev1.ContainerStatus) *attempt.Result {
	s := pod.Status
	switch s.Reason {
	case "":
	case "DeadlineExceeded":
		neverStarted := func(reason, message string) *attempt.Result {
			return attempt.NewInconclusive(reason, strings.TrimSuffix(message+"; "+startup(pod), "; "))
		}
		ran, started := untilDeadline(pod, worker)
		switch at := currentInitContainer(pod); {
		case !started && at != "":
			return neverStarted(attempt.ReasonInitTimeout, "the pod's deadline passed before init container "+at+" ended")
		case !started:
			return neverStarted(attempt.ReasonStartTimeout, "the pod's deadline passed before the worker started")
		case ran < o.Timeout:
			return attempt.NewInconclusive(attempt.ReasonStartedLate,
				"the worker started so late that the pod's deadline passed before worker.timeoutSeconds")
		}
		return &attempt.Result{Outcome: attempt.Failed, Reason: attempt.ReasonTimeout,
			Message: "the worker ran past the pod's deadline"}
	case "Evicted", "Preempting", "Preempted":
		return attempt.NewInconclusive(attempt.ReasonEvicted, "the pod was evicted: "+s.Message)
	case "NodeLost":
		return attempt.NewInconclusive(attempt.ReasonNodeLost, "the kubelet stopped reporting: "+s.Message)
	case "Terminated", "NodeShutdown", "Shutdown":
		// k8s.io/kubernetes pkg/kubelet/nodeshutdown
		return attempt.NewInconclusive(attempt.ReasonNodeShutdown, "the node shut down: "+s.Message)
	default:
		if s.Phase == corev1.PodFailed {
			// Admission refusals carry their own reasons (OutOfcpu, OutOfpods, NodeAffinity,
			// UnexpectedAdmissionError, ...; k8s.io/kubernetes pkg/kubelet/lifecycle/predicate.go).
			message := s.Reason + ": " + s.Message
			if s.Reason == "NodeAffinity" {
				message += addedSelector(pod)
			}
			return attempt.NewInconclusive(attempt.ReasonKubeletRejected, message)
		}
	}
	if s.Phase == corev1.PodUnknown {
		return attempt.NewInconclusive(attempt.ReasonNodeLost, "the pod's state is unknown: the kubelet stopped reporting")
	}
	if c := condition(pod, corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue {
		return attempt.NewInconclusive(attempt.ReasonEvicted, c.Reason+": "+c.Message)
	}
	if o.State == Running {
		return nil // the containers beside it do not count
	}
	for _, cs := range s.InitContainerStatuses {
		if t := cs.State.Terminated; t != nil && t.ExitCode != 0 && pod.Status.Phase == corev1.PodFailed {
			return attempt.NewInconclusive(attempt.ReasonInitFailed,
				fmt.Sprintf("init container %s ended with exit code %d (%s)", cs.Name, t.ExitCode, t.Reason))
		}
		if reason, message, ok := waiting(cs); ok {
			return attempt.NewInconclusive(reason, "init container "+message)
		}
	}
	if worker != nil {
		if reason, message, ok := waiting(*worker); ok {
			return attempt.NewInconclusive(reason, "container "+message)
		}
	}
	switch {
	case s.Phase == corev1.PodSucceeded, s.Phase == corev1.PodFailed:
		return attempt.NewInconclusive(attempt.ReasonUnknownPodStatus,
			fmt.Sprintf("the pod is %s without an exit code", s.Phase))
	case o.Terminating:
		return attempt.NewInconclusive(attempt.ReasonPodDeleted, "the pod was deleted before it had a result")
	}
	return nil
}

// addedSelector names the node selector that the pod got in addition to the controller's, and the cure; empty if it got
// none. OpenShift adds a namespace's default one, and the admission plugin PodNodeSelector and webhooks do the same.
func addedSelector(pod *corev1.Pod) string {
	var added []string
	for key, value := range pod.Spec.NodeSelector {
		if key != corev1.LabelOSStable || value != string(corev1.Linux) {
			added = append(added, key+"="+value)
		}
	}
	slices.Sort(added)
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		for _, t := range ptr.Deref(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution, corev1.NodeSelector{}).
			NodeSelectorTerms {
			for _, r := range t.MatchExpressions { // the controller's own are MatchFields
				added = append(added, fmt.Sprintf("%s %s %v", r.Key, r.Operator, r.Values))
			}
		}
	}
	if len(added) == 0 {
		return ""
	}
	return "; the pod got the node selector " + strings.Join(added, ", ") + ", which the controller did not ask for. " +
		`Exclude the workers' namespace from it, on OpenShift by its annotation openshift.io/node-selector: ""`
}

// untilDeadline is how long the worker could run before the pod's deadline. The kubelet's deadline covers both start
// and run. All times in the calculation are the kubelet's own (k8s.io/kubernetes pkg/kubelet/active_deadline.go).
func untilDeadline(pod *corev1.Pod, worker *corev1.ContainerStatus) (ran time.Duration, started bool) {
	var at time.Time
	switch {
	case worker == nil:
		return 0, false
	case worker.State.Terminated != nil:
		at = worker.State.Terminated.StartedAt.Time
	case worker.State.Running != nil:
		at = worker.State.Running.StartedAt.Time
	}
	if at.IsZero() || pod.Status.StartTime == nil || pod.Spec.ActiveDeadlineSeconds == nil {
		return 0, !at.IsZero()
	}
	return pod.Status.StartTime.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second).Sub(at), true
}

// waiting reports whether a container waits for something that will not come by itself soon. The reasons are the
// kubelet's (k8s.io/kubernetes pkg/kubelet/images/types.go and pkg/kubelet/kuberuntime/kuberuntime_container.go).
func waiting(cs corev1.ContainerStatus) (reason, message string, ok bool) {
	w := cs.State.Waiting
	if w == nil {
		return "", "", false
	}
	message = fmt.Sprintf("%s: %s: %s", cs.Name, w.Reason, w.Message)
	switch w.Reason {
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
		"RegistryUnavailable", "SignatureValidationFailed":
		return attempt.ReasonImagePull, message, true
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
		"PreCreateHookError", "PreStartHookError", "PostStartHookError":
		return attempt.ReasonContainerConfig, message, true
	}
	return "", "", false
}

func container(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

func condition(pod *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == t {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// resultOfExit turns the container's exit into a result.
func resultOfExit(t *corev1.ContainerStateTerminated, nodeName string) *attempt.Result {
	var report *result.Report
	says := strings.Trim(t.Reason+": "+t.Message, ": ") // the runtime's words, or another program's
	switch r, err := result.Parse([]byte(t.Message)); {
	case err == nil && r.Node == nodeName:
		report, says = &r, t.Reason
	case err == nil:
		says = fmt.Sprintf("%s; the report is of node %q", t.Reason, r.Node)
	}
	r := attempt.FromExitCode(t.ExitCode, report)
	switch {
	case t.Reason == "OOMKilled":
		r = attempt.NewInconclusive(attempt.ReasonOOMKilled,
			"the worker ran out of memory; raise worker.resources.limits.memory")
		r.Report = report
	case r.Reason == attempt.ReasonUnknownExit, r.Reason == attempt.ReasonNoReport:
		r.Message = attempt.Text(fmt.Sprintf("%s (%s)", r.Message, says))
	}
	r.Duration = duration(t, report)
	return r
}

// duration is how long the container ran. The kubelet's times have whole seconds. The worker's own measurement is more
// precise, and is used if it agrees with them.
func duration(t *corev1.ContainerStateTerminated, report *result.Report) time.Duration {
	ran := t.FinishedAt.Sub(t.StartedAt.Time)
	if t.StartedAt.IsZero() || ran < 0 {
		return 0
	}
	if report != nil {
		if own := time.Duration(report.DurationMs) * time.Millisecond; own >= ran-time.Second && own <= ran+time.Second {
			return own
		}
	}
	return ran
}

func started(c corev1.ContainerStatus) bool {
	return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
}
