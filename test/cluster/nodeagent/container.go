package nodeagent

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

// Limits of termination messages, in bytes: k8s.io/kubernetes pkg/kubelet/container,
// runtime.go (MaxContainerTerminationMessageLength, MaxContainerTerminationMessageLogLength,
// MaxPodTerminationMessageLogLength).
const (
	maxMessage         = 4 * 1024
	maxMessageFromLogs = 2 * 1024
	maxPodMessages     = 12 * 1024
)

// The kubelet's back-off of restarts and of image pulls (pkg/kubelet, MaxContainerBackOff, backOffPeriod).
const (
	maxBackOff     = 5 * time.Minute
	defaultBackOff = 10 * time.Second
)

// startErrorCode is what containerd's CRI plugin reports for a container that could not be started.
const startErrorCode = 128

// container is one container of a run.
type container struct {
	run  *podRun
	spec *corev1.Container
	init bool
}

// untilDone runs the container, again where the restart policy says so. It is false when the
// container failed for good or the pod is ending.
func (c *container) untilDone() bool {
	backOff := c.run.agent.options.BackOff
	for {
		image, ok := c.pull()
		if !ok {
			return false
		}
		code, started := c.once(image)
		if !started || c.run.stopping.Err() != nil {
			return false
		}
		policy := c.run.pod.Spec.RestartPolicy
		if code == 0 && (c.init || policy != corev1.RestartPolicyAlways) {
			return true
		}
		if policy == corev1.RestartPolicyNever {
			return false
		}
		c.set(func(s *corev1.ContainerStatus) {
			s.LastTerminationState = s.State
			s.RestartCount++
			s.State = waiting("CrashLoopBackOff", fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
				backOff, c.spec.Name, c.run.pod.Name, c.run.pod.Namespace, c.run.pod.UID))
		})
		if !c.sleep(backOff) {
			return false
		}
		backOff = min(2*backOff, maxBackOff)
	}
}

// pull waits until the image is there.
func (c *container) pull() (Image, bool) {
	backOff := c.run.agent.options.BackOff
	for {
		c.run.agent.mu.Lock()
		image, ok := c.run.agent.images[c.spec.Image]
		c.run.agent.mu.Unlock()
		if ok {
			return image, c.run.stopping.Err() == nil
		}
		if c.spec.ImagePullPolicy == corev1.PullNever {
			c.set(func(s *corev1.ContainerStatus) {
				s.State = waiting("ErrImageNeverPull", fmt.Sprintf("Container image %q is not present with pull policy of Never", c.spec.Image))
			})
		} else {
			why := fmt.Sprintf("failed to pull and unpack image %q: failed to resolve reference %q: not found", c.spec.Image, c.spec.Image)
			c.set(func(s *corev1.ContainerStatus) { s.State = waiting("ErrImagePull", why) })
			c.set(func(s *corev1.ContainerStatus) {
				s.State = waiting("ImagePullBackOff", fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s", c.spec.Image, why))
			})
		}
		if !c.sleep(backOff) {
			return Image{}, false
		}
		backOff = min(2*backOff, maxBackOff)
	}
}

// once runs the container one time and reports it. It is not started where its configuration
// cannot be made before the pod ends.
func (c *container) once(image Image) (code int, started bool) {
	r := c.run
	var env []string
	for {
		var err error
		if env, err = c.environment(); err == nil {
			break
		}
		c.set(func(s *corev1.ContainerStatus) { s.State = waiting("CreateContainerConfigError", err.Error()) })
		if !c.sleep(c.run.agent.options.BackOff) {
			return 0, false
		}
	}
	p, err := c.start(image, env)
	if err != nil {
		r.agent.logf("%s/%s on %s: %s: %v", r.pod.Namespace, r.pod.Name, r.node.Name, c.spec.Name, err)
		c.set(func(s *corev1.ContainerStatus) {
			s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: startErrorCode, Reason: "StartError", Message: "failed to create containerd task: " + err.Error(),
				StartedAt: metav1.Unix(0, 0), FinishedAt: metav1.Now(),
			}}
		})
		return startErrorCode, true
	}
	began := metav1.Now()
	r.agent.logf("%s/%s on %s: %s runs as process %d", r.pod.Namespace, r.pod.Name, r.node.Name, c.spec.Name, p.Pid())
	c.set(func(s *corev1.ContainerStatus) {
		s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}}
		s.Started, s.Ready = ptr.To(true), !c.init
		s.ContainerID = fmt.Sprintf("node-agent://%s/%s/%d", r.pod.UID, c.spec.Name, p.Pid())
	})
	select {
	case <-p.Done():
	case <-r.stopping.Done():
		c.end(p)
	}
	code, reason := p.ExitCode(), "Completed"
	if code != 0 {
		reason = "Error"
	}
	if why := r.why(); why.containerReason != "" {
		reason = why.containerReason
	}
	r.agent.logf("%s/%s on %s: %s ended with exit code %d", r.pod.Namespace, r.pod.Name, r.node.Name, c.spec.Name, code)
	// Where the pod ends with this container, one write says both: see podRun.run.
	c.note(func(s *corev1.ContainerStatus) {
		s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: int32(code), Reason: reason, Message: c.message(code), StartedAt: began, FinishedAt: metav1.Now(), ContainerID: s.ContainerID, //nolint:gosec // an exit code
		}}
		s.Started, s.Ready = ptr.To(false), c.init && code == 0
	})
	return code, true
}

