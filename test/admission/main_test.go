// Package admission proves that nodes are tainted on their creation, on a real API server and with the manifests that
// the chart renders. The policy taints them, or the webhook of controllers that run as processes with the chart's
// rights. The tests run one after the other.
package admission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/test/admission/cases"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/helmrender"
	"github.com/kube-node-ready/kube-node-ready/test/inputs"
)

const (
	chart = "../../deploy/helm/kube-node-ready"
	// hookName is that of the webhook's objects.
	hookName = "kube-node-ready-webhook"
	// patience bounds every wait; the machine may be busy.
	patience = 90 * time.Second
)

var (
	control *cluster.Cluster
	k8s     kubernetes.Interface
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	ctx := context.Background()
	var err error
	if control, err = cluster.Start(ctx, cluster.Options{WithoutControllerManager: true, WithoutScheduler: true}); err == nil {
		defer control.Stop()
		k8s = kubernetes.NewForConfigOrDie(control.Config())
		err = install.Rights(ctx, control)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// installation is the chart on the cluster.
type installation struct {
	config map[string]any
}

// setup applies what the chart renders for a configuration file, without its Deployment, and takes it away with the test.
func setup(t *testing.T, file string, values ...string) *installation {
	t.Helper()
	config := map[string]any{}
	if err := yaml.Unmarshal([]byte(file), &config); err != nil {
		t.Fatal(err)
	}
	if config["rules"] == nil {
		config["rules"] = map[string]any{"enabled": false}
	}
	content, err := yaml.Marshal(map[string]any{
		"controller": map[string]any{"replicas": 0, "config": config},
		"rules":      map[string]any{"installCRD": false},
	})
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--no-hooks"}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	rendered := helmrender.Chart(t, install.Namespace, []string{string(content)}, args...)
	if err := install.Apply(t.Context(), control, []byte(rendered)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The rights are overwritten by the next installation.
		ctx, now := context.Background(), metav1.DeleteOptions{}
		ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=kube-node-ready"}
		admission, core := k8s.AdmissionregistrationV1(), k8s.CoreV1()
		services, err := core.Services(install.Namespace).List(ctx, ours)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range services.Items {
			err = errors.Join(err, core.Services(install.Namespace).Delete(ctx, s.Name, now))
		}
		if err := errors.Join(err,
			admission.MutatingWebhookConfigurations().DeleteCollection(ctx, now, ours),
			admission.MutatingAdmissionPolicies().DeleteCollection(ctx, now, ours),
			admission.MutatingAdmissionPolicyBindings().DeleteCollection(ctx, now, ours),
			core.Secrets(install.Namespace).DeleteCollection(ctx, now, ours),
			// Or the controllers of all that follows would verify the nodes of this test.
			core.Nodes().DeleteCollection(ctx, now, metav1.ListOptions{}),
			core.Pods(install.Namespace).DeleteCollection(ctx, *metav1.NewDeleteOptions(0), metav1.ListOptions{}),
		); err != nil {
			t.Error(err)
		}
	})
	i := &installation{}
	if i.config, err = install.Configuration([]byte(rendered)); err != nil {
		t.Fatal(err)
	}
	i.config["worker"].(map[string]any)["image"] = install.WorkerImage()
	return i
}

// path is the path of a tool, which may read the chart.
func path(t *testing.T, name string) string {
	t.Helper()
	inputs.Track(t, chart)
	p, err := cluster.Tool(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// create creates a node as its kubelet does when it registers; one that is labelled with a role, which a kubelet may not do, as
// an administrator. It returns the taints that the node came out with.
func create(ctx context.Context, n *corev1.Node, dryRun bool) ([]string, error) {
	client, asKubelet := k8s, true
	for key := range n.Labels {
		asKubelet = asKubelet && !strings.HasPrefix(key, "node-role.kubernetes.io/")
	}
	if asKubelet {
		config := control.Config()
		config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + n.Name, Groups: []string{"system:nodes", "system:authenticated"}}
		var err error
		if client, err = kubernetes.NewForConfig(config); err != nil {
			return nil, err
		}
	}
	options := metav1.CreateOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	created, err := client.CoreV1().Nodes().Create(ctx, n, options)
	if err != nil {
		return nil, err
	}
	var taints []string
	for _, t := range created.Spec.Taints {
		taints = append(taints, cases.String(t))
	}
	return taints, nil
}

// inForce waits until creations come out as the group says, which takes the API server a moment to learn.
func inForce(t *testing.T, group cases.Group) {
	t.Helper()
	eventually(t, "the API server taints as group "+group.Name+" says", func() error {
		for _, c := range group.Cases {
			got, err := create(t.Context(), c.Node("trial"), true)
			if err != nil || !slices.Equal(got, c.Want) {
				return fmt.Errorf("%s: %q, want %q (%w)", c.Name, got, c.Want, err)
			}
		}
		return nil
	})
}

// holds creates every case for good.
func holds(t *testing.T, by string, group cases.Group) {
	t.Helper()
	for i, c := range group.Cases {
		n := c.Node(fmt.Sprintf("%s-%s-%d", by, group.Name, i))
		if got, err := create(t.Context(), n, false); err != nil || !slices.Equal(got, c.Want) {
			t.Errorf("%s, %s: %q, want %q (%v)", group.Name, c.Name, got, c.Want, err)
		}
	}
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	err := errors.New("not looked at")
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// service plays the webhook's Service: connections to its address go to one backend after the other.
type service struct {
	address  string
	port     int
	mu       sync.Mutex
	backends []int
	next     int
}

// serve begins a Service of no backends.
func serve(t *testing.T) *service {
	t.Helper()
	s := &service{address: control.ServiceIP(50)}
	listener, err := net.Listen("tcp", net.JoinHostPort(s.address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	s.port = listener.Addr().(*net.TCPAddr).Port
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.forward(conn)
		}
	}()
	return s
}

// values are the chart's, for this Service.
func (s *service) values() []string {
	return []string{"webhook.service.clusterIP=" + s.address, fmt.Sprintf("webhook.service.port=%d", s.port)}
}

func (s *service) set(backends ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backends = backends
}

func (s *service) forward(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	s.mu.Lock()
	if len(s.backends) == 0 {
		s.mu.Unlock()
		return
	}
	s.next++
	port := s.backends[s.next%len(s.backends)]
	s.mu.Unlock()
	backend, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return
	}
	defer func() { _ = backend.Close() }()
	go func() {
		_, _ = io.Copy(backend, conn)
		_ = backend.Close()
	}()
	_, _ = io.Copy(conn, backend)
}

// replica is a controller that serves the webhook.
type replica struct {
	*install.Controller
	port int
}

// replica starts a controller and waits until it is ready.
func (i *installation) replica(t *testing.T, name string) *replica {
	t.Helper()
	ports, err := cluster.FreePorts("127.0.0.1", 1)
	if err != nil {
		t.Fatal(err)
	}
	i.config["admission"].(map[string]any)["webhook"].(map[string]any)["port"] = ports[0]
	c, err := install.StartController(t.Context(), control, name, i.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// It releases its Lease at once. That it then serves for seconds, while requests may come, is of no account here.
		c.Terminate(time.Second)
		if t.Failed() {
			log, _ := os.ReadFile(c.LogFile)
			t.Logf("the log of %s:\n%s", name, log)
		}
	})
	return &replica{c, ports[0]}
}
