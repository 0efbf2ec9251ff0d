// Package daemonset proves DaemonSet mode against a real API server. The worker's daemonset command runs with the
// rights that the chart gives it, and under the chart's admission policy. It uses a token of a pod on its node.
package daemonset

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
	"github.com/kube-node-ready/kube-node-ready/test/inputs"
)

const (
	namespace = "kube-node-ready"
	account   = "kube-node-ready" // the DaemonSet's service account
	// patience bounds every wait; the machine may be busy.
	patience = 90 * time.Second
)

var (
	control    *cluster.Cluster
	k8s        kubernetes.Interface
	gate       = corev1.Taint{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}
	foreign    = corev1.Taint{Key: "example.com/theirs", Effect: corev1.TaintEffectNoSchedule}
	vocabulary = marks.Vocabulary{Gating: []marks.Taint{{Key: gate.Key, Value: gate.Value, Effect: gate.Effect}}, Verified: marks.Label{Key: "node-ready/verified", Value: "true"}}
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if control, err = cluster.Start(context.Background(), cluster.Options{WithoutScheduler: true, WithoutControllerManager: true}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer control.Stop()
	k8s = kubernetes.NewForConfigOrDie(control.Config())
	if err := installChart(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// installChart applies what the chart renders. Nobody makes pods of the DaemonSet here.
func installChart() error {
	_, err := k8s.CoreV1().Namespaces().Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	root, err := cluster.ModuleRoot()
	if err != nil {
		return err
	}
	helm, err := cluster.Tool("helm")
	if err != nil {
		return err
	}
	render := exec.Command(helm, "template", "kube-node-ready", filepath.Join(root, "deploy", "helm", "kube-node-ready"), "--namespace", namespace,
		"--kube-version", "1.36.0", "--set", "deploymentMode=daemonset", "--no-hooks",
		"--set-json", `controller.config.nodeManagement.prerequisites={"csiNodes":[{"driver":"disk.example.com"}],"pods":[{"namespace":"kube-system","selector":{"matchLabels":{"app":"agent"}},"currentRevision":true}]}`)
	manifests, err := render.Output()
	if err != nil {
		return fmt.Errorf("helm template: %w", err)
	}
	return install.Apply(context.Background(), control, manifests)
}

// scene is a node, the service account's directory in a pod on it, and a check that passes once a file is there.
type scene struct {
	*testing.T
	name    string
	account string
	// passes is the file that the check looks for.
	passes  string
	checks  string // of the configuration
	more    string // of the configuration
	resolv  string // the resolv.conf
	port    int    // of the metrics
	host    string // of the API server
	apiPort int
	logs    []string
}

func begin(t *testing.T, taints ...corev1.Taint) *scene {
	t.Helper()
	t.Parallel()
	inputs.Track(t, "../../deploy/helm/kube-node-ready") // TestMain installs it
	s := &scene{T: t, name: strings.ToLower(strings.NewReplacer("Test", "", "/", "-", "_", "-", ",", "").Replace(t.Name())), host: control.Host(), apiPort: control.Port()}
	s.passes = filepath.Join(s.TempDir(), "passes")
	s.checks = fmt.Sprintf("{name: gate, type: file, attempts: 1, file: {path: %q}}", s.passes)
	s.createNode(s.name, taints...)
	s.account = s.mount(s.token(s.name, s.name))
	ports, err := cluster.FreePorts("127.0.0.1", 2)
	s.must(ports, err)
	s.port = ports[0]
	s.more = fmt.Sprintf("metrics: {port: %d}\nhealth: {port: %d}\n", ports[0], ports[1])
	t.Cleanup(func() {
		if t.Failed() {
			for _, log := range s.logs {
				content, _ := os.ReadFile(log)
				t.Logf("%s:\n%s", filepath.Base(log), content)
			}
		}
	})
	return s
}

// must ends the test if the second value is an error.
func (s *scene) must(_ any, err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scene) createNode(name string, taints ...corev1.Taint) {
	s.Helper()
	n, err := k8s.CoreV1().Nodes().Create(s.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints}}, metav1.CreateOptions{})
	s.must(n, err)
	n.Status.NodeInfo.BootID = "boot-1"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	s.must(k8s.CoreV1().Nodes().UpdateStatus(s.Context(), n, metav1.UpdateOptions{}))
}

// token is one of a pod on the node, as the kubelet asks for it; without a node it is of no pod.
func (s *scene) token(pod, node string) string {
	s.Helper()
	request := &authenticationv1.TokenRequest{}
	if node != "" {
		made, err := k8s.CoreV1().Pods(namespace).Create(s.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: namespace}, Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account, Containers: []corev1.Container{{Name: "daemonset", Image: "daemonset"}}}}, metav1.CreateOptions{})
		s.must(made, err)
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: made.Name, UID: made.UID}
	}
	token, err := k8s.CoreV1().ServiceAccounts(namespace).CreateToken(s.Context(), account, request, metav1.CreateOptions{})
	s.must(token, err)
	return token.Status.Token
}

