package deletion

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

func TestDelete(t *testing.T) {
	for _, tc := range []struct{ kind, name, uid, want string }{
		{decide.KindNodeClaim, "a", "u", "NodeClaim a u"},
		{decide.KindNode, "n", "u", "Node n u"},
		{"", "n", "u", ""}, // an unknown kind must not be taken for a Node
		{"Machine", "n", "u", ""},
		{decide.KindNode, "n", "", ""},
		{decide.KindNode, "", "u", ""},
	} {
		s := &apiServer{}
		err := Delete(t.Context(), s, tc.kind, tc.name, tc.uid)
		mustBe(t, "refused", err != nil, tc.want == "")
		if len(s.deleted) > 0 || tc.want != "" {
			mustBe(t, "deleted", s.deleted[0], tc.want)
		}
	}
	s := &apiServer{failWrite: apierrors.NewNotFound(nodeClaims, "a")}
	mustBe(t, "gone", apierrors.IsNotFound(Delete(t.Context(), s, decide.KindNodeClaim, "a", "u")), true)
	s.failWrite = apierrors.NewConflict(nodeClaims, "a", errors.New("the UID in the precondition differs"))
	mustBe(t, "another UID", apierrors.IsConflict(Delete(t.Context(), s, decide.KindNodeClaim, "a", "u")), true)
}
