package remediation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

var nodeClaims = schema.GroupResource{Group: "karpenter.sh", Resource: "nodeclaims"}

// fleet is a server with so many NodeClaims, i of which has provider ID p<i> and node n<i>.
func fleet(count int) *apiServer {
	s := &apiServer{}
	for i := range count {
		s.claims = append(s.claims, claim(fmt.Sprintf("c%d", i), fmt.Sprintf("p%d", i), fmt.Sprintf("n%d", i), "default"))
	}
	return s
}

func TestFindReadsEveryPage(t *testing.T) {
	s := fleet(1201)
	got := (&NodeClaims{Reader: s}).Find(t.Context(), node("n1200", "p1200", "default"), Latest)
	mustBe(t, "the claim on the last page", got, owner.Owner{Target: owner.Target{Kind: nodeClaim, Name: "c1200", UID: "c1200-uid"}})
	mustBe(t, "pages", s.lists, 3)
}

func TestFindStartsOverOnceWhenTheListingExpires(t *testing.T) {
	expired := apierrors.NewResourceExpired("too old")
	s := fleet(1201)
	s.fail = map[int]error{2: expired}
	got := (&NodeClaims{Reader: s}).Find(t.Context(), node("n0", "p0", "default"), Latest)
	mustBe(t, "a claim that was listed twice is one", got, owner.Owner{Target: owner.Target{Kind: nodeClaim, Name: "c0", UID: "c0-uid"}})
	mustBe(t, "pages", s.lists, 5)

	s = fleet(1201)
	s.fail = map[int]error{2: expired, 4: expired}
	got = (&NodeClaims{Reader: s}).Find(t.Context(), node("n0", "p0", "default"), Latest)
	mustBe(t, "expired twice", got, owner.Owner{Problem: "NodeClaims could not be listed (no usable answer)"})
	mustBe(t, "pages", s.lists, 4)
}

func TestAHundredHeldNodesCostOneListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fleet(100)
		s.took = time.Second
		c := &NodeClaims{Reader: s}
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				n := node(fmt.Sprintf("n%d", i), fmt.Sprintf("p%d", i), "default")
				mustBe(t, n.Name, c.Find(t.Context(), n, Recent).Name, fmt.Sprintf("c%d", i))
			})
		}
		all.Wait()
		mustBe(t, "listings", s.lists, 1)

		s.claims = nil
		n := node("n0", "p0", "default")
		mustBe(t, "within ten seconds", c.Find(t.Context(), n, Recent).Name, "c0")
		mustBe(t, "listings", s.lists, 1)
		mustBe(t, "fresh, the claim is gone", c.Find(t.Context(), n, Latest).Name, "")
		mustBe(t, "fresh lists again", s.lists, 2)
		mustBe(t, "what is fresh serves the others", c.Find(t.Context(), n, Recent).Name, "")
		mustBe(t, "listings", s.lists, 2)
		time.Sleep(claimsAge)
		c.Find(t.Context(), n, Recent)
		mustBe(t, "listings after ten seconds", s.lists, 3)
	})
}

