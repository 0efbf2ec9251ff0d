// Package reporter proves the worker's report against a real API server: what it writes, with which rights, and what it does
// while the API server or the node is away. It also applies the examples that run it.
package reporter

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

const (
	conditionType = "example.com/AgentReady"
	// patience bounds every wait; the machine may be busy.
	patience = 60 * time.Second
)

var (
	control *cluster.Cluster
	k8s     kubernetes.Interface
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
	return m.Run()
}

// patchStatus are the least rights of a reporter.
var patchStatus = rule("", "nodes/status", "patch")

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// scene is a node with an agent, and a service account whose pod on the node the reporter runs as.
type scene struct {
	*testing.T
	name    string // of all objects
	agent   *agent
	account string // its directory, as the kubelet mounts it
	host    string // of the API server
	port    int
	logs    []string
}

// agent is a health endpoint that answers as it is set to.
type agent struct {
	*httptest.Server
	status atomic.Int32
	checks atomic.Int32
}

func begin(t *testing.T, rules ...rbacv1.PolicyRule) *scene {
	t.Helper()
	t.Parallel()
	s := &scene{T: t, name: strings.ToLower(strings.NewReplacer("Test", "", "/", "-", "_", "-", ",", "").Replace(t.Name())), agent: &agent{},
		host: control.Host(), port: control.Port()}
	s.agent.status.Store(http.StatusOK)
	s.agent.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.agent.checks.Add(1)
		w.WriteHeader(int(s.agent.status.Load()))
		_, _ = fmt.Fprintln(w, "the agent says", s.agent.status.Load())
	}))
	t.Cleanup(s.agent.Close)
	s.createNode()
	s.grant(rules...)
	s.account = s.serviceAccount()
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

func (s *scene) createNode() {
	s.Helper()
	s.must(k8s.CoreV1().Nodes().Create(s.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, metav1.CreateOptions{}))
}

// grant gives the service account these rights and no others.
func (s *scene) grant(rules ...rbacv1.PolicyRule) {
	s.Helper()
	meta := metav1.ObjectMeta{Name: s.name}
	roles := k8s.RbacV1().ClusterRoles()
	if _, err := roles.Get(s.Context(), s.name, metav1.GetOptions{}); err == nil {
		s.must(roles.Update(s.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.UpdateOptions{}))
		return
	}
	s.must(roles.Create(s.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}))
	s.must(k8s.RbacV1().ClusterRoleBindings().Create(s.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: s.name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: s.name}}}, metav1.CreateOptions{}))
}

// serviceAccount makes an account and a pod of it on the node, and writes what the kubelet mounts there. The token names the
// node, as constrained impersonation asks for.
func (s *scene) serviceAccount() string {
	s.Helper()
	meta := metav1.ObjectMeta{Name: s.name, Namespace: "default"}
	s.must(k8s.CoreV1().ServiceAccounts("default").Create(s.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}))
	pod, err := k8s.CoreV1().Pods("default").Create(s.Context(), &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		NodeName: s.name, ServiceAccountName: s.name, Containers: []corev1.Container{{Name: "reporter", Image: "reporter"}}}}, metav1.CreateOptions{})
	s.must(pod, err)
	token, err := k8s.CoreV1().ServiceAccounts("default").CreateToken(s.Context(), s.name, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}}, metav1.CreateOptions{})
	s.must(token, err)
	dir := s.TempDir()
	s.must(nil, os.WriteFile(filepath.Join(dir, "token"), []byte(token.Status.Token), 0o600))
	s.must(nil, os.WriteFile(filepath.Join(dir, "ca.crt"), control.CA(), 0o600))
	return dir
}

// report starts a reporter that checks five times a second.
func (s *scene) report(env ...string) *process.Process {
	s.Helper()
	worker, err := install.Binary("kube-node-ready-worker")
	s.must(nil, err)
	return s.start(worker, []string{"report"}, env...)
}

func (s *scene) start(path string, args []string, env ...string) *process.Process {
	s.Helper()
	log, err := os.Create(filepath.Join(control.Dir(), fmt.Sprintf("%s-%d.log", s.name, len(s.logs))))
	s.must(log, err)
	defer func() { _ = log.Close() }()
	s.logs = append(s.logs, log.Name())
	p, err := control.Processes().Start(process.Spec{Path: path, Args: args, Stdout: log, Stderr: log, Env: append([]string{
		"NODE_NAME=" + s.name, "CONDITION_TYPE=" + conditionType, "CHECK_ENDPOINT=" + s.agent.URL + "/healthz", "CHECK_INTERVAL=200ms", "METRICS_BIND_ADDRESS=0",
		"KUBERNETES_SERVICE_HOST=" + s.host, "KUBERNETES_SERVICE_PORT=" + strconv.Itoa(s.port), "KUBE_NODE_READY_SERVICEACCOUNT_DIR=" + s.account}, env...)})
	s.must(p, err)
	s.Cleanup(func() { p.Terminate(5 * time.Second) })
	return p
}

// log is what the reporters have logged so far.
func (s *scene) log() string {
	var all strings.Builder
	for _, file := range s.logs {
		content, _ := os.ReadFile(file)
		all.Write(content)
	}
	return all.String()
}

// node reads the Node and its condition, which is nil where it has none.
func (s *scene) node() (*corev1.Node, *corev1.NodeCondition) {
	s.Helper()
	n, err := k8s.CoreV1().Nodes().Get(s.Context(), s.name, metav1.GetOptions{})
	s.must(n, err)
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == conditionType {
			return n, &n.Status.Conditions[i]
		}
	}
	return n, nil
}

// eventually waits until ok returns an empty string; else the test fails with what it returned last.
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

// becomes waits for the condition's status and reason, and returns it.
func (s *scene) becomes(status corev1.ConditionStatus, reason string) corev1.NodeCondition {
	s.Helper()
	var c *corev1.NodeCondition
	s.eventually(fmt.Sprintf("the condition becomes %s, %s", status, reason), func() string {
		if _, c = s.node(); c != nil && c.Status == status && c.Reason == reason {
			return ""
		}
		return fmt.Sprintf("%+v", c)
	})
	return *c
}

// checks waits for so many checks of the agent, from now.
func (s *scene) checks(n int32) {
	s.Helper()
	before := s.agent.checks.Load()
	s.eventually("the agent is checked", func() string {
		if now := s.agent.checks.Load(); now < before+n {
			return fmt.Sprintf("%d times of %d", now-before, n)
		}
		return ""
	})
}

// freePort is a port that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	ports, err := cluster.FreePorts("127.0.0.1", 1)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
}
