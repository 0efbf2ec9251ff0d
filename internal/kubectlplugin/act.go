package kubectlplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	poll "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// forEachNode changes each node that the command line names, and reports the result unless it is empty.
func (v *invocation) forEachNode(do func(name string) (result string, err error)) error {
	var errs []error
	for _, name := range v.args {
		result, err := do(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", name, err))
		} else if result != "" {
			v.report("node/"+name, result)
		}
	}
	return errors.Join(errs...)
}

func (v *invocation) patchNode(ctx context.Context, name string, patch []byte) (*corev1.Node, error) {
	return v.cluster.client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager})
}

// annotationPatch is a merge patch that sets an annotation, or removes it where value is nil.
func annotationPatch(key string, value any) []byte {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	if err != nil {
		panic(err) // strings only
	}
	return patch
}

// reverify makes the controller verify nodes now. It decides on a fresh read, and again whenever the node changed
// before the patch.
func reverify(ctx context.Context, v *invocation) error {
	decision := nodeState.reverify
	id := ""
	if v.await {
		if v.cluster.component == componentDaemonSet {
			return errors.New("DaemonSet mode does not answer requests: omit --wait, and use kubectl node-ready wait")
		}
		id = "reverify-" + rand.String(8)
		decision = func(s nodeState, now time.Time) (patch []byte, message string, err error) {
			patch, err = s.requestReverify(id, now)
			return patch, "", err // what comes of the request is reported
		}
	}
	var asked []string
	err := v.forEachNode(func(name string) (message string, err error) {
		err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			s, err := v.cluster.node(ctx, name)
			if err != nil {
				return err
			}
			var patch []byte
			if patch, message, err = decision(s, v.now); err == nil && patch != nil {
				_, err = v.patchNode(ctx, name, patch)
			}
			return err
		})
		if err == nil {
			asked = append(asked, name)
		}
		return message, err
	})
	if l := v.leader(ctx); l.Dead && v.text() {
		fmt.Fprintln(&v.out, singleLine(l.line(v.now)))
	}
	if !v.await || len(asked) == 0 {
		return err
	}
	return errors.Join(err, v.awaitAnswers(ctx, asked, id))
}

// reverify is the patch that makes the controller verify the node now; none where an attempt is under way.
func (s nodeState) reverify(now time.Time) (patch []byte, message string, err error) {
	current := decide.CurrentPod(s.in.Node.Record, s.in.Pods)
	switch {
	case s.refusesReverify() != nil:
		return nil, "", s.refusesReverify()
	case current != nil && decide.NeedsVerification(s.in, now):
		return nil, fmt.Sprintf("attempt %d already runs", current.Attempt.Number), nil
	}
	return s.startAfresh(now), fmt.Sprintf("attempt %d is due now", s.in.Node.Record.Sequence+1), nil
}

// refusesReverify is why the controller would not verify the node.
func (s nodeState) refusesReverify() error {
	switch {
	case s.in.Node.Deleting:
		return errors.New("it is being deleted")
	case !decide.Eligible(s.in):
		return fmt.Errorf("it is excluded from verification: by nodeManagement.nodeSelector, by the annotation %s, or as "+
			"a control-plane node, a virtual node or a node without Linux", marks.AnnotationSkip)
	}
	return nil
}

// startAfresh is the patch that removes the verified label and restores the full retry budget. The record is reset and
// not removed, because it holds facts that must survive. The number of the last attempt keeps an attempt from being
// counted twice. That the node was verified before, or is to be adopted, keeps it from being deleted as a node that
// never was.
func (s nodeState) startAfresh(now time.Time) []byte {
	n, r := s.in.Node, s.in.Node.Record
	if decide.Adoptable(s.in) {
		r = decide.Adopt(s.in, now).Record
	}
	change := marks.Change{Record: marks.Record{NodeUID: n.UID, BootID: r.BootID, Sequence: r.Sequence,
		VerifiedTime: r.VerifiedTime, Cleared: r.Cleared, Request: r.Request, RequestTime: r.RequestTime}}
	if n.Labelled {
		change.Label = ptr.To(false)
	}
	return change.Patch(s.node, s.in.Config.Vocabulary())
}

