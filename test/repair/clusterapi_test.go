//go:build repair

package repair

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// clusterAPI starts the core manager of Cluster API, with a MachineSet and a MachineHealthCheck on our condition. Its
// cluster is the one it runs in.
func clusterAPI(w *world) *fleet {
	f := &fleet{
		world:  w,
		owners: schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "machines"},
		node:   []string{"status", "nodeRef", "name"},
		limit:  "RemediationRestricted",
	}
	// No webhooks: one version of each kind is used and stored, and testdata spells the defaults out.
	w.apply(filepath.Join(w.module("cluster-api", "sigs.k8s.io/cluster-api"), "core", "config", "crd", "bases"))
	w.apply(filepath.Join("testdata", "cluster-api-provider.yaml"))
	kubeconfig, err := os.ReadFile(w.plane.Kubeconfig())
	w.must(err)
	_, err = w.client.CoreV1().Secrets(metav1.NamespaceDefault).Create(w.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: "repair-kubeconfig", Labels: map[string]string{"cluster.x-k8s.io/cluster-name": "repair"},
		},
		Type: "cluster.x-k8s.io/secret",
		Data: map[string][]byte{"value": kubeconfig},
	}, metav1.CreateOptions{})
	w.must(err)

	certificates := w.TempDir()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	w.must(err)
	w.must(os.WriteFile(filepath.Join(certificates, "tls.crt"), certificate, 0o600))
	w.must(os.WriteFile(filepath.Join(certificates, "tls.key"), key, 0o600))
	ports := w.ports(3)
	w.program("cluster-api", nil,
		fmt.Sprintf("--webhook-port=%d", ports[0]), "--webhook-cert-dir="+certificates,
		fmt.Sprintf("--diagnostics-address=127.0.0.1:%d", ports[1]), "--insecure-diagnostics",
		fmt.Sprintf("--health-addr=127.0.0.1:%d", ports[2]))
	w.eventually("Cluster API is ready", func() error {
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", ports[2]))
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz says %s", response.Status)
		}
		return nil
	})
	w.apply(filepath.Join("testdata", "cluster-api.yaml"))

	// The infrastructure provider is played: each of its machines becomes a node of the same name.
	machines := w.api.Resource(schema.GroupVersionResource{
		Group: "infrastructure.cluster.x-k8s.io", Version: "v1alpha1", Resource: "playedmachines",
	}).Namespace(metav1.NamespaceDefault)
	f.serve(func(ctx context.Context) (names []string, err error) {
		list, err := machines.List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, m := range list.Items {
			names = append(names, m.GetName())
		}
		return names, nil
	}, func(ctx context.Context, name string) error {
		id := "played://" + name
		if w.agent.Node(name) == nil {
			if _, err := w.agent.AddNode(ctx, nodeagent.NodeSpec{Name: name, ProviderID: id}); err != nil {
				return err
			}
		}
		provisioned := fmt.Appendf(nil, `{"spec":{"providerID":%q},"status":{"initialization":{"provisioned":true}}}`, id)
		_, err := machines.Patch(ctx, name, types.MergePatchType, provisioned, metav1.PatchOptions{})
		return err
	})
	return f
}
