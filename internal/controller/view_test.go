package controller

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

func gpu(c *config.Config) {
	c.Profiles = []config.Profile{{Name: "gpu", NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "true"}}, DNSTestDomains: []string{"example.com"},
		Taints: []marks.Taint{{Key: "gpu/unverified", Effect: corev1.TaintEffectNoSchedule}}}}
}

// The labels choose the profile and its checks; any profile's taint gates.
func TestObserve(t *testing.T) {
	v, _, _ := view(t, gpu)
	plain, labelled := v.Observe(node("n")), v.Observe(node("n", func(n *corev1.Node) { n.Labels["gpu"] = "true" }))
	if !plain.Node.Gated || !labelled.Node.Gated || !plain.Selected {
		t.Errorf("%+v %+v", plain.Node, labelled.Node)
	}
	if labelled.Profile.Profile != "gpu" || labelled.Checks == plain.Checks || labelled.Checks != v.Builder.Checks("gpu") || labelled.Profile.Taints[0].Key != "gpu/unverified" {
		t.Errorf("%+v", labelled)
	}
	foreign := v.Observe(node("n", func(n *corev1.Node) { n.Spec.Taints[0].Key = "gpu/unverified" }))
	if !foreign.Node.Gated || foreign.Profile.Profile != "" {
		t.Errorf("a taint of a profile that its labels do not select: %+v", foreign.Node)
	}
}

func TestGatherFindsTheNodesOwnPods(t *testing.T) {
	v, c, _ := view(t)
	n := node("n")
	c.pods = amid(v, n)
	in, err := v.Gather(t.Context(), n)
	if err != nil || len(in.Pods) != 2 || in.Pods[0].Attempt.Number != 1 || in.Pods[1].Subject != "uid-m/1" {
		t.Errorf("%+v, %v", in.Pods, err)
	}
	probes, err := v.Probes(t.Context(), "g")
	if err != nil || len(probes) != 1 || probes[0].Node != "n" {
		t.Errorf("%+v, %v", probes, err)
	}
	if probes, _ = v.Probes(t.Context(), "other"); len(probes) != 0 {
		t.Errorf("of another group: %+v", probes)
	}
}

func TestFleet(t *testing.T) {
	v, c, _ := view(t)
	members := func(f *Fleet) (names string) {
		list, err := f.Members(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			if names += m.Name; m.Excluded {
				names += "-"
			}
		}
		return names
	}
	c.nodes = []corev1.Node{*node("c"), *node("a"), *node("x", func(n *corev1.Node) { n.Annotations[marks.AnnotationSkip] = "true" })}
	f := NewFleet(v)
	f.See(v.Observe(node("b")))
	if got := members(f); got != "abcx-" || c.lists != 1 {
		t.Errorf("%s after %d lists: want those of before our time too, sorted, and what is never verified for what it is", got, c.lists)
	}
	f.Gone("a")
	f.See(v.Observe(node("b", func(n *corev1.Node) { n.Annotations[marks.AnnotationSkip] = "true" })))
	if got := members(f); got != "b-cx-" || c.lists != 1 {
		t.Errorf("%s after %d lists", got, c.lists)
	}
	before, _ := f.Members(t.Context())
	f.See(v.Observe(node("c", func(n *corev1.Node) { n.UID = "new" })))
	after, _ := f.Members(t.Context())
	if before[1].UID != "uid-c" || after[1].UID != "new" {
		t.Errorf("a list that was handed out must not change: %+v, %+v", before, after)
	}
}

// TestGatherAwaitsTheEndOfAPod: the cache loses a pod before the event comes that says what became of it.
func TestGatherAwaitsTheEndOfAPod(t *testing.T) {
	v, c, _ := view(t)
	n := node("n")
	gathers := func(what string, want error, vanished int32) {
		t.Helper()
		if in, err := v.Gather(t.Context(), n); !errors.Is(err, want) || in.Vanished != vanished {
			t.Errorf("%s: %v, vanished %d; want %v, %d", what, err, in.Vanished, want, vanished)
		}
	}
	first, second := worker(v, n, 1), worker(v, n, 2)
	v.Sights.SeePod(worker(v, node("m"), 1))
	v.Sights.SeePod(v.Builder.Probe(target(n), v.Config.For(nil), "uid-m/1", "g"))
	c.pods = []corev1.Pod{*first}
	gathers("not shown yet", nil, 0)
	v.Sights.SeePod(first)
	gathers("shown", nil, 0)
	c.pods = nil
	gathers("gone from the cache", ErrVanished, 0)
	v.Sights.PodGone(workerpod.Observe(first), first)
	gathers("shown to be gone", nil, 1)

	v.Sights.SeePod(second)
	gathers("the next one, gone from the cache", ErrVanished, 0)
	exited(0)(second)
	v.Sights.SeePod(second)
	gathers("and shown with a result", nil, 1)

	v.Sights.SeePod(worker(v, n, 3))
	n.UID = "another"
	gathers("another node of the name", nil, 0)
	v.Sights.neededSince(v.Observe(n))
	v.Sights.SeePod(worker(v, node("n"), 4))
	gathers("a pod of the node before it", nil, 0)
}
