package decide

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

func TestUnknownTaints(t *testing.T) {
	gate := marks.Taint{Key: "a/gate", Effect: corev1.TaintEffectNoSchedule}
	other := marks.Taint{Key: "a/gate", Effect: corev1.TaintEffectNoExecute}
	known := marks.Taint{Key: "readiness.k8s.io/gate", Effect: corev1.TaintEffectNoSchedule}
	scaled := marks.Taint{Key: "startup-taint.cluster-autoscaler.kubernetes.io/gate", Effect: corev1.TaintEffectNoSchedule}
	one := []marks.Taint{gate}
	for name, tc := range map[string]struct {
		gating []marks.Taint
		pools  []NodePool
		want   string
	}{
		"no Karpenter":                       {one, nil, "[]"},
		"listed":                             {one, []NodePool{{Name: "p", Startup: one}, {Name: "ungated"}}, "[]"},
		"listed nowhere":                     {one, []NodePool{{Name: "p"}, {Name: "q"}}, "[/NoSchedule]"},
		"another effect is another taint":    {one, []NodePool{{Name: "p", Startup: []marks.Taint{other}}}, "[/NoSchedule]"},
		"under taints it is for good":        {one, []NodePool{{Name: "p", Taints: one}}, "[/NoSchedule]"},
		"carried by a pool that lacks it":    {one, []NodePool{{Name: "p", Startup: one}, {Name: "q", Carried: one}}, "[q/NoSchedule]"},
		"carried, and listed nowhere":        {one, []NodePool{{Name: "p", Carried: one}, {Name: "q"}}, "[p/NoSchedule]"},
		"carried by two, listed nowhere":     {one, []NodePool{{Name: "p", Carried: one}, {Name: "q", Carried: one}}, "[p/NoSchedule q/NoSchedule]"},
		"a prefix that Karpenter knows":      {[]marks.Taint{known}, []NodePool{{Name: "p"}}, "[]"},
		"Cluster Autoscaler's, elsewhere":    {[]marks.Taint{scaled}, []NodePool{{Name: "p"}}, "[]"},
		"Cluster Autoscaler's, on its nodes": {[]marks.Taint{scaled}, []NodePool{{Name: "p", Carried: []marks.Taint{scaled}}}, "[p/NoSchedule]"},
		"of two, the one that is not listed": {[]marks.Taint{gate, other}, []NodePool{{Name: "p", Startup: one}}, "[/NoExecute]"},
	} {
		got := []string{}
		for _, u := range UnknownTaints(tc.gating, tc.pools) {
			got = append(got, u.Pool+"/"+string(u.Taint.Effect))
		}
		if fmt.Sprint(got) != tc.want {
			t.Errorf("%s: %v, want %s", name, got, tc.want)
		}
	}
}