// requestReverify is the patch that requests a verification. A node that passed keeps its label; one that did not
// starts afresh with the request, unless an attempt is under way.
func (s nodeState) requestReverify(id string, now time.Time) ([]byte, error) {
	if err := s.refusesReverify(); err != nil {
		return nil, err
	}
	n := s.in.Node
	content := map[string]any{"metadata": map[string]any{"uid": n.UID}}
	open := n.Labelled && !n.Gated && (n.Record.LastOutcome == attempt.Passed || n.Record.LastOutcome == "")
	if !open && decide.CurrentPod(n.Record, s.in.Pods) == nil {
		content = map[string]any{}
		if err := json.Unmarshal(s.startAfresh(now), &content); err != nil {
			return nil, err
		}
	}
	err := unstructured.SetNestedField(content, id, "metadata", "annotations", marks.AnnotationVerifyRequested)
	if err != nil {
		return nil, err
	}
	return json.Marshal(content)
}

// awaitAnswers waits until the request is answered on each of the nodes, and reports the results.
func (v *invocation) awaitAnswers(ctx context.Context, names []string, id string) error {
	pending := map[string]string{}
	for _, name := range names {
		pending[name] = ""
	}
	var unverified []string
	err := v.awaitNodes(ctx, pending, "no result", func(name string, s *nodeState) error {
		if s == nil || s.refusesReverify() != nil {
			return codedError{fmt.Errorf("node %s is gone, being deleted or excluded, so its request gets no answer", name),
				exitNever}
		}
		pending[name] = s.summary(v.now).line()
		if s.node.Annotations[marks.AnnotationVerifyCompleted] != id {
			return nil
		}
		result := singleLine(s.node.Annotations[marks.AnnotationVerifyResult])
		if result != string(attempt.Passed) {
			failure := singleLine(decide.LastFailure(s.in.Node.Record))
			unverified = append(unverified, fmt.Sprintf("node %s: %s: %s", name, result, failure))
		}
		v.report("node/"+name, result)
		_, _ = v.out.WriteTo(v.stream)
		delete(pending, name)
		return nil
	})
	if err == nil && len(unverified) > 0 {
		slices.Sort(unverified)
		err = codedError{fmt.Errorf("the checks did not pass:\n%s", strings.Join(unverified, "\n")), exitFailed}
	}
	return err
}

// skip leaves nodes out of verification.
func skip(ctx context.Context, v *invocation) error {
	return v.forEachNode(func(name string) (string, error) {
		n, err := v.patchNode(ctx, name, annotationPatch(marks.AnnotationSkip, "true"))
		if err != nil {
			return "", err
		}
		text := "neither verified nor remediated"
		if taints := observe(v.cluster.config, n, nil).summary(v.now).Taints; len(taints) > 0 {
			text += "; it keeps " + strings.Join(taints, ", ")
		}
		return text, nil
	})
}

// unskip lets nodes be verified again.
func unskip(ctx context.Context, v *invocation) error {
	return v.forEachNode(func(name string) (string, error) {
		_, err := v.patchNode(ctx, name, annotationPatch(marks.AnnotationSkip, nil))
		return "verified like any other node", err
	})
}

// logs prints the log of the attempt under way, else of the last worker that still exists.
func logs(ctx context.Context, v *invocation) error {
	s, err := v.cluster.node(ctx, v.args[0])
	if err != nil {
		return err
	}
	last := s.lastWorker()
	if last == nil {
		text := fmt.Sprintf("node %s has no worker pod; its state is %s", s.node.Name, s.state(v.now))
		if r := s.in.Node.Record; r.LastOutcome != "" {
			text += fmt.Sprintf(". The worker of attempt %d (%s) is gone: only the last failed worker is kept, for "+
				"worker.keepFailedSeconds", r.Sequence, r.LastOutcome)
		}
		return errors.New(text)
	}
	pod := s.pods[last.UID]
	options := &corev1.PodLogOptions{Container: v.container, Follow: v.followLog}
	stream, err := v.cluster.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	if apierrors.IsBadRequest(err) && last.State == workerpod.Pending {
		return fmt.Errorf("worker %s/%s has not started: %w", pod.Namespace, pod.Name, err)
	}
	if err != nil {
		return kubeletError(err, s.node.Name)
	}
	defer func() { _ = stream.Close() }() // it is only read
	_, err = io.Copy(v.stream, stream)
	return err
}

// kubeletError explains why the API server could not get a log from a node's kubelet. The API server reports that as an
// internal error, and only the text of TLS shows that the kubelet's serving certificate is at fault.
func kubeletError(err error, node string) error {
	if !apierrors.IsInternalError(err) {
		return err
	}
	report := "kubectl node-ready explain " + node + " shows the worker's report, which needs no kubelet"
	if strings.Contains(err.Error(), "tls: ") || strings.Contains(err.Error(), "x509: ") {
		return fmt.Errorf("the kubelet of node %s has no serving certificate that the API server accepts: see "+
			"kubectl get csr, and approve the one of system:node:%s; %s: %w", node, node, report, err)
	}
	return fmt.Errorf("the API server cannot reach the kubelet of node %s; %s: %w", node, report, err)
}

