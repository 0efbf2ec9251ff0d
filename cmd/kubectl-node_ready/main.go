// Command kubectl-node_ready is a kubectl plugin (kubectl node-ready) that shows where the
// verification of nodes stands.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/term"

	"github.com/kube-node-ready/kube-node-ready/internal/kubectlplugin"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == kubectlplugin.CompletionName {
		args = append([]string{"__complete"}, args...)
	}
	code := kubectlplugin.Run(ctx, args, kubectlplugin.Streams{Out: os.Stdout, Err: os.Stderr, Terminal: term.IsTerminal(int(os.Stdout.Fd()))})
	stop()
	os.Exit(code)
}
