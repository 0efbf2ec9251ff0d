package reporter

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// With a reporter's token one may do what it was granted, review oneself as every account may, and nothing else.
func TestTheTokenAllowsNoMore(t *testing.T) {
	s := begin(t, patchStatus)
	token, err := os.ReadFile(filepath.Join(s.account, "token"))
	s.must(token, err)
	config := rest.AnonymousClientConfig(control.Config())
	config.BearerToken = string(token)
	for _, namespace := range []string{"default", "kube-system"} {
		review, err := kubernetes.NewForConfigOrDie(config).AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}, metav1.CreateOptions{})
		s.must(review, err)
		granted := 0
		for _, rule := range review.Status.ResourceRules {
			switch {
			case slices.Equal(rule.Verbs, patchStatus.Verbs) && slices.Equal(rule.Resources, patchStatus.Resources) && slices.Equal(rule.APIGroups, patchStatus.APIGroups):
				granted++
			case slices.Equal(rule.Verbs, []string{"create"}) && !slices.ContainsFunc(rule.APIGroups, func(group string) bool {
				return group != "authentication.k8s.io" && group != "authorization.k8s.io"
			}): // system:basic-user
			default:
				t.Errorf("in %s it may %+v", namespace, rule)
			}
		}
		if granted != 1 {
			t.Errorf("in %s what was granted is listed %d times", namespace, granted)
		}
		for _, rule := range review.Status.NonResourceRules {
			if !slices.Equal(rule.Verbs, []string{"get"}) {
				t.Errorf("in %s it may %+v", namespace, rule)
			}
		}
	}
}
