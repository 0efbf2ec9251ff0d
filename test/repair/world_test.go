//go:build repair

// Package repair shows real repairers acting on a node condition: Cluster API's MachineHealthCheck and Karpenter's node
// repair; and a real detector, node-problem-detector, setting one. Each runs as its own program, built from its module,
// against a real API server. Machines and kubelets are played.
//
// A repairer has no say in why the condition is there. Here a test sets it (world.set), where the controller sets it
// once every guard has let a remediation through.
package repair

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

// condition is the default type of remediation.condition.
const condition corev1.NodeConditionType = "node-ready/RemediationRequired"

// patience bounds every wait; the machine may be busy.
const patience = 2 * time.Minute

// world is a control plane with DNS and an agent that plays kubelets. It lives as long as its test.
type world struct {
	*testing.T
	plane  *cluster.Cluster
	agent  *nodeagent.Agent
	client kubernetes.Interface
	api    dynamic.Interface
	image  map[string]any // worker.image; nil for the one that the agent knows
}

func begin(t *testing.T) *world {
	t.Helper()
	w := &world{T: t}
	images, err := install.Images()
	w.must(err)
	w.plane, err = cluster.Start(t.Context(), cluster.Options{})
	w.must(err)
	t.Cleanup(w.plane.Stop)
	w.client = kubernetes.NewForConfigOrDie(w.plane.Config())
	w.api = dynamic.NewForConfigOrDie(w.plane.Config())
	dns, err := w.plane.StartDNS(t.Context(), nil)
	w.must(err)
	w.agent, err = nodeagent.Start(t.Context(), w.plane, nodeagent.Options{Images: images, DNS: dns})
	w.must(err)
	t.Cleanup(w.agent.Stop)
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// set sets the condition on a node, in the controller's place. It counts as a transition even where the status is the
// same.
func (w *world) set(node string, status corev1.ConditionStatus) {
	w.Helper()
	w.must(w.agent.Node(node).SetCondition(w.Context(), corev1.NodeCondition{
		Type: condition, Status: status, Reason: marks.ReasonVerificationFailed, Message: "set by a test",
	}))
}

// condition returns a node's condition of a type, which is empty if there is none.
func (w *world) condition(node string, kind corev1.NodeConditionType) corev1.NodeCondition {
	w.Helper()
	object, err := w.client.CoreV1().Nodes().Get(w.Context(), node, metav1.GetOptions{})
	w.must(err)
	for _, c := range object.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// program starts a program that test/tools/build.sh has built. If the test fails, it shows the end of its log.
func (w *world) program(name string, env []string, args ...string) *process.Process {
	w.Helper()
	return w.run(name, append(env, "KUBECONFIG="+w.plane.Kubeconfig()), w.tool(name), args...)
}

// tool is the path of a program that test/tools/build.sh has built.
func (w *world) tool(name string) string {
	w.Helper()
	path, err := cluster.Tool(name)
	if err != nil {
		w.Fatalf("%s is not built: run \"make repair-tools\" (%v)", name, err)
	}
	return path
}

// run starts a program whose log has a name.
func (w *world) run(name string, env []string, path string, args ...string) *process.Process {
	w.Helper()
	log, err := os.OpenFile(w.plane.LogFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	w.must(err)
	defer func() { _ = log.Close() }()
	p, err := w.plane.Processes().Start(process.Spec{
		Path: path, Args: args, Stdout: log, Stderr: log,
		Env: append(env, "HOME=/nonexistent", "PATH="+os.Getenv("PATH")),
	})
	w.must(err)
	w.showLog(name)
	w.Cleanup(func() { p.Terminate(10 * time.Second) })
	return p
}

// showLog shows the end of a program's log once the test has failed.
func (w *world) showLog(name string) {
	w.Cleanup(func() {
		if content, err := os.ReadFile(w.plane.LogFile(name)); err == nil && w.Failed() {
			w.Logf("the log of %s ends:\n%s", name, content[max(0, len(content)-20_000):])
		}
	})
}

// apply applies manifests of files and folders, and waits until the definitions among them are served.
func (w *world) apply(paths ...string) {
	w.Helper()
	args := []string{"apply", "--server-side"}
	for _, path := range paths {
		args = append(args, "-f", path)
	}
	w.kubectl(args...)
	w.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
}

func (w *world) kubectl(args ...string) {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), filepath.Join(w.plane.Bin(), "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.plane.Kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil {
		w.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// module is the folder of the sources of a module that a tool pins: definitions are there.
func (w *world) module(tool, name string) string {
	w.Helper()
	root, err := cluster.ModuleRoot()
	w.must(err)
	cmd := exec.CommandContext(w.Context(), "go", "list", "-m", "-f", "{{.Dir}}", name)
	cmd.Dir = filepath.Join(root, "test", "tools", tool)
	out, err := cmd.Output()
	w.must(err)
	return strings.TrimSpace(string(out))
}

// ports are free ports of this machine.
func (w *world) ports(n int) []int {
	w.Helper()
	ports, err := cluster.FreePorts("127.0.0.1", n)
	w.must(err)
	return ports
}

// play calls a function five times a second until the test ends, as one that plays machines.
func (w *world) play(what string, step func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	ended := make(chan struct{})
	w.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		for last := ""; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
			if err := step(ctx); err != nil && ctx.Err() == nil && err.Error() != last {
				last = err.Error()
				w.Logf("%s: %v", what, err)
			}
		}
	}()
}

func (w *world) eventually(what string, try func() error) {
	w.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	w.Fatalf("%s: not within %s: %v", what, patience, err)
}

// throughout insists that something holds for a while.
func (w *world) throughout(period time.Duration, what string, check func() error) {
	w.Helper()
	for end := time.Now().Add(period); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if err := check(); err != nil {
			w.Fatalf("%s: %v", what, err)
		}
	}
}

// event fails if no event with the reason was recorded since a time.
func (w *world) event(reason string, since time.Time) error {
	list, err := w.client.CoreV1().Events("").List(w.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
	if err != nil {
		return err
	}
	for _, e := range list.Items {
		if !e.LastTimestamp.Time.Before(since.Truncate(time.Second)) {
			return nil
		}
	}
	return fmt.Errorf("of %d events %s none is of after %s: %+v", len(list.Items), reason, since, list.Items)
}