const (
	checkPoll = 500 * time.Millisecond
	// cleanUp bounds the deletion of the pod, also after an interrupt.
	cleanUp = 10 * time.Second
)

// check runs the checks of a node's profile on it, in a pod that the controller ignores, and prints the results.
func check(ctx context.Context, v *invocation) error {
	s, err := v.cluster.node(ctx, v.args[0])
	if err != nil {
		return err
	}
	namespace, err := v.cluster.workerNamespace(ctx)
	if err != nil {
		return err
	}
	cfg, n := v.cluster.config, s.in.Node
	builder, err := workerpod.NewBuilder(cfg, namespace, cfg.Worker.Image.Reference(version.Version))
	if err != nil {
		return err
	}
	if s.in.Profile.Unchecked() {
		return fmt.Errorf("profile %q of node %s has no checks", s.in.Profile.Profile, n.Name)
	}
	target := workerpod.Target{Name: n.Name, UID: n.UID, BootID: n.BootID, Gated: s.in.Closed()}
	via := config.SchedulingDirect
	if !n.Offers(s.in.Profile.ExtendedResources()) {
		via = config.SchedulingScheduler // bound directly the pod would run without them
	}
	pod := builder.Check(target, s.in.Profile, rand.String(8), via)
	pods := v.cluster.client.CoreV1().Pods(namespace)
	tried, err := pods.Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return fmt.Errorf("the API server rejects the pod: %w", err)
	}
	if what := workerpod.Altered(pod, tried); what != "" {
		return workerpod.AlteredPod{What: what}
	}
	if workerpod.MayPreempt(tried) {
		if why := workerpod.Bind(pod, n.Offers(s.in.Profile.ExtendedResources())); why != "" {
			return errors.New("cannot create the pod: " + why)
		}
	}
	stored, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
		defer cancel()
		own := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(stored.UID))}
		if err := pods.Delete(ctx, stored.Name, own); err != nil {
			v.warn("cannot delete pod %s/%s: %v", namespace, stored.Name, err)
		}
	}()
	if what := workerpod.Altered(pod, stored); what != "" { // another replica of the webhook may decide differently
		return workerpod.AlteredPod{What: what}
	}
	o, err := v.awaitEnd(ctx, stored)
	if err != nil {
		return err
	}
	return v.printResult(n.Name, o.Attempt.Result)
}

// printResult prints the result of checks on a node; one other than passed is an error.
func (v *invocation) printResult(node string, r *attempt.Result) error {
	var err error
	switch {
	case v.structured():
		err = v.printObject(struct {
			Node       string          `json:"node"`
			Outcome    attempt.Outcome `json:"outcome"`
			Reason     string          `json:"reason,omitempty"`
			Message    string          `json:"message,omitempty"`
			DurationMs int64           `json:"durationMs"`
			Report     *result.Report  `json:"report,omitempty"`
		}{node, r.Outcome, r.Reason, r.Message, r.Duration.Milliseconds(), r.Report})
	case v.output == "name":
		fmt.Fprintln(&v.out, "node/"+node)
	default:
		fmt.Fprintf(&v.out, "node/%s: %s after %s\n", node, r.Outcome, r.Duration.Round(time.Millisecond))
		v.printChecks(r.Report)
	}
	if r.Outcome == attempt.Passed || err != nil {
		return err
	}
	text := r.Reason
	if r.Message != "" {
		text += ": " + singleLine(r.Message)
	}
	return codedError{fmt.Errorf("the checks did not pass: %s", text), exitFailed}
}

// awaitEnd waits until the pod has a result.
func (v *invocation) awaitEnd(ctx context.Context, pod *corev1.Pod) (workerpod.Observation, error) {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	o := workerpod.Observe(pod)
	err := poll.PollUntilContextCancel(ctx, checkPoll, true, func(ctx context.Context) (ended bool, err error) {
		have, err := v.cluster.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil {
			o = workerpod.Observe(have)
		}
		return o.Attempt.Result != nil, err
	})
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = codedError{fmt.Errorf("pod %s/%s is %s after %s; %s",
			pod.Namespace, pod.Name, o.State, v.timeout, o.Unschedulable), exitTime}
	}
	return o, err
}
