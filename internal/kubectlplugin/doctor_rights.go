package kubectlplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kube-node-ready/kube-node-ready/internal/rights"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// account is the service account of what verifies nodes. In DaemonSet mode there may be no pod; the DaemonSet says it.
func (v *invocation) account(ctx context.Context, h head) (namespace, name string, err error) {
	if c := v.cluster; c.component == componentDaemonSet {
		of := labels.Set{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: c.component}.String()
		list, err := c.client.AppsV1().DaemonSets(c.controllerNamespace).List(ctx, metav1.ListOptions{LabelSelector: of})
		if err != nil || len(list.Items) == 0 {
			return "", "", errors.Join(err, errors.New("no DaemonSet says which service account verifies nodes"))
		}
		return list.Items[0].Namespace, list.Items[0].Spec.Template.Spec.ServiceAccountName, nil
	}
	if h.unlisted != nil {
		return "", "", h.unlisted
	}
	if len(h.pods) == 0 {
		return "", "", errors.New("no pod of the controller says which service account it has")
	}
	return h.pods[0].Namespace, h.pods[0].Spec.ServiceAccountName, nil
}

// examineRights asks the API server's authorizer what our service accounts may: whoever asks needs the right to create
// SubjectAccessReviews, as cluster administrators have.
func examineRights(ctx context.Context, v *invocation, d *diagnosis) error {
	namespace, account, err := v.account(ctx, d.head)
	if err != nil {
		return err
	}
	cfg := v.cluster.config
	checks := rights.Worker(cfg, namespace, false)
	if v.cluster.component == componentDaemonSet {
		return v.examineAccount(ctx, d, namespace, account, append(rights.DaemonSet(cfg), checks...))
	}
	if err := v.examineAccount(ctx, d, namespace, account, rights.Controller(cfg, namespace, d.head.DryRun)); err != nil {
		return err
	}
	return v.examineAccount(ctx, d, cmp.Or(cfg.Worker.Namespace, namespace), cfg.Worker.ServiceAccountName, checks)
}

func (v *invocation) examineAccount(ctx context.Context, d *diagnosis, namespace, account string,
	needed []rights.Right) error {
	asked := map[string]bool{}
	for _, r := range needed {
		if r.Guessed {
			continue // the node on which it is refused says so
		}
		var lacking []string
		for _, verb := range r.Verbs {
			if asked[verb+r.String()] {
				continue
			}
			asked[verb+r.String()] = true
			resource, subresource, _ := strings.Cut(r.Resource, "/")
			review, err := v.cluster.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:   "system:serviceaccount:" + namespace + ":" + account,
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: r.Namespace, Verb: verb, Group: r.Group, Version: "*",
					Resource: resource, Subresource: subresource, Name: r.Name},
			}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			if !review.Status.Allowed {
				lacking = append(lacking, verb)
			}
		}
		if len(lacking) > 0 {
			slices.Sort(lacking)
			d.found("rights", fmt.Sprintf("service account %s/%s may not %s %s", namespace, account, strings.Join(lacking, ", "), r),
				"helm upgrade the release, which makes the roles that the configuration needs; with controller.rbac.create=false grant it (docs/security.md)")
		}
	}
	return nil
}