// mount writes what the kubelet mounts.
func (s *scene) mount(token string) string {
	s.Helper()
	dir := s.TempDir()
	s.must(nil, os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600))
	s.must(nil, os.WriteFile(filepath.Join(dir, "ca.crt"), control.CA(), 0o600))
	return dir
}

// start starts the process as in a pod.
func (s *scene) start(args ...string) *process.Process {
	s.Helper()
	return s.launch([]string{"POD_NAMESPACE=" + namespace, "KUBERNETES_SERVICE_HOST=" + s.host, "KUBERNETES_SERVICE_PORT=" + strconv.Itoa(s.apiPort),
		"KUBE_NODE_READY_SERVICEACCOUNT_DIR=" + s.account, "KUBE_NODE_READY_RESOLV_CONF=" + s.resolv}, args...)
}

// launch starts the process with an environment that says where it is.
func (s *scene) launch(env []string, args ...string) *process.Process {
	s.Helper()
	worker, err := install.Binary("kube-node-ready-worker")
	s.must(worker, err)
	config := filepath.Join(s.TempDir(), "config.yaml")
	s.must(nil, os.WriteFile(config, fmt.Appendf(nil, `
worker: {timeoutSeconds: 10, checkTimeoutSeconds: 2, checks: [%s]}
reconciliation: {maxRetries: 2, initialBackoffSeconds: 1, maxBackoffSeconds: 2, exhaustedRetrySeconds: 3}
%s`, s.checks, s.more), 0o600))
	log, err := os.Create(filepath.Join(control.Dir(), fmt.Sprintf("%s-%d.log", s.name, len(s.logs))))
	s.must(log, err)
	defer func() { _ = log.Close() }()
	s.logs = append(s.logs, log.Name())
	p, err := control.Processes().Start(process.Spec{Path: worker, Args: append([]string{"daemonset", "--config", config, "--log-level", "debug"}, args...),
		Stdout: log, Stderr: log, Env: append(env, "NODE_NAME="+s.name)})
	s.must(p, err)
	s.Cleanup(func() { p.Terminate(10 * time.Second) })
	return p
}

// log is what the last process has said so far.
func (s *scene) log() string {
	s.Helper()
	text, err := os.ReadFile(s.logs[len(s.logs)-1])
	s.must(text, err)
	return string(text)
}

// pass lets the check pass from now on.
func (s *scene) pass() {
	s.Helper()
	s.must(nil, os.WriteFile(s.passes, nil, 0o600))
}

// ends asks the process to end, as the kubelet does, and expects that it does so well.
func (s *scene) ends(p *process.Process) {
	s.Helper()
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.Done():
		if p.ExitCode() != 0 {
			s.Errorf("it ended with %d", p.ExitCode())
		}
	case <-time.After(patience):
		s.Error("it does not end")
	}
}

func (s *scene) node() (*corev1.Node, marks.Facts) {
	s.Helper()
	n, err := k8s.CoreV1().Nodes().Get(s.Context(), s.name, metav1.GetOptions{})
	s.must(n, err)
	return n, marks.Observe(n, vocabulary)
}

// eventually waits until ok says nothing; else the test fails with what it said last.
func (s *scene) eventually(what string, ok func() string) {
	s.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		fault := ok()
		if fault == "" {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("%s: %s", what, fault)
		}
	}
}

// becomes waits until the node is as the function wants it, and returns it.
func (s *scene) becomes(what string, ok func(marks.Facts) bool) (*corev1.Node, marks.Facts) {
	s.Helper()
	var n *corev1.Node
	var f marks.Facts
	s.eventually(what, func() string {
		if n, f = s.node(); ok(f) {
			return ""
		}
		return fmt.Sprintf("gated %v, labelled %v, record %+v, condition %+v", f.Gated, f.Labelled, f.Record, f.Condition)
	})
	return n, f
}

func released(f marks.Facts) bool { return !f.Gated && f.Labelled }

func says(reason string) func(marks.Facts) bool {
	return func(f marks.Facts) bool { return f.Condition != nil && f.Condition.Reason == reason }
}

// scrape reads /metrics.
func (s *scene) scrape() string {
	s.Helper()
	response, err := http.Get("http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) + "/metrics")
	if err != nil {
		return err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	s.must(text, err)
	return string(text)
}
