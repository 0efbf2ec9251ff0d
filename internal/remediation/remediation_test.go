package remediation

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

func TestDelete(t *testing.T) {
	for _, tc := range []struct{ kind, name, uid, want string }{
		{nodeClaim, "a", "u", "NodeClaim a u"},
		{owner.Node, "n", "u", "Node n u"},
		{"", "n", "u", ""}, // an unknown kind must not be taken for a Node
		{"Machine", "n", "u", ""},
		{owner.Node, "n", "", ""},
		{owner.Node, "", "u", ""},
	} {
		s := &apiServer{}
		err := New(s, s).Act(t.Context(), owner.Target{Kind: tc.kind, Name: tc.name, UID: tc.uid})
		mustBe(t, "refused", err != nil, tc.want == "")
		if len(s.deleted) > 0 || tc.want != "" {
			mustBe(t, "deleted", s.deleted[0], tc.want)
		}
	}
	target := owner.Target{Kind: nodeClaim, Name: "a", UID: "u"}
	s := &apiServer{failWrite: apierrors.NewNotFound(nodeClaims, "a")}
	mustBe(t, "gone", apierrors.IsNotFound(New(s, s).Act(t.Context(), target)), true)
	s.failWrite = apierrors.NewConflict(nodeClaims, "a", errors.New("the UID in the precondition differs"))
	mustBe(t, "another UID", apierrors.IsConflict(New(s, s).Act(t.Context(), target)), true)
}

// TestKindsHaveBackends holds the table of kinds against the back-ends.
func TestKindsHaveBackends(t *testing.T) {
	var kinds []string
	for _, b := range New(nil, nil) {
		kinds = append(kinds, b.Kind())
	}
	if !slices.Equal(kinds, owner.Names()) {
		t.Errorf("the back-ends are of kinds %q, and owner.Kinds lists %q", kinds, owner.Names())
	}
}

func TestOwnersOfTwoKindsAreAProblem(t *testing.T) {
	s := &apiServer{claims: []karpv1.NodeClaim{claim("a", "p", "n", "default")}}
	n := node("n", "p", "default")
	two := append(New(s, s), machines{})
	mustBe(t, "two owners", two.Find(t.Context(), n, Latest).Problem, "NodeClaim a and Machine m both own the node")
	mustBe(t, "one owner", append(New(&apiServer{}, s), machines{}).Find(t.Context(), node("n", "p", ""), Latest).Name, "m")
	alone := node("n", "p", "")
	alone.UID = "n-uid"
	mustBe(t, "no owner", New(&apiServer{}, s).Find(t.Context(), alone, Latest), owner.OfNode("n", "n-uid"))
}

// machines is a back-end whose one object owns every node.
type machines struct{}

func (machines) Kind() string { return "Machine" }

func (machines) Find(context.Context, *corev1.Node, Read) owner.Owner {
	return owner.Owner{Target: owner.Target{Kind: "Machine", Name: "m", UID: "m-uid"}}
}

func (machines) Act(context.Context, owner.Target) error { return nil }
