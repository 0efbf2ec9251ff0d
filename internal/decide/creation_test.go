package decide

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/test/admission/cases"
)

func TestTaintsOnCreation(t *testing.T) {
	for _, group := range cases.Groups {
		c, err := config.Parse([]byte(group.Config), group.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range group.Cases {
			got := slices.Clone(tc.Brings)
			for _, added := range TaintsOnCreation(tc.Node("n"), c) {
				got = append(got, cases.String(corev1.Taint{Key: added.Key, Value: added.Value, Effect: added.Effect}))
			}
			if !slices.Equal(got, tc.Want) {
				t.Errorf("%s, %s: %q, want %q", group.Name, tc.Name, got, tc.Want)
			}
		}
	}
}
