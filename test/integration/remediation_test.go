package integration

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	karpapis "sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// This test has no t.Parallel: it runs before all others, while Karpenter's definitions are absent, and installs them.
func TestRaceKarpenterAppearsLater(t *testing.T) {
	s := alone(t, deletes(map[string]any{"controlProbe": false, "maxUnhealthy": "100%"}))
	s.controller()
	plain := s.node("plain", dns(nodeagent.DNSRefuses))
	s.eventually("a node of nobody's is deleted", func() string {
		if _, err := k8s.CoreV1().Nodes().Get(s.ctx, plain.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
	managed := s.node("managed", dns(nodeagent.DNSRefuses), pooled("late"), registered)
	f := s.becomes(managed.Name, "held, for its NodeClaim cannot be found", func(f marks.Facts) bool { return f.Record.Held == owner.Guard })
	if !f.Gated {
		t.Error("it lost its taint")
	}
	c := s.claim(managed.Name, "late")
	s.claimGoes(managed.Name, c.UID)
	s.mustStand(managed.Name)
}

func deletes(guards map[string]any) func(map[string]any) {
	return set("nodeManagement", map[string]any{"deleteFailedNodes": true, "remediation": guards})
}

func pooled(pool string) func(*nodeagent.NodeSpec) {
	return func(n *nodeagent.NodeSpec) {
		n.Labels[owner.LabelNodePool] = pool
		n.ProviderID = "kwok://" + n.Name
	}
}

func registered(n *nodeagent.NodeSpec) { n.Labels[owner.LabelRegistered] = "true" }

func (s *suite) karpenter() client.Client {
	c, err := client.New(control.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		s.Fatal(err)
	}
	return c
}

var karpenterDefinitions sync.Once

// installKarpenter installs Karpenter's definitions, once.
func (s *suite) installKarpenter() {
	s.Helper()
	karpenterDefinitions.Do(func() {
		s.must(envtest.InstallCRDs(control.Config(), envtest.CRDInstallOptions{CRDs: karpapis.CRDs}))
	})
}

// claim makes the NodeClaim of a node. A finalizer keeps it after its deletion, as Karpenter's does, so that the test can look at it.
func (s *suite) claim(nodeName, pool string) *karpv1.NodeClaim {
	s.Helper()
	s.installKarpenter()
	c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + nodeName, Labels: map[string]string{owner.LabelNodePool: pool}, Finalizers: []string{"karpenter.sh/termination"}},
		Spec: karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: "default"}, Requirements: []karpv1.NodeSelectorRequirementWithMinValues{}}}
	k := s.karpenter()
	s.must(nil, k.Create(s.ctx, c))
	c.Status.ProviderID, c.Status.NodeName = "kwok://"+nodeName, nodeName
	s.must(nil, k.Status().Update(s.ctx, c))
	return c
}

func (s *suite) deleting(nodeName string) (types.UID, bool) {
	c := &karpv1.NodeClaim{}
	if err := s.karpenter().Get(s.ctx, client.ObjectKey{Name: "claim-" + nodeName}, c); err != nil {
		return "", apierrors.IsNotFound(err)
	}
	return c.UID, c.DeletionTimestamp != nil
}

func (s *suite) claimGoes(nodeName string, uid types.UID) {
	s.Helper()
	s.eventually("the NodeClaim of "+nodeName+" is deleted", func() string {
		have, gone := s.deleting(nodeName)
		if !gone || have != uid {
			_, f := s.get(nodeName)
			return fmt.Sprintf("UID %s, %+v", have, f.Record)
		}
		return ""
	})
}

func (s *suite) claimStays(nodeName string) {
	s.Helper()
	if _, gone := s.deleting(nodeName); gone {
		s.Errorf("the NodeClaim of %s was deleted", nodeName)
	}
	s.mustStand(nodeName)
}

// mustStand checks that the Node itself was not deleted.
func (s *suite) mustStand(nodeName string) {
	s.Helper()
	if n, err := k8s.CoreV1().Nodes().Get(s.ctx, nodeName, metav1.GetOptions{}); err != nil || n.DeletionTimestamp != nil {
		s.Errorf("node %s was deleted: %v", nodeName, err)
	}
}

