//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/realnode"
)

// slowly breaks DNS on a node, so that a worker runs on it for some seconds, and returns once
// one does.
func (s *suite) slowly(ctx context.Context, t *testing.T, name string) (*realnode.Fault, workerPod) {
	t.Helper()
	fault, err := s.node(name).DropDNS(ctx)
	must(t, err)
	t.Cleanup(func() { must(t, fault.Recover(context.WithoutCancel(ctx))) })
	since := time.Now()
	s.reverify(ctx, t, name)
	return fault, s.watch.awaitRunning(ctx, t, 30*time.Second, name, since)
}

// The leading controller is killed (SIGKILL, from outside) while a worker runs. Its successor
// takes up that worker: no second one is started, and the attempt is counted once.
func (s *suite) controllerKilled(ctx context.Context, t *testing.T) {
	before, err := s.marks(ctx, "node-b")
	must(t, err)
	leader := s.leader(ctx, t)
	fault, worker := s.slowly(ctx, t, "node-b")
	s.killPod(ctx, t, leader)
	t.Logf("killed %s while %s ran", leader, worker.name)
	// The outcome of the worker that was under way is recorded, as the next attempt's number. The
	// earlier faults have cut controllers off too, so the kubelet may hold back a restart.
	eventually(ctx, t, 100*time.Second, "the attempt that was under way is recorded", func() error {
		m, err := s.marks(ctx, "node-b")
		if err == nil && m.recorded.Sequence <= before.recorded.Sequence {
			err = fmt.Errorf("it is not: %s", m)
		}
		return err
	})
	must(t, fault.Recover(ctx))
	s.awaitVerified(ctx, t, 60*time.Second, "node-b")
	m, err := s.marks(ctx, "node-b")
	must(t, err)
	made := len(s.watch.of("node-b", worker.created))
	if recorded := m.recorded.Sequence - before.recorded.Sequence; recorded != made {
		t.Errorf("%d attempts are recorded and %d workers were made", recorded, made)
	}
	s.awaitController(ctx, t)
	s.watch.check(t)
}

// killPod kills the processes of a pod's first container as the kernel's out-of-memory killer
// does: at once, without a signal that they could handle.
func (s *suite) killPod(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	pod, err := s.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	must(t, err)
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	_, err = s.node(pod.Spec.NodeName).Run(ctx, filepath.Join(s.cluster.ControlPlane.Bin(), "ctr"),
		"--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", id)
	must(t, err)
}

func (s *suite) awaitController(ctx context.Context, t *testing.T) {
	t.Helper()
	s.kubectl(ctx, t, "-n", namespace, "rollout", "status", "deployment/"+controllerName, "--timeout=60s")
}

// The release is upgraded while a worker runs: the new controllers take over what is under way,
// and their own workers carry the new configuration.
func (s *suite) helmUpgrade(ctx context.Context, t *testing.T) {
	fault, worker := s.slowly(ctx, t, "node-a")
	if strings.Contains(worker.config, "www.example.test") {
		t.Fatal("the new configuration is there before the upgrade")
	}
	s.deleting(ctx, t)
	eventually(ctx, t, 40*time.Second, "a worker with the new configuration runs on node-a", func() error {
		pods := s.watch.of("node-a", worker.created)
		if last := pods[len(pods)-1]; !strings.Contains(last.config, "www.example.test") {
			return fmt.Errorf("%s has the old one", last.name)
		}
		return nil
	})
	must(t, fault.Recover(ctx))
	s.awaitVerified(ctx, t, 60*time.Second, "node-a")
	s.watch.check(t)
}

// withDeletion are the settings of every release after the first: one more check, and failed
// nodes are deleted, with every guard at its default.
var withDeletion = []string{
	`controller.config.worker.dnsTestDomains=["www.example.test"]`,
	`controller.config.nodeManagement.deleteFailedNodes=true`,
}

// deleting brings the release to withDeletion, whatever the cases before left. A ledger that was just made holds deletions
// for an hour: this one says that it was begun before that, and has no entry.
func (s *suite) deleting(ctx context.Context, t *testing.T) {
	t.Helper()
	s.kubectl(ctx, t, "-n", namespace, "patch", "configmap", "kube-node-ready-remediations", "--type=merge",
		`--patch={"data":{"deletions.json":"[]","since":"2026-01-01T00:00:00Z"}}`)
	s.deploy(ctx, t, withDeletion...)
	s.awaitController(ctx, t)
}

