// Command server runs a command beside a control plane for the packages whose tests are in worlds, so that they share it:
//
//	go run ./test/world/server go test ./internal/...
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: server command [argument ...]")
		os.Exit(2)
	}
	err := run(os.Args[1:])
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		os.Exit(ended.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(command []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	control, err := world.Start(ctx)
	if err != nil {
		return err
	}
	defer control.Stop()
	kubeconfig, err := publish(control)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), world.EnvServer+"="+kubeconfig)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// publish copies the kubeconfig to the path where every run of this clone expects it. If a variable that a test reads
// changes, or a file inside the module, go test runs the package again. This path is neither.
func publish(control *cluster.Cluster) (string, error) {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(control.Kubeconfig())
	if err != nil {
		return "", err
	}
	folder := filepath.Join(os.TempDir(), fmt.Sprintf("kube-node-ready-%x", sha256.Sum256([]byte(root)))[:32])
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(folder, "kubeconfig")
	return path, os.WriteFile(path, content, 0o600)
}