// end stops the process: SIGTERM and SIGKILL after the grace, or SIGKILL at once.
func (c *container) end(p *process.Process) {
	why := c.run.why()
	if why.containerReason == "" && why.grace > 0 {
		p.Signal(syscall.SIGTERM)
		select {
		case <-p.Done():
			return
		case <-c.run.killed.Done():
		case <-time.After(why.grace):
		}
	}
	p.Kill()
	<-p.Done()
}

func (c *container) start(image Image, env []string) (*process.Process, error) {
	r := c.run
	command := c.spec.Command
	if len(command) == 0 {
		command = image.Entrypoint
	}
	command = append(append([]string(nil), command...), c.spec.Args...)
	for i := range command {
		command[i] = expand(command[i], env)
	}
	if len(command) == 0 {
		return nil, fmt.Errorf("no command specified")
	}
	program, ok := image.Files[command[0]]
	if !ok {
		return nil, fmt.Errorf("exec: %q: stat %s: no such file or directory", command[0], command[0])
	}
	log, err := os.OpenFile(r.agent.LogFile(r.pod, c.spec.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	// The runtime makes an empty termination log that any user can write, anew for each start.
	if err := os.WriteFile(c.terminationLog(), nil, 0o666); err != nil {
		return nil, err
	}
	work := filepath.Join(r.agent.podDir(r.pod), c.spec.Name)
	if err := os.MkdirAll(work, 0o755); err != nil {
		return nil, err
	}
	return r.agent.group.Start(process.Spec{Path: program, Args: command[1:], Env: env, Dir: work, Stdout: log, Stderr: log})
}

func (c *container) terminationLog() string {
	return filepath.Join(c.run.agent.podDir(c.run.pod), c.spec.Name+".termination-log")
}

// message is the end of the termination log or, where the policy says so and that is empty, of the output.
func (c *container) message(code int) string {
	pod := c.run.pod
	limit := min(maxMessage, maxPodMessages/(len(pod.Spec.Containers)+len(pod.Spec.InitContainers)))
	text, err := readEnd(c.terminationLog(), maxMessage)
	if err != nil && !os.IsNotExist(err) {
		text = fmt.Sprintf("Error on reading termination log %s: %v", c.terminationLog(), err)
	}
	if text == "" && code != 0 && c.spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
		if text, err = readEnd(c.run.agent.LogFile(pod, c.spec.Name), maxMessageFromLogs); err != nil {
			text = fmt.Sprintf("Error on reading termination message from logs: %v", err)
		}
	}
	return text[:min(len(text), limit)]
}

// readEnd reads at most limit bytes from a file's end, as the kubelet does.
func readEnd(path string, limit int64) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if info.Size() > limit {
		if _, err := file.Seek(-limit, io.SeekEnd); err != nil {
			return "", err
		}
	}
	content, err := io.ReadAll(io.LimitReader(file, limit))
	return string(content), err
}

// note changes the container's status. It is written at once unless the pod ends with this
// container anyway, which the run reports together with the pod's phase.
func (c *container) note(change func(*corev1.ContainerStatus)) {
	c.change(change)
	spec := c.run.pod.Spec
	if c.init || len(spec.Containers) > 1 || spec.RestartPolicy != corev1.RestartPolicyNever {
		c.run.sync()
	}
}

// set changes the container's status and writes it.
func (c *container) set(change func(*corev1.ContainerStatus)) {
	c.change(change)
	c.run.sync()
}

func (c *container) change(change func(*corev1.ContainerStatus)) {
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	statuses := c.run.state.containers
	if c.init {
		statuses = c.run.state.init
	}
	for i := range statuses {
		if statuses[i].Name == c.spec.Name {
			change(&statuses[i])
		}
	}
}

// sleep is false when the pod ends first.
func (c *container) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.run.stopping.Done():
		return false
	}
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}
