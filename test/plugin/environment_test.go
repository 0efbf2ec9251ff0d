// Package plugin runs the kubectl plugin's commands against a real API server with a controller and nodes.
package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	karpapis "sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/kubectlplugin"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// environment is a cluster with a controller in it.
type environment struct {
	t       *testing.T
	cluster *cluster.Cluster
	agent   *nodeagent.Agent
	client  kubernetes.Interface
	// controller is the process that verifies.
	controller *install.Controller
}

func start(ctx context.Context, t *testing.T) *environment {
	t.Helper()
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dns, err := c.StartDNS(ctx, nil)
	must(err)
	must(install.Rights(ctx, c))
	images, err := install.Images()
	must(err)
	agent, err := nodeagent.Start(ctx, c, nodeagent.Options{Images: images, DNS: dns})
	must(err)
	t.Cleanup(agent.Stop)
	var settings map[string]any
	must(yaml.Unmarshal([]byte(clusterConfiguration), &settings))
	controller, err := install.StartController(ctx, c, "controller", settings)
	must(err)
	k8s, err := kubernetes.NewForConfig(c.Config())
	must(err)
	return &environment{t: t, cluster: c, agent: agent, client: k8s, controller: controller}
}

// ran is what a command did.
type ran struct {
	code     int
	out, err string
}

func (e *environment) run(ctx context.Context, args ...string) ran { return e.runOn(ctx, false, args) }

func (e *environment) onTerminal(ctx context.Context, args ...string) ran {
	return e.runOn(ctx, true, args)
}

func (e *environment) runOn(ctx context.Context, terminal bool, args []string) ran {
	var out, err bytes.Buffer
	code := kubectlplugin.Run(ctx, append(args, "--kubeconfig", e.cluster.Kubeconfig()), &out, &err, terminal)
	return ran{code, out.String(), err.String()}
}

// summary is what these tests read of a node in the output of -o json.
type summary struct {
	Status    string
	Taints    []string
	Condition *corev1.NodeCondition
	Last      *struct {
		Number int32
		Check  string
	}
}

func (e *environment) add(ctx context.Context, spec nodeagent.NodeSpec) *nodeagent.Node {
	e.t.Helper()
	n, err := e.agent.AddNode(ctx, spec)
	if err != nil {
		e.t.Fatal(err)
	}
	return n
}

// createConfigMap makes a ConfigMap as the chart does.
func (e *environment) createConfigMap(ctx context.Context, namespace, name, content string) {
	e.t.Helper()
	_, err := e.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: "controller"}},
		Data:       map[string]string{"config.yaml": content},
	}, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
}

// configure changes the ConfigMap of the controller, whose process goes on as it is.
func (e *environment) configure(ctx context.Context, content string) {
	e.t.Helper()
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"config.yaml": content}})
	if err == nil {
		_, err = e.client.CoreV1().ConfigMaps(install.Namespace).Patch(ctx, "controller", types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// label labels a namespace.
func (e *environment) label(ctx context.Context, namespace, key, value string) {
	e.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{key: value}}})
	if err == nil {
		_, err = e.client.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// emit emits an event of a controller on a node, under the name of its reason.
func (e *environment) emit(ctx context.Context, name, controller, reason string) {
	e.t.Helper()
	n, err := e.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	_, err = e.client.EventsV1().Events(metav1.NamespaceDefault).Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(reason)}, EventTime: metav1.NowMicro(), Type: corev1.EventTypeNormal, Reason: reason, Action: "Do",
		Regarding:           corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: n.UID},
		ReportingController: controller, ReportingInstance: controller + "-1",
	}, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
}

// await waits until status shows what is wanted of a node.
func (e *environment) await(ctx context.Context, name string, done func(summary) bool) {
	e.t.Helper()
	for {
		got := e.run(ctx, "status", name, "-o", "json")
		var list struct{ Nodes []summary }
		if err := json.Unmarshal([]byte(got.out), &list); err != nil || got.code != 0 || len(list.Nodes) != 1 {
			e.t.Fatalf("status of %s: %+v, %v", name, got, err)
		}
		if done(list.Nodes[0]) {
			return
		}
		select {
		case <-ctx.Done():
			e.t.Fatalf("node %s ended as %+v", name, list.Nodes[0])
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (e *environment) node(ctx context.Context, name string) *corev1.Node {
	e.t.Helper()
	n, err := e.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	return n
}

// karpenter installs Karpenter's definitions and returns a client of them.
func (e *environment) karpenter() client.Client {
	e.t.Helper()
	if _, err := envtest.InstallCRDs(e.cluster.Config(), envtest.CRDInstallOptions{CRDs: karpapis.CRDs}); err != nil {
		e.t.Fatal(err)
	}
	k, err := client.New(e.cluster.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		e.t.Fatal(err)
	}
	return k
}

// controllerPod makes the object of a controller's pod as the chart does; nobody runs it.
func (e *environment) controllerPod(ctx context.Context) {
	e.t.Helper()
	_, err := e.client.CoreV1().Pods(install.Namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "controller", Labels: map[string]string{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: "controller"}},
		Spec: corev1.PodSpec{ServiceAccountName: install.ControllerAccount, SchedulerName: "nobody",
			Tolerations: []corev1.Toleration{ // of the rules' taints, as the chart has them
				{Key: "readiness.k8s.io/agent", Operator: corev1.TolerationOpExists}, {Key: "readiness.k8s.io/preview", Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: "controller", Image: install.Image}}},
	}, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
}

// patchNodes changes every node.
func (e *environment) patchNodes(ctx context.Context, change func(*corev1.Node)) {
	e.t.Helper()
	list, err := e.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, n := range list.Items {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			have := e.node(ctx, n.Name)
			change(have)
			_, err := e.client.CoreV1().Nodes().Update(ctx, have, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			e.t.Fatal(err)
		}
	}
}

// claim makes the NodeClaim of a node, which Karpenter does not call initialised.
func (e *environment) claim(ctx context.Context, node string) {
	e.t.Helper()
	k := e.karpenter()
	c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + node}, Spec: karpv1.NodeClaimSpec{
		NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: "default"}, Requirements: []karpv1.NodeSelectorRequirementWithMinValues{}}}
	if err := k.Create(ctx, c); err != nil {
		e.t.Fatal(err)
	}
	c.Status.NodeName, c.Status.ProviderID = node, "test://"+node
	c.StatusConditions().SetUnknownWithReason(karpv1.ConditionTypeInitialized, "StartupTaintsExist", `StartupTaint "node-ready/unverified=true:NoSchedule" still exists`)
	if err := k.Status().Update(ctx, c); err != nil {
		e.t.Fatal(err)
	}
}

// matchLines compares a command's output with regular expressions, line by line.
func matchLines(t *testing.T, got ran, want []string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(got.out, "\n"), "\n")
	ok := got.code == 0 && len(lines) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = regexp.MustCompile(want[i]).MatchString(lines[i])
	}
	if !ok {
		t.Errorf("code %d, error %q, output\n%s\nwant\n%s", got.code, got.err, got.out, strings.Join(want, "\n"))
	}
}
