// Command bench measures the built controller with the project's ruler, a program that plays nodes and kubelets against a
// real API server, as a ratio to the floor in the same run: the least that the same API server needs for the same writes.
//
//	go run ./test/bench -ruler DIR [-rule] [-n 1000] [-run 1s] [-fail 0] [-audit]
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

const namespace = "kube-node-ready"

type bench struct {
	ruler, controller, dir string
	n, fail                int
	run                    time.Duration
	audit, rule            bool
}

// line is what the ruler prints.
type line struct {
	Nodes      int     `json:"nodes"`
	Released   int     `json:"released"`
	P50        float64 `json:"p50_s"`
	P99        float64 `json:"p99_s"`
	Max        float64 `json:"max_s"`
	WorkerPods int     `json:"worker_pods"`
	FailedOnce int     `json:"failed_once"`
}

func main() {
	b := bench{}
	source := flag.String("ruler", os.Getenv("RULER"), "`folder` of the ruler's source (its go.mod and main.go); default $RULER")
	flag.IntVar(&b.n, "n", 1000, "nodes")
	flag.DurationVar(&b.run, "run", time.Second, "how long a worker runs")
	flag.IntVar(&b.fail, "fail", 0, "percent of nodes whose first worker fails")
	flag.StringVar(&b.controller, "controller", "bin/kube-node-ready-controller", "controller binary")
	flag.BoolVar(&b.audit, "audit", false, "count the controller's writes from the audit log (which slows all)")
	flag.BoolVar(&b.rule, "rule", false, "measure the release by a NodeReadinessRule, without workers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := b.measure(ctx, *source)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) measure(ctx context.Context, source string) error {
	if source == "" {
		return fmt.Errorf("-ruler or RULER must name the folder of the ruler's source")
	}
	var err error
	if b.dir, err = os.MkdirTemp("", "kube-node-ready-bench-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	b.ruler = filepath.Join(b.dir, "ruler")
	build := exec.CommandContext(ctx, "go", "build", "-o", b.ruler, ".")
	build.Dir, build.Stderr = source, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the ruler in %s: %w", source, err)
	}
	var args []string
	auditLog := filepath.Join(b.dir, "audit.log")
	if b.audit {
		policy := filepath.Join(b.dir, "audit.yaml")
		if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata, verbs: [create, update, patch, delete, deletecollection]}, {level: None}]\n"), 0o600); err != nil {
			return err
		}
		args = []string{"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog}
	}
	c, err := cluster.Start(ctx, cluster.Options{APIServerArgs: args,
		// Its TTL controller annotates every node when there are 100, 500 and so on, and the floor does not write twice.
		WithoutControllerManager: b.rule, WithoutScheduler: b.rule})
	if err != nil {
		return err
	}
	defer c.Stop()
	if err := prepare(ctx, c); err != nil {
		return err
	}
	if b.rule {
		definition, err := os.ReadFile("deploy/helm/kube-node-ready/files/nodereadinessrules.yaml")
		if err != nil {
			return err
		}
		if err := install.Apply(ctx, c, definition); err != nil {
			return err
		}
	}
	least, measured := b.verifyRuns()
	if b.rule {
		if err := install.Apply(ctx, c, []byte(aRule)); err != nil {
			return err
		}
		least, measured = b.ruleRuns()
	}
	floor, err := b.play(ctx, c, least)
	if err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	report("floor", floor)
	stop, err := b.start(ctx, c)
	if err != nil {
		return err
	}
	got, err := b.play(ctx, c, measured)
	if err != nil {
		stop()
		return err
	}
	left := remaining(ctx, c)
	usage := stop()
	report("controller", got)
	if b.rule {
		fmt.Printf("ratio to floor: p50 %.2f, p99 %.2f; %d of %d nodes released; controller CPU %s, max RSS %d MiB\n",
			got.P50/floor.P50, got.P99/floor.P99, got.Released, got.Nodes, usage.cpu.Round(10*time.Millisecond), usage.rss>>20)
	} else {
		fmt.Printf("ratio to floor: p50 %.2f, p99 %.2f; %d of %d nodes verified; worker pods %d (expected %d), left behind %d; controller CPU %s, max RSS %d MiB\n",
			got.P50/floor.P50, got.P99/floor.P99, got.Released, got.Nodes, got.WorkerPods, got.Nodes+got.FailedOnce, left, usage.cpu.Round(10*time.Millisecond), usage.rss>>20)
	}
	if b.audit {
		return writes(auditLog, b.n)
	}
	return nil
}

