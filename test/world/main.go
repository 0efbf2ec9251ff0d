// Package world checks what reconcilers leave behind on an API server if something stops them between two writes.
// That is an error, a lost answer, the end of the process, or another leader. The reconcilers run in the test's
// process, so that a test can stop them after any write. Tests play kubelets and Karpenter by writing what those would
// write.
//
// The tests that use it are in the folders of the reconcilers. A world has a fake API server of its own. Each path is
// also taken once, undisturbed, on a real one, and so is what a fake does not show (OnServer). Worlds do not see each
// other there, so packages may share a control plane: EnvServer names its kubeconfig. Without it a package starts one.
package world

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	karpapis "sigs.k8s.io/karpenter/pkg/apis"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
)

// EnvServer names the environment variable with the kubeconfig of a control plane that Start has started.
const EnvServer = "KUBE_NODE_READY_TEST_SERVER"

// server is the API server of worlds that begin with OnServer, as its administrator sees it.
var server client.WithWatch

// own is the control plane that the package has started; nil if it uses that of EnvServer, or none yet.
var own *cluster.Cluster

// Main runs the tests of a package and ends the control plane that they started, if any did. It fails if a goroutine outlives them,
// and if tests were left out because no API server is built.
func Main(m *testing.M) {
	code := missing.Code(m.Run())
	own.Stop()
	if code == 0 {
		// The client's connections, and the queue that the recorder of envtest's client-go starts.
		leaks := goleak.Find(goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"),
			goleak.IgnoreAnyFunction("net/http.(*http2clientConnReadLoop).run"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
		if leaks != nil {
			fmt.Fprintln(os.Stderr, leaks)
			code = 1
		}
	}
	os.Exit(code)
}

// Start starts a control plane for worlds.
func Start(ctx context.Context) (*cluster.Cluster, error) {
	control, err := cluster.Start(ctx, cluster.Options{WithoutControllerManager: true, WithoutScheduler: true,
		// A consistent list from the watch cache waits for etcd to say that the cache is up to date, up to 100 ms each time.
		APIServerArgs: []string{"--watch-cache=false"}})
	if err != nil {
		return nil, err
	}
	if err := Define(control.Config()); err != nil {
		control.Stop()
		return nil, err
	}
	return control, nil
}

// Define installs the definitions of Karpenter's resources and of rules, and waits until they are served.
func Define(config *rest.Config) error {
	definition, err := ruleDefinition()
	if err != nil {
		return err
	}
	definitions := slices.Clone(karpapis.CRDs)
	for i, d := range definitions {
		definitions[i] = d.DeepCopy() // the installation writes into them
	}
	_, err = envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: definitions, Paths: []string{definition}})
	return err
}

// ruleDefinition is the chart's definition of rules.
func ruleDefinition() (string, error) {
	root, err := cluster.ModuleRoot()
	return filepath.Join(root, "deploy/helm/kube-node-ready/files/nodereadinessrules.yaml"), err
}

// connect connects to the control plane that is at hand, or starts one, once.
var connect = sync.OnceValue(func() error {
	ctrl.SetLogger(logr.Discard())
	var config *rest.Config
	var err error
	if path := os.Getenv(EnvServer); path != "" {
		config, err = clientcmd.BuildConfigFromFlags("", path)
	} else if own, err = Start(context.Background()); err == nil {
		config = own.Config()
	}
	if err != nil {
		return err
	}
	config.QPS = -1
	server, err = client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme})
	return err
})

// need connects to an API server, or leaves the test out if there is none and kube-apiserver is not built.
func need(t *testing.T) {
	t.Helper()
	if os.Getenv(EnvServer) == "" {
		_, err := cluster.Tool("kube-apiserver")
		missing.Built(t, err)
	}
	if err := connect(); err != nil {
		t.Fatal(fmt.Errorf("no control plane: %w", err))
	}
}
