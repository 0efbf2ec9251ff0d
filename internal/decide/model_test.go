package decide_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// settings are the configurations that the model is run under.
var settings = []string{
	"",
	"nodeManagement: {deleteFailedNodes: true}",
	"nodeManagement: {deleteFailedNodes: true, reverify: {onReboot: false}, remediation: {controlProbe: false, maxUnhealthy: 100%, neverVerifiedOnly: false}}",
	"nodeManagement: {deleteFailedNodes: true, remediation: {maxUnhealthy: 100%}}\nreconciliation: {verificationDeadlineSeconds: 120, maxRetries: 2}",
	"nodeManagement: {deleteFailedNodes: true, remediation: {dryRun: true, controlProbe: false, maxUnhealthy: 100%}}\nreconciliation: {verificationDeadlineSeconds: 120, maxRetries: 1}\nworker: {keepFailedSeconds: 0}",
	"nodeManagement: {reverify: {taint: true, interval: 1h}, minimumHoldSeconds: 60}\nworker: {keepFailedSeconds: 0}",
	"nodeManagement: {deleteFailedNodes: true, remediation: {action: condition, controlProbe: false, maxUnhealthy: 100%}}\nreconciliation: {maxRetries: 1}",
	"nodeManagement: {deleteFailedNodes: true, remediation: {action: condition, maxUnhealthy: 100%, neverVerifiedOnly: false}}\nreconciliation: {maxRetries: 2}",
	"nodeManagement: {deleteFailedNodes: true, reverify: {onConditions: [{type: KernelDeadlock, forSeconds: 5, taint: true}], cooldownSeconds: 60}}",
	"nodeManagement: {taints: [{key: node-ready/unverified, effect: NoSchedule}, {key: node-ready/evict, effect: NoExecute}], verifyUntainted: true}\nreconciliation: {verificationDeadlineSeconds: 60, retryBackoff: linear}",
	"nodeManagement: {deleteFailedNodes: true, reverify: {taint: true}, remediation: {maxUnhealthy: 100%}}\nreconciliation: {verificationDeadlineSeconds: 120, onDeadline: release, maxRetries: 2}",
	"reconciliation: {verificationDeadlineSeconds: 60, onDeadline: release}\nnodeManagement: {prerequisites: {nodeReady: true}}",
	"nodeManagement: {deleteFailedNodes: true, remediation: {maxUnhealthy: 100%}}\nreconciliation: {verificationDeadlineSeconds: 120, onDeadline: remediate, maxRetries: 2}",
}

// profiles has one whose pods have an init container.
const profiles = `
profiles:
  - name: gpu
    nodeSelector: {matchLabels: {gpu: ''}}
    checks: [{name: a, type: dns, dns: {name: a.example}}]
    initContainers: [{name: burn-in, image: "burn-in:1"}]
    initTimeoutSeconds: 900
`

// restTurns is how many decisions a node may need until nothing changes any more. During that, no other program acts
// and no time passes.
const restTurns = 10

// rest decides about both nodes until nothing changes.
func (m *model) rest() {
	for range restTurns {
		if one, other := m.reconcile(joining), m.reconcile(verified); !one && !other {
			return
		}
	}
	m.failed("decisions still change the cluster after %d turns at one instant", restTurns)
}

// escapes checks that the node is released, or deleted and its successor released, in bounded time once faults have
// ended. Only workers may still hang, if hung is true. The node must not need the periodic resync: whenever nothing is
// under way, a decision has said when to look again.
func (m *model) escapes(hung bool) {
	const most = 3 * time.Hour
	m.recover()
	for name := range m.pods {
		m.hung[name] = hung
	}
	for began := m.now; m.now.Sub(began) < most; {
		m.rest()
		if m.kubelets(0) {
			m.now = m.now.Add(time.Second)
			continue
		}
		if m.released() {
			return
		}
		if m.waits[joining] == 0 {
			m.failed("nothing is under way, nobody looks again, and the node is not released: %s", m.describe())
		}
		m.now = m.now.Add(m.nextLook())
	}
	m.failed("it is not released within %s: %s", most, m.describe())
}