// Deletion is on, and a node that was verified once breaks for good. It is kept from new workloads, but it is not
// deleted. Its running workloads continue, and the node recovers.
func (s *suite) quarantined(ctx context.Context, t *testing.T) {
	s.deleting(ctx, t)
	before, err := s.marks(ctx, "node-c")
	must(t, err)
	fault, err := s.node("node-c").DropDNS(ctx)
	must(t, err)
	t.Cleanup(func() { must(t, fault.Recover(context.WithoutCancel(ctx))) })
	s.reverify(ctx, t, "node-c")
	s.awaitEvent(ctx, t, 60*time.Second, "node-c", "RetriesExhausted")
	s.awaitEvent(ctx, t, 20*time.Second, "node-c", "Quarantined")
	throughout(ctx, t, 5*time.Second, "node-c is quarantined", func() error {
		m, err := s.marks(ctx, "node-c")
		if err == nil && (m.uid != before.uid || !m.tainted || m.labelled) {
			err = fmt.Errorf("it is not: %s", m)
		}
		return err
	})
	running, err := s.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=node-c,status.phase=Running"})
	must(t, err)
	if len(running.Items) != 1 {
		t.Errorf("%d ordinary pods run on the quarantined node, should be the one from before", len(running.Items))
	}
	must(t, fault.Recover(ctx))
	s.awaitVerified(ctx, t, 60*time.Second, "node-c")
	s.watch.check(t)
}

// A node cannot pull the worker's image: that says nothing about its network. However often it
// happens, the node is not deleted; and once the image is there it is verified.
func (s *suite) imageMissing(ctx context.Context, t *testing.T) {
	const name = "node-d"
	t.Cleanup(func() { s.removeNode(context.WithoutCancel(ctx), t, name) })
	s.addNodes(ctx, t, realnode.NodeOptions{WithoutImages: []string{s.image}}, name)
	eventually(ctx, t, 60*time.Second, name+" is inconclusive more often than it may fail", func() error {
		m, err := s.marks(ctx, name)
		must(t, err) // it must not be deleted
		// While attempts follow each other within seconds, the condition may stay that of the running one.
		shown := m.reason == "WorkerInconclusive" || m.reason == "Verifying" && strings.Contains(m.message, "previous result: ImagePull")
		if !shown || m.recorded.LastOutcome != "inconclusive" || m.recorded.Sequence < 3 {
			return fmt.Errorf("it is not: %s", m)
		}
		if m.status != corev1.ConditionUnknown || m.recorded.Attempts != 0 || !m.tainted {
			t.Fatalf("it is taken for a fault of the node: %s", m)
		}
		return nil
	})
	s.awaitEvent(ctx, t, 5*time.Second, name, "VerificationInconclusive")
	must(t, s.node(name).ImportImage(ctx, s.archive))
	s.awaitVerified(ctx, t, 90*time.Second, name)
	s.watch.check(t)
}

// What is left of the product after helm uninstall: the marks on the nodes, and nothing else.
func (s *suite) uninstall(ctx context.Context, t *testing.T) {
	s.helm(ctx, t, "uninstall", release, "--wait", "--timeout", "60s")
	eventually(ctx, t, 30*time.Second, "nothing is left in any namespace", func() error {
		left, err := s.objectsLeft(ctx)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left: %s", strings.Join(left, ", "))
		}
		return err
	})
	for _, name := range baseNodes {
		must(t, s.verified(ctx, name))
	}
	running, err := s.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=workload", FieldSelector: "status.phase=Running"})
	must(t, err)
	if len(running.Items) != 3 {
		t.Errorf("%d of 3 ordinary pods run after the uninstallation", len(running.Items))
	}
}

// objectsLeft lists every object that carries our name, or that lies in our namespace and is
// not there in an empty one.
func (s *suite) objectsLeft(ctx context.Context) ([]string, error) {
	kinds, err := s.cluster.Kubectl(ctx, "", "api-resources", "--verbs=list", "--output=name")
	if err != nil {
		return nil, err
	}
	var names []string
	for kind := range strings.FieldsSeq(kinds) {
		// Events are the history of what was, and go with time.
		if !strings.HasPrefix(kind, "events") && kind != "nodes" && kind != "componentstatuses" {
			names = append(names, kind)
		}
	}
	out, err := s.cluster.Kubectl(ctx, "", "get", strings.Join(names, ","), "--all-namespaces", "--ignore-not-found",
		"-o", `jsonpath={range .items[*]}{.kind}{" "}{.metadata.namespace}{" "}{.metadata.name}{"\n"}{end}`)
	if err != nil {
		return nil, err
	}
	var left []string
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSpace(line), " ")
		if len(fields) != 3 {
			continue
		}
		kind, in, name := fields[0], fields[1], fields[2]
		empty := kind == "Namespace" || kind == "ConfigMap" && name == "kube-root-ca.crt" || kind == "ServiceAccount" && name == "default"
		if ours := in == namespace || strings.Contains(name, release); ours && !empty {
			left = append(left, kind+" "+in+"/"+name)
		}
	}
	return left, nil
}