// The owner that the node refers to is read by its name, so what changed since the last list counts. Where that does not
// find it for certain, the list decides.
func TestFindByName(t *testing.T) {
	refers := func(names ...string) (refs []metav1.OwnerReference) {
		for _, name := range names {
			ref := ownedBy(name + "-uid")
			ref.Name = name
			refs = append(refs, ref)
		}
		return refs
	}
	now := metav1.Now()
	for name, tc := range map[string]struct {
		refs   []metav1.OwnerReference
		change func(*apiServer) // since the list
		lists  int              // with that one
		want   owner.Owner
	}{
		"it opted out": {refers("c0"), func(s *apiServer) {
			s.claims[0].Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
		}, 2, owner.Owner{Target: owner.Target{Kind: nodeClaim, Name: "c0", UID: "c0-uid"}, OptedOut: karpv1.DoNotDisruptAnnotationKey}},
		"it is being deleted": {refers("c0"), func(s *apiServer) { s.claims[0].DeletionTimestamp = &now }, 2,
			owner.Owner{Target: owner.Target{Kind: nodeClaim, Name: "c0", UID: "c0-uid"}, Terminating: true}},
		"it is gone":               {refers("c0"), func(s *apiServer) { s.claims = nil }, 3, problem(`Karpenter manages the node, but no NodeClaim has its provider ID "p0"`)},
		"another has its name":     {refers("c0"), func(s *apiServer) { s.claims[0].UID = "other" }, 3, problem("NodeClaim c0 has the node's provider ID, but the node's owner is another NodeClaim")},
		"the read fails":           {refers("c0"), func(s *apiServer) { s.fail = map[int]error{2: errors.New("no network")} }, 2, owner.Owner{Target: owner.Target{Kind: nodeClaim, Name: "c0", UID: "c0-uid"}}},
		"it refers to another":     {refers("c1"), func(*apiServer) {}, 3, problem("NodeClaim c0 has the node's provider ID, but the node's owner is another NodeClaim")},
		"it refers to two":         {refers("c0", "c1"), func(*apiServer) {}, 1, problem("the node has more than one owning NodeClaim")},
		"it refers to none so far": {nil, func(*apiServer) {}, 1, owner.Owner{Target: owner.Target{Kind: nodeClaim, Name: "c0", UID: "c0-uid"}}},
	} {
		s := fleet(2)
		c, n := &NodeClaims{Reader: s}, node("n0", "p0", "default", tc.refs...)
		c.Find(t.Context(), n, Latest)
		tc.change(s)
		mustBe(t, name, c.Find(t.Context(), n, ByName), tc.want)
		mustBe(t, name+": lists", s.lists, tc.lists)
		if len(tc.refs) == 1 && tc.want.Name != "" && s.fail == nil {
			mustBe(t, name+": asked for", s.named[0], "c0")
		}
	}
}

func TestFindWithoutKarpenter(t *testing.T) {
	for name, err := range map[string]error{
		"never installed":   &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "karpenter.sh", Kind: "NodeClaim"}},
		"resource unserved": fmt.Errorf("discovery: %w", &meta.NoResourceMatchError{PartialResource: schema.GroupVersionResource{Group: "karpenter.sh"}}),
		"removed":           apierrors.NewNotFound(nodeClaims, ""),
	} {
		t.Run(name, func(t *testing.T) {
			s := &apiServer{fail: map[int]error{1: err}}
			c := &NodeClaims{Reader: s}
			mustBe(t, "a plain node", c.Find(t.Context(), node("n", "p", ""), Latest), owner.Owner{})
			got := c.Find(t.Context(), node("n", "p", "default"), Recent)
			mustBe(t, "a node that says it is Karpenter's has a problem", got.Problem != "", true)
			mustBe(t, "listings", s.lists, 1)

			s.claims = []karpv1.NodeClaim{claim("a", "p", "n", "default")}
			mustBe(t, "the CRD appears", c.Find(t.Context(), node("n", "p", "default"), Latest).Name, "a")
		})
	}
}

func TestFindTurnsErrorsIntoStableProblems(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"forbidden":  {apierrors.NewForbidden(nodeClaims, "", errors.New("request 17")), "Forbidden"},
		"a proxy's":  {apierrors.NewGenericServerResponse(418, "get", schema.GroupResource{}, "", "request 17", 0, true), "HTTP 418"},
		"overloaded": {apierrors.NewTooManyRequests("request 17", 3), "no usable answer"},
		"starting":   {apierrors.NewServiceUnavailable("request 17"), "no usable answer"},
		"broken":     {apierrors.NewInternalError(errors.New("request 17")), "InternalError"},
		"no network": {errors.New("dial tcp 10.0.0.1:443 from port 31745"), "no usable answer"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &apiServer{fail: map[int]error{1: tc.err}}
			c := &NodeClaims{Reader: s}
			want := owner.Owner{Problem: "NodeClaims could not be listed (" + tc.want + ")"}
			mustBe(t, "a plain node", c.Find(t.Context(), node("n", "p", ""), Latest), want)
			mustBe(t, "the next held node", c.Find(t.Context(), node("m", "q", ""), Recent), want)
			mustBe(t, "listings", s.lists, 1)
		})
	}
}

func TestACancelledCallerIsNobodyElsesProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fleet(1)
		s.took, s.fail = time.Second, map[int]error{1: context.DeadlineExceeded}
		c := &NodeClaims{Reader: s}
		hasty, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		n := node("n0", "p0", "default")
		mustBe(t, "in a hurry", c.Find(hasty, n, Recent).Problem, "NodeClaims could not be listed (no usable answer)")
		mustBe(t, "the next", c.Find(t.Context(), n, Recent).Name, "c0")
		mustBe(t, "listings", s.lists, 2)
	})
}
