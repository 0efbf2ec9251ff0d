//go:build e2e

package e2e

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/realnode"
)

// How many workers are measured, and how many pulls of each image: E2E_ROUNDS, default 1. docs/design/performance.md has the figures of five.
func measuredRounds(t *testing.T) int {
	t.Helper()
	rounds, err := strconv.Atoi(cmp.Or(os.Getenv("E2E_ROUNDS"), "1"))
	if err != nil || rounds < 1 {
		t.Fatalf("E2E_ROUNDS is %q, and must be a number of rounds, 1 or more", os.Getenv("E2E_ROUNDS"))
	}
	return rounds
}

// registryAddress is on the machine, which the nodes see as a host of their network.
const registryAddress = "10.250.0.1:5000"

// workerPhases measures where the time of a worker goes on a real kubelet, from containerd's own events, and what the pull of its image
// costs. The figures of docs/design/performance.md are from here. What would fail it: a phase that is ours and takes a
// second.
func (s *suite) workerPhases(ctx context.Context, t *testing.T) {
	const name = "node-a"
	tasks := s.watchTasks(ctx, t, name)
	phases := map[string][]time.Duration{}
	var order []string
	add := func(phase string, d time.Duration) {
		if _, ok := phases[phase]; !ok {
			order = append(order, phase)
		}
		phases[phase] = append(phases[phase], d)
	}
	for range measuredRounds(t) {
		v := s.timeVerification(ctx, t, name)
		var sandbox, worker task
		eventually(ctx, t, 5*time.Second, "containerd says what the worker did", func() error {
			var ok bool
			if sandbox, worker, ok = tasks.of(v.container, v.asked); !ok {
				return fmt.Errorf("nothing of container %s", v.container)
			}
			return nil
		})
		add("created until its sandbox runs", sandbox.started.Sub(v.created))
		add("until the worker runs", worker.started.Sub(sandbox.started))
		add("checks", v.checks)
		add("the worker's own beside its checks", worker.exited.Sub(worker.started)-v.checks)
		add("until the kubelet says that it ended", v.ended.Sub(worker.exited))
		add("until the node is labelled", v.labelled.Sub(v.ended))
		add("in all", v.labelled.Sub(v.created))
	}
	for _, phase := range order {
		t.Logf("%-40s %s", phase, spread(phases[phase]))
	}
	for _, ours := range []string{"the worker's own beside its checks", "until the node is labelled"} {
		if m := median(phases[ours]); m > time.Second {
			t.Errorf("%s: %s", ours, m)
		}
	}
	s.pulls(ctx, t)
}

// verification is when what happened of one, on this machine's clock, which is its nodes' too.
type verification struct {
	asked, created, ended, labelled time.Time
	container                       string // the worker's, by its ID
	checks                          time.Duration
}

func (s *suite) timeVerification(ctx context.Context, t *testing.T, name string) verification {
	t.Helper()
	pods, err := s.client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=worker"})
	must(t, err)
	defer pods.Stop()
	nodes, err := s.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	must(t, err)
	defer nodes.Stop()
	v := verification{asked: time.Now()}
	s.reverify(ctx, t, name)
	for v.labelled.IsZero() || v.ended.IsZero() { // the two watches are apart: either may be behind
		select {
		case e := <-pods.ResultChan():
			pod, ok := e.Object.(*corev1.Pod)
			if !ok || pod.Spec.NodeName != name {
				continue
			}
			if v.created.IsZero() {
				v.created = time.Now()
			}
			if c := pod.Status.ContainerStatuses; len(c) > 0 && c[0].State.Terminated != nil && v.ended.IsZero() {
				v.ended, v.container = time.Now(), strings.TrimPrefix(c[0].ContainerID, "containerd://")
			}
		case e := <-nodes.ResultChan():
			if node, ok := e.Object.(*corev1.Node); ok && !v.created.IsZero() && node.Labels[verifiedLabel] == "true" {
				v.labelled = time.Now()
			}
		case <-ctx.Done():
			t.Fatalf("%s was not verified: %+v", name, v)
		}
	}
	m, err := s.marks(ctx, name)
	must(t, err)
	v.checks = time.Duration(m.recorded.DurationMs) * time.Millisecond
	s.noWorkersLeft(ctx, t)
	return v
}

// task is a container's process.
type task struct{ started, exited time.Time }

// taskWatch gathers containerd's events.
type taskWatch struct {
	mu    sync.Mutex
	shows bool // an event was shown
	tasks map[string]task
}

func (s *suite) watchTasks(ctx context.Context, t *testing.T, node string) *taskWatch {
	t.Helper()
	w := &taskWatch{tasks: map[string]task{}}
	cmd := s.node(node).Containerd(ctx, "events")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.note(lines.Text())
		}
	}()
	eventually(ctx, t, 10*time.Second, "containerd's events are shown", func() error {
		if out, err := s.node(node).Containerd(ctx, "namespaces", "label", "k8s.io", "e2e=watched").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.shows {
			return errors.New("not the one of a label")
		}
		return nil
	})
	return w
}