// nextLook is the shortest time after which a decision asks to be repeated, or 0 for none.
func (m *model) nextLook() (next time.Duration) {
	for _, wait := range m.waits {
		if wait > 0 && (next == 0 || wait < next) {
			next = wait
		}
	}
	return next
}

// attempt lets time pass until the worker of the joining node and the probes have ended, if there are any.
func (m *model) attempt(code int32) {
	for range 6 {
		m.reconcile(joining)
		m.reconcile(verified)
		if !m.kubelets(code) {
			m.now = m.now.Add(min(m.nextLook(), 10*time.Minute))
		}
	}
}

func (m *model) describe() string {
	n := m.nodes[joining]
	text := fmt.Sprintf("labels %v, annotations %v, taints %v, conditions %v", n.Labels, n.Annotations, n.Spec.Taints, n.Status.Conditions)
	for name, p := range m.pods {
		o := workerpod.Observe(p)
		text += fmt.Sprintf("\npod %s: %s, deleted %v, %+v", name, o.State, p.DeletionTimestamp, o.Attempt)
	}
	return text
}

// TestModel puts two nodes through random histories and checks these properties. Every decision terminates and gives
// the same result twice. It takes at most one step, and writes nothing that is already there. Decisions settle. A node
// is released only for a pass of that node, boot and checks. No two workers run on a node, and every state has a way
// out. A condition asks for remediation only on a node that exhausted its retries under its checks, in its boot. The histories are the same in each run. For other and longer ones, use: go test ./internal/decide -run Model
// -rapid.checks 100000.
func TestModel(t *testing.T) {
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		_ = checks.Value.Set("1000") // rapid's own default does not get everywhere
		if seed := flag.Lookup("rapid.seed"); seed.Value.String() == seed.DefValue {
			_ = seed.Value.Set("4") // nor does every seed
		}
	}
	reached, histories := map[string]int{}, 0
	rapid.Check(t, func(t *rapid.T) {
		histories++
		m := newModel(t.Fatalf, reached, rapid.SampledFrom(settings).Draw(t, "settings")+profiles)
		m.nodesLag, m.podsLag = rapid.Bool().Draw(t, "the cache of nodes lags"), rapid.Bool().Draw(t, "the cache of pods lags")
		if rapid.Bool().Draw(t, "Karpenter made it") {
			m.nodes[joining].Labels[owner.LabelNodePool] = "pool"
		}
		if rapid.Bool().Draw(t, "its pods have an init container") {
			m.nodes[joining].Labels["gpu"] = ""
		}
		joins := func() *corev1.Node { return m.nodes[joining] }
		changed := func(change func(n *corev1.Node)) func(*rapid.T) {
			return func(*rapid.T) {
				change(joins())
				m.touch(joins())
			}
		}
		annotated := func(key, value string) func(*rapid.T) {
			return changed(func(n *corev1.Node) { toggle(n.Annotations, key, value) })
		}
		tainted := func(taint corev1.Taint) func(*rapid.T) {
			return changed(func(n *corev1.Node) {
				before := len(n.Spec.Taints)
				n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(have corev1.Taint) bool { return have.MatchTaint(&taint) })
				if len(n.Spec.Taints) == before {
					n.Spec.Taints = append(n.Spec.Taints, taint)
				}
			})
		}
		// of does something to one of the pods that are as wanted.
		of := func(wanted func(p *corev1.Pod, o workerpod.Observation) bool, do func(t *rapid.T, p *corev1.Pod)) func(*rapid.T) {
			return func(t *rapid.T) {
				names := slices.DeleteFunc(slices.Sorted(maps.Keys(m.pods)), func(name string) bool { return !wanted(m.pods[name], workerpod.Observe(m.pods[name])) })
				if len(names) == 0 {
					t.Skip("no such pod")
				}
				do(t, m.pods[rapid.SampledFrom(names).Draw(t, "pod")])
			}
		}
		in := func(states ...workerpod.State) func(*corev1.Pod, workerpod.Observation) bool {
			return func(_ *corev1.Pod, o workerpod.Observation) bool { return slices.Contains(states, o.State) }
		}
		switches := func(flag *bool) func(*rapid.T) { return func(*rapid.T) { *flag = !*flag } }
		passes := func(d time.Duration) func(*rapid.T) { return func(*rapid.T) { m.now = m.now.Add(d) } }
		t.Repeat(map[string]func(*rapid.T){
			"decide once":    func(*rapid.T) { m.reconcile(joining) },
			"decide to rest": func(*rapid.T) { m.rest() },
			"attempts end": func(t *rapid.T) {
				code := rapid.SampledFrom([]int32{0, 1, 1, 1, 4}).Draw(t, "code")
				m.burnIn = rapid.SampledFrom([]string{"ends", "ends", "fails", "hangs"}).Draw(t, "init containers")
				for range rapid.IntRange(1, 6).Draw(t, "times") {
					m.attempt(code)
				}
				m.burnIn = "ends"
			},
			"every attempt fails": func(*rapid.T) {
				for range 4 {
					m.attempt(1)
				}
				m.rest()
			},
			"another writer puts the taint back after each release": func(*rapid.T) {
				m.fights = true
				for range 4 {
					m.attempt(0)
				}
				m.fights = false
			},
			"decide elsewhere": func(*rapid.T) { m.reconcile(verified) },
			"a pod starts":     of(in(workerpod.Pending), func(_ *rapid.T, p *corev1.Pod) { m.starts(p) }),
			"a pod exits": of(in(workerpod.Running), func(t *rapid.T, p *corev1.Pod) {
				m.exits(p, rapid.SampledFrom([]int32{0, 0, 1, 1, 1, 2, 4, 10, 137}).Draw(t, "code"))
			}),
			"an init container fails": of(func(_ *corev1.Pod, o workerpod.Observation) bool { return o.InitContainer != "" }, func(_ *rapid.T, p *corev1.Pod) { m.initEnds(p, 1) }),
			"an image is missing": of(in(workerpod.Pending), func(_ *rapid.T, p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: workerpod.Container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}
			}),
			"a kubelet rejects": of(in(workerpod.Pending), func(_ *rapid.T, p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "OutOfpods" }),
			"no room": of(in(workerpod.Pending), func(_ *rapid.T, p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
			}),
			"evicted": of(in(workerpod.Pending, workerpod.Running), func(_ *rapid.T, p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" }),
			"somebody deletes a pod": of(func(p *corev1.Pod, _ workerpod.Observation) bool { return p.DeletionTimestamp == nil }, func(_ *rapid.T, p *corev1.Pod) {
				p.DeletionTimestamp = &metav1.Time{Time: m.now}
			}),
			"a pod goes":            of(func(p *corev1.Pod, _ workerpod.Observation) bool { return p.DeletionTimestamp != nil }, func(_ *rapid.T, p *corev1.Pod) { delete(m.pods, p.Name) }),
			"the taint comes back":  tainted(corev1.Taint{Key: "node-ready/unverified", Effect: corev1.TaintEffectNoSchedule}),
			"a foreign taint":       tainted(corev1.Taint{Key: "example.com/other", Effect: corev1.TaintEffectNoExecute}),
			"leaving":               tainted(corev1.Taint{Key: leavingTaint, Effect: corev1.TaintEffectNoSchedule}),
			"the label goes":        changed(func(n *corev1.Node) { delete(n.Labels, "node-ready/verified") }),
			"the label is forged":   changed(func(n *corev1.Node) { n.Labels["node-ready/verified"] = "true" }),
			"a condition is forged": changed(func(n *corev1.Node) { forgeCondition(n) }),
			"another profile":       changed(func(n *corev1.Node) { toggle(n.Labels, "gpu", "") }),
			"Karpenter":             changed(func(n *corev1.Node) { n.Labels[owner.LabelNodePool] = "pool" }),
			"Karpenter registers":   changed(func(n *corev1.Node) { n.Labels[owner.LabelRegistered] = "true" }),
			"the record goes":       changed(func(n *corev1.Node) { delete(n.Annotations, marks.AnnotationRecord) }),
			"the record is garbage": changed(func(n *corev1.Node) { n.Annotations[marks.AnnotationRecord] = "{" }),
			"the condition goes": changed(func(n *corev1.Node) {
				n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == marks.ConditionType })
			}),
			"somebody requests": changed(func(n *corev1.Node) {
				m.serial++
				n.Annotations[marks.AnnotationVerifyRequested] = fmt.Sprint("request-", m.serial)
			}),
			"an agent accuses":     func(*rapid.T) { m.accuse() },
			"opted out":            annotated(marks.AnnotationSkip, "true"),
			"not to be deleted":    annotated(marks.AnnotationDoNotDelete, "true"),
			"a reboot":             func(*rapid.T) { m.reboot() },
			"the kubelet is lost":  func(*rapid.T) { m.ready(corev1.ConditionUnknown) },
			"the kubelet is back":  func(*rapid.T) { m.ready(corev1.ConditionTrue) },
			"the node is replaced": func(*rapid.T) { m.remove(joining) },
			"prerequisites":        switches(&m.unmet),
			"slots":                switches(&m.full),
			"a quota":              switches(&m.refuses),
			"an ordinary pod":      switches(&m.busy),
			"the cache of nodes":   switches(&m.nodesLag),
			"the cache of pods":    switches(&m.podsLag),
			"another leader":       func(*rapid.T) { m.restart() },
			"a second":             passes(time.Second),
			"ten seconds":          passes(10 * time.Second),
			"a minute":             passes(time.Minute),
			"an hour":              passes(time.Hour),
		})
		m.escapes(rapid.Bool().Draw(t, "workers hang"))
	})
	for _, what := range []decide.Step{decide.StepNone, decide.StepStart, decide.StepProbe, decide.StepRecord, decide.StepDelete, decide.StepSetCondition, decide.StepRemoveConditions, marks.ReasonChecksPassed, marks.ReasonChecksFailed,
		marks.ReasonRetriesExhausted, marks.ReasonDeadlineExceeded, marks.ReasonVerifying, marks.ReasonWaitingForPrerequisites, marks.ReasonWaitingForRegistration,
		marks.ReasonWaitingForSlot, marks.ReasonWorkerInconclusive, marks.ReasonRemediationHeld, "force", attempt.ReasonInitFailed, attempt.ReasonInitTimeout, attempt.ReasonSharedFailure, rests, "taken back", "released unverified",
		"state verified", "state remediating", "state verifying", "state waiting", "state held", "state exhausted", "state backing-off"} {
		if reached[string(what)] == 0 && histories >= 1000 { // rapid makes fewer where the test's time runs out
			t.Errorf("%q was never reached: the actions are too much alike", what)
		}
	}
	t.Log(reached)
}

func toggle(m map[string]string, key, value string) {
	if _, ok := m[key]; ok {
		delete(m, key)
	} else {
		m[key] = value
	}
}

// reboot gives the joining node another boot. All of its containers end.
func (m *model) reboot() {
	n := m.nodes[joining]
	m.serial++
	n.Status.NodeInfo.BootID = fmt.Sprint("b", m.serial)
	m.touch(n)
	for _, p := range m.pods {
		if p.Spec.NodeName == joining && workerpod.Observe(p).State == workerpod.Running {
			m.exits(p, 137)
		}
	}
}
