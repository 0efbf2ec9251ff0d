// Package effects holds the reconcilers to what they leave behind on a real API server, whatever stops them between two
// writes: an error, a lost answer, the end of the process, another leader. They run in this process, so that a test can
// stop them after any write; kubelets and Karpenter are played by writing what they would write.
package effects

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	karpapis "sigs.k8s.io/karpenter/pkg/apis"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

// ruleDefinition is the chart's definition of rules.
const ruleDefinition = "../../deploy/helm/kube-node-ready/files/nodereadinessrules.yaml"

// api and typed are the API server, as its administrator sees it.
var (
	api   client.WithWatch
	typed kubernetes.Interface
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	ctx := context.Background()
	control, err := cluster.Start(ctx, cluster.Options{WithoutControllerManager: true, WithoutScheduler: true,
		// A consistent list from the watch cache waits for etcd to say that the cache is up to date, up to 100 ms each time.
		APIServerArgs: []string{"--watch-cache=false"}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer control.Stop()
	if err := serve(control); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// serve installs the definitions of Karpenter's resources and of rules, and waits until they are served.
func serve(control *cluster.Cluster) error {
	_, err := envtest.InstallCRDs(control.Config(), envtest.CRDInstallOptions{CRDs: karpapis.CRDs,
		Paths: []string{ruleDefinition}})
	if err != nil {
		return err
	}
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		return err
	}
	if typed, err = kubernetes.NewForConfig(control.Config()); err != nil {
		return err
	}
	direct, err := client.NewWithWatch(control.Config(), client.Options{Scheme: scheme.Scheme})
	api = remembering(direct)
	return err
}
