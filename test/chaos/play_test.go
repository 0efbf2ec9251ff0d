package chaos

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world/termination"
)

// play is what goes on in the cluster all the time: kubelets, scheduler, garbage collector, Karpenter and whoever makes nodes
// join. It returns when ctx ends.
func (w *world) play() {
	for ; w.ctx.Err() == nil; pause(w.ctx, 60*time.Millisecond) {
		var nodes corev1.NodeList
		var pods corev1.PodList
		var claims karpv1.NodeClaimList
		if w.api.List(w.ctx, &nodes) != nil || w.api.List(w.ctx, &pods) != nil || w.api.List(w.ctx, &claims) != nil {
			continue // the API server is down
		}
		byUID, there := map[types.UID]*corev1.Node{}, map[int]*corev1.Node{}
		for i := range nodes.Items {
			byUID[nodes.Items[i].UID], there[slotOf(nodes.Items[i].Name)] = &nodes.Items[i], &nodes.Items[i]
		}
		for i := range pods.Items {
			w.advance(&pods.Items[i], byUID)
		}
		for i := range claims.Items {
			w.karpenter(&claims.Items[i], there)
		}
		for slot := range slots {
			w.die(slot, there[slot])
			w.populate(slot, there[slot], claims.Items)
		}
	}
}

// running is what the kubelets know of a pod.
type running struct {
	first   time.Time
	start   time.Duration // from first to its start
	run     time.Duration // from its start to its end
	lingers time.Duration // from when its end is asked for
	does    string
	boot    string // in which it runs; empty before
	ended   bool
	goes    time.Time
}

// deeds are what workers do, with how many of a hundred on a node that is well.
var deeds = []struct {
	what string
	of   int
}{{"hang", 6}, {"evicted", 4}, {"rejected", 4}, {"pull", 4}, {"exit 4", 4}, {"vanish", 4}, {"killed", 3}, {"never", 2}, {"exit 1", 5},
	{"exit 1" + unreported, 3}, {"exit 2" + unreported, 2}}

// unreported ends the name of a deed after which no report of the worker is there.
const unreported = " without a report"

// deed is what a worker will do.
func (w *world) deed(slot int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch d := w.rng.IntN(100); {
	case time.Now().Before(w.ill[slot]):
		return "exit 1"
	case w.calm:
		return "exit 0"
	case time.Now().Before(w.wrapped[slot]):
		return fmt.Sprint("exit ", 1+w.rng.IntN(2), unreported)
	case w.bad[slot] && d < 90 && w.born[slot]%3 == 2: // its image cannot be started
		return "exit 1" + unreported
	case w.bad[slot] && d < 90:
		return "exit 1"
	default:
		for _, deed := range deeds {
			if d -= deed.of; d < 0 {
				return deed.what
			}
		}
	}
	return "exit 0"
}

// advance takes one pod a step further.
func (w *world) advance(pod *corev1.Pod, nodes map[types.UID]*corev1.Node) {
	node := nodes[owner(pod)]
	if pod.Namespace != namespace || pod.Labels[labelForged] != "" {
		node = nodes[types.UID(pod.Annotations[annotationOn])]
	}
	if how := pod.Annotations[annotationAltered]; how != "" && (node != nil || how == "owner") {
		if pod.DeletionTimestamp != nil {
			w.confirm(pod)
		}
		return // it never starts, and has no owner that the garbage collector misses
	}
	if node == nil {
		_ = w.end(pod, 0) // as the garbage collector does
		return
	}
	slot := slotOf(node.Name)
	r := w.workers[string(pod.UID)]
	if r == nil {
		r = &running{first: time.Now(), start: w.within(30*time.Millisecond, 400*time.Millisecond), run: w.within(30*time.Millisecond, 700*time.Millisecond),
			lingers: w.within(0, 800*time.Millisecond), does: w.deed(slot)}
		w.workers[string(pod.UID)] = r
	}
	_, stuck := w.hit(containerStuck, slot)
	_, hung := w.hit(runtimeHung, slot)
	_, dies := w.hit(kubeletDead, slot)
	w.mu.Lock()
	w.dead[slot] = w.dead[slot] || dies && r.boot != "" && !r.ended
	silent := w.dead[slot] || time.Now().Before(w.silent[slot])
	w.mu.Unlock()
	age := time.Since(r.first)
	switch {
	case silent, stuck && r.boot != "" && !r.ended, hung:
	case pod.DeletionTimestamp != nil:
		if r.goes.IsZero() {
			r.goes = time.Now().Add(r.lingers)
		}
		if time.Now().After(r.goes) {
			w.confirm(pod)
		}
	case pod.Namespace != namespace || pod.Labels[labelForged] != "":
	case pod.Spec.NodeName == "":
		_ = w.api.SubResource("binding").Create(w.ctx, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}})
	case r.ended || r.does == "never" || age < r.start:
	case r.boot == "":
		w.starts(pod, r, node)
	case r.boot != boot(node) && r.does != "hang":
		w.exits(pod, r, 137) // the node rebooted under it
	case r.does == "hang" || age < r.start+r.run:
	default:
		w.exits(pod, r, 0)
	}
}

