//go:build repair

package repair

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

// rebootImage is the image of the Job that reboots a node. Its one program does nothing: a test gives the node another
// boot ID.
const rebootImage = "repair.example/reboot:1"

// A reboot, here a Job, is followed by a verification at once, and where that passes the next action is not tried.
func TestRebootIsVerifiedAtOnce(t *testing.T) {
	t.Parallel()
	w := begin(t)
	for _, name := range []string{"node-1", "node-2"} {
		_, err := w.agent.AddNode(t.Context(), nodeagent.NodeSpec{Name: name})
		w.must(err)
	}
	w.kubectl("create", "namespace", "reboot")
	w.controller([]any{map[string]any{"waitSeconds": 3600, "object": map[string]any{"template": map[string]any{
		"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"namespace": "reboot"},
		"spec": map[string]any{"backoffLimit": 0, "template": map[string]any{"spec": map[string]any{
			"nodeName": "{{node}}", "restartPolicy": "Never", "automountServiceAccountToken": false,
			"containers": []any{map[string]any{"name": "reboot", "image": rebootImage, "command": []any{"/bin/true"}}},
		}}},
	}}}, setsCondition})
	w.verified("node-1", "node-2")
	w.broken(true, "node-1")
	w.ask("1", "node-1")
	w.eventually("the Job has run on the node", func() error {
		jobs, err := w.client.BatchV1().Jobs("reboot").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(jobs.Items) != 1 || jobs.Items[0].Status.Succeeded != 1 {
			return fmt.Errorf("%w, %+v", err, jobs.Items)
		}
		if on := jobs.Items[0].Spec.Template.Spec.NodeName; on != "node-1" {
			w.Fatalf("the Job is for node %q", on)
		}
		return nil
	})
	// The machine reboots, which helps. The test writes the boot ID, since one of a real kubelet is this machine's.
	w.broken(false, "node-1")
	w.must(w.agent.Node("node-1").Reboot(t.Context()))
	w.helpedByReboot("node-1")
}

// helpedByReboot waits until the node is verified and the Job that rebooted it is gone, and checks that the next entry of
// the actions was not tried.
func (w *world) helpedByReboot(node string) {
	w.Helper()
	w.verified(node)
	w.eventually("the Job is taken back", func() error {
		jobs, err := w.client.BatchV1().Jobs("reboot").List(w.Context(), metav1.ListOptions{})
		if err == nil && len(jobs.Items) > 0 {
			err = fmt.Errorf("%+v", jobs.Items)
		}
		return errors.Join(err, w.spared())
	})
	if have := w.entries(); len(have) != 1 || have[0] != "Job" {
		w.Errorf("the ledger has %v", have)
	}
}

// medik8s is played: its kind, and what its operator does with an object.
type medik8s struct {
	*world

	mu sync.Mutex
	// seen are the nodes of all objects that there ever were, by the objects' UIDs.
	seen map[types.UID]string
}

var remediations = schema.GroupVersionResource{
	Group: "self-node-remediation.medik8s.io", Version: "v1alpha1", Resource: "selfnoderemediations",
}

// remediationNamespace is that of the objects.
const remediationNamespace = "medik8s"

const remediationFinalizer = "self-node-remediation.medik8s.io/snr-finalizer"

// remediated is the node of an object, by the rule of self-node-remediation: the annotation, else the object's name. An
// owner that is a Machine of OpenShift comes first; ours has no owner.
func remediated(o *unstructured.Unstructured) string {
	if name := o.GetAnnotations()["remediation.medik8s.io/node-name"]; name != "" {
		return name
	}
	return o.GetName()
}

// playMedik8s serves the kind and plays the operator: it repairs the node of an object once repairs says so, and lets an
// object go that is being deleted.
func playMedik8s(w *world, repairs func() bool) *medik8s {
	m := &medik8s{world: w, seen: map[types.UID]string{}}
	w.apply(filepath.Join("testdata", "medik8s.yaml"))
	objects := w.api.Resource(remediations).Namespace(remediationNamespace)
	w.play("medik8s", func(ctx context.Context) error {
		list, err := objects.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			o := &list.Items[i]
			node := remediated(o)
			m.mu.Lock()
			m.seen[o.GetUID()] = node
			m.mu.Unlock()
			patch := fmt.Appendf(nil, `{"metadata":{"finalizers":[%q]}}`, remediationFinalizer)
			if o.GetDeletionTimestamp() != nil {
				patch = []byte(`{"metadata":{"finalizers":null}}`)
			}
			if o.GetDeletionTimestamp() != nil || len(o.GetFinalizers()) == 0 {
				_, err := objects.Patch(ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
				if err != nil {
					return err
				}
			}
			if !repairs() {
				continue
			}
			if n := w.agent.Node(node); n != nil {
				_ = n.SetDNS(nodeagent.DNSWorks)
			}
		}
		return nil
	})
	return m
}

// killer stands between a controller and the API server. Once armed, it kills the controller after some of its writes:
// each was carried out, and its answer does not reach the controller.
type killer struct {
	mu sync.Mutex
	// lives are the writes after which each controller is killed, one after the other: parts of what kills holds, of
	// which each has to be seen in its order. The last controller lives on.
	lives [][]string
	seen  int // of the present life
	now   *process.Process
	kills []string
}

func (k *killer) arm(lives ...[]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lives, k.seen = lives, 0
}

