package integration

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// This test has no t.Parallel: it runs before all others, while Karpenter's definitions are absent, and installs them.
func TestKarpenterAppearsLater(t *testing.T) {
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
func TestOneBrokenNodeAmongFifty(t *testing.T) {
	s := begin(t, deletes(nil))
	created := s.creations()
	s.controller()
	var healthy []string
	for i := range 50 {
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
	created.mu.Lock()
	probes, failures := 0, 0
	for _, name := range created.uids {
		switch {
		case strings.HasPrefix(name, "probe-"):
			probes++
		case strings.HasPrefix(name, "verify-"+broken.Name+"-"):
			failures++
		}
	}
	created.mu.Unlock()
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

// A cluster-wide DNS outage over fifty nodes with deletion on: nothing is deleted, no budget is spent, and when DNS returns all
// verify without a hand.
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
	for i := range 50 {
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

// Each guard holds a deletion that would otherwise happen, reports it once, and releases it.
func TestGuards(t *testing.T) {
	off := map[string]any{"controlProbe": false, "maxUnhealthy": "100%"}
	with := func(key string, value any) map[string]any {
		out := map[string]any{key: value}
		for k, v := range off {
			if k != key {
				out[k] = v
			}
		}
		return out
	}
	for name, tc := range map[string]struct {
		guards  map[string]any
		held    string
		prepare func(*suite, *nodeagent.Node)
		release func(*suite, *nodeagent.Node)
	}{
		"opted-out": {off, decide.GuardDoNotDelete,
			func(s *suite, n *nodeagent.Node) {
				s.patchNode(n.Name, `{"metadata":{"annotations":{"node-ready/do-not-delete":"true"}}}`)
			},
			func(s *suite, n *nodeagent.Node) {
				s.patchNode(n.Name, `{"metadata":{"annotations":{"node-ready/do-not-delete":null}}}`)
			}},
		"ordinary-pods": {off, decide.GuardSparePods,
			func(s *suite, n *nodeagent.Node) {
				s.must(k8s.CoreV1().Pods(s.name).Create(s.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "ordinary"}, Spec: corev1.PodSpec{
					NodeName: n.Name, ServiceAccountName: "kube-node-ready-worker", Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					Containers: []corev1.Container{{Name: "c", Image: tools, Command: []string{"/bin/sleep", "3600"}}}}}, metav1.CreateOptions{}))
			},
			func(s *suite, _ *nodeagent.Node) {
				s.must(nil, k8s.CoreV1().Pods(s.name).Delete(s.ctx, "ordinary", metav1.DeleteOptions{}))
			}},
		"max-unhealthy": {with("maxUnhealthy", 1), decide.GuardMaxUnhealthy,
			func(s *suite, _ *nodeagent.Node) {
				other := s.node("other", pooled(s.name), registered, dns(nodeagent.DNSRefuses))
				s.patchNode(other.Name, `{"metadata":{"annotations":{"node-ready/do-not-delete":"true"}}}`)
			},
			func(s *suite, _ *nodeagent.Node) {
				s.must(nil, agent.Node(s.name+"-other").SetDNS(nodeagent.DNSWorks))
				s.becomes(s.name+"-other", "verified", isVerified)
			}},
		"deletions-per-hour": {with("maxDeletionsPerHour", 1), decide.GuardMaxDeletionsPerHour,
			func(s *suite, _ *nodeagent.Node) { // one was deleted before this controller's time
				now := time.Now()
				s.writeLedger(fmt.Sprintf(`[{"time":%q,"node":"x","nodeUID":"x","pool":"y","kind":"NodeClaim"}]`, now.UTC().Format(time.RFC3339)), now.Add(-24*time.Hour))
			},
			func(s *suite, _ *nodeagent.Node) { s.writeLedger("[]", time.Now().Add(-24*time.Hour)) }},
		"unreadable-ledger": {off, decide.GuardMaxDeletionsPerHour,
			func(s *suite, _ *nodeagent.Node) { s.writeLedger("not JSON", time.Now().Add(-24*time.Hour)) },
			func(s *suite, _ *nodeagent.Node) { s.writeLedger("[]", time.Now().Add(-24*time.Hour)) }},
		// As helm upgrade --force does: it replaces the object by the chart's, which has no data.
		"emptied-ledger": {off, decide.GuardMaxDeletionsPerHour,
			func(s *suite, _ *nodeagent.Node) {
				s.must(k8s.CoreV1().ConfigMaps(s.name).Update(s.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ledger.Name}}, metav1.UpdateOptions{}))
			},
			func(s *suite, _ *nodeagent.Node) { s.writeLedger("[]", time.Now().Add(-24*time.Hour)) }},
		"deleted-ledger": {off, decide.GuardMaxDeletionsPerHour,
			func(s *suite, _ *nodeagent.Node) {
				s.must(nil, k8s.CoreV1().ConfigMaps(s.name).Delete(s.ctx, ledger.Name, metav1.DeleteOptions{}))
			},
			func(s *suite, _ *nodeagent.Node) { s.writeLedger("[]", time.Now().Add(-24*time.Hour)) }},
		"paused": {off, decide.GuardPaused,
			func(s *suite, _ *nodeagent.Node) { s.pause(`"ticket 7"`) },
			func(s *suite, _ *nodeagent.Node) { s.pause(`null`) }},
		"max-unhealthy-per-zone": {with("maxUnhealthyPerZone", 1), decide.GuardMaxUnhealthyPerZone,
			func(s *suite, n *nodeagent.Node) {
				zoned := `{"metadata":{"labels":{"topology.kubernetes.io/zone":"z"}}}`
				s.patchNode(n.Name, zoned)
				other := s.node("other", pooled(s.name+"-other"), registered, dns(nodeagent.DNSRefuses))
				s.patchNode(other.Name, zoned)
				s.patchNode(other.Name, `{"metadata":{"annotations":{"node-ready/do-not-delete":"true"}}}`)
			},
			func(s *suite, _ *nodeagent.Node) {
				s.must(nil, agent.Node(s.name+"-other").SetDNS(nodeagent.DNSWorks))
				s.becomes(s.name+"-other", "verified", isVerified)
			}},
		"nodeclaim-not-to-be-disrupted": {off, decide.GuardDoNotDelete,
			func(s *suite, n *nodeagent.Node) {
				s.patchClaim(n.Name, `{"metadata":{"annotations":{"karpenter.sh/do-not-disrupt":"true"}}}`)
			},
			func(s *suite, n *nodeagent.Node) {
				s.patchClaim(n.Name, `{"metadata":{"annotations":{"karpenter.sh/do-not-disrupt":null}}}`)
			}},
		"dry-run":      {with("dryRun", true), decide.GuardDryRun, nil, nil},
		"no-nodeclaim": {off, owner.Guard, func(s *suite, n *nodeagent.Node) {}, nil},
		"ambiguous-nodeclaim": {off, owner.Guard,
			func(s *suite, n *nodeagent.Node) {
				c := s.claim(n.Name+"-twin", s.name)
				c.Status.ProviderID = "kwok://" + n.Name
				s.must(nil, s.karpenter().Status().Update(s.ctx, c))
			},
			func(s *suite, n *nodeagent.Node) {
				c := &karpv1.NodeClaim{}
				k := s.karpenter()
				s.must(nil, k.Get(s.ctx, client.ObjectKey{Name: "claim-" + n.Name + "-twin"}, c))
				c.Finalizers = nil
				s.must(nil, k.Update(s.ctx, c))
				s.must(nil, k.Delete(s.ctx, c))
			}},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, deletes(tc.guards))
			n := s.node("a", pooled(s.name), registered, dns(nodeagent.DNSRefuses))
			var uid types.UID
			if name != "no-nodeclaim" {
				uid = s.claim(n.Name, s.name).UID
			}
			if tc.prepare != nil {
				tc.prepare(s, n)
			}
			s.controller()
			s.becomes(n.Name, "held by "+tc.held, func(f marks.Facts) bool { return f.Record.Held == tc.held && says(marks.ReasonRemediationHeld)(f) })
			s.stays(2*time.Second, n.Name, "tainted", func(f marks.Facts) bool { return f.Gated })
			if name == "no-nodeclaim" {
				s.mustStand(n.Name)
			} else {
				s.claimStays(n.Name)
			}
			s.hasEvents(n.Name, map[string]int{"RemediationHeld": 1})
			if tc.release != nil {
				tc.release(s, n)
				s.claimGoes(n.Name, uid)
			}
		})
	}
}

