package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

// maxMessage bounds a termination message, in bytes: k8s.io/kubernetes pkg/kubelet/container, runtime.go
// (MaxContainerTerminationMessageLength).
const maxMessage = 4096

// run is one pod on one node, until its deletion is confirmed.
type run struct {
	agent  *Agent
	node   *Node
	pod    *corev1.Pod // as it was when the run began
	dir    string
	ctx    context.Context // ends when nothing is to be reported any more
	cancel context.CancelFunc

	ending sync.Once
	ended  chan struct{} // closed once the pod has a deletion timestamp
	grace  time.Duration // of the deletion; set before ended is closed
}

func newRun(a *Agent, pod *corev1.Pod, n *Node) *run {
	r := &run{agent: a, node: n, pod: pod, dir: filepath.Join(a.dir, string(pod.UID)), ended: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(a.ctx)
	return r
}

// end begins the pod's deletion.
func (r *run) end(grace *int64) {
	r.ending.Do(func() {
		r.grace = time.Duration(ptr.Deref(grace, 0)) * time.Second
		close(r.ended)
	})
}

// live runs the pod, waits for its deletion and confirms that, as a kubelet does once nothing of a pod runs any more.
func (r *run) live() {
	defer r.cancel()
	if r.pod.Status.Phase == corev1.PodPending || r.pod.Status.Phase == "" {
		r.execute()
	}
	select {
	case <-r.ended:
	case <-r.ctx.Done():
		return
	}
	r.insist(func() error {
		return r.agent.client.CoreV1().Pods(r.pod.Namespace).Delete(r.ctx, r.pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(r.pod.UID)),
		})
	})
}

// execute starts the containers, reports that they run, and reports how they ended.
func (r *run) execute() {
	status := corev1.PodStatus{StartTime: ptr.To(metav1.Now()), HostIP: address, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}}
	for _, c := range r.pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Image: c.Image})
	}
	var started []*process.Process
	err := r.prepare()
	for i := 0; err == nil && i < len(r.pod.Spec.Containers); i++ {
		var p *process.Process
		if p, err = r.start(&r.pod.Spec.Containers[i]); err == nil {
			defer p.Kill()
			started = append(started, p)
		}
	}
	var cannot *waiting
	switch {
	case errors.As(err, &cannot):
		status.Phase = corev1.PodPending
		for i := range status.ContainerStatuses {
			status.ContainerStatuses[i].State.Waiting = &corev1.ContainerStateWaiting{Reason: cannot.reason, Message: cannot.message}
		}
		r.report(status)
		return
	case err != nil:
		r.report(corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Unsupported", Message: err.Error()})
		return
	}
	status.Phase = corev1.PodRunning
	status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	for i := range status.ContainerStatuses {
		c := &status.ContainerStatuses[i]
		c.Ready, c.Started, c.State.Running = true, ptr.To(true), &corev1.ContainerStateRunning{StartedAt: *status.StartTime}
	}
	r.report(status)

	status.Phase, status.Conditions[0].Status = corev1.PodSucceeded, corev1.ConditionFalse
	for i, p := range started {
		r.await(p)
		c := &status.ContainerStatuses[i]
		c.Ready, c.Started = false, ptr.To(false)
		c.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(p.ExitCode()), Reason: "Completed", //nolint:gosec // an exit code
			Message: r.message(c.Name), StartedAt: *status.StartTime, FinishedAt: metav1.Now()}}
		if p.ExitCode() != 0 {
			c.State.Terminated.Reason, status.Phase = "Error", corev1.PodFailed
		}
	}
	r.report(status)
}

// await waits for a container's end, which the pod's deletion brings about: SIGTERM, and SIGKILL after the grace.
func (r *run) await(p *process.Process) {
	select {
	case <-p.Done():
	case <-r.ended:
		p.Terminate(r.grace)
	case <-r.ctx.Done():
		p.Kill()
		<-p.Done()
	}
}

// waiting is why a container does not start yet.
type waiting struct{ reason, message string }

func (w *waiting) Error() string { return w.reason + ": " + w.message }

