package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

// Files of a pod beside its token's.
const (
	logFile         = "log"
	resolvConf      = "resolv.conf"
	terminationFile = "termination-log"
)

// errNoImage: the pod waits for its image.
var errNoImage = errors.New("no such image")

// run is one pod on one node, until its deletion is confirmed.
type run struct {
	agent  *Agent
	node   *Node
	pod    *corev1.Pod     // as it was when the run began
	ctx    context.Context // ends when nothing is to be reported any more
	cancel context.CancelFunc
	ending context.Context // ends once the pod is being deleted
	end    context.CancelFunc
	grace  time.Duration // of the deletion; set before ending ends
}

func newRun(a *Agent, pod *corev1.Pod, n *Node) *run {
	r := &run{agent: a, node: n, pod: pod}
	r.ctx, r.cancel = context.WithCancel(a.ctx)
	r.ending, r.end = context.WithCancel(r.ctx)
	return r
}

// path of a file of the pod's.
func (r *run) path(name string) string { return filepath.Join(r.agent.dir, string(r.pod.UID), name) }

// live runs the pod, waits for its deletion and confirms that, as a kubelet does once nothing of a pod runs any more.
func (r *run) live() {
	defer r.cancel()
	if r.pod.Status.Phase == corev1.PodPending || r.pod.Status.Phase == "" {
		r.execute()
	}
	<-r.ending.Done()
	r.insist(func() error {
		return r.agent.client.CoreV1().Pods(r.pod.Namespace).Delete(r.ctx, r.pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(r.pod.UID)),
		})
	})
}

// execute starts the container, reports that it runs, and reports how it ended.
func (r *run) execute() {
	began := metav1.Now()
	p, err := r.start()
	switch {
	case errors.Is(err, errNoImage):
		return
	case err != nil:
		r.report(corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Unsupported", Message: err.Error()})
		return
	}
	is := func(phase corev1.PodPhase, state corev1.ContainerState) {
		running, ready := state.Running != nil, corev1.ConditionFalse
		if running {
			ready = corev1.ConditionTrue
		}
		c := r.pod.Spec.Containers[0]
		r.report(corev1.PodStatus{Phase: phase, StartTime: &began, HostIP: address, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: c.Name, Image: c.Image, State: state, Ready: running, Started: &running}}})
	}
	is(corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}})
	select {
	case <-p.Done():
	case <-r.ending.Done():
		p.Terminate(r.grace) // at once where nothing is to be reported any more: no grace is set
	}
	message, _ := os.ReadFile(r.path(terminationFile))                                                                                                                  // none where it wrote nothing
	ended := &corev1.ContainerStateTerminated{ExitCode: int32(p.ExitCode()), Reason: "Completed", Message: string(message), StartedAt: began, FinishedAt: metav1.Now()} //nolint:gosec // an exit code
	phase := corev1.PodSucceeded
	if ended.ExitCode != 0 {
		ended.Reason, phase = "Error", corev1.PodFailed
	}
	is(phase, corev1.ContainerState{Terminated: ended})
}

// start starts the pod's container, once it has its token and its resolv.conf.
func (r *run) start() (*process.Process, error) {
	spec := &r.pod.Spec
	if len(spec.InitContainers) > 0 || len(spec.Containers) != 1 {
		return nil, errors.New("init containers, or more containers than one")
	}
	c := &spec.Containers[0]
	image, ok := r.agent.options.Images[c.Image]
	if !ok {
		return nil, errNoImage
	}
	command := slices.Clone(c.Command)
	for program := range image { // an image's entrypoint is its one program
		if len(c.Command) == 0 {
			command = []string{program}
		}
	}
	if len(command) == 0 || image[command[0]] == "" {
		return nil, fmt.Errorf("no program of this machine for command %q of image %s", command, c.Image)
	}
	if err := r.writeFiles(); err != nil {
		return nil, err
	}
	// The API server's own address: no local process could reach a ClusterIP that is not loopback.
	env := []string{"KUBERNETES_SERVICE_HOST=" + r.agent.cluster.Host(), "KUBERNETES_SERVICE_PORT=" + strconv.Itoa(r.agent.cluster.Port()), "PATH=/usr/bin:/bin", "HOSTNAME=" + r.pod.Name,
		worker.EnvServiceAccountDir + "=" + r.path(""), worker.EnvResolvConf + "=" + r.path(resolvConf), worker.EnvTerminationLog + "=" + r.path(terminationFile)}
	downward := map[string]string{
		"metadata.name": r.pod.Name, "metadata.namespace": r.pod.Namespace, "metadata.uid": string(r.pod.UID),
		"spec.nodeName": spec.NodeName, "status.podIP": address, "status.hostIP": address,
	}
	for _, v := range c.Env {
		value := v.Value
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
			value = downward[v.ValueFrom.FieldRef.FieldPath]
		}
		env = append(env, v.Name+"="+value)
	}
	log, err := os.Create(r.path(logFile))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	return r.agent.group.Start(process.Spec{Path: image[command[0]], Args: append(command[1:], c.Args...), Env: env, Dir: r.path(""), Stdout: log, Stderr: log})
}

// writeFiles writes the pod's resolv.conf and, where a volume asks for it, its token.
func (r *run) writeFiles() error {
	svc := "svc." + cluster.ClusterDomain
	files := map[string]string{resolvConf: fmt.Sprintf("search %s.%s %s %s\nnameserver %s\noptions ndots:5\n", r.pod.Namespace, svc, svc, cluster.ClusterDomain, r.node.resolver.nameserver())}
	for _, v := range r.pod.Spec.Volumes {
		if v.Projected == nil || !slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }) {
			return fmt.Errorf("volume %q", v.Name)
		}
		issued, err := r.agent.client.CoreV1().ServiceAccounts(r.pod.Namespace).CreateToken(r.ctx, r.pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: r.pod.Name, UID: r.pod.UID}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		files["token"], files["ca.crt"], files["namespace"] = issued.Status.Token, string(r.agent.cluster.CA()), r.pod.Namespace
	}
	if err := os.MkdirAll(r.path(""), 0o755); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(r.path(name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
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
