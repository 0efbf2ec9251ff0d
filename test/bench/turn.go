//go:build bench

package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

const (
	gatingTaint   = "node-ready/unverified"
	verifiedLabel = "node-ready/verified"
	ruleTaint     = "readiness.k8s.io/bench"
	ruleCondition = "bench/Ready"

	// limit of a turn: what takes longer is a fault.
	limit = 10 * time.Minute
	// drain is how long pods have to go after the last release: what tidies up comes last.
	drain = 2 * time.Minute
)

// load is what nodes come, and how long their workers run.
type load struct {
	rate     float64       // nodes a second; 0: all at once
	run      time.Duration // of a worker
	failing  int           // percent of the nodes whose first worker fails
	large    bool          // nodes of 9 KiB
	settings map[string]any
	// delay of every request, of floor and controller alike.
	delay time.Duration
}

// Who verifies the nodes of a turn.
type actor string

const (
	// lightest is a floor with the smallest writes that do it. It is an administrator, for whom the API server evaluates no rule of
	// authorisation, and makes a node's pod in place of whoever registered the node, who waits for that.
	lightest actor = "floor"
	// likeUs is a floor that writes what the controller writes, with its rights, and knows of nodes from its watch alone.
	likeUs actor = "same writes"
	// ourselves is the controller.
	ourselves actor = "controller"
)

// verification is a turn of a verification.
func (l load) verification(ctx context.Context, b *bed, r *result, by actor) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := newFleet(b.client, b.prefix(), r.Nodes, gatingTaint, verifiedLabel)
	f.large = l.large
	code := l.code(f)
	if by != ourselves {
		code = pass // a floor tries nothing again
	}
	kubelets := newKubelets(ctx, b.client, l.run, code)
	client, kubeconfig, err := b.asController(ctx, l.delay)
	if err != nil {
		return err
	}
	var fault firstFault
	onNode, onPod := f.see, []func(*corev1.Pod){kubelets.see}
	var then func(context.Context, *corev1.Node) error
	switch by {
	case lightest:
		if l.delay == 0 {
			client = b.client
		}
		floor := newFloor(ctx, client, leastWrites(), r.Nodes, fault.note)
		then, onPod = floor.start, append(onPod, floor.seePod)
	case likeUs:
		w, err := controllersWrites()
		if err != nil {
			return err
		}
		floor := newFloor(ctx, client, w, r.Nodes, fault.note)
		floor.bounded = true
		onNode, onPod = func(n *corev1.Node) {
			f.see(n)
			floor.seeNew(n)
		}, append(onPod, floor.seePod)
	}
	if err := watch(ctx, b.client, onNode, onPod...); err != nil {
		return err
	}
	come := func() error {
		if err := f.register(ctx, l.rate, then); err != nil {
			return err
		}
		return f.await(ctx)
	}
	if by == ourselves {
		err = b.during(ctx, r, l.settings, kubeconfig, func(*controller) error {
			if err := come(); err != nil {
				return err
			}
			left, err := b.left(ctx)
			r.Values[metricLeft] = float64(left)
			return err
		})
	} else {
		err = come()
	}
	if err = errors.Join(err, fault.get()); err != nil {
		return err
	}
	r.times(f.waits())
	r.Values[metricPods] = float64(kubelets.workers()) / float64(r.Nodes)
	return f.remove(ctx)
}

// code is the exit code of the first worker of each node, as often a failure as the load says, and of the later ones.
func (l load) code(f *fleet) func(string, int) int32 {
	fails := map[string]bool{}
	for i, name := range f.names {
		fails[name] = i%100 < l.failing
	}
	return func(node string, before int) int32 {
		if before == 0 && fails[node] {
			return 1
		}
		return 0
	}
}