// note reads a line as "2026-11-22 14:03:35.4 +0000 UTC k8s.io /tasks/start {"container_id":"...","pid":1}".
func (w *taskWatch) note(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shows = true
	fields := strings.SplitN(line, " ", 7)
	if len(fields) != 7 || fields[5] != "/tasks/start" && fields[5] != "/tasks/exit" {
		return
	}
	at, err := time.Parse("2006-01-02 15:04:05.999999999 -0700 MST", strings.Join(fields[:4], " "))
	var what struct {
		Container string `json:"container_id"`
	}
	if err != nil || json.Unmarshal([]byte(fields[6]), &what) != nil {
		return
	}
	seen := w.tasks[what.Container]
	if fields[5] == "/tasks/start" {
		seen.started = at
	} else {
		seen.exited = at
	}
	w.tasks[what.Container] = seen
}

// of finds a worker's task, and its sandbox's, which is the one that started last before it.
func (w *taskWatch) of(container string, since time.Time) (sandbox, worker task, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	worker = w.tasks[container]
	for id, other := range w.tasks {
		if id != container && other.started.After(since) && other.started.Before(worker.started) && other.started.After(sandbox.started) {
			sandbox = other
		}
	}
	return sandbox, worker, !sandbox.started.IsZero() && !worker.exited.IsZero()
}

// pulls has a node that never saw the product's images pull them from a registry, that with both programs and that of the worker alone. With
// the second configured, the next node is verified by it.
func (s *suite) pulls(ctx context.Context, t *testing.T) {
	t.Helper()
	const name = "node-p"
	packer, alone := os.Getenv("E2E_PACKER"), os.Getenv("E2E_WORKER_IMAGE")
	if packer == "" || alone == "" {
		t.Fatal("E2E_PACKER and E2E_WORKER_IMAGE must name the program that packs images, and the worker's; \"make e2e\" sets them")
	}
	registry, err := s.cluster.ControlPlane.Processes().Start(process.Spec{Path: packer, Args: []string{"--serve", registryAddress, s.archive, alone}})
	must(t, err)
	t.Cleanup(registry.Kill)
	_, path, _ := strings.Cut(s.image, "/")
	repository, tag, _ := strings.Cut(registryAddress+"/"+path, ":v")
	tag = "v" + tag
	s.deploy(ctx, t, `worker.image.repository="`+repository+`-worker"`)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		s.removeNode(ctx, t, name)
		s.deploy(ctx, t)
	})
	s.addNodes(ctx, t, realnode.NodeOptions{WithoutImages: []string{s.image}}, name)
	must(t, s.node(name).UseRegistry(registryAddress, registryAddress))
	s.awaitVerified(ctx, t, 60*time.Second, name)
	s.forget(ctx, t, name, repository+"-worker:"+tag) // what it was just verified with has layers of the other
	for _, image := range []struct{ what, name string }{{"pull of the image", repository + ":" + tag}, {"pull of the worker's image", repository + "-worker:" + tag}} {
		var took []time.Duration
		size := 0
		for round := range measuredRounds(t) + 1 {
			var d time.Duration
			if d, size = s.pull(ctx, t, name, image.name, round); round > 0 { // the node had content of the first
				took = append(took, d)
			}
		}
		t.Logf("%-40s %s, %.1f MiB", image.what, spread(took), float64(size)/(1<<20))
	}
}

var pulled = regexp.MustCompile(`^Successfully pulled image .* in ([0-9.a-zµ]+) \(.*Image size: ([0-9]+) bytes`)

// pull runs a pod whose image the node has to pull, and returns how long the kubelet says that took, and the image's size.
func (s *suite) pull(ctx context.Context, t *testing.T, node, image string, round int) (took time.Duration, size int) {
	t.Helper()
	pod := fmt.Sprintf("pull-%d", round)
	s.apply(ctx, t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default}
spec:
  nodeName: %s
  restartPolicy: Never
  tolerations: [{operator: Exists}]
  containers: [{name: worker, image: %q, imagePullPolicy: Always, command: [/kube-node-ready-worker, --version]}]
`, pod, node, image))
	eventually(ctx, t, 30*time.Second, image+" is pulled", func() error {
		events, err := s.client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod + ",reason=Pulled"})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if m := pulled.FindStringSubmatch(e.Message); m != nil {
				took, err = time.ParseDuration(m[1])
				_, _ = fmt.Sscan(m[2], &size)
				return err
			}
		}
		return fmt.Errorf("no event says so in %d", len(events.Items))
	})
	s.kubectl(ctx, t, "-n", "default", "delete", "pod", pod, "--grace-period=0", "--force")
	s.kubectl(ctx, t, "-n", "default", "delete", "events", "--field-selector", "involvedObject.name="+pod)
	eventually(ctx, t, time.Minute, "no container holds on to "+image, func() error {
		out, err := s.node(node).Containerd(ctx, "containers", "ls").Output()
		if err == nil && strings.Contains(string(out), image) {
			err = errors.New("one is there")
		}
		return err
	})
	s.forget(ctx, t, node, image)
	return took, size
}

// forget removes an image under all of its names, the kubelet's interface to containerd gives it one of its own, and with the last of them
// its content.
func (s *suite) forget(ctx context.Context, t *testing.T, node, image string) {
	t.Helper()
	out, err := s.node(node).Containerd(ctx, "images", "ls").Output()
	must(t, err)
	names := map[string][]string{} // by digest
	digest := ""
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 2 { // REF TYPE DIGEST
			names[fields[2]] = append(names[fields[2]], fields[0])
			if fields[0] == image {
				digest = fields[2]
			}
		}
	}
	for _, name := range names[digest] {
		must(t, s.node(node).RemoveImage(ctx, name))
	}
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

func spread(d []time.Duration) string {
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf("%s (%s–%s)", round(median(d)), round(slices.Min(d)), round(slices.Max(d)))
}
