// Package integration proves the controller and the worker against a real API server, scheduler, controller manager and
// DNS server. The node agent runs each worker pod's container as a local process. If a test is about what a kubelet
// reports, it plays the kubelet by patching the pods' statuses (kubelet_test.go). Each test has its own namespace,
// controller process and nodes. The controller selects the nodes by label, so that tests run side by side.
//
// Tests whose names begin with TestRace are those in which a controller and its workers do most at once. make race runs
// them with programs that have the race detector.
package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

const (
	image      = "kube-node-ready:test"
	tools      = "tools:test" // holds /bin/true and /bin/sleep
	testLabel  = "integration-test"
	taintKey   = "node-ready/unverified"
	verifiedBy = "node-ready/verified"
	// resync is how often the controllers look again.
	resync = time.Second
	// patience bounds every wait; the machine may be busy.
	patience = 90 * time.Second
)

var (
	control    *cluster.Cluster
	agent      *nodeagent.Agent
	k8s        kubernetes.Interface
	vocabulary = marks.Vocabulary{Gating: []marks.Taint{{Key: taintKey, Value: "true", Effect: corev1.TaintEffectNoSchedule}}, Verified: marks.Label{Key: verifiedBy, Value: "true"}}
	gated      = corev1.Taint{Key: taintKey, Value: "true", Effect: corev1.TaintEffectNoSchedule}
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx := context.Background()
	worker := binary("kube-node-ready-worker")
	var err error
	if control, err = cluster.Start(ctx, cluster.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer control.Stop()
	dns, err := control.StartDNS(ctx, nil)
	if err == nil {
		agent, err = nodeagent.Start(ctx, control, nodeagent.Options{DNS: dns, Images: map[string]nodeagent.Image{
			image: {workerpod.Command: worker},
			tools: {"/bin/true": "/bin/true", "/bin/sleep": "/bin/sleep"},
		}})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer agent.Stop()
	k8s = kubernetes.NewForConfigOrDie(control.Config())
	_ = flag.Set("test.parallel", "8") // tests wait far more than they compute; the command line overrides it
	return m.Run()
}

// binary is a program that make build has built.
func binary(name string) string {
	path, err := install.Binary(name)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return path
}

// suite is what one test has of its own.
type suite struct {
	*testing.T
	ctx         context.Context
	name        string // namespace, label value and prefix of the nodes
	config      map[string]any
	controllers []*process.Process
	logs        []string
	created     *creations
}

// begin makes a namespace in which workers may do what the built-in checks need. change edits the configuration, whose
// defaults are short.
func begin(t *testing.T, change ...func(map[string]any)) *suite {
	t.Helper()
	t.Parallel()
	return alone(t, change...)
}

// alone is begin for a test that runs before all others.
func alone(t *testing.T, change ...func(map[string]any)) *suite {
	t.Helper()
	s := &suite{T: t, ctx: t.Context(), name: strings.ToLower(strings.NewReplacer("Test", "", "/", "-", "_", "-").Replace(t.Name()))}
	s.config = map[string]any{
		"worker": map[string]any{"image": map[string]any{"repository": "kube-node-ready", "tag": "test"}, "checkTimeoutSeconds": 2, "timeoutSeconds": 30},
		// A resync each second: none may write or tell anything again.
		"reconciliation": map[string]any{"maxRetries": 2, "initialBackoffSeconds": 1, "maxBackoffSeconds": 2, "exhaustedRetrySeconds": 4, "intervalSeconds": 1},
		"nodeManagement": map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]any{testLabel: s.name}}},
		"metrics":        map[string]any{},
		"health":         map[string]any{},
	}
	for _, f := range change {
		f(s.config)
	}
	s.must(k8s.CoreV1().Namespaces().Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, metav1.CreateOptions{}))
	s.must(k8s.CoreV1().ServiceAccounts(s.name).Create(s.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "kube-node-ready-worker"}}, metav1.CreateOptions{}))
	begun := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ledger.Name}}
	s.must(nil, ledger.Contents{CompleteSince: time.Now().Add(-24 * time.Hour), Entries: []ledger.Entry{}}.Write(begun))
	s.must(k8s.CoreV1().ConfigMaps(s.name).Create(s.ctx, begun, metav1.CreateOptions{}))
	meta := metav1.ObjectMeta{Namespace: "default", Name: "worker-" + s.name}
	s.must(k8s.RbacV1().Roles("default").Create(s.ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list"}},
	}}, metav1.CreateOptions{}))
	s.must(k8s.RbacV1().RoleBindings("default").Create(s.ctx, &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: s.name, Name: "kube-node-ready-worker"}}}, metav1.CreateOptions{}))
	s.created = s.watchWorkers()
	t.Cleanup(s.end) // it runs before the watch ends
	return s
}