// rule is a turn of a release by a NodeReadinessRule: the nodes are there and tainted, and then their conditions come True.
func (l load) rule(ctx context.Context, b *bed, r *result, byFloor bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := newFleet(b.client, b.prefix(), r.Nodes, ruleTaint, "")
	var fault firstFault
	onNode := f.see
	if byFloor {
		least := newFloor(ctx, b.client, writes{}, r.Nodes, fault.note)
		onNode = func(n *corev1.Node) {
			f.see(n)
			least.seeNode(n, ruleCondition)
		}
	}
	if err := watch(ctx, b.client, onNode); err != nil {
		return err
	}
	release := func() error {
		if err := f.each(ctx, 0, func(ctx context.Context, name string) error {
			_, err := f.client.CoreV1().Nodes().Create(ctx, f.node(name), metav1.CreateOptions{})
			return err
		}); err != nil {
			return err
		}
		if err := pause(ctx, 2*settle); err != nil {
			return err
		}
		if err := f.each(ctx, l.rate, func(ctx context.Context, name string) error {
			f.arrive(name, time.Now())
			now := metav1.Now()
			return f.patchStatus(ctx, name, corev1.NodeCondition{Type: ruleCondition, Status: corev1.ConditionTrue, Reason: "Bench", LastHeartbeatTime: now, LastTransitionTime: now})
		}); err != nil {
			return err
		}
		return f.await(ctx)
	}
	var err error
	if byFloor {
		err = release()
	} else {
		err = b.during(ctx, r, l.settings, "", func(*controller) error { return release() })
	}
	if err = errors.Join(err, fault.get()); err != nil {
		return err
	}
	r.times(f.waits())
	return f.remove(ctx)
}

// aRule releases nodes by ruleCondition.
const aRule = `{"apiVersion": "readiness.node.x-k8s.io/v1alpha1", "kind": "NodeReadinessRule", "metadata": {"name": "bench"}, "spec": {
  "nodeSelector": {"matchLabels": {"bench": "true"}}, "enforcementMode": "bootstrap-only",
  "conditions": [{"type": "` + ruleCondition + `", "requiredStatus": "True"}],
  "taint": {"key": "` + ruleTaint + `", "value": "true", "effect": "NoSchedule"}}}`

// makeRule installs the definition of rules, and one.
func makeRule(ctx context.Context, b *bed, _ int) error {
	if err := define(ctx, b); err != nil {
		return err
	}
	return install.Apply(ctx, b.cluster, []byte(aRule))
}

// define installs the definition of rules, and waits until it is served.
func define(ctx context.Context, b *bed) error {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return err
	}
	definition, err := os.ReadFile(root + "/deploy/helm/kube-node-ready/files/nodereadinessrules.yaml")
	if err != nil {
		return err
	}
	if err := install.Apply(ctx, b.cluster, definition); err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); ; {
		_, err := b.client.Discovery().ServerResourcesForGroupVersion("readiness.node.x-k8s.io/v1alpha1")
		if err == nil || time.Now().After(deadline) {
			return err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// left counts the worker pods that do not go after the last release.
func (b *bed) left(ctx context.Context) (int, error) {
	for deadline := time.Now().Add(drain); ; {
		pods, err := b.client.CoreV1().Pods(install.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil || len(pods.Items) == 0 || time.Now().After(deadline) {
			return len(pods.Items), err
		}
		if err := pause(ctx, settle); err != nil {
			return 0, err
		}
	}
}

// asController are a client and a kubeconfig, both of the controller's account, whose every request takes that much longer. A proxy passes
// a token on, and no client's certificate.
func (b *bed) asController(ctx context.Context, slower time.Duration) (client kubernetes.Interface, kubeconfig string, err error) {
	if slower == 0 {
		kubeconfig, err = b.cluster.KubeconfigFor(ctx, install.Namespace, install.ControllerAccount)
	} else {
		var url string
		if url, err = delay(ctx, b.cluster, slower); err == nil {
			kubeconfig, err = b.cluster.KubeconfigVia(ctx, "slowed", install.Namespace, install.ControllerAccount, url)
		}
	}
	if err != nil {
		return nil, "", err
	}
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, "", err
	}
	client, err = kubernetes.NewForConfig(fast(c))
	return client, kubeconfig, err
}

// firstFault keeps the first of errors that come from many goroutines.
type firstFault struct {
	mu  sync.Mutex
	err error
}

func (f *firstFault) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *firstFault) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
