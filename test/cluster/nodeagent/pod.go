package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podRun is one pod on one node, from its admission to its removal.
type podRun struct {
	agent *Agent
	node  *Node
	pod   *corev1.Pod // as it was when the run began

	// stopping ends with an interruption as its cause when the containers are to end; killed
	// when they are to end at once.
	stopping context.Context
	stop     context.CancelCauseFunc
	killed   context.Context
	killNow  context.CancelFunc
	deleted  chan struct{} // closed once the pod has a deletion timestamp
	deleting sync.Once
	silent   atomic.Bool   // no word to the API server any more
	done     chan struct{} // closed by the agent when the run is over

	mu       sync.Mutex
	state    podState
	terminal bool // no container will run any more
	syncing  sync.Mutex
}

// interruption is why containers are to end before they do so themselves.
type interruption struct {
	grace           time.Duration
	reason, message string // of a pod that fails by it; empty where it is only deleted
	containerReason string // of its containers; empty: by their exit code
}

func (i interruption) Error() string { return i.reason + i.containerReason }

func newPodRun(a *Agent, n *Node, pod *corev1.Pod) *podRun {
	r := &podRun{agent: a, node: n, pod: pod, deleted: make(chan struct{}), done: make(chan struct{})}
	r.stopping, r.stop = context.WithCancelCause(a.ctx)
	r.killed, r.killNow = context.WithCancel(a.ctx)
	r.state = newPodState(pod)
	return r
}

// delete begins a graceful deletion. A second call with a shorter grace changes nothing: the
// API server removes the object itself when the grace is zero.
func (r *podRun) delete(grace time.Duration) {
	r.deleting.Do(func() { close(r.deleted) })
	r.interrupt(interruption{grace: grace})
}

// interrupt ends the containers; the first one counts.
func (r *podRun) interrupt(why interruption) { r.stop(why) }

// why is what interrupted the run, or the zero interruption.
func (r *podRun) why() interruption {
	var why interruption
	_ = errors.As(context.Cause(r.stopping), &why)
	return why
}

// remove is called when the object is gone: there is nothing left to report on.
func (r *podRun) remove() {
	r.silent.Store(true)
	r.killNow()
	r.interrupt(interruption{})
	r.deleting.Do(func() { close(r.deleted) })
}

// powerOff kills the containers without a word and waits for the end of the run.
func (r *podRun) powerOff() {
	r.remove()
	<-r.done
}

// run is the pod's life on the node. confirmed says that it ended with the confirmation of
// the pod's deletion.
func (r *podRun) run() (confirmed bool) {
	defer func() {
		r.stop(nil)
		r.killNow()
	}()
	if terminalPhase(r.pod.Status.Phase) {
		r.setTerminal()
		return r.finish()
	}
	if lost := r.state.lose(); lost && r.pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
		r.setTerminal()
		r.sync()
		return r.finish()
	}
	if refused := r.admit(); refused.reason != "" {
		r.agent.logf("%s/%s on %s: refused: %s", r.pod.Namespace, r.pod.Name, r.node.Name, refused.message)
		r.mu.Lock()
		r.state.phase, r.state.reason, r.state.message = corev1.PodFailed, refused.reason, refused.message
		r.state.containers, r.state.init = nil, nil
		r.mu.Unlock()
		r.setTerminal()
		r.sync()
		return r.finish()
	}
	r.mu.Lock()
	r.state.started = metav1.Now()
	r.mu.Unlock()
	if seconds := r.pod.Spec.ActiveDeadlineSeconds; seconds != nil {
		timer := time.AfterFunc(time.Duration(*seconds)*time.Second, func() {
			r.interrupt(interruption{
				grace:  time.Duration(deref(r.pod.Spec.TerminationGracePeriodSeconds)) * time.Second,
				reason: "DeadlineExceeded", message: "Pod was active on the node longer than the specified deadline",
			})
		})
		defer timer.Stop()
	}
	r.sync()
	for r.stopping.Err() == nil {
		err := r.prepare()
		if err == nil {
			break
		}
		r.agent.logf("%s/%s on %s: %v", r.pod.Namespace, r.pod.Name, r.node.Name, err)
		select {
		case <-time.After(time.Second):
		case <-r.stopping.Done():
		}
	}
	r.runContainers()
	r.setTerminal()
	r.sync()
	return r.finish()
}

func (r *podRun) setTerminal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.terminal = true
	if why := r.why(); why.reason != "" {
		r.state.phase, r.state.reason, r.state.message = corev1.PodFailed, why.reason, why.message
	}
}

// admit asks for the node as it is and the other pods that it runs.
func (r *podRun) admit() refusal {
	node, err := r.agent.client.CoreV1().Nodes().Get(r.stopping, r.node.Name, metav1.GetOptions{})
	if err != nil {
		return refusal{"UnexpectedAdmissionError", fmt.Sprintf("read node %s: %v", r.node.Name, err)}
	}
	var others []*corev1.Pod
	for _, other := range r.agent.runsOn(r.node) {
		other.mu.Lock()
		active := !other.terminal && !other.state.started.IsZero()
		other.mu.Unlock()
		if other != r && active {
			others = append(others, other.pod)
		}
	}
	return admit(r.pod, node, others)
}

// runContainers runs the init containers one after another, then the containers at once.
func (r *podRun) runContainers() {
	for i := range r.pod.Spec.InitContainers {
		c := &container{run: r, spec: &r.pod.Spec.InitContainers[i], init: true}
		if !c.untilDone() {
			return
		}
	}
	var wg sync.WaitGroup
	for i := range r.pod.Spec.Containers {
		c := &container{run: r, spec: &r.pod.Spec.Containers[i]}
		wg.Go(func() { c.untilDone() })
	}
	wg.Wait()
}

// finish waits for the pod's deletion and confirms it, as the kubelet does once nothing of a
// pod runs any more.
func (r *podRun) finish() (confirmed bool) {
	select {
	case <-r.deleted:
	case <-r.killed.Done():
		return false
	}
	return r.retry("delete", func() error {
		grace := int64(0)
		return r.agent.client.CoreV1().Pods(r.pod.Namespace).Delete(r.killed, r.pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &grace, Preconditions: metav1.NewUIDPreconditions(string(r.pod.UID)),
		})
	})
}

// prepare makes the pod's folder with its token and resolv.conf.
func (r *podRun) prepare() error {
	if err := os.MkdirAll(r.agent.podDir(r.pod), 0o755); err != nil {
		return err
	}
	nameserver, err := r.node.resolver.nameserver()
	if err != nil {
		return err
	}
	if err := writeResolvConf(r.pod, nameserver, r.resolvConf()); err != nil {
		return err
	}
	return r.writeServiceAccount()
}

func terminalPhase(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