// must ends the test if the second value is an error.
func (s *suite) must(_ any, err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// end stops the controllers and, if the test failed, shows what they logged.
func (s *suite) end() {
	for _, c := range s.controllers {
		c.Terminate(5 * time.Second)
	}
	for _, l := range s.logs {
		b, err := os.ReadFile(l)
		if err == nil && bytes.Contains(b, []byte("WARNING: DATA RACE")) { // make race
			s.Errorf("%s: a data race", filepath.Base(l))
		}
		if err == nil && s.Failed() {
			s.Logf("%s:\n%s", filepath.Base(l), b)
		}
	}
	nodes, _ := k8s.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{LabelSelector: testLabel + "=" + s.name})
	for _, n := range nodes.Items {
		if a := agent.Node(n.Name); a != nil {
			_ = a.Remove(context.Background())
		} else {
			_ = k8s.CoreV1().Nodes().Delete(context.Background(), n.Name, metav1.DeleteOptions{})
		}
	}
}

// set merges keys into a section of the configuration.
func set(section string, keys map[string]any) func(map[string]any) {
	return func(c map[string]any) {
		into := c[section].(map[string]any)
		for k, v := range keys {
			into[k] = v
		}
	}
}

// execCheck is a worker.checks list of one exec check that runs the command for as long as the worker may run.
func execCheck(command ...string) func(map[string]any) {
	return func(c map[string]any) {
		limit := c["worker"].(map[string]any)["timeoutSeconds"]
		set("worker", map[string]any{"checkTimeoutSeconds": limit, "checks": []any{
			map[string]any{"name": "slow", "type": "exec", "exec": map[string]any{"command": command}}}})(c)
	}
}

// controller starts a replica and waits until it is ready.
func (s *suite) controller(args ...string) *process.Process {
	s.Helper()
	for {
		p, log := s.launch(args...)
		s.eventually("the controller is ready", func() string {
			select {
			case <-p.Done():
				return ""
			default:
			}
			resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", s.config["health"].(map[string]any)["port"]))
			if err != nil {
				return err.Error()
			}
			defer func() { _ = resp.Body.Close() }()
			if resp.StatusCode != http.StatusOK {
				return resp.Status
			}
			return ""
		})
		select {
		case <-p.Done():
			out, _ := os.ReadFile(log)
			if !strings.Contains(string(out), "address already in use") { // another process was quicker to take the free port
				s.Fatalf("the controller ended: %s", out)
			}
		default:
			s.controllers, s.logs = append(s.controllers, p), append(s.logs, log)
			return p
		}
	}
}

var launches atomic.Int32

