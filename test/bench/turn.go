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
	settings map[string]any
	// delay of every request, of floor and controller alike.
	delay time.Duration
}

// verification is a turn of a verification: by the floor, or by the controller.
func (l load) verification(ctx context.Context, b *bed, r *result, byFloor bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := newFleet(b.client, b.prefix(), r.Nodes, gatingTaint, verifiedLabel)
	code := l.code(f)
	if byFloor {
		code = pass // it tries nothing again
	}
	kubelets := newKubelets(ctx, b.client, l.run, code)
	client, kubeconfig, err := b.slowed(ctx, l.delay)
	if err != nil {
		return err
	}
	var fault firstFault
	least := newFloor(ctx, client, verifiedLabel, fault.note)
	onPod := []func(*corev1.Pod){kubelets.see}
	if byFloor {
		onPod = append(onPod, least.seePod)
	}
	if err := watch(ctx, b.client, f.see, onPod...); err != nil {
		return err
	}
	if byFloor {
		err = f.register(ctx, l.rate, least.start)
		if err == nil {
			err = f.await(ctx)
		}
	} else {
		err = b.during(ctx, r, l.settings, kubeconfig, func(*controller) error {
			if err := f.register(ctx, l.rate, nil); err != nil {
				return err
			}
			if err := f.await(ctx); err != nil {
				return err
			}
			left, err := b.left(ctx)
			r.Values[metricLeft] = float64(left)
			return err
		})
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
	least := newFloor(ctx, b.client, "", fault.note)
	onNode := f.see
	if byFloor {
		least.releaseAll(r.Nodes)
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
	return install.Apply(ctx, b.cluster, []byte(aRule))
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

// slowed are a client and a kubeconfig, both of the controller's account, whose every request takes that much longer; the bed's own
// client and no kubeconfig where it is 0. A proxy passes a token on, and no client's certificate.
func (b *bed) slowed(ctx context.Context, by time.Duration) (kubernetes.Interface, string, error) {
	if by == 0 {
		return b.client, "", nil
	}
	url, err := delay(ctx, b.cluster, by)
	if err != nil {
		return nil, "", err
	}
	kubeconfig, err := b.cluster.KubeconfigVia(ctx, "slowed", install.Namespace, install.ControllerAccount, url)
	if err != nil {
		return nil, "", err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, "", err
	}
	client, err := kubernetes.NewForConfig(fast(config))
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
