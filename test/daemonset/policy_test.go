package daemonset

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// as is a client with a token and nothing else.
func as(token string) kubernetes.Interface {
	config := rest.AnonymousClientConfig(control.Config())
	config.BearerToken = token
	return kubernetes.NewForConfigOrDie(config)
}

// The service account changes no node but that of its token, and of that one nothing but our marks.
func TestTheServiceAccountChangesItsOwnMarksAlone(t *testing.T) {
	s := begin(t, gate, foreign)
	other := s.name + "-other"
	s.createNode(other, gate)
	bound, loose := as(s.token(s.name+"-2", s.name)), as(s.token("", ""))
	const merge, strategic = types.MergePatchType, types.StrategicMergePatchType
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) { // the policy was installed a moment ago
		_, err := loose.CoreV1().Nodes().Patch(s.Context(), s.name, merge, []byte(`{}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsForbidden(err) {
			break
		}
		if time.Now().After(end) {
			s.Fatal("the policy is not in force:", err)
		}
	}
	for name, c := range map[string]struct {
		client      kubernetes.Interface
		node        string
		kind        types.PatchType
		patch       string
		subresource []string
		allowed     bool
	}{
		"own label":                {bound, s.name, merge, `{"metadata":{"labels":{"node-ready/verified":"true"}}}`, nil, true},
		"own record":               {bound, s.name, merge, `{"metadata":{"annotations":{"node-ready/record":"{}"}}}`, nil, true},
		"own condition":            {bound, s.name, strategic, `{"status":{"conditions":[{"type":"node-ready/Verified","status":"True"}]}}`, []string{"status"}, true},
		"own taint":                {bound, s.name, merge, `{"spec":{"taints":[{"key":"example.com/theirs","effect":"NoSchedule"}]}}`, nil, true},
		"another node's label":     {bound, other, merge, `{"metadata":{"labels":{"node-ready/verified":"true"}}}`, nil, false},
		"another node's taint":     {bound, other, merge, `{"spec":{"taints":[]}}`, nil, false},
		"another node's condition": {bound, other, strategic, `{"status":{"conditions":[{"type":"node-ready/Verified","status":"True"}]}}`, []string{"status"}, false},
		"a token of no pod":        {loose, s.name, merge, `{"metadata":{"labels":{"node-ready/verified":"true"}}}`, nil, false},
		"foreign taint":            {bound, s.name, merge, `{"spec":{"taints":[]}}`, nil, false},
		"another taint":            {bound, s.name, merge, `{"spec":{"taints":[{"key":"example.com/theirs","effect":"NoSchedule"},{"key":"a","effect":"NoExecute"}]}}`, nil, false},
		"another label":            {bound, s.name, merge, `{"metadata":{"labels":{"a":"b"}}}`, nil, false},
		"another label, by status": {bound, s.name, strategic, `{"metadata":{"labels":{"a":"b"}}}`, []string{"status"}, false},
		"removal of a label":       {bound, s.name, merge, `{"metadata":{"labels":{"theirs":null}}}`, nil, false},
		"another annotation":       {bound, s.name, merge, `{"metadata":{"annotations":{"node-ready/skip":"true"}}}`, nil, false},
		"cordon":                   {bound, s.name, merge, `{"spec":{"unschedulable":true}}`, nil, false},
		"finalizer":                {bound, s.name, merge, `{"metadata":{"finalizers":["a.io/b"]}}`, nil, false},
		"another condition":        {bound, s.name, strategic, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, []string{"status"}, false},
		"allocatable":              {bound, s.name, strategic, `{"status":{"allocatable":{"cpu":"0"}}}`, []string{"status"}, false},
	} {
		n, err := k8s.CoreV1().Nodes().Get(s.Context(), c.node, metav1.GetOptions{})
		s.must(n, err)
		n.Labels = map[string]string{"theirs": "x"}
		n.Spec.Taints = []corev1.Taint{gate, foreign}
		s.must(k8s.CoreV1().Nodes().Update(s.Context(), n, metav1.UpdateOptions{}))
		_, err = c.client.CoreV1().Nodes().Patch(s.Context(), c.node, c.kind, []byte(c.patch), metav1.PatchOptions{}, c.subresource...)
		if c.allowed && err != nil || !c.allowed && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for what, err := range map[string]error{
		"delete": bound.CoreV1().Nodes().Delete(s.Context(), s.name, metav1.DeleteOptions{}),
		"list":   func() error { _, err := bound.CoreV1().Nodes().List(s.Context(), metav1.ListOptions{}); return err }(),
		"create": func() error {
			_, err := bound.CoreV1().Nodes().Create(s.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
			return err
		}(),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
