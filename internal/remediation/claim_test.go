package remediation

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

func claim(name, uid, providerID, nodeName string) karpv1.NodeClaim {
	c := karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
	c.Status.ProviderID, c.Status.NodeName = providerID, nodeName
	return c
}

func TestMatch(t *testing.T) {
	owner := func(uids ...string) []metav1.OwnerReference {
		var out []metav1.OwnerReference
		for _, uid := range uids {
			out = append(out, metav1.OwnerReference{Kind: "NodeClaim", UID: types.UID(uid)})
		}
		return out
	}
	pooled := map[string]string{"karpenter.sh/nodepool": "default"}
	for name, tc := range map[string]struct {
		labels     map[string]string
		owners     []metav1.OwnerReference
		providerID string
		claims     []karpv1.NodeClaim
		want       string
		problem    bool
	}{
		"provider ID and owner agree":     {pooled, owner("c1"), "p1", []karpv1.NodeClaim{claim("a", "c1", "p1", "n"), claim("b", "c2", "p2", "m")}, "a", false},
		"provider ID alone":               {pooled, nil, "p1", []karpv1.NodeClaim{claim("a", "c1", "p1", "")}, "a", false},
		"a node that is not Karpenter's":  {nil, nil, "p1", []karpv1.NodeClaim{claim("b", "c2", "p2", "")}, "", false},
		"no Karpenter at all":             {nil, nil, "", nil, "", false},
		"owner and provider ID disagree":  {pooled, owner("c2"), "p1", []karpv1.NodeClaim{claim("a", "c1", "p1", ""), claim("b", "c2", "p2", "")}, "", true},
		"two claims with the provider ID": {pooled, nil, "p1", []karpv1.NodeClaim{claim("a", "c1", "p1", ""), claim("b", "c2", "p1", "")}, "", true},
		"two owners":                      {pooled, owner("c1", "c2"), "p1", []karpv1.NodeClaim{claim("a", "c1", "p1", "")}, "", true},
		"Karpenter's, claim is gone":      {pooled, nil, "p1", nil, "", true},
		"owned, claim is gone":            {nil, owner("c1"), "p1", nil, "", true},
		"Karpenter's, no provider ID":     {pooled, owner("c1"), "", []karpv1.NodeClaim{claim("a", "c1", "", "")}, "", true},
		"the claim says another node":     {pooled, nil, "p1", []karpv1.NodeClaim{claim("a", "c1", "p1", "m")}, "", true},
		"empty provider IDs never match":  {nil, nil, "", []karpv1.NodeClaim{claim("a", "c1", "", "")}, "", false},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: tc.labels, OwnerReferences: tc.owners}, Spec: corev1.NodeSpec{ProviderID: tc.providerID}}
		got := match(n, tc.claims)
		if got.Name != tc.want || (got.Problem != "") != tc.problem {
			t.Errorf("%s: %+v, want %q, a problem: %v", name, got, tc.want, tc.problem)
		}
	}
}
