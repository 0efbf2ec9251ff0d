//go:build linux

// Command realcluster starts a Kubernetes cluster of three real nodes on this machine for a person to use. It removes
// the cluster again without a trace.
//
//	realcluster up -image ARCHIVE...   start it in the background and say how to use it
//	realcluster down                   end it, or remove what a crash left behind
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/realnode"
)

// gatingTaint is what the nodes register with, as an autoscaler would have them do.
var gatingTaint = corev1.Taint{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}

const (
	readyMark   = "cluster: ready"
	upTimeout   = 2 * time.Minute
	downTimeout = time.Minute
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "realcluster:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return err
	}
	dir := filepath.Join(root, ".cache", "cluster")
	switch {
	case len(args) > 0 && args[0] == "up":
		return up(dir, args[1:])
	case len(args) > 0 && args[0] == "run":
		return runCluster(dir, args[1:])
	case len(args) == 1 && args[0] == "down":
		return down(dir)
	default:
		return errors.New("say \"up -image ARCHIVE...\" or \"down\"")
	}
}

// images are the repeated values of -image.
type images []string

func (i *images) String() string { return strings.Join(*i, ",") }

// Set takes a path that is relative to where the command was given: on a node it is not.
func (i *images) Set(s string) error {
	path, err := filepath.Abs(s)
	*i = append(*i, path)
	return err
}

// up starts "realcluster run" in a session of its own, which the terminal's end does not end,
// and waits until the cluster is ready.
func up(dir string, args []string) error {
	if pid, err := realnode.Owner(); err == nil {
		return fmt.Errorf("a cluster is up already (process %d); make cluster-down ends it", pid)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	logPath := dir + ".log"
	log, err := os.Create(logPath)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(self, append([]string{"run"}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	shown := 0
	deadline := time.After(upTimeout)
	for {
		text, err := os.ReadFile(logPath)
		if err != nil {
			return err
		}
		fmt.Print(string(text[shown:]))
		shown = len(text)
		if strings.Contains(string(text), readyMark) {
			return nil
		}
		select {
		case err := <-ended:
			rest, _ := os.ReadFile(logPath)
			return fmt.Errorf("the cluster did not come up: %w\n%s", err, rest[shown:])
		case <-deadline:
			_ = cmd.Process.Signal(syscall.SIGTERM)
			return fmt.Errorf("the cluster is not ready after %s; its log is %s", upTimeout, logPath)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// runCluster is the cluster's own process: it ends when it is told to, and the cluster with it.
func runCluster(dir string, args []string) error {
	var archives images
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.Var(&archives, "image", "image archive that every node gets (repeatable)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	began := time.Now()
	c, err := realnode.Start(ctx, realnode.Options{Dir: dir, Images: archives, Log: os.Stdout})
	if err != nil {
		return err
	}
	err = populate(ctx, c)
	if err == nil {
		usage(os.Stdout, c)
		fmt.Printf("%s in %.1f s\n", readyMark, time.Since(began).Seconds())
		<-ctx.Done()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downTimeout)
	defer cancel()
	return errors.Join(err, c.Stop(ctx))
}

func populate(ctx context.Context, c *realnode.Cluster) error {
	if err := c.InstallDNS(ctx); err != nil {
		return err
	}
	names := []string{"node-a", "node-b", "node-c"}
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			if _, errs[i] = c.AddNode(ctx, name, realnode.NodeOptions{Taints: []corev1.Taint{gatingTaint}}); errs[i] == nil {
				errs[i] = c.AwaitNode(ctx, name, 30*time.Second)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func usage(out io.Writer, c *realnode.Cluster) {
	_, _ = fmt.Fprintf(out, `
Three real nodes, each with the taint %[1]s, so nothing but what tolerates it runs there.

  export KUBECONFIG=%[2]s
  export PATH=%[3]s:$PWD/bin:$PATH

  helm install kube-node-ready deploy/helm/kube-node-ready --namespace kube-node-ready --create-namespace --wait
  helm test kube-node-ready --namespace kube-node-ready
  kubectl node-ready status
  kubectl label node node-a node-ready/verified-     # verifies it once more

  nsenter --net=/run/netns/knr-node-a bash           # a shell in a node's network, to break it
  make cluster-down                                  # ends everything, and leaves nothing

`, gatingTaint.ToString(), c.ControlPlane.Kubeconfig(), c.ControlPlane.Bin())
}

// down ends the cluster's process, whichever started it, sweeps, and insists that nothing is left.
func down(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), downTimeout)
	defer cancel()
	if pid, err := realnode.Owner(); err == nil {
		fmt.Printf("cluster: ending process %d\n", pid)
		_ = syscall.Kill(pid, syscall.SIGTERM)
		for deadline := time.Now().Add(downTimeout / 2); ; time.Sleep(100 * time.Millisecond) {
			if now, err := realnode.Owner(); err != nil || now != pid {
				break
			}
			if time.Now().After(deadline) {
				fmt.Printf("cluster: process %d does not end, so it is killed\n", pid)
				_ = syscall.Kill(pid, syscall.SIGKILL)
				break
			}
		}
	}
	if err := realnode.Sweep(ctx, dir); err != nil {
		return err
	}
	_ = os.Remove(dir + ".log")
	if left := realnode.Leftovers(dir); len(left) > 0 {
		return fmt.Errorf("left behind:\n  %s", strings.Join(left, "\n  "))
	}
	fmt.Println("cluster: nothing is left")
	return nil
}
