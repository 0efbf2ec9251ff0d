//go:build bench

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// auditPolicy has the API server account for what the controller asks of it, and for nothing else.
const auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived", "ResponseStarted"], "rules": [
  {"level": "Metadata", "users": ["system:serviceaccount:` + install.Namespace + `:` + install.ControllerAccount + `"]}, {"level": "None"}]}`

// bed is the control plane that all turns of a case run on, with the chart's service accounts and rights.
type bed struct {
	cluster *cluster.Cluster
	client  kubernetes.Interface
	audit   auditLog
	dir     string
	turns   int // begun so far
	// profiles is the folder for the controllers' heap profiles; empty for none.
	profiles string
	duration time.Duration // of a soak
}

// newBed starts a control plane; gogc is its GOGC, empty for Go's own.
func newBed(ctx context.Context, o cluster.Options, gogc string) (*bed, error) {
	dir, err := os.MkdirTemp("", "kube-node-ready-bench-")
	if err != nil {
		return nil, err
	}
	b := &bed{dir: dir, audit: auditLog(filepath.Join(dir, "audit.log"))}
	policy := filepath.Join(dir, "audit.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, err
	}
	// In one file however long it gets (its limit is in MB): requests are counted from where a turn began in it.
	o.APIServerArgs = append([]string{"--audit-policy-file=" + policy, "--audit-log-path=" + string(b.audit), "--audit-log-maxsize=100000"}, o.APIServerArgs...)
	if gogc != "" {
		err = os.Setenv("GOGC", gogc)
	}
	if err == nil {
		b.cluster, err = cluster.Start(ctx, o)
	}
	if gogc != "" {
		err = errors.Join(err, os.Unsetenv("GOGC"))
	}
	if err != nil {
		return nil, err
	}
	if b.client, err = kubernetes.NewForConfig(fast(b.cluster.Config())); err == nil {
		err = install.Rights(ctx, b.cluster)
	}
	if err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

// fast is the configuration of a client that costs as little as one can.
func fast(c *rest.Config) *rest.Config {
	c.QPS, c.ContentType = -1, "application/vnd.kubernetes.protobuf"
	return c
}

func (b *bed) stop() {
	b.cluster.Stop()
	_ = os.RemoveAll(b.dir)
}

// prefix is of the names of the next turn's nodes, which no other turn's have.
func (b *bed) prefix() string {
	b.turns++
	return fmt.Sprintf("turn-%d", b.turns)
}
