package world

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/kube-node-ready/kube-node-ready/internal/manager"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
)

var ran atomic.Bool

// Run runs the whole controller in this process, with its watches and queues, until the test ends. Its metrics and queues have
// names of their own in the process: one test of a package can call it. Rules are off unless the settings say otherwise, since one
// controller of a cluster serves them.
func (w *World) Run(settings ...string) {
	w.Helper()
	if ran.Swap(true) {
		missing.Skip(w, "a process in which the controller has not run yet", "run the test with -count=1")
	}
	ports, err := cluster.FreePorts("127.0.0.1", 2)
	w.Must(err)
	alone := fmt.Sprintf(`{"metrics": {"port": %d}, "health": {"port": %d}, "leaderElection": {"enabled": false}, "rules": {"enabled": false}}`, ports[0], ports[1])
	w.Configure(append([]string{alone}, settings...)...)
	w.Setenv("POD_NAMESPACE", w.Namespace)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Ctx))
	ended := make(chan error, 1)
	go func() {
		ended <- manager.Run(ctx, w.Config, manager.Options{Kubeconfig: kubeconfig(), Log: logr.Discard()})
	}()
	w.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("the controller ended: %v", err)
		}
	})
}

// Eventually lets kubelets go on until ok returns an empty string; else the test fails with what it returned last.
func (w *World) Eventually(what string, ok func() string) {
	w.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(30 * time.Millisecond) {
		w.Kubelets()
		fault := ok()
		if fault == "" {
			return
		}
		if time.Now().After(end) {
			w.Fatalf("%s: %s", what, fault)
		}
	}
}

// kubeconfig is the path of the administrator's.
func kubeconfig() string {
	if path := os.Getenv(EnvServer); path != "" {
		return path
	}
	return own.Kubeconfig()
}