// prepare makes the pod's folder with its token and resolv.conf.
func (r *run) prepare() error {
	isToken := func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }
	token := false
	for _, v := range r.pod.Spec.Volumes {
		if v.Projected == nil || !slices.ContainsFunc(v.Projected.Sources, isToken) {
			return fmt.Errorf("volume %q", v.Name)
		}
		token = true
	}
	if len(r.pod.Spec.InitContainers) > 0 {
		return errors.New("init containers")
	}
	files := map[string]string{}
	if token {
		issued, err := r.agent.client.CoreV1().ServiceAccounts(r.pod.Namespace).CreateToken(r.ctx, r.pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: r.pod.Name, UID: r.pod.UID}},
		}, metav1.CreateOptions{})
		if err != nil {
			return &waiting{"CreateContainerConfigError", err.Error()}
		}
		files["token"], files["ca.crt"], files["namespace"] = issued.Status.Token, string(r.agent.cluster.CA()), r.pod.Namespace
	}
	svc := "svc." + cluster.ClusterDomain
	files["resolv.conf"] = fmt.Sprintf("search %s.%s %s %s\nnameserver %s\noptions ndots:5\n", r.pod.Namespace, svc, svc, cluster.ClusterDomain, r.node.resolver.nameserver())
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) start(c *corev1.Container) (*process.Process, error) {
	image, ok := r.agent.options.Images[c.Image]
	if !ok {
		return nil, &waiting{"ImagePullBackOff", fmt.Sprintf("Back-off pulling image %q", c.Image)}
	}
	command := append(slices.Clone(c.Command), c.Args...)
	if len(c.Command) == 0 {
		command = append(slices.Collect(maps.Keys(image)), c.Args...) // an image's entrypoint is its one program
	}
	if len(command) == 0 || image[command[0]] == "" {
		return nil, fmt.Errorf("no program of this machine for command %q of image %s", command, c.Image)
	}
	// The API server's own address: no local process could reach a ClusterIP that is not loopback.
	env := []string{"KUBERNETES_SERVICE_HOST=" + r.agent.cluster.Host(), "KUBERNETES_SERVICE_PORT=" + strconv.Itoa(r.agent.cluster.Port()),
		"PATH=/usr/bin:/bin", "HOSTNAME=" + r.pod.Name,
		EnvServiceAccountDir + "=" + r.dir, EnvResolvConf + "=" + filepath.Join(r.dir, "resolv.conf"), EnvTerminationLog + "=" + r.termination(c.Name)}
	for _, v := range c.Env {
		value := v.Value
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
			value = map[string]string{
				"metadata.name": r.pod.Name, "metadata.namespace": r.pod.Namespace, "metadata.uid": string(r.pod.UID),
				"spec.nodeName": r.pod.Spec.NodeName, "status.podIP": address, "status.hostIP": address,
			}[v.ValueFrom.FieldRef.FieldPath]
		}
		env = append(env, v.Name+"="+value)
	}
	log, err := os.Create(filepath.Join(r.dir, c.Name+".log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	return r.agent.group.Start(process.Spec{Path: image[command[0]], Args: command[1:], Env: env, Dir: r.dir, Stdout: log, Stderr: log})
}

func (r *run) termination(container string) string {
	return filepath.Join(r.dir, container+".termination-log")
}

// message is the end of what a container wrote to its termination log; none where it wrote nothing.
func (r *run) message(container string) string {
	file, err := os.Open(r.termination(container))
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	_, _ = file.Seek(-maxMessage, io.SeekEnd) // fails where there is less, and then all of it is read
	text, _ := io.ReadAll(file)
	return string(text)
}

func (r *run) report(status corev1.PodStatus) {
	r.insist(func() error {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": r.pod.UID}, "status": status})
		if err == nil {
			_, err = r.agent.client.CoreV1().Pods(r.pod.Namespace).Patch(r.ctx, r.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		}
		return err
	})
}

// insist repeats a write while the API server cannot answer, and gives up on an answer that will not change.
func (r *run) insist(write func() error) {
	_ = wait.PollUntilContextCancel(r.ctx, 200*time.Millisecond, true, func(context.Context) (bool, error) {
		err := write()
		return err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err), nil
	})
}