func (s *suite) launch(args ...string) (*process.Process, string) {
	s.Helper()
	ports, err := cluster.FreePorts("127.0.0.1", 2)
	if err != nil {
		s.Fatal(err)
	}
	set("metrics", map[string]any{"port": ports[0]})(s.config)
	set("health", map[string]any{"port": ports[1]})(s.config)
	content, err := yaml.Marshal(s.config)
	if err != nil {
		s.Fatal(err)
	}
	base := filepath.Join(control.Dir(), fmt.Sprintf("%s-%d", s.name, launches.Add(1)))
	if err := os.WriteFile(base+".yaml", content, 0o600); err != nil {
		s.Fatal(err)
	}
	log, err := os.Create(base + ".log")
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	p, err := control.Processes().Start(process.Spec{
		Path: binary("kube-node-ready-controller"), Args: append([]string{"--config", base + ".yaml", "--kubeconfig", control.Kubeconfig()}, args...),
		Env: []string{"POD_NAMESPACE=" + s.name}, Stdout: log, Stderr: log,
	})
	if err != nil {
		s.Fatal(err)
	}
	return p, base + ".log"
}

// spec is a tainted node that the test's controllers select.
func (s *suite) spec(suffix string, change ...func(*nodeagent.NodeSpec)) nodeagent.NodeSpec {
	spec := nodeagent.NodeSpec{Name: s.name + "-" + suffix, Labels: map[string]string{testLabel: s.name}, Taints: []corev1.Taint{gated}}
	for _, f := range change {
		f(&spec)
	}
	return spec
}

// node registers a tainted node that the node agent serves: real workers run on it.
func (s *suite) node(suffix string, change ...func(*nodeagent.NodeSpec)) *nodeagent.Node {
	s.Helper()
	n, err := agent.AddNode(s.ctx, s.spec(suffix, change...))
	if err != nil {
		s.Fatal(err)
	}
	return n
}

func dns(mode nodeagent.DNSMode) func(*nodeagent.NodeSpec) {
	return func(n *nodeagent.NodeSpec) { n.DNS = mode }
}

func untainted(n *nodeagent.NodeSpec) { n.Taints = nil }

