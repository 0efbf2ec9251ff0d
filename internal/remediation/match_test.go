package remediation

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

func TestMatch(t *testing.T) {
	foreign := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "NodeClaim", UID: "x-uid"}
	otherKind := metav1.OwnerReference{APIVersion: "karpenter.sh/v1", Kind: "NodePool", UID: "x-uid"}
	with := func(n *corev1.Node, mark func(*corev1.Node)) *corev1.Node { mark(n); return n }
	all := func(cs ...karpv1.NodeClaim) []karpv1.NodeClaim { return cs }
	leaving := claim("a", "p1", "n", "default")
	leaving.DeletionTimestamp = &metav1.Time{}
	protected := claim("a", "p1", "n", "default")
	protected.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
	emptyPool := claim("a", "p1", "n", "")
	emptyPool.Labels = map[string]string{"karpenter.sh/nodepool": ""}

	for name, tc := range map[string]struct {
		node    *corev1.Node
		claims  []karpv1.NodeClaim
		want    owner.Owner
		problem string // part of it
	}{
		"provider ID and owner agree": {node("n", "p1", "default", ownedBy("a-uid")), all(claim("a", "p1", "n", "default"), claim("b", "p2", "m", "default")),
			owner.Owner{Target: owner.Target{Kind: nodeClaim, Name: "a", UID: "a-uid"}}, ""},
		"not registered yet: no owner, and the status names no node": {node("n", "p1", "default"), all(claim("a", "p1", "", "default")),
			owner.Owner{Target: owner.Target{Kind: nodeClaim, Name: "a", UID: "a-uid"}}, ""},
		"a NodeClaim without a NodePool":       {node("n", "p1", "", ownedBy("a-uid")), all(claim("a", "p1", "n", "")), owner.Owner{Target: owner.Target{Kind: nodeClaim, Name: "a", UID: "a-uid"}}, ""},
		"the NodeClaim is being deleted":       {node("n", "p1", "default"), all(leaving), owner.Owner{Target: owner.Target{Kind: nodeClaim, Name: "a", UID: "a-uid"}, Terminating: true}, ""},
		"it is not to be disrupted":            {node("n", "p1", "default"), all(protected), owner.Owner{Target: owner.Target{Kind: nodeClaim, Name: "a", UID: "a-uid"}, OptedOut: owner.AnnotationDoNotDisrupt}, ""},
		"not Karpenter's":                      {node("n", "p1", ""), all(claim("b", "p2", "m", "default")), owner.Owner{}, ""},
		"not Karpenter's, others are starting": {node("n", "p1", ""), all(claim("b", "", "", "default"), claim("c", "p3", "", "default")), owner.Owner{}, ""},
		"not Karpenter's, no provider ID":      {node("n", "", ""), all(claim("b", "p2", "m", "default")), owner.Owner{}, ""},
		"no Karpenter at all":                  {node("n", "", ""), nil, owner.Owner{}, ""},

		"two NodeClaims have the provider ID":                      {node("n", "p1", "default"), all(claim("a", "p1", "n", "default"), claim("b", "p1", "", "default")), owner.Owner{}, "more than one NodeClaim has"},
		"the owner is another NodeClaim":                           {node("n", "p1", "default", ownedBy("b-uid")), all(claim("a", "p1", "n", "default"), claim("b", "p2", "m", "default")), owner.Owner{}, "owner is another"},
		"the owner is a NodeClaim that is gone":                    {node("n", "p1", "default", ownedBy("gone")), all(claim("a", "p1", "n", "default")), owner.Owner{}, "owner is another"},
		"two owning NodeClaims":                                    {node("n", "p1", "default", ownedBy("a-uid"), ownedBy("b-uid")), all(claim("a", "p1", "n", "default")), owner.Owner{}, "more than one owning"},
		"a NodeClaim of another group is none":                     {node("n", "p1", "default", foreign, ownedBy("a-uid")), all(claim("a", "p1", "n", "default")), owner.Owner{Target: owner.Target{Kind: nodeClaim, Name: "a", UID: "a-uid"}}, ""},
		"nor does it make a node Karpenter's":                      {node("n", "p1", "", foreign, otherKind), all(claim("b", "p2", "m", "default")), owner.Owner{}, ""},
		"the status names the node, by another provider ID":        {node("n", "p1", ""), all(claim("a", "p2", "n", "default")), owner.Owner{}, "NodeClaim a names this node"},
		"the status names the node, without provider ID":           {node("n", "p1", ""), all(claim("a", "", "n", "default")), owner.Owner{}, "NodeClaim a names this node"},
		"the status names the node, which has none":                {node("n", "", ""), all(claim("a", "p1", "n", "default")), owner.Owner{}, "NodeClaim a names this node"},
		"one has its provider ID, the other its name":              {node("n", "p1", "default"), all(claim("a", "p1", "", "default"), claim("b", "p2", "n", "default")), owner.Owner{}, "NodeClaim b names this node"},
		"the first of two by name, whatever their order":           {node("n", "p1", ""), all(claim("b", "p2", "n", ""), claim("a", "p3", "n", "")), owner.Owner{}, "NodeClaim a names"},
		"no provider ID, beside a NodeClaim that is new":           {node("n", "", ""), all(claim("a", "", "", "default")), owner.Owner{}, "may own it"},
		"no provider ID, beside a NodeClaim without a node yet":    {node("n", "", ""), all(claim("a", "p1", "", "default")), owner.Owner{}, "may own it"},
		"no provider ID, beside a NodeClaim without a provider ID": {node("n", "", ""), all(claim("a", "", "m", "default")), owner.Owner{}, "may own it"},
		"the status names another node":                            {node("n", "p1", "default"), all(claim("a", "p1", "m", "default")), owner.Owner{}, "names node m"},

		"labelled, and no NodeClaim":                  {node("n", "p1", "default"), nil, owner.Owner{}, "Karpenter manages the node"},
		"owned, and no NodeClaim":                     {node("n", "p1", "", ownedBy("a-uid")), nil, owner.Owner{}, "Karpenter manages the node"},
		"labelled, no provider ID, and no NodeClaim":  {node("n", "", "default"), nil, owner.Owner{}, "Karpenter manages the node"},
		"labelled, the owner's provider ID differs":   {node("n", "p1", "default", ownedBy("a-uid")), all(claim("a", "p2", "", "default")), owner.Owner{}, "Karpenter manages the node"},
		"registered without a NodePool, no NodeClaim": {with(node("n", "p1", ""), func(n *corev1.Node) { n.Labels = map[string]string{"karpenter.sh/registered": "true"} }), nil, owner.Owner{}, "Karpenter manages the node"},
		"Karpenter's taint, no NodeClaim": {with(node("n", "p1", ""), func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}}
		}), nil, owner.Owner{}, "Karpenter manages the node"},
		"Karpenter's finalizer, no NodeClaim": {with(node("n", "p1", ""), func(n *corev1.Node) { n.Finalizers = []string{"karpenter.sh/termination"} }), nil, owner.Owner{}, "Karpenter manages the node"},

		"another NodePool":                    {node("n", "p1", "fake"), all(claim("a", "p1", "n", "default")), owner.Owner{}, "differ in label"},
		"only the node names a NodePool":      {node("n", "p1", "fake"), all(claim("a", "p1", "n", "")), owner.Owner{}, "differ in label"},
		"only the NodeClaim names a NodePool": {node("n", "p1", ""), all(claim("a", "p1", "n", "default")), owner.Owner{}, "differ in label"},
		"an empty NodePool is not none":       {node("n", "p1", ""), all(emptyPool), owner.Owner{}, "differ in label"},
	} {
		got := match(tc.node, tc.claims)
		if !strings.Contains(got.Problem, tc.problem) || (got.Problem == "") != (tc.problem == "") {
			t.Errorf("%s: problem %q, want %q", name, got.Problem, tc.problem)
		}
		if got.Problem = ""; got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// TestIndexLosesNothing compares, over every mixture of two NodeClaims, the answer on what the index returns with that on all.
func TestIndexLosesNothing(t *testing.T) {
	var kinds []karpv1.NodeClaim
	for _, id := range []string{"", "p1", "p2"} {
		for _, name := range []string{"", "n", "m"} {
			for _, pool := range []string{"", "default"} {
				kinds = append(kinds, claim("x", id, name, pool))
			}
		}
	}
	compared := 0
	for _, first := range kinds {
		for _, second := range kinds {
			for _, count := range []int{0, 1, 2} {
				a, b := first, second
				a.Name, a.UID, b.Name, b.UID = "a", "a-uid", "b", "b-uid"
				claims := []karpv1.NodeClaim{a, b}[:count]
				index := claimIndex{byProviderID: map[string][]karpv1.NodeClaim{}, byNodeName: map[string][]karpv1.NodeClaim{}}
				for i := range claims {
					index.add(&claims[i])
				}
				for _, n := range []*corev1.Node{
					node("n", "p1", "default"), node("n", "p1", ""), node("n", "", ""), node("n", "", "default"), node("n", "p1", "default", ownedBy("a-uid")),
				} {
					compared++
					if got, want := match(n, index.candidates(n)), match(n, slices.Clone(claims)); got != want {
						t.Fatalf("%+v on the index, %+v on all of %+v", got, want, claims)
					}
				}
			}
		}
	}
	mustBe(t, "compared", compared, 18*18*3*5)
}