// One truly broken node among many: its NodeClaim, and only that, goes; a probe on a verified node has shown that the
// cluster is well.
func TestRaceOneBrokenNodeAmongTwenty(t *testing.T) {
	s := begin(t, deletes(nil))
	s.controller()
	var healthy []string
	for i := range 20 {
		n := s.played(fmt.Sprint(i), []act{passes}, pooled(s.name), registered)
		s.claim(n.Name, s.name)
		healthy = append(healthy, n.Name)
	}
	for _, name := range healthy {
		s.becomes(name, "verified", isVerified)
	}
	broken := s.played("broken", []act{fails(s.name+"-broken", "dns")}, pooled(s.name), registered)
	c := s.claim(broken.Name, s.name)
	s.claimGoes(broken.Name, c.UID)
	s.mustStand(broken.Name)
	s.hasEvents(broken.Name, map[string]int{"NodeClaimDeleted": 1, "RetriesExhausted": 1})
	for _, name := range healthy {
		s.claimStays(name)
	}
	s.created.mu.Lock()
	probes, failures := 0, 0
	for _, name := range s.created.uids {
		switch {
		case strings.HasPrefix(name, "probe-"):
			probes++
		case strings.HasPrefix(name, "verify-"+broken.Name+"-"):
			failures++
		}
	}
	s.created.mu.Unlock()
	if probes < 1 || probes > failures {
		t.Errorf("%d probes for %d failures", probes, failures)
	}
	if l, err := k8s.CoreV1().ConfigMaps(s.name).Get(s.ctx, ledger.Name, metav1.GetOptions{}); err != nil || !strings.Contains(l.Data["deletions.json"], broken.Name) {
		t.Errorf("ledger %v %v", l, err)
	}
	s.eventually("no worker pod is left behind", func() string {
		if left := s.workers(""); len(left) > 0 {
			return left[0].Name
		}
		return ""
	})
}

// A cluster-wide DNS outage over twenty nodes with deletion on: nothing is deleted, no budget is spent, and when DNS
// returns all verify without a hand.
func TestOutageDeletesNothing(t *testing.T) {
	s := begin(t, deletes(nil), set("reconciliation", map[string]any{"maxBackoffSeconds": 4}))
	s.controller()
	var out atomic.Bool // no node's DNS works
	resolving := func(suffix string) playedNode {
		return s.playedBy(suffix, func() act {
			if out.Load() {
				return fails(s.name+"-"+suffix, "dns")
			}
			return passes
		}, pooled(s.name), registered)
	}
	first := resolving("first")
	s.claim(first.Name, s.name)
	s.becomes(first.Name, "verified", isVerified)
	out.Store(true)
	nodes := []playedNode{}
	for i := range 20 {
		n := resolving(fmt.Sprint(i))
		s.claim(n.Name, s.name)
		nodes = append(nodes, n)
	}
	spent := func(f marks.Facts) bool { return f.Record.Attempts > 0 }
	for _, n := range nodes {
		f := s.becomes(n.Name, "held by the control probe, more often than there are retries", func(f marks.Facts) bool {
			return f.Record.Held == decide.GuardControlProbe && f.Record.Inconclusive > 2 && says(marks.ReasonRemediationHeld)(f)
		})
		if spent(f) {
			t.Errorf("%s: %+v", n.Name, f.Record)
		}
	}
	s.hasEvents(nodes[0].Name, map[string]int{"RemediationHeld": 1})
	out.Store(false)
	for _, n := range nodes {
		if f := s.becomes(n.Name, "verified without a hand", isVerified); spent(f) {
			t.Errorf("%s: %+v", n.Name, f.Record)
		}
		s.claimStays(n.Name)
	}
	s.claimStays(first.Name)
	if l, err := k8s.CoreV1().ConfigMaps(s.name).Get(s.ctx, ledger.Name, metav1.GetOptions{}); err != nil || l.Data[ledger.KeyDeletions] != "[]" {
		t.Errorf("something was entered in the ledger: %v, %v", l.Data, err)
	}
}
