package watch

import (
	"strings"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/allocatable"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/csinodes"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/daemonsets"
)

// elsewhere puts an object into namespace y.
func elsewhere[T interface{ SetNamespace(string) }](o T) T {
	o.SetNamespace("y")
	return o
}

// A DaemonSet that may have one of two names must have one, and each that exists must be Ready.
func TestAnyOf(t *testing.T) {
	const (
		waits = "a Ready pod of DaemonSet x/d or y/d "
		wrong = "correct prerequisites.daemonSets, or install it"
	)
	for name, test := range map[string]struct {
		objects     []runtime.Object
		why, remedy string
	}{
		"none":               {objects: []runtime.Object{daemonSet("e")}, why: waits + "(there is no such DaemonSet)", remedy: wrong},
		"the first":          {objects: []runtime.Object{daemonSet("d")}, why: waits + "(none on the node)"},
		"the first is Ready": {objects: []runtime.Object{daemonSet("d"), podOf("d", "node-a", ready)}},
		"the other":          {objects: []runtime.Object{elsewhere(daemonSet("d")), elsewhere(podOf("d", "node-a"))}, why: waits + "(not Ready)"},
		"both, one is Ready": {objects: []runtime.Object{daemonSet("d"), podOf("d", "node-a", ready), elsewhere(daemonSet("d"))}, why: waits + "(none on the node)"},
		"it does not come":   {objects: []runtime.Object{daemonSet("d", selects)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				entry := daemonsets.Entry{AnyOf: []daemonsets.Name{{Namespace: "x", Name: "d"}, {Namespace: "y", Name: "d"}}}
				f := prepare(t, config.Prerequisites{DaemonSets: daemonsets.Settings{Named: []daemonsets.Entry{entry}}}, nil, nil)
				for _, o := range test.objects {
					f.must(f.kubernetes.Tracker().Add(o))
				}
				f.is("before it is read", node("node-a"), waits+"(not read yet)", "")
				f.start().is("", node("node-a"), test.why, test.remedy)
			})
		})
	}
}

// is checks the one thing that a node waits for.
func (f *fixture) is(what string, n *corev1.Node, why, remedy string) {
	f.Helper()
	var want []decide.Unmet
	if why != "" {
		want = []decide.Unmet{{Message: why, Remedy: remedy}}
	}
	got := f.Unmet(n, f.Prerequisites)
	if len(got) != len(want) || len(got) == 1 && (got[0].Message != why || got[0].Remedy != remedy) {
		f.Errorf("%s: waits for %+v, want %+v", what, got, want)
	}
}

// What a DaemonSet provides is waited for where its pods come, now or once the node is released or Ready, and nowhere
// else.
func TestProvides(t *testing.T) {
	const (
		none  = "1 example.com/gpu allocatable (the node offers none)"
		keeps = "DaemonSet x/d provides it but does not tolerate node-ready/unverified:NoSchedule, so its pod cannot run before the node is released; add the toleration"
	)
	provides := &daemonsets.Provided{Allocatable: allocatable.Settings{"example.com/gpu": resource.MustParse("1")}}
	gpus := func(n *corev1.Node) { n.Labels = map[string]string{"pool": "gpu"} }
	offers := func(n *corev1.Node) { n.Status.Allocatable = corev1.ResourceList(provides.Allocatable) }
	tainted := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, taint(key, corev1.TaintEffectNoSchedule)) }
	}
	for name, test := range map[string]struct {
		spec        []func(*corev1.PodSpec)
		node        []func(*corev1.Node)
		always      bool // the section asks for the resource too
		why, remedy string
	}{
		"offered":                  {node: []func(*corev1.Node){gpus, offers}},
		"not offered":              {node: []func(*corev1.Node){gpus}, why: none},
		"elsewhere":                {},
		"elsewhere, asked for":     {always: true, why: none},
		"asked for twice":          {node: []func(*corev1.Node){gpus}, always: true, why: none},
		"gated":                    {node: []func(*corev1.Node){gpus, tainted(gating.Key)}, why: none},
		"gate is not tolerated":    {spec: []func(*corev1.PodSpec){tolerates}, node: []func(*corev1.Node){gpus, tainted(gating.Key)}, why: none, remedy: keeps},
		"not tolerated, asked for": {spec: []func(*corev1.PodSpec){tolerates}, node: []func(*corev1.Node){gpus, tainted(gating.Key)}, always: true, why: none, remedy: keeps},
		"not tolerated, offered":   {spec: []func(*corev1.PodSpec){tolerates}, node: []func(*corev1.Node){gpus, offers, tainted(gating.Key)}},
		"not Ready yet":            {spec: []func(*corev1.PodSpec){tolerates}, node: []func(*corev1.Node){gpus, tainted(corev1.TaintNodeNotReady)}, why: none},
		"another taint keeps off":  {spec: []func(*corev1.PodSpec){tolerates}, node: []func(*corev1.Node){gpus, tainted("dedicated")}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := config.Prerequisites{DaemonSets: daemonsets.Settings{Named: []daemonsets.Entry{{Namespace: "x", Name: "d", Provides: provides}}}}
				if test.always {
					p.Allocatable = provides.Allocatable
				}
				f := prepare(t, p, nil, nil)
				f.must(f.kubernetes.Tracker().Add(daemonSet("d", append(test.spec, selects)...)))
				f.must(f.kubernetes.Tracker().Add(podOf("d", "node-a", ready)))
				n := node("node-a")
				for _, change := range test.node {
					change(n)
				}
				f.start().is("", n, test.why, test.remedy)
			})
		})
	}
}

// A node that waits for what a DaemonSet provides is woken by it.
func TestProvidedWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := prepare(t, config.Prerequisites{DaemonSets: daemonsets.Settings{Mode: daemonsets.Auto, Named: []daemonsets.Entry{
			{Namespace: "x", Name: "d", Provides: &daemonsets.Provided{CSINodes: csinodes.Settings{{Driver: "disk.example.com"}}}}}}}, nil, nil)
		f.must(f.kubernetes.Tracker().Add(daemonSet("d")))
		f.must(f.kubernetes.Tracker().Add(podOf("d", "node-a", ready)))
		f.start()
		if why := f.whys("node-a"); why != "CSI driver disk.example.com (the node has no CSINode)" {
			t.Fatal(why)
		}
		f.enqueuesOnly("its CSINode", func() { f.must(f.kubernetes.Tracker().Add(csiNode("node-a", ""))) }, "node-a")
		f.whys("node-a")
		f.enqueuesOnly("the DaemonSet's end", func() {
			f.must(f.kubernetes.Tracker().Delete(appsv1.SchemeGroupVersion.WithResource("daemonsets"), "x", "d"))
		}, "node-a")
		// Of what is named, auto says nothing more.
		if why := f.whys("node-a"); strings.Count(why, "x/d") != 1 || !strings.Contains(why, "there is no such DaemonSet") {
			t.Error(why)
		}
	})
}
