// Command demo shows kube-node-ready at work on a real control plane: two controllers, of
// which one leads, and five tainted nodes that run real workers. Three are healthy, the DNS
// of one recovers after its second attempt, and the DNS of one stays broken. It exits 0 only if
// every node ended as it should.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// patience bounds the time from the nodes' registration to their ends.
const patience = 50 * time.Second

func main() {
	keep := flag.Bool("keep", false, "leave everything running at the end, until Ctrl-C")
	svg := flag.String("svg", "", "write a picture of the run to this file")
	flag.Parse()
	// client-go logs each connection that ends with the cluster; what matters is returned as an error.
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *keep, *svg)
	stop()
	switch {
	case err == nil:
	case errors.Is(err, errNotAsExpected):
		os.Exit(1) // the summary has said so
	case errors.Is(err, context.Canceled):
		os.Exit(130) // as a shell reports an interrupted program
	default:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, keep bool, svg string) error {
	began := time.Now()
	fmt.Println("kube-node-ready demo: five new nodes, each tainted until a worker on it has proved its network")
	fmt.Println()
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		return err
	}
	defer c.Stop()
	say := func(format string, args ...any) {
		fmt.Printf("%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	say("control plane is up: etcd, kube-apiserver, kube-controller-manager, kube-scheduler")

	var dns string
	setup, setupCtx := errgroup.WithContext(ctx)
	setup.Go(func() (err error) { dns, err = c.StartDNS(setupCtx, nil); return })
	setup.Go(func() error { return install.Rights(setupCtx, c) })
	if err := setup.Wait(); err != nil {
		return err
	}
	say("CoreDNS serves %s; service accounts and rights are the chart's", cluster.ClusterDomain)

	images, err := install.Images()
	if err != nil {
		return err
	}
	agent, err := nodeagent.Start(ctx, c, nodeagent.Options{Images: images, DNS: dns})
	if err != nil {
		return err
	}
	defer agent.Stop()

	replicas := make([]*install.Controller, 2)
	start, startCtx := errgroup.WithContext(ctx)
	for i := range replicas {
		start.Go(func() (err error) {
			replicas[i], err = install.StartController(startCtx, c, fmt.Sprintf("controller-%d", i+1), configuration())
			return
		})
	}
	if err := start.Wait(); err != nil {
		return err
	}
	leader, err := awaitLeader(ctx, replicas)
	if err != nil {
		return err
	}
	say("two controllers run, controller-%d leads", leader+1)
	fmt.Println()

	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	b := newBoard(os.Stdout, began)
	unfollow, err := follow(ctx, client, b)
	if err != nil {
		return err
	}
	defer unfollow()
	registered := time.Now()
	b.begin(registered)
	for _, n := range nodes {
		if _, err := agent.AddNode(ctx, n.spec()); err != nil {
			return err
		}
	}
	err = watch(ctx, agent, b, replicas, registered.Add(patience))
	b.finish()
	if err != nil && !errors.Is(err, errNotAsExpected) {
		return err
	}
	summarise(b, time.Since(began), err == nil)
	if svg != "" {
		if err := os.WriteFile(svg, []byte(b.picture()), 0o600); err != nil {
			return err
		}
	}
	if keep {
		offer(c, replicas[leader], b.row(nodes[0].name))
		b.resume()
		<-ctx.Done()
		fmt.Println("\nstopping")
	}
	return err
}

// offer prints what a person can try on the running cluster.
func offer(c *cluster.Cluster, leader *install.Controller, healthy row) {
	kubectl := filepath.Join(c.Bin(), "kubectl")
	if wd, err := os.Getwd(); err == nil {
		if short, err := filepath.Rel(wd, kubectl); err == nil {
			kubectl = short
		}
	}
	fmt.Printf(`
Everything keeps running until Ctrl-C. In another terminal:

  export KUBECONFIG=%s

  # which nodes are verified, and which still have the taint
  %[2]s get nodes -o custom-columns='NODE:.metadata.name,VERIFIED:.metadata.labels.node-ready/verified,TAINTS:.spec.taints[*].key'

  # what is wrong with %[3]s
  %[2]s describe node %[3]s

  # what its last worker said
  %[2]s logs -n %[6]s -l app.kubernetes.io/component=worker --tail=-1

  # remove the label: %[4]s is verified again, and stays schedulable meanwhile
  %[2]s label node %[4]s node-ready/verified-

  metrics: %[5]s

`, c.Kubeconfig(), kubectl, nodes[len(nodes)-1].name, healthy.name, leader.MetricsURL, install.Namespace)
}