func (s *suite) patchClaim(nodeName, patch string) {
	s.Helper()
	c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + nodeName}}
	s.must(nil, s.karpenter().Patch(s.ctx, c, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// Two nodes of a pool are broken: the second is deleted only once the Node of the first is gone, however long that hangs.
func TestOneDeletionAfterTheOther(t *testing.T) {
	s := begin(t, deletes(map[string]any{"controlProbe": false, "maxUnhealthy": "100%"}))
	s.controller()
	names := map[string]bool{}
	for _, suffix := range []string{"a", "b"} {
		n := s.node(suffix, pooled(s.name), registered, dns(nodeagent.DNSRefuses))
		s.patchNode(n.Name, `{"metadata":{"finalizers":["example.com/hangs"]}}`)
		s.claim(n.Name, s.name)
		names[n.Name] = true
	}
	var first, second string
	s.eventually("one NodeClaim is deleted", func() string {
		for name := range names {
			if _, gone := s.deleting(name); gone {
				first = name
				return ""
			}
		}
		return "none"
	})
	for name := range names {
		if name != first {
			second = name
		}
	}
	s.must(nil, k8s.CoreV1().Nodes().Delete(s.ctx, first, metav1.DeleteOptions{})) // as Karpenter does; the finalizer keeps it
	held := func(f marks.Facts) bool {
		return f.Record.Held == decide.GuardMaxInFlight && strings.Contains(f.Record.HeldMessage, first)
	}
	s.becomes(second, "held, for the first hangs in its deletion", held)
	s.stays(3*time.Second, second, "held", held)
	s.claimStays(second)
	s.patchNode(first, `{"metadata":{"finalizers":null}}`)
	s.eventually("the second NodeClaim is deleted", func() string {
		if _, gone := s.deleting(second); !gone {
			_, f := s.get(second)
			return fmt.Sprintf("%+v", f.Record)
		}
		return ""
	})
	s.patchNode(second, `{"metadata":{"finalizers":null}}`)
}

// A node that once was verified is quarantined, not deleted, and released when it is well again.
func TestQuarantine(t *testing.T) {
	s := begin(t, deletes(map[string]any{"controlProbe": false, "maxUnhealthy": "100%"}))
	s.controller()
	n := s.node("a", pooled(s.name), registered)
	s.claim(n.Name, s.name)
	s.becomes(n.Name, "verified", isVerified)
	s.must(nil, n.SetDNS(nodeagent.DNSRefuses))
	s.patchNode(n.Name, `{"metadata":{"labels":{"node-ready/verified":null}}}`)
	s.becomes(n.Name, "quarantined", func(f marks.Facts) bool {
		return f.Gated && f.Record.Held == decide.GuardNeverVerifiedOnly && says(marks.ReasonRemediationHeld)(f)
	})
	s.claimStays(n.Name)
	s.hasEvents(n.Name, map[string]int{"Quarantined": 1})
	s.must(nil, n.SetDNS(nodeagent.DNSWorks))
	s.becomes(n.Name, "verified without a hand", isVerified)
}

// The controller is killed between its deletions; the hourly limit still holds.
func TestHourlyLimitSurvivesRestarts(t *testing.T) {
	s := begin(t, deletes(map[string]any{"controlProbe": false, "maxUnhealthy": "100%", "maxDeletionsPerHour": 2, "maxInFlight": 5}))
	first := s.controller()
	var names []string
	for i := range 5 {
		n := s.node(fmt.Sprint(i), pooled(s.name), registered, dns(nodeagent.DNSRefuses))
		s.claim(n.Name, s.name)
		names = append(names, n.Name)
	}
	gone := func() int {
		n := 0
		for _, name := range names {
			if _, deleting := s.deleting(name); deleting {
				n++
			}
		}
		return n
	}
	s.eventually("one NodeClaim is deleted", func() string {
		if gone() == 0 {
			return "none"
		}
		return ""
	})
	first.Kill()
	s.controller()
	held := func() int {
		n := 0
		for _, name := range names {
			if _, f := s.get(name); f.Record.Held == decide.GuardMaxDeletionsPerHour {
				n++
			}
		}
		return n
	}
	s.eventually("two are deleted and three held", func() string {
		if gone() != 2 || held() != 3 {
			return fmt.Sprintf("%d deleted, %d held", gone(), held())
		}
		return ""
	})
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if gone() > 2 {
			t.Fatalf("%d NodeClaims were deleted, the limit is 2", gone())
		}
	}
}

// A probe on a control node is a worker pod like others: pinned, owned, gone afterwards; what it proves is never taken for the control node's own verdict.
func TestProbeDoesNotVerifyItsNode(t *testing.T) {
	s := begin(t, deletes(map[string]any{"maxUnhealthy": "100%"}), set("reconciliation", map[string]any{"maxRetries": 5}))
	s.controller()
	control := s.node("control")
	before := s.becomes(control.Name, "verified", isVerified)
	n := s.node("a", dns(nodeagent.DNSRefuses))
	s.becomes(n.Name, "failed twice", func(f marks.Facts) bool { return f.Record.Attempts >= 2 })
	s.stays(time.Second, control.Name, "verified by its own attempt", func(f marks.Facts) bool {
		return isVerified(f) && f.Record.Sequence == before.Record.Sequence
	})
	for _, p := range s.workers(control.Name) {
		if p.Labels[workerpod.LabelPurpose] != workerpod.PurposeProbe || p.OwnerReferences[0].Name != control.Name {
			t.Errorf("%s", p.Name)
		}
	}
}
