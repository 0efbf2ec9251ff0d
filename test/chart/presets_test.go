package chart

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/daemonsets"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
)

// suffices are presets that between them wait for each kind of what a preset waits for, and have each check that one adds.
// For all others TestPermissionsAreTheLeast holds the chart's roles against the rights that the same code asks for.
var suffices = []config.Preset{"calico", "ebs-csi", "aws-neuron", "gpu-nvidia-dra"}

// With each of these presets alone, the permissions that the chart makes for it let the controller see all that the preset
// waits for, and the worker perform its checks.
func TestPermissionsOfPresetsSuffice(t *testing.T) {
	missing.Request(t, "NIGHTLY", "make test-nightly")
	t.Parallel()
	c, client := startCluster(t, cluster.Options{})
	createNamespace(t, client, namespace)
	agent := startAgent(t, c)
	for _, d := range config.Presets() {
		if !slices.Contains(suffices, d.Name) {
			continue
		}
		t.Run(string(d.Name), func(t *testing.T) {
			var names []daemonsets.Name
			for _, set := range d.DaemonSets {
				name := set.Names()[0]
				names = append(names, name)
				_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name.Namespace}}, metav1.CreateOptions{})
				if err != nil && !apierrors.IsAlreadyExists(err) {
					t.Fatal(err)
				}
			}
			values := fmt.Sprintf("controller: {replicas: 0, image: {tag: local}, config: {nodeManagement: {presets: [%s]}}}", d.Name)
			helmOn(t, c, append([]string{"upgrade", "--install", "kube-node-ready", chartDir}, valuesFile(t, values)...)...)
			controller, err := install.StartController(t.Context(), c, "controller-"+string(d.Name), decoded(t, render(t, values)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { controller.Terminate(10 * time.Second) })
			node := string(d.Name)
			if _, err := agent.AddNode(t.Context(), nodeagent.NodeSpec{Name: node, Taints: []corev1.Taint{{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}}}); err != nil {
				t.Fatal(err)
			}
			says := func(want string) {
				t.Helper()
				last := ""
				eventually(t, "the condition says "+want, func() bool {
					last = conditionOf(t, client, node)
					if strings.Contains(last, "Forbidden") {
						t.Fatal(last)
					}
					return strings.Contains(last, want)
				})
			}
			for _, name := range names {
				says(name.String())
				labels := map[string]string{"app": name.Name}
				_, err := client.AppsV1().DaemonSets(name.Namespace).Create(t.Context(), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name.Name}, Spec: appsv1.DaemonSetSpec{
					Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
						Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, Containers: []corev1.Container{{Name: "agent", Image: "agent:absent"}}}},
				}}, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
			}
			says("not Ready")
			for _, set := range d.DaemonSets {
				if set.Provides == nil {
					continue
				}
				for _, driver := range set.Provides.CSINodes {
					says("CSI driver " + driver.Driver + " (the node has no CSINode)")
				}
				for _, e := range set.Provides.ResourceSlices {
					says("ResourceSlices of driver " + e.Driver + " (there are none for the node)")
				}
				for resource := range set.Provides.Allocatable {
					says(string(resource) + " allocatable (the node offers none)")
				}
			}
			// Once none of them has a place on the node, there is nothing to wait for, and the checks are performed.
			patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"nodeSelector": map[string]any{"no": "node"}}}}})
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if _, err := client.AppsV1().DaemonSets(name.Namespace).Patch(t.Context(), name.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "the node is verified", func() bool { return verified(t, client, node) })
		})
	}
}

// conditionOf is the message of the node's condition.
func conditionOf(t *testing.T, client kubernetes.Interface, name string) string {
	t.Helper()
	n, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == "node-ready/Verified" {
			return c.Message
		}
	}
	return ""
}
