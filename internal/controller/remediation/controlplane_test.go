package remediation_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// A control plane is not deleted, whether a label of its distribution shows it or only the mirror of a static pod.
func TestAControlPlaneIsNotDeleted(t *testing.T) {
	labelled := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels[key] = "true" }
	}
	for name, tc := range map[string]struct {
		label, static string
	}{
		"MicroK8s":                  {label: "node.kubernetes.io/microk8s-controlplane"},
		"RKE":                       {label: "node-role.kubernetes.io/controlplane"},
		"etcd by its role":          {label: "node-role.kubernetes.io/etcd"},
		"an API server, no label":   {label: "a", static: "kube-apiserver"},
		"etcd by its pod, no label": {label: "a", static: "etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.OnServer(t, `{"nodeManagement": {`+world.Deletes+`, "remediation": {"sparePodsOtherThanDaemonSets": false}}}`)
			n := w.Exhausted("n", labelled(tc.label))
			if tc.static != "" {
				mirror := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: tc.static + "-" + n.Name,
					Labels: map[string]string{"component": tc.static}, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}},
					Spec: corev1.PodSpec{NodeName: n.Name, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
				w.Create(mirror)
				t.Cleanup(func() { _ = w.API.Delete(context.Background(), mirror, client.GracePeriodSeconds(0)) })
			}
			w.Lead().RunFor(time.Minute)
			if len(w.Deleted()) > 0 || w.Record(n.Name).Held != decide.GuardControlPlane {
				t.Errorf("deleted %v, held by %q", w.Deleted(), w.Record(n.Name).Held)
			}
		})
	}
}