// left is how many controllers are still to be killed.
func (k *killer) left() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.lives)
}

// ends reports whether the controller's life ends with the write.
func (k *killer) ends(write string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.lives) > 0 && strings.HasPrefix(write, k.lives[0][k.seen]) {
		k.seen++
		return k.seen == len(k.lives[0])
	}
	return false
}

func (k *killer) serve(forward http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		write := r.Method + " " + r.URL.Path
		if r.URL.Query().Has("dryRun") || strings.HasSuffix(write, "/status") || !k.ends(write) {
			forward.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		forward.ServeHTTP(answer, r)
		k.mu.Lock()
		k.kills = append(k.kills, fmt.Sprintf("%s: %d", write, answer.Code))
		k.lives, k.seen = k.lives[1:], 0
		k.now.Kill()
		k.mu.Unlock()
		panic(http.ErrAbortHandler)
	})
}

// keep runs the controller by way of the killer in place of the one that was started, and again whenever it ends.
func (k *killer) keep(w *world, started *install.Controller) {
	server, err := w.plane.Relay("127.0.0.1:0", func(forward *httputil.ReverseProxy) http.Handler {
		return k.serve(forward)
	})
	w.must(err)
	w.Cleanup(func() { _ = server.Close() })
	kubeconfig, err := w.plane.KubeconfigVia(w.Context(), "killed", install.Namespace, install.ControllerAccount,
		"https://"+server.Addr)
	w.must(err)
	program, err := install.Binary("kube-node-ready-controller")
	w.must(err)
	started.Kill()
	<-started.Done()
	w.play("controller", func(ctx context.Context) error {
		log, err := os.OpenFile(started.LogFile, os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer func() { _ = log.Close() }()
		k.mu.Lock()
		k.now, err = w.plane.Processes().Start(process.Spec{
			Path: program, Args: []string{"--config", started.ConfigFile, "--kubeconfig", kubeconfig},
			Env: []string{"POD_NAMESPACE=" + install.Namespace, "POD_NAME=controller"}, Stdout: log, Stderr: log,
		})
		now := k.now
		k.mu.Unlock()
		if err != nil {
			return err
		}
		select {
		case <-now.Done():
		case <-ctx.Done():
			now.Kill()
			<-now.Done()
		}
		return nil
	})
}

// medik8s gets one object for a node, which names the node in its annotation, although the controller is killed between
// every two writes of the action and of its end.
func TestMedik8sGetsOneObject(t *testing.T) {
	t.Parallel()
	w := begin(t)
	for _, name := range []string{"node-1", "node-2"} {
		_, err := w.agent.AddNode(t.Context(), nodeagent.NodeSpec{Name: name})
		w.must(err)
	}
	w.kubectl("create", "namespace", remediationNamespace)
	k := &killer{}
	// It repairs the node once the action is behind: a node that passes before is not acted on again.
	m := playMedik8s(w, func() bool { return k.left() <= 1 })
	k.keep(w, w.controller([]any{map[string]any{"waitSeconds": 5, "object": map[string]any{"template": map[string]any{
		"apiVersion": remediations.GroupVersion().String(), "kind": "SelfNodeRemediation",
		"metadata": map[string]any{"namespace": remediationNamespace,
			"annotations": map[string]any{"remediation.medik8s.io/node-name": "{{node}}"}},
		"spec": map[string]any{"remediationStrategy": "Automatic"},
	}}}, setsCondition}))
	w.verified("node-1", "node-2")

	// The kills begin with the action: whether the failures before are counted is shown elsewhere.
	w.pause(true)
	w.broken(true, "node-1")
	w.ask("1", "node-1")
	w.held(decide.GuardPaused, "node-1")
	record := "PATCH /api/v1/nodes/node-1"
	entry := "PUT /api/v1/namespaces/" + install.Namespace + "/configmaps/" + ledger.Name
	create, remove := "POST /apis/"+remediations.Group+"/", "DELETE /apis/"+remediations.Group+"/"
	k.arm([]string{record}, []string{entry}, []string{create}, []string{create, record},
		[]string{record}, []string{remove})
	w.pause(false)
	w.verified("node-1") // the operator has repaired it
	w.eventually("the object is taken back", func() error {
		list, err := w.api.Resource(remediations).List(t.Context(), metav1.ListOptions{})
		f, failed := w.facts("node-1")
		if err == nil && failed == nil && len(list.Items)+len(f.Record.Remediations) > 0 {
			err = fmt.Errorf("%d objects, %+v", len(list.Items), f.Record.Remediations)
		}
		return errors.Join(err, failed)
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	t.Logf("killed %d times:\n%s", len(k.kills), strings.Join(k.kills, "\n"))
	if len(m.seen) != 1 {
		t.Errorf("objects: %v", m.seen)
	}
	for _, node := range m.seen {
		if node != "node-1" {
			t.Errorf("the object is for node %q", node)
		}
	}
	if have := w.entries(); len(have) != 1 || have[0] != "SelfNodeRemediation" {
		t.Errorf("the ledger has %v", have)
	}
	if len(k.lives) > 0 {
		t.Errorf("the controller was never killed after %v", k.lives)
	}
	w.must(w.spared())
	if c := w.condition("node-1", corev1.NodeReady); c.Status != corev1.ConditionTrue {
		t.Errorf("the node is %+v", c)
	}
}
