package owner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOf(t *testing.T) {
	owned := func(version, kind string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.OwnerReferences = append(n.OwnerReferences, metav1.OwnerReference{APIVersion: version, Kind: kind, UID: "c"})
		}
	}
	label := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels[key] = value }
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   Signs
		claims int
	}{
		"none of its marks":   {func(*corev1.Node) {}, Signs{Kind: Node}, 0},
		"a pool":              {label(LabelNodePool, "p"), Signs{Kind: "NodeClaim", Pool: "p", Managed: true}, 0},
		"a pool without name": {label(LabelNodePool, ""), Signs{Kind: "NodeClaim", Managed: true}, 0},
		"registered":          {label(LabelRegistered, "true"), Signs{Kind: "NodeClaim", Managed: true, Registered: true}, 0},
		"not registered yet":  {label(LabelRegistered, "false"), Signs{Kind: "NodeClaim", Managed: true}, 0},
		"an owner":            {owned("karpenter.sh/v1", "NodeClaim"), Signs{Kind: "NodeClaim", Managed: true}, 1},
		"a kind of that name": {owned("example.com/v1", "NodeClaim"), Signs{Kind: Node}, 0},
		"another owner":       {owned("karpenter.sh/v1", "NodePool"), Signs{Kind: Node}, 0},
		"its finalizer":       {func(n *corev1.Node) { n.Finalizers = []string{"karpenter.sh/termination"} }, Signs{Kind: "NodeClaim", Managed: true}, 0},
		"only the taint so far": {func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}}
		},
			Signs{Kind: "NodeClaim", Managed: true}, 0},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{}}}
		tc.change(n)
		got := Of(n)
		if got.Kind != tc.want.Kind || got.Pool != tc.want.Pool || got.Managed != tc.want.Managed || got.Registered != tc.want.Registered || len(got.UIDs) != tc.claims {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}
