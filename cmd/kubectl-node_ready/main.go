// Command kubectl-node_ready is a kubectl plugin (kubectl node-ready) that shows the verification of nodes.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/printers"

	"github.com/kube-node-ready/kube-node-ready/internal/kubectlplugin"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := kubectlplugin.Run(ctx, os.Args[1:], os.Stdout, os.Stderr, printers.AllowsColorOutput(os.Stdout))
	stop()
	os.Exit(code)
}
