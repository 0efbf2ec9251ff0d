//go:build repair && linux

package repair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/realnode"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
)

// envImage names the archive of the product's image. Without it there are no real nodes.
const envImage = "E2E_IMAGE"

// onRealNodes makes a cluster of real kubelets: one node with the cluster's DNS, and one to be accused, without a pod.
func onRealNodes(t *testing.T) (*world, *realnode.Cluster) {
	t.Helper()
	archive := missing.Request(t, envImage, "make repair-node")
	w := &world{T: t, image: imageOf(t, archive)}
	root, err := cluster.ModuleRoot()
	w.must(err)
	built := filepath.Join(root, ".cache", "realnode")
	c, err := realnode.Start(t.Context(), realnode.Options{
		Dir:    filepath.Join(root, ".cache", "cluster"),
		Images: []string{filepath.Join(built, "pause.tar"), filepath.Join(built, "coredns.tar"), archive},
	})
	w.must(err)
	t.Cleanup(func() { w.must(c.Stop(context.WithoutCancel(t.Context()))) })
	w.plane, w.client = c.ControlPlane, c.Client
	for _, name := range []string{"well", "accused"} {
		_, err := c.AddNode(t.Context(), name, realnode.NodeOptions{})
		w.must(err)
		w.must(c.AwaitNode(t.Context(), name, patience))
		if name == "well" { // before there is another that its pods could be bound to
			w.must(c.InstallDNS(t.Context()))
			w.kubectl("-n", "kube-system", "scale", "--replicas=1", "deployment", "--all") // of two on different nodes
			w.kubectl("-n", "kube-system", "wait", "--for=condition=Available", "--timeout=120s", "deployment", "--all")
		}
	}
	return w, c
}

// imageOf is worker.image for the image of an archive.
func imageOf(t *testing.T, archive string) map[string]any {
	t.Helper()
	content, err := exec.CommandContext(t.Context(), "tar", "-xOf", archive, "index.json").Output()
	var index struct {
		Manifests []struct{ Annotations map[string]string }
	}
	if err == nil {
		err = json.Unmarshal(content, &index)
	}
	if err != nil || len(index.Manifests) == 0 {
		t.Fatalf("%s has no image: %v", archive, err)
	}
	name := index.Manifests[0].Annotations["io.containerd.image.name"]
	at := strings.LastIndex(name, ":")
	return map[string]any{"repository": name[:at], "tag": name[at+1:]}
}

// On a real kubelet: a false alarm of node-problem-detector, which runs on the node, is cleared. A true one ends with the
// gate closed and the condition. The test, in place of a repairer, reboots the machine. Its kubelet reports another boot
// ID, the node is verified at once, and the condition goes.
func TestDetectorAndRebootOfARealNode(t *testing.T) {
	w, c := onRealNodes(t)
	const name = "accused"
	node := c.Nodes()[name]
	w.controller(func(nodeManagement map[string]any) {
		nodeManagement["reverify"] = map[string]any{"onConditions": []any{map[string]any{"type": string(suspected)}}}
	})
	w.verified("well", name)
	d := detect(w, name, func(path string, args ...string) []string {
		cmd := node.Command(t.Context(), path, args...)
		return append([]string{cmd.Path}, cmd.Args[1:]...)
	})
	d.await(corev1.ConditionFalse)

	d.exit(1)
	d.await(corev1.ConditionTrue)
	w.eventually("the suspicion is cleared", func() error {
		f, err := w.facts(name)
		if err == nil && (f.Gated || !f.Labelled) {
			t.Fatalf("a false alarm closed the gate: %+v", f.Record)
		}
		if err == nil && len(f.Record.Cleared) != 1 {
			err = fmt.Errorf("%+v", f.Record)
		}
		return errors.Join(err, w.spared())
	})
	w.eventually("an event says so", func() error { return w.event("SuspicionCleared", time.Time{}) })
	d.exit(0)
	d.await(corev1.ConditionFalse)

	before := bootID(w, name)
	_, err := node.DropDNS(t.Context()) // until the machine reboots
	w.must(err)
	d.exit(1)
	w.carries(name)
	d.exit(0)
	w.must(node.Reboot(t.Context()))
	w.eventually("the kubelet reports another boot", func() error {
		if have := bootID(w, name); have == before {
			return fmt.Errorf("it is %s still", have)
		}
		return nil
	})
	d.start() // as the machine's services do
	w.recovered(name)
}

// bootID is what the node's kubelet has reported.
func bootID(w *world, node string) string {
	w.Helper()
	have, err := w.client.CoreV1().Nodes().Get(w.Context(), node, metav1.GetOptions{})
	w.must(err)
	return have.Status.NodeInfo.BootID
}
