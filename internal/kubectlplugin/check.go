package kubectlplugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

const (
	checkPoll = 500 * time.Millisecond
	// cleanUp bounds the deletion of the pod, also of a command that was interrupted.
	cleanUp = 10 * time.Second
)

// checked is what check -o json prints.
type checked struct {
	Node       string          `json:"node"`
	Outcome    attempt.Outcome `json:"outcome"`
	Reason     string          `json:"reason,omitempty"`
	Message    string          `json:"message,omitempty"`
	DurationMs int64           `json:"durationMs"`
	Report     *result.Report  `json:"report,omitempty"`
}

// check runs the checks of a node's profile on it, in a pod that says nothing to the controller, and prints what they found.
func check(ctx context.Context, v *invocation) error {
	s, err := v.cluster.node(ctx, v.args[0])
	if err != nil {
		return err
	}
	namespace := v.cluster.namespace
	if namespace == "" {
		if namespace, err = v.cluster.controllers(ctx); err != nil {
			return err
		}
	}
	cfg, f := v.cluster.config, s.in.Node
	builder, err := workerpod.NewBuilder(cfg, namespace, cfg.Worker.Image.Reference(version.Version))
	if err != nil {
		return err
	}
	pod := builder.Check(workerpod.Target{Name: f.Name, UID: f.UID, BootID: f.BootID, Gated: f.Gated}, s.in.Profile, rand.String(8))
	if s.in.Profile.Unchecked() {
		return fmt.Errorf("profile %q of node %s has no checks", s.in.Profile.Profile, f.Name)
	}
	pods := v.cluster.core.Pods(namespace)
	tried, err := pods.Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return fmt.Errorf("the API server does not take the pod: %w", err)
	}
	if workerpod.MayPreempt(tried) {
		workerpod.Bind(pod)
	}
	if pod, err = pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
		defer cancel()
		if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
			_, _ = fmt.Fprintf(v.stream, "pod %s/%s is left behind: %v\n", namespace, pod.Name, err)
		}
	}()
	o, err := v.awaitEnd(ctx, pod)
	if err != nil {
		return err
	}
	r := o.Attempt.Result
	if v.output != "" {
		err = v.printObject(checked{f.Name, r.Outcome, r.Reason, r.Message, r.Duration.Milliseconds(), r.Report})
	} else {
		fmt.Fprintf(&v.out, "node/%s: %s after %s\n", f.Name, r.Outcome, r.Duration.Round(time.Millisecond))
		v.checks(r.Report)
	}
	if r.Outcome == attempt.Passed || err != nil {
		return err
	}
	text := r.Reason
	if r.Message != "" {
		text += ": " + plain(r.Message)
	}
	return coded{fmt.Errorf("the checks did not pass: %s", text), exitFailed}
}

// awaitEnd waits until the pod has a result.
func (v *invocation) awaitEnd(ctx context.Context, pod *corev1.Pod) (workerpod.Observation, error) {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	o := workerpod.Observe(pod)
	for {
		have, err := v.cluster.core.Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil {
			if o = workerpod.Observe(have); o.Attempt.Result != nil {
				return o, nil
			}
			select {
			case <-ctx.Done():
			case <-time.After(checkPoll):
				continue
			}
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return o, coded{fmt.Errorf("pod %s/%s is %s after %s; %s", pod.Namespace, pod.Name, o.State, v.timeout, o.Unschedulable), exitTime}
		}
		return o, errors.Join(err, ctx.Err())
	}
}