// confirm removes a pod whose containers have ended, as its kubelet does.
func (w *world) confirm(pod *corev1.Pod) {
	uid := pod.UID
	_ = w.api.Delete(w.ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &uid})
}

// starts begins a worker, or shows why it cannot begin.
func (w *world) starts(pod *corev1.Pod, r *running, node *corev1.Node) {
	if _, missing := w.hit(imageMissing, slotOf(node.Name)); missing {
		r.does = "pull"
	}
	switch r.does {
	case "rejected":
		r.ended = w.report(pod, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: "Pod was rejected: Node didn't have enough resource: cpu"})
	case "pull":
		r.ended = w.report(pod, workerStatus(pod, corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no route to the registry"}}))
	default:
		if w.report(pod, workerStatus(pod, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: w.kubeletTime(node.Name)}})) {
			r.boot = boot(node)
		}
	}
}

// exits ends a worker as its deed says, or with the code if it is not 0.
func (w *world) exits(pod *corev1.Pod, r *running, code int) {
	if code == 0 {
		switch r.does {
		case "vanish":
			r.ended = w.end(pod, 1) == nil
			return
		case "evicted":
			r.ended = w.report(pod, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory."})
			return
		case "killed":
			code = 137
		default:
			_, _ = fmt.Sscanf(r.does, "exit %d", &code)
		}
	}
	at := w.kubeletTime(pod.Spec.NodeName)
	state := &corev1.ContainerStateTerminated{ExitCode: int32(code), Reason: "Completed", StartedAt: at, FinishedAt: at} //nolint:gosec // an exit code
	phase := corev1.PodSucceeded
	state.Message = termination.Message(pod.Annotations[workerpod.AnnotationNode], code)
	lacks := code != 0 && strings.HasSuffix(r.does, unreported)
	if lacks {
		w.mu.Lock()
		state.Message = noReports[w.rng.IntN(len(noReports))](pod.Annotations[workerpod.AnnotationNode], code)
		w.mu.Unlock()
	}
	if code != 0 {
		phase, state.Reason = corev1.PodFailed, "Error"
	}
	if code == 137 {
		state.Reason = "OOMKilled"
	}
	status := workerStatus(pod, phase, corev1.ContainerState{Terminated: state})
	message, _ := json.Marshal(ran{Node: string(owner(pod)), Boot: r.boot, Checks: configuredChecks(pod), Exit: code, Unreported: lacks}) // strings only
	status.Message = string(message)
	r.ended = w.report(pod, status)
}

// configuredChecks are the checks that a worker is configured to run.
func configuredChecks(pod *corev1.Pod) string {
	for _, e := range pod.Spec.Containers[0].Env {
		for _, checks := range checkNames {
			if e.Name == worker.EnvVar && strings.Contains(e.Value, checks) {
				return checks
			}
		}
	}
	return ""
}

// kubeletTime is the time by a node's clock, which is up to some minutes off.
func (w *world) kubeletTime(node string) metav1.Time {
	return metav1.NewTime(time.Now().Add(time.Duration(slotOf(node)-slots/2) * 97 * time.Second))
}

func workerStatus(pod *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) corev1.PodStatus {
	return corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, State: state}}}
}

// report patches a pod's status, and reports whether that is done.
func (w *world) report(pod *corev1.Pod, status corev1.PodStatus) bool {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return false
	}
	return client.IgnoreNotFound(w.api.Status().Patch(w.ctx, pod, client.RawPatch(types.StrategicMergePatchType, patch))) == nil
}