func prepare(ctx context.Context, c *cluster.Cluster) error {
	k, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	if _, err := k.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err = k.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "kube-node-ready-worker"}}, metav1.CreateOptions{})
	return err
}

// aRule releases the ruler's nodes by the ruler's condition.
const aRule = `{"apiVersion": "readiness.node.x-k8s.io/v1alpha1", "kind": "NodeReadinessRule", "metadata": {"name": "bench"}, "spec": {
  "nodeSelector": {"matchLabels": {"bench": "true"}}, "enforcementMode": "bootstrap-only",
  "conditions": [{"type": "bench/Ready", "requiredStatus": "True"}],
  "taint": {"key": "readiness.k8s.io/bench", "value": "true", "effect": "NoSchedule"}}}`

// verifyRuns are the ruler's arguments for the floor and for the controller, of a verification.
func (b *bench) verifyRuns() (floor, measured []string) {
	args := func(prefix string, more ...string) []string {
		return append([]string{"verify", "-n", strconv.Itoa(b.n), "-run", b.run.String(), "-taint", "node-ready/unverified", "-label", "node-ready/verified", "-prefix", prefix}, more...)
	}
	return args("fl", "-floor", "-direct"), args("bn", "-fail", strconv.Itoa(b.fail))
}

// ruleRuns are those of a release by a rule.
func (b *bench) ruleRuns() (floor, measured []string) {
	args := func(mode, prefix string) []string {
		return []string{mode, "-n", strconv.Itoa(b.n), "-taint", "readiness.k8s.io/bench", "-condition", "bench/Ready", "-prefix", prefix}
	}
	return args("floor", "fl"), args("rule", "bn")
}

// play runs the ruler once.
func (b *bench) play(ctx context.Context, c *cluster.Cluster, args []string) (line, error) {
	cmd := exec.CommandContext(ctx, b.ruler, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return line{}, err
	}
	var l line
	return l, json.Unmarshal(out, &l)
}

type usage struct {
	cpu time.Duration
	rss int64
}

// start runs the controller; the returned function stops it.
func (b *bench) start(ctx context.Context, c *cluster.Cluster) (func() usage, error) {
	cfg := filepath.Join(b.dir, "config.yaml")
	if err := os.WriteFile(cfg, []byte("metrics: {enabled: false}\nhealth: {port: 18081}\n"), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(b.dir, "controller.log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(b.controller, "--config", cfg, "--kubeconfig", c.Kubeconfig())
	cmd.Env = append(os.Environ(), "POD_NAMESPACE="+namespace)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	k, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return nil, err
	}
	for { // until it leads
		if l, err := k.CoordinationV1().Leases(namespace).List(ctx, metav1.ListOptions{}); err == nil && len(l.Items) > 0 {
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	time.Sleep(time.Second)
	return func() usage {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = log.Close()
		if raw, err := os.ReadFile(log.Name()); err == nil {
			if n := bytes.Count(raw, []byte(`"level":"error"`)); n > 0 {
				fmt.Printf("the controller logged %d errors, the first:\n%s\n", n, firstError(raw))
			}
		}
		ru, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		return usage{cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), rss: ru.Maxrss << 10}
	}, nil
}

func firstError(raw []byte) string {
	for _, l := range strings.Split(string(raw), "\n") {
		if strings.Contains(l, `"level":"error"`) {
			return l
		}
	}
	return ""
}

func report(what string, l line) {
	fmt.Printf("%-10s p50 %.2f s, p99 %.2f s, max %.2f s, %d/%d nodes, %d worker pods\n", what, l.P50, l.P99, l.Max, l.Released, l.Nodes, l.WorkerPods)
}

// remaining counts the worker pods that are still there shortly after the last node was verified.
func remaining(ctx context.Context, c *cluster.Cluster) int {
	k, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return -1
	}
	n := -1
	for range 50 {
		l, err := k.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return -1
		}
		if n = len(l.Items); n == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return n
}

// writes counts the controller's writes in the audit log.
func writes(path string, nodes int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	counts := map[string]int{}
	total := 0
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb, UserAgent string
			ObjectRef       struct{ Resource, Subresource string }
			ResponseStatus  struct{ Code int }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return err
		}
		if !strings.HasPrefix(e.UserAgent, "kube-node-ready-controller") || e.ObjectRef.Resource == "leases" {
			continue
		}
		counts[fmt.Sprintf("%s %s/%s %d", e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource, e.ResponseStatus.Code)]++
		total++
	}
	for k, v := range counts {
		fmt.Printf("  %6d %s\n", v, k)
	}
	fmt.Printf("writes of the controller: %d, %.2f a node\n", total, float64(total)/float64(nodes))
	return lines.Err()
}
