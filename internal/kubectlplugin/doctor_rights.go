package kubectlplugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
)

// right is something that the controller must be allowed.
type right struct {
	namespace, group, resource, subresource, name string
	verbs                                         []string
}

func (r right) String() string {
	s := r.resource
	if r.subresource != "" {
		s += "/" + r.subresource
	}
	if r.group != "" {
		s += "." + r.group
	}
	if r.name != "" {
		s += " " + r.name
	}
	if r.namespace != "" {
		return s + " in " + r.namespace
	}
	return s + " in the cluster"
}

// rights are those that a controller of the configuration cannot do without, as docs/security.md lists them. What a prerequisite on a
// custom resource needs is left out: its plural is not known here, and the node that waits for it says so.
func rights(cfg *config.Config, namespace string) []right {
	n := cfg.NodeManagement
	workers := cfg.Worker.Namespace
	if workers == "" {
		workers = namespace
	}
	read := []string{"list", "watch"}
	all := []right{
		{resource: "nodes", verbs: []string{"get", "list", "watch", "patch"}},
		{resource: "nodes", subresource: "status", verbs: []string{"patch"}},
		{group: "karpenter.sh", resource: "nodeclaims", verbs: read},
		{group: "karpenter.sh", resource: "nodepools", verbs: []string{"list"}},
		{namespace: workers, resource: "pods", verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
		{namespace: metav1.NamespaceDefault, group: "events.k8s.io", resource: "events", verbs: []string{"create"}},
	}
	if e := cfg.LeaderElection; *e.Enabled {
		where := e.Namespace
		if where == "" {
			where = namespace
		}
		all = append(all, right{namespace: where, group: "coordination.k8s.io", resource: "leases", name: e.ID, verbs: []string{"get", "update"}})
	}
	if m := cfg.Metrics; *m.Enabled && m.Secure {
		all = append(all, right{group: "authentication.k8s.io", resource: "tokenreviews", verbs: []string{"create"}},
			right{group: "authorization.k8s.io", resource: "subjectaccessreviews", verbs: []string{"create"}})
	}
	if cfg.Admission.Backfill {
		all = append(all, right{resource: "pods", verbs: []string{"list"}})
	}
	if n.DeleteFailedNodes {
		book := right{namespace: namespace, resource: "configmaps", name: ledger.Name, verbs: []string{"get"}}
		all = append(all, right{resource: "pods", verbs: []string{"list"}})
		if !n.Remediation.DryRun {
			book.verbs = append(book.verbs, "update")
			all = append(all, right{resource: "nodes", verbs: []string{"delete"}}, right{group: "karpenter.sh", resource: "nodeclaims", verbs: []string{"delete"}})
		}
		all = append(all, book)
	}
	if *cfg.Rules.Enabled {
		all = append(all, right{group: "readiness.node.x-k8s.io", resource: "nodereadinessrules", verbs: []string{"get", "list", "watch", "patch"}},
			right{group: "readiness.node.x-k8s.io", resource: "nodereadinessrules", subresource: "status", verbs: []string{"patch"}},
			right{namespace: decide.RulesLeaseNamespace, group: "coordination.k8s.io", resource: "leases", name: decide.RulesLease, verbs: []string{"get", "update"}})
	}
	for _, p := range cfg.Variants() {
		for _, pods := range p.Prerequisites.Pods {
			all = append(all, right{namespace: pods.Namespace, resource: "pods", verbs: read})
		}
		if len(p.Prerequisites.CSINodes) > 0 {
			all = append(all, right{group: "storage.k8s.io", resource: "csinodes", verbs: read})
		}
		if len(p.Prerequisites.ResourceSlices) > 0 {
			all = append(all, right{group: "resource.k8s.io", resource: "resourceslices", verbs: read})
		}
		for _, set := range p.Prerequisites.DaemonSets.Named {
			if set.Namespace != "" {
				all = append(all, right{namespace: set.Namespace, group: "apps", resource: "daemonsets", verbs: read}, right{namespace: set.Namespace, resource: "pods", verbs: read})
			}
		}
		if p.Prerequisites.DaemonSets.Mode == config.DaemonSetsAuto {
			all = append(all, right{group: "apps", resource: "daemonsets", verbs: read}, right{resource: "pods", verbs: read})
		}
	}
	return all
}

// examineRights asks the API server's authorizer what the controller's service account may: whoever asks needs the right to create
// SubjectAccessReviews, as cluster administrators have.
func examineRights(ctx context.Context, v *invocation, d *diagnosis) error {
	pods, err := v.cluster.controllerPods(ctx)
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		return fmt.Errorf("no pod of the controller says which service account it has")
	}
	namespace, account := pods[0].Namespace, pods[0].Spec.ServiceAccountName
	asked := map[string]bool{}
	for _, r := range rights(v.cluster.config, namespace) {
		if asked[r.String()+strings.Join(r.verbs, ",")] {
			continue
		}
		asked[r.String()+strings.Join(r.verbs, ",")] = true
		var lacking []string
		for _, verb := range r.verbs {
			review, err := v.cluster.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:   "system:serviceaccount:" + namespace + ":" + account,
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: r.namespace, Verb: verb, Group: r.group, Version: "*",
					Resource: r.resource, Subresource: r.subresource, Name: r.name},
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
