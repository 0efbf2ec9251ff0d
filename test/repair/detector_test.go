//go:build repair

package repair

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

// suspected is the condition that the detector of testdata reports.
const suspected corev1.NodeConditionType = "DiskSuspected"

// detector is node-problem-detector with one custom plugin, whose exit code a test gives.
type detector struct {
	*world
	node string
	code string // file of the plugin's exit code
	args []string
	// inside makes of a program and its arguments those that run it on the node; nil where the node is played.
	inside func(path string, args ...string) []string
	*process.Process
}

// detect starts a detector for a node, with the rights that Kubernetes has for it. It runs on this machine, or by inside.
func detect(w *world, node string, inside ...func(path string, args ...string) []string) *detector {
	w.Helper()
	_, err := w.client.RbacV1().ClusterRoleBindings().Create(w.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "node-problem-detector"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-problem-detector"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "node-problem-detector"}},
	}, metav1.CreateOptions{})
	w.must(err)
	kubeconfig, err := w.plane.KubeconfigForUser("node-problem-detector", "node-problem-detector")
	w.must(err)
	dir := w.TempDir()
	d := &detector{world: w, node: node, code: filepath.Join(dir, "code")}
	d.exit(0)
	plugin := filepath.Join(dir, "plugin.sh")
	script := fmt.Appendf(nil, "#!/bin/sh\necho the plugin says so\nexit \"$(cat '%s')\"\n", d.code)
	w.must(os.WriteFile(plugin, script, 0o700)) //nolint:gosec // it is to be executed
	config, err := json.Marshal(map[string]any{
		"plugin": "custom", "source": "disk-monitor", "metricsReporting": false,
		"pluginConfig": map[string]any{"invoke_interval": "1s", "timeout": "5s", "skip_initial_status": true},
		"conditions": []any{
			map[string]any{"type": suspected, "reason": "DiskIsFine", "message": "nothing is wrong"},
		},
		"rules": []any{
			map[string]any{"type": "permanent", "condition": suspected, "reason": "DiskIsSlow", "path": plugin},
		},
	})
	w.must(err)
	file := filepath.Join(dir, "config.json")
	w.must(os.WriteFile(file, config, 0o600))
	d.args = []string{
		"--hostname-override=" + node, "--config.custom-plugin-monitor=" + file, "--port=0", "--prometheus-port=0",
		"--apiserver-override=" + w.plane.URL() + "?inClusterConfig=false&auth=" + kubeconfig,
	}
	if len(inside) > 0 {
		d.inside = inside[0]
	}
	d.start()
	return d
}

func (d *detector) start() {
	const name = "node-problem-detector"
	if d.inside == nil {
		d.Process = d.program(name, nil, d.args...)
		return
	}
	command := d.inside(d.tool(name), d.args...)
	d.Process = d.run(name, nil, command[0], command[1:]...)
}

// exit sets the plugin's exit code: 0 says that all is well, 1 that it is not.
func (d *detector) exit(code int) {
	d.Helper()
	d.must(os.WriteFile(d.code, fmt.Appendf(nil, "%d", code), 0o600))
}

// await waits until the condition has a status, and returns it.
func (d *detector) await(status corev1.ConditionStatus) corev1.NodeCondition {
	d.Helper()
	var have corev1.NodeCondition
	d.eventually(fmt.Sprintf("%s is %s", suspected, status), func() error {
		if have = d.condition(d.node, suspected); have.Status != status {
			return fmt.Errorf("it is %+v", have)
		}
		return nil
	})
	return have
}

func TestDetectorSetsACondition(t *testing.T) {
	t.Parallel()
	w := begin(t)
	_, err := w.agent.AddNode(t.Context(), nodeagent.NodeSpec{Name: "node-1"})
	w.must(err)
	d := detect(w, "node-1")
	if have := d.await(corev1.ConditionFalse); have.Reason != "DiskIsFine" {
		t.Errorf("without a problem the condition is %+v", have)
	}
	d.exit(1)
	first := d.await(corev1.ConditionTrue)
	if first.Reason != "DiskIsSlow" || first.Message != "the plugin says so" {
		t.Errorf("with a problem the condition is %+v", first)
	}

	// A restart begins anew: the same problem is another transition.
	time.Sleep(time.Second) // a transition's time has whole seconds
	d.Terminate(10 * time.Second)
	d.start()
	w.eventually("the restarted detector reports", func() error {
		have := d.condition(d.node, suspected)
		if have.Status != corev1.ConditionTrue || !have.LastTransitionTime.After(first.LastTransitionTime.Time) {
			return fmt.Errorf("the condition is %+v", have)
		}
		return nil
	})

	d.exit(0)
	d.await(corev1.ConditionFalse)
}
