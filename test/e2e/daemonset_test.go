//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/realnode"
)

// inDaemonSetMode are the settings of a release without a controller, whose nodes are tainted by the API server's policy. One of the
// profiles waits for a DaemonSet, which that mode refuses.
var inDaemonSetMode = []string{`deploymentMode="daemonset"`, `controller.config.profiles=[]`, `controller.config.admission.mode="policy"`}

// The release goes from controller mode to DaemonSet mode and back, and no verified node loses its label, is gated, or is verified
// again. In between a node joins broken, whose kubelet sets no taint: it is created with it, stays tainted, its pod's metrics say why, and its token changes no other node. Once it is
// recovered it is verified, and its pod is gone.
func (s *suite) daemonSetMode(ctx context.Context, t *testing.T) {
	const name = "node-h"
	before := map[string]marks{}
	for _, node := range baseNodes {
		m, err := s.marks(ctx, node)
		must(t, err)
		before[node] = m
	}
	kept := s.watchVerified(ctx, t, baseNodes...)
	// Whatever happens, the cases that follow need the controller.
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		s.removeNode(ctx, t, name)
		if t.Failed() {
			s.deploy(ctx, t)
		}
		// A controller tolerates the taint of a new node, so it may have been placed there.
		eventually(ctx, t, time.Minute, "a controller on another node leads", func() error {
			pod, err := s.client.CoreV1().Pods(namespace).Get(ctx, s.leader(ctx, t), metav1.GetOptions{})
			if err == nil && s.node(pod.Spec.NodeName) == nil {
				err = fmt.Errorf("the leader is on %s, which is gone", pod.Spec.NodeName)
			}
			return err
		})
	})

	s.deploy(ctx, t, inDaemonSetMode...)
	eventually(ctx, t, 30*time.Second, "the controller is gone, and the DaemonSet selects no verified node", func() error {
		switch _, err := s.client.AppsV1().Deployments(namespace).Get(ctx, controllerName, metav1.GetOptions{}); {
		case err == nil:
			return fmt.Errorf("the controller's Deployment is there")
		case !apierrors.IsNotFound(err):
			return err
		}
		set, err := s.client.AppsV1().DaemonSets(namespace).Get(ctx, release, metav1.GetOptions{})
		if err == nil && (set.Status.ObservedGeneration == 0 || set.Status.DesiredNumberScheduled != 0) {
			err = fmt.Errorf("%d pods are wanted", set.Status.DesiredNumberScheduled)
		}
		return err
	})

	created := s.firstTaints(ctx, t, name)
	_, err := s.cluster.AddNode(ctx, name, realnode.NodeOptions{})
	must(t, err)
	if taints := created(); len(taints) != 1 || taints[0] != gatingTaint {
		t.Errorf("the kubelet's registration, which sets no gating taint, made a node with %v", taints)
	}
	fault, err := s.node(name).DropDNS(ctx)
	must(t, err)
	t.Cleanup(func() { must(t, fault.Recover(context.WithoutCancel(ctx))) })
	s.awaitFailing(ctx, t, 90*time.Second, name, "dns")
	pod := s.daemonSetPods(ctx, t, name)[0]
	s.saysWhy(ctx, t, pod)
	s.changesNoOther(ctx, t, pod, "node-a")
	throughout(ctx, t, 5*time.Second, name+" stays tainted", func() error {
		m, err := s.marks(ctx, name)
		if err == nil && (!m.tainted || m.labelled) {
			err = fmt.Errorf("it does not: %s", m)
		}
		return err
	})

	must(t, fault.Recover(ctx))
	s.awaitVerified(ctx, t, 60*time.Second, name)
	eventually(ctx, t, 45*time.Second, "the pod of a verified node goes", func() error {
		if pods := s.daemonSetPods(ctx, t, ""); len(pods) > 0 {
			return fmt.Errorf("%s is there", pods[0].Name)
		}
		return nil
	})
	before[name], err = s.marks(ctx, name)
	must(t, err)
	keptToo := s.watchVerified(ctx, t, name)

	s.deploy(ctx, t)
	eventually(ctx, t, 45*time.Second, "a controller leads again", func() error {
		lease, err := s.client.CoordinationV1().Leases(namespace).Get(ctx, controllerName, metav1.GetOptions{})
		if err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "") {
			err = fmt.Errorf("the Lease has no holder")
		}
		return err
	})
	throughout(ctx, t, 5*time.Second, "every node stays verified", func() error {
		for node, was := range before {
			if err := s.verified(ctx, node); err != nil {
				return fmt.Errorf("%s: %w", node, err)
			}
			m, err := s.marks(ctx, node)
			if err != nil {
				return err
			}
			if m.recorded.Sequence != was.recorded.Sequence {
				return fmt.Errorf("%s was verified again: %s", node, m)
			}
		}
		return nil
	})
	kept()
	keptToo()
	s.watch.check(t)
}