// get reads a node and what is to know of it.
func (s *suite) get(name string) (*corev1.Node, marks.Facts) {
	s.Helper()
	n, err := k8s.CoreV1().Nodes().Get(s.ctx, name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return n, marks.Observe(n, vocabulary)
}

// eventually waits until ok returns an empty string; else the test fails with what it returned last.
func (s *suite) eventually(what string, ok func() string) {
	s.Helper()
	end := time.Now().Add(patience)
	for {
		fault := ok()
		if fault == "" {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("%s: %s", what, fault)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// becomes waits until a node is as wanted.
func (s *suite) becomes(name, what string, want func(marks.Facts) bool) marks.Facts {
	s.Helper()
	var f marks.Facts
	s.eventually(name+" becomes "+what, func() string {
		if _, f = s.get(name); want(f) {
			return ""
		}
		b, _ := json.Marshal(f)
		return string(b)
	})
	return f
}

func isVerified(f marks.Facts) bool {
	return f.Labelled && !f.Gated && f.Record.LastOutcome == attempt.Passed && f.Condition != nil && f.Condition.Reason == marks.ReasonChecksPassed
}

func says(reason string) func(marks.Facts) bool {
	return func(f marks.Facts) bool { return f.Condition != nil && f.Condition.Reason == reason }
}

// stays checks for a while that a node remains as wanted.
func (s *suite) stays(d time.Duration, name, what string, want func(marks.Facts) bool) {
	s.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, f := s.get(name); !want(f) {
			b, _ := json.Marshal(f)
			s.Fatalf("%s is no longer %s: %s", name, what, b)
		}
	}
}

// workers lists the worker pods, of one node if name is not empty.
func (s *suite) workers(name string) []corev1.Pod {
	s.Helper()
	l, err := k8s.CoreV1().Pods(s.name).List(s.ctx, metav1.ListOptions{LabelSelector: workerpod.LabelComponent + "=" + workerpod.Component})
	if err != nil {
		s.Fatal(err)
	}
	var out []corev1.Pod
	for _, p := range l.Items {
		if name == "" || p.Annotations[workerpod.AnnotationNode] == name {
			out = append(out, p)
		}
	}
	return out
}

// creations is every worker pod of a test, from a watch of its namespace that begins with the test.
type creations struct {
	mu    sync.Mutex
	uids  map[string]string            // name by UID
	nodes map[string]string            // name of the node by UID
	live  map[string]map[string]string // node -> UID -> name, of those that occupy their node
	most  int                          // as many occupied nodes at once
	twice []string                     // nodes that two pods occupied at once
}

// watchWorkers begins the watch. The test fails at its end if two worker pods occupied one node at once, or if more
// than maxConcurrentVerifications did on all nodes.
func (s *suite) watchWorkers() *creations {
	s.Helper()
	ctx, pods := context.WithoutCancel(s.ctx), k8s.CoreV1().Pods(s.name)
	before, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	// The API server may end a watch at any time: this one goes on where it ended.
	w, err := watchtools.NewRetryWatcherWithContext(ctx, before.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = workerpod.LabelComponent + "=" + workerpod.Component
			return pods.Watch(ctx, o)
		}})
	if err != nil {
		s.Fatal(err)
	}
	b := &creations{uids: map[string]string{}, nodes: map[string]string{}, live: map[string]map[string]string{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok {
				b.observe(p, e.Type == watch.Deleted)
			}
		}
	}()
	limit, limited := s.config["reconciliation"].(map[string]any)["maxConcurrentVerifications"].(int)
	s.Cleanup(func() {
		select {
		case <-ended:
			s.Error("the watch of worker pods ended before the test did")
		default:
			w.Stop()
			<-ended
		}
		if len(b.twice) > 0 {
			s.Errorf("two workers at once:\n%s", strings.Join(b.twice, "\n"))
		}
		if limited && b.most > limit {
			s.Errorf("%d workers at once, maxConcurrentVerifications is %d", b.most, limit)
		}
	})
	return b
}

func (b *creations) observe(p *corev1.Pod, gone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid, node := string(p.UID), p.Annotations[workerpod.AnnotationNode]
	b.uids[uid], b.nodes[uid] = p.Name, node
	if b.live[node] == nil {
		b.live[node] = map[string]string{}
	}
	if gone || ended(p) {
		delete(b.live[node], uid)
		return
	}
	b.live[node][uid] = p.Name
	if names := slices.Sorted(maps.Values(b.live[node])); len(names) > 1 {
		b.twice = append(b.twice, fmt.Sprintf("node %s: %s", node, strings.Join(names, ", ")))
	}
	all := 0
	for _, pods := range b.live {
		all += len(pods)
	}
	b.most = max(b.most, all)
}

// ended reports whether no container of the pod runs or may still start.
func ended(p *corev1.Pod) bool {
	switch {
	case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		return true
	case p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0: // what remains are finalizers
		return true
	}
	all := p.Status.ContainerStatuses
	return len(all) > 0 && !slices.ContainsFunc(all, func(c corev1.ContainerStatus) bool { return c.State.Terminated == nil })
}

// of counts the worker pods of one node.
func (b *creations) of(node string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, of := range b.nodes {
		if of == node {
			n++
		}
	}
	return n
}

func (b *creations) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.uids)
}

// hasEvents waits until a node has each reason as often as wanted, and returns all that it has. Events are written beside the
// controller's other work, so they may come after what they report.
func (s *suite) hasEvents(name string, want map[string]int) (have map[string]int) {
	s.Helper()
	s.eventually("events on "+name, func() string {
		have = s.events(name)
		for reason, count := range want {
			if have[reason] != count {
				return fmt.Sprintf("want %v, have %v", want, have)
			}
		}
		return ""
	})
	return have
}

// events lists the reasons of the events on a node, with how often each was reported so far.
func (s *suite) events(name string) map[string]int {
	s.Helper()
	l, err := k8s.CoreV1().Events("default").List(s.ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + name})
	if err != nil {
		s.Fatal(err)
	}
	out := map[string]int{}
	for _, e := range l.Items {
		out[e.Reason] += max(1, int(e.Count))
	}
	return out
}
