package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

const conflictsKey = "ValidatingAdmissionPolicy kube-node-ready-rule-conflicts"

// aRuleOf is a manifest of a rule with the selector and whatever else its spec is to have.
func aRuleOf(name, key, selector, more string) string {
	return fmt.Sprintf(`{"apiVersion": "readiness.node.x-k8s.io/v1alpha1", "kind": "NodeReadinessRule", "metadata": {"name": %q}, "spec": {
		"nodeSelector": %s, "enforcementMode": "continuous", "conditions": [{"type": "c", "requiredStatus": "True"}],
		"taint": {"key": "readiness.k8s.io/%s", "effect": "NoSchedule"}%s}}`, name, selector, key, more)
}

// Conflicts are refused on our own definition alone, and the roles for people are where the values ask for them.
func TestWhatTheChartMakesForRules(t *testing.T) {
	viewer, editor := "ClusterRole kube-node-ready-rules-viewer", "ClusterRole kube-node-ready-rules-editor"
	for name, test := range map[string]struct {
		values           string
		conflicts, roles bool
	}{
		"default":                  {"", true, true},
		"somebody else's":          {"rules: {installCRD: false}", false, true},
		"conflicts are allowed":    {"rules: {refuseConflicts: false}", false, true},
		"roles are somebody's own": {"rules: {clusterRoles: false}", true, false},
	} {
		found := render(t, test.values)
		if _, is := found[conflictsKey]; is != test.conflicts {
			t.Errorf("%s: conflicts are refused: %v", name, is)
		}
		for _, key := range []string{viewer, editor} {
			if _, is := found[key]; is != test.roles {
				t.Errorf("%s: %s: %v", name, key, is)
			}
		}
	}
	for _, rule := range get[rbacv1.ClusterRole](t, render(t, ""), viewer).Rules {
		for _, verb := range rule.Verbs {
			if !slices.Contains([]string{"get", "list", "watch"}, verb) {
				t.Errorf("the viewer may %s", verb)
			}
		}
	}
}

// On a real API server: whoever may view or edit may read or write rules, and of two rules in conflict the second is
// not created. What is there already can be changed and deleted all the same.
func testRulesOfPeople(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	r := resourcesOn(c)
	for _, role := range []string{"view", "edit", "admin"} {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role + "s"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: role}}}
		if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	may := func(user, verb, subresource string) bool {
		t.Helper()
		asked := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: []string{"system:authenticated"}, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: v1alpha1.GroupVersion.Group, Resource: "nodereadinessrules", Subresource: subresource}}}
		reviews := client.AuthorizationV1().SubjectAccessReviews()
		review, err := reviews.Create(t.Context(), asked, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return review.Status.Allowed
	}
	eventually(t, "the roles are aggregated", func() bool {
		return may("view", "list", "") && may("edit", "create", "") && may("admin", "delete", "")
	})
	for _, no := range [][2]string{{"view", "create"}, {"view", "patch"}, {"view", "delete"}, {"edit", "escalate"}} {
		if may(no[0], no[1], "") {
			t.Errorf("%s may %s rules", no[0], no[1])
		}
	}
	for _, user := range []string{"view", "edit", "admin"} {
		if !may(user, "get", "status") {
			t.Errorf("%s may not read the status", user)
		}
		if may(user, "patch", "status") {
			t.Errorf("%s may write the status, which is the controller's", user)
		}
	}

	const worker = `{"matchLabels": {"role": "worker"}}`
	create := func(name, key, selector, more string) string {
		t.Helper()
		if _, err := r.create(t, r.rules, aRuleOf(name, key, selector, more)); err != nil {
			return err.Error()
		}
		return ""
	}
	for _, rule := range [][4]string{{"first", "a", worker, ""}, {"second", "a", worker, ""}, {"dry", "dry", worker, `, "dryRun": true`}, {"leaving", "leaving", worker, ""}} {
		if failure := create(rule[0], rule[1], rule[2], rule[3]); failure != "" {
			t.Fatal(failure)
		}
	}
	helmOn(t, c, "upgrade", "kube-node-ready", chartDir, "--set", "controller.replicas=0,rules.refuseConflicts=true")
	tolerated := mustGet(t, client).Spec.Template.Spec.Tolerations
	if !slices.ContainsFunc(tolerated, func(o corev1.Toleration) bool { return o.Key == "readiness.k8s.io/a" }) {
		t.Errorf("the taint of a rule that is there is not tolerated: %v", tolerated)
	}
	eventually(t, "a conflict is refused", func() bool {
		failure := create("third", "a", worker, "")
		if failure == "" {
			r.delete(t, "third")
		}
		return strings.Contains(failure, "has the taint readiness.k8s.io/a:NoSchedule too")
	})
	r.patch(t, "leaving", `{"metadata": {"finalizers": ["example.com/keep"]}}`)
	r.delete(t, "leaving")
	in := func(operator, values string) string {
		return fmt.Sprintf(`{"matchExpressions": [{"key": "role", "operator": %q, "values": [%s]}]}`, operator, values)
	}
	for name, test := range map[string]struct {
		key, selector, more string
		refused             bool
	}{
		"other-nodes":    {"a", `{"matchLabels": {"role": "other"}}`, "", false},
		"narrower":       {"a", `{"matchLabels": {"role": "worker", "zone": "a"}}`, "", true},
		"another-label":  {"a", `{"matchLabels": {"zone": "a"}}`, "", true},
		"in-both":        {"a", in("In", `"third", "worker"`), "", true},
		"in-none":        {"a", in("In", `"third", "fourth"`), "", false},
		"not-in":         {"a", in("NotIn", `"worker", "other"`), "", false},
		"absent":         {"a", in("DoesNotExist", ""), "", false},
		"present":        {"a", in("Exists", ""), "", true},
		"another-key":    {"b", worker, "", false},
		"dry-run-too":    {"a", worker, `, "dryRun": true`, true},
		"beside-dry-run": {"dry", worker, "", false},
		"after-deletion": {"leaving", worker, "", false},
	} {
		failure := create(name, test.key, test.selector, test.more)
		if test.refused && !strings.Contains(failure, "rule-conflicts") {
			t.Errorf("%s is not refused: %q", name, failure)
		}
		if !test.refused && failure != "" { // the API server learns a moment later of what was deleted before
			eventually(t, name+" is not refused: "+failure, func() bool { failure = create(name, test.key, test.selector, test.more); return failure == "" })
		}
		if failure == "" { // each is tried by itself
			r.delete(t, name)
		}
	}
	if failure := create("first", "a", worker, ""); strings.Contains(failure, "rule-conflicts") && !strings.Contains(failure, "NodeReadinessRule second") || failure == "" {
		t.Errorf("a rule that is there: %q", failure)
	}
	for _, name := range []string{"first", "second"} {
		r.patch(t, name, `{"metadata": {"finalizers": ["readiness.node.x-k8s.io/cleanup-taints"]}}`)
		r.patch(t, name, `{"spec": {"dryRun": true}}`)
		r.patch(t, name, `{"spec": {"dryRun": false}}`)
	}
	r.delete(t, "first")
	r.patch(t, "first", `{"metadata": {"finalizers": null}}`)
	if _, err := r.rules.Get(t.Context(), "first", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a deleted rule stays: %v", err)
	}
}