// firstTaints watches for a node to be created. The function that it returns waits for that, and returns the taints that the node was
// created with, without those by which Kubernetes says that a node is not ready.
func (s *suite) firstTaints(ctx context.Context, t *testing.T, name string) (created func() []corev1.Taint) {
	t.Helper()
	list, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	must(t, err)
	w, err := s.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: list.ResourceVersion})
	must(t, err)
	return func() []corev1.Taint {
		t.Helper()
		defer w.Stop()
		event := <-w.ResultChan()
		node, ok := event.Object.(*corev1.Node)
		if !ok || event.Type != watch.Added {
			t.Fatalf("%s is not the creation of %s: %v", event.Type, name, event.Object)
		}
		return slices.DeleteFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return strings.HasPrefix(taint.Key, "node.kubernetes.io/") })
	}
}

// watchVerified watches nodes that are verified. The function that it returns ends the watch, and fails the case if one of them was
// seen without the label, or gated.
func (s *suite) watchVerified(ctx context.Context, t *testing.T, names ...string) (kept func()) {
	t.Helper()
	var watches []watch.Interface
	var stopped atomic.Bool
	lost := make(chan string, len(names))
	for _, name := range names {
		m, err := s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		must(t, err)
		w, err := s.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: m.ResourceVersion})
		must(t, err)
		watches = append(watches, w)
		go func() {
			fault := ""
			for event := range w.ResultChan() {
				node, ok := event.Object.(*corev1.Node)
				if !ok && stopped.Load() {
					break // the end of the stream, which we made
				}
				if !ok {
					fault = fmt.Sprintf("%s is no longer seen: %v", name, event.Object)
					break
				}
				gated := false
				for _, taint := range node.Spec.Taints {
					gated = gated || taint.Key == taintKey
				}
				if gated || node.Labels[verifiedLabel] != "true" {
					fault = fmt.Sprintf("%s has labels %v and taints %v", name, node.Labels, node.Spec.Taints)
				}
			}
			lost <- fault
		}()
	}
	return func() {
		t.Helper()
		must(t, ctx.Err())
		stopped.Store(true)
		for _, w := range watches {
			w.Stop()
		}
		for range names {
			if fault := <-lost; fault != "" {
				t.Errorf("a verified node did not stay so: %s", fault)
			}
		}
	}
}

// daemonSetPods are the pods of DaemonSet mode on a node, or on all.
func (s *suite) daemonSetPods(ctx context.Context, t *testing.T, node string) []corev1.Pod {
	t.Helper()
	o := metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=daemonset"}
	if node != "" {
		o.FieldSelector = "spec.nodeName=" + node + ",status.phase=Running"
	}
	list, err := s.client.CoreV1().Pods(namespace).List(ctx, o)
	must(t, err)
	if node != "" && len(list.Items) != 1 {
		t.Fatalf("%d pods of the DaemonSet run on %s", len(list.Items), node)
	}
	return list.Items
}

// saysWhy insists that the metrics of a node without DNS name dns, and not api.
func (s *suite) saysWhy(ctx context.Context, t *testing.T, pod corev1.Pod) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(pod.Status.PodIP, "8080")+"/metrics", nil)
	must(t, err)
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	node := pod.Spec.NodeName
	value := func(series string) string {
		for line := range strings.Lines(string(text)) {
			if v, ok := strings.CutPrefix(line, series+" "); ok {
				return strings.TrimSpace(v)
			}
		}
		return ""
	}
	failures := func(check string) string {
		return value(fmt.Sprintf("node_check_failures_total{node=%q,check=%q}", node, check))
	}
	if dns := failures("dns"); dns == "" || dns == "0" || failures("api") != "0" || value(fmt.Sprintf("node_check_status{node=%q}", node)) != "0" {
		t.Errorf("the metrics of a node without DNS do not say why it fails:\n%s", text)
	}
}

// changesNoOther tries with the token that the kubelet gave a pod: what its own node takes, another refuses.
func (s *suite) changesNoOther(ctx context.Context, t *testing.T, pod corev1.Pod, other string) {
	t.Helper()
	token, err := s.node(pod.Spec.NodeName).Run(ctx, "sh", "-c", "cat /var/lib/kubelet/pods/"+string(pod.UID)+"/volumes/kubernetes.io~projected/*/token")
	must(t, err)
	config := rest.AnonymousClientConfig(s.cluster.ControlPlane.Config())
	config.BearerToken = strings.TrimSpace(token)
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	patch := func(node string) error {
		_, err := client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+recordKey+`":"{}"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	if err := patch(pod.Spec.NodeName); err != nil {
		t.Errorf("its own node refuses the pod's token: %v", err)
	}
	if err := patch(other); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "only the node on which its pod runs") {
		t.Errorf("another node does not refuse the pod's token by the policy: %v", err)
	}
}