// karpenter ends a NodeClaim that is to go: its node first, then its finalizer.
func (w *world) karpenter(claim *karpv1.NodeClaim, nodes map[int]*corev1.Node) {
	if _, stuck := w.hit(claimStuck, slotOf(claim.Status.NodeName)); stuck || claim.DeletionTimestamp == nil {
		return
	}
	if time.Since(claim.DeletionTimestamp.Time) < time.Second {
		return // the drain
	}
	if n := nodes[slotOf(claim.Status.NodeName)]; n != nil && n.Spec.ProviderID == claim.Status.ProviderID {
		_ = w.remove(slotOf(n.Name))
		return
	}
	_ = w.api.Patch(w.ctx, claim, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
}

// die ends a kubelet that is to die: under a worker, or after a while, and with every node that its machine becomes.
func (w *world) die(slot int, n *corev1.Node) {
	since, dies := w.hit(kubeletDead, slot)
	w.mu.Lock()
	w.dead[slot] = dies && (w.dead[slot] || time.Since(since) > dieWithin)
	dead := w.dead[slot]
	w.mu.Unlock()
	if n != nil && dead && conditionOf(n, corev1.NodeReady) != corev1.ConditionUnknown {
		_ = w.condition(slot, corev1.NodeReady, corev1.ConditionUnknown) // as the node lifecycle controller does
	}
}

// populate lets a node join where none is, and be registered once it has.
func (w *world) populate(slot int, n *corev1.Node, claims []karpv1.NodeClaim) {
	w.mu.Lock()
	absent := time.Now().Before(w.absent[slot])
	w.mu.Unlock()
	if n != nil {
		w.drive(slot, n)
		w.label(slot, n)
		if slot < managed && n.Labels["karpenter.sh/registered"] == "" && time.Since(n.CreationTimestamp.Time) > 1500*time.Millisecond {
			_ = w.mark(slot, labelled("karpenter.sh/registered", "true"))
		}
		return
	}
	if absent {
		return
	}
	for i := range claims {
		if claims[i].Status.NodeName == nodeName(slot) {
			if claims[i].DeletionTimestamp == nil {
				_ = w.end(&claims[i], 0) // its node is gone, and Karpenter gives it up
			}
			return
		}
	}
	_ = w.join(slot)
}

// join makes a node, and its NodeClaim where it is Karpenter's.
func (w *world) join(slot int, change ...func(*corev1.Node)) error {
	w.mu.Lock()
	w.born[slot]++
	id := fmt.Sprintf("%d-%d-%d", w.seed, slot, w.born[slot])
	w.bad[slot] = !w.calm && w.rng.IntN(100) < 35
	profile := w.rng.IntN(2) == 0
	w.mu.Unlock()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(slot), Labels: map[string]string{}},
		Spec: corev1.NodeSpec{ProviderID: "chaos://" + id, Taints: []corev1.Taint{{Key: gatingKey, Value: "true", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "boot-" + id + "-1"}, Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: agentReady, Status: corev1.ConditionTrue}}}}
	if slices.ContainsFunc(w.faults, func(e endless) bool { return e.name == conditionTaken && e.slots[slot] }) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: required, Status: corev1.ConditionFalse,
			Reason: "Chaos", LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now()})
	}
	if profile {
		n.Labels[labelProfile] = "b"
	}
	if slot%4 != 3 { // the rule does not select all
		n.Labels[labelAgent] = "true"
	}
	if slot < managed {
		n.Labels[labelPool] = "pool"
		if err := w.claim(slot, id); err != nil {
			return err
		}
	}
	for _, f := range change {
		f(n)
	}
	announce(n)
	return w.api.Create(w.ctx, n)
}

func (w *world) claim(slot int, id string) error {
	c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + id, Finalizers: []string{"karpenter.sh/termination"}, Labels: map[string]string{labelPool: "pool"}},
		Spec: karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: "default"}, Requirements: []karpv1.NodeSelectorRequirementWithMinValues{}}}
	if err := w.api.Create(w.ctx, c); err != nil {
		return err
	}
	c.Status.ProviderID, c.Status.NodeName = "chaos://"+id, nodeName(slot)
	return w.api.Status().Update(w.ctx, c)
}
