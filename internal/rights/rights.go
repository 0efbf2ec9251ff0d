// Package rights lists the permissions that the service accounts need for a configuration. It is the only list. The
// command kubectl node-ready doctor checks it against the API server, and test installations get it. The chart's roles
// and the tables in docs/design/security.md are equal to it.
package rights

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/peers"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/servicediscovery"
)

// Right is some verbs on one resource, as a rule of a role grants them.
type Right struct {
	// Namespace that it is for; empty for the whole cluster.
	Namespace string
	// GroupResource may name a subresource, as nodes/status.
	schema.GroupResource
	// Name of the one object that it is for; empty for all.
	Name  string
	Verbs []string
	// Why it is needed, in the words of docs/design/security.md.
	Why string
	// Guessed: a custom resource may have another plural, and a cluster another of the names of the DNS Service.
	Guessed bool
}

// String is the resource, and where it is.
func (r Right) String() string {
	s := r.GroupResource.String()
	if r.Name != "" {
		s += " " + r.Name
	}
	if r.Namespace != "" {
		return s + " in " + r.Namespace
	}
	return s + " in the cluster"
}

const cluster = ""

func may(verbs, resource, namespace, why string) Right {
	of := schema.ParseGroupResource(resource)
	return Right{Namespace: namespace, GroupResource: of, Verbs: strings.Fields(verbs), Why: why}
}

func (r Right) named(name string) Right {
	r.Name = name
	return r
}

func (r Right) guessed(is bool) Right {
	r.Guessed = is
	return r
}

// Controller is what the controller in the namespace may do, with --dry-run or without.
func Controller(cfg *config.Config, namespace string, dryRun bool) []Right {
	all := []Right{
		may("get list watch", "nodes", cluster, "to see nodes. get reads a node afresh before a worker is created or "+
			"something is deleted. list also counts unhealthy nodes before a deletion"),
		may("patch", "nodes", cluster, "taints, label and record, in one patch. RBAC cannot limit it to fields"),
		may("patch", "nodes/status", cluster, condition+", and conditions that ask a repairer to act on a node"),
		may("list", "nodepools.karpenter.sh", cluster, "to report a gating taint that `startupTaints` does not list"),
		may("get list watch create patch delete", "pods", cmp.Or(cfg.Worker.Namespace, namespace),
			"the worker pods; patch marks an ended pod that is kept for its log"),
		may("list", "events", cmp.Or(cfg.Worker.Namespace, namespace),
			"the last Warning event of a worker pod that does not start"),
		may("get", "configmaps", namespace, remediations).named(ledger.Name),
		may("create", "events.events.k8s.io", metav1.NamespaceDefault, "events on Nodes are in this namespace"),
	}
	for _, k := range owner.Kinds() {
		if k.Name != owner.Node {
			all = append(all, may("list watch", k.Resource.GroupResource().String(), cluster,
				"no worker starts on a node whose "+k.Name+" is being deleted; a deletion finds the node's "+k.Name))
		}
	}
	if e := cfg.LeaderElection; *e.Enabled {
		const why = "leader election. RBAC cannot limit create to a name"
		where := cmp.Or(e.Namespace, namespace)
		all = append(all, may("create", "leases.coordination.k8s.io", where, why),
			may("get update", "leases.coordination.k8s.io", where, why).named(e.ID))
	}
	if *cfg.Rules.Enabled {
		all = append(all,
			may("get list watch patch", "nodereadinessrules.readiness.node.x-k8s.io", cluster,
				"the rules; patch adds and removes the finalizer"),
			may("patch", "nodereadinessrules/status.readiness.node.x-k8s.io", cluster, "their status"),
			may("list watch", "leases.coordination.k8s.io", cluster,
				"to stand back while the node-readiness-controller runs in one of `rules.otherControllerNamespaces`, which "+
					"need not exist").named(rule.NRCLease))
	}
	if a := cfg.Admission; a.Mode == config.AdmissionWebhook && a.Webhook.CertificateDir == "" && !dryRun {
		all = append(all,
			may("get list watch patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io", cluster,
				"to keep its `caBundle` current. RBAC cannot limit it to that field").named(a.Webhook.Name),
			may("get list watch update", "secrets", namespace, "the certificate that the replicas share. The chart creates "+
				"the empty Secret, so create is not needed").named(a.Webhook.Name))
	}
	if m := cfg.Metrics; *m.Enabled && m.Secure {
		all = append(all, may("create", "tokenreviews.authentication.k8s.io", cluster, "to authenticate a scraper by its "+
			"token"),
			may("create", "subjectaccessreviews.authorization.k8s.io", cluster, "to find out whether that user may get "+
				"`/metrics`"))
	}
	if n := cfg.NodeManagement; n.DeleteFailedNodes {
		all = append(all, may("list", "pods", cluster, "to see whether ordinary pods run on the node"))
		if !n.Remediation.DryRun && !dryRun {
			for _, k := range owner.Kinds() {
				if n.Remediation.Action != config.ActionDelete {
					break
				}
				if k.Name == owner.Node {
					all = append(all, may("delete", "nodes", cluster, "the deletion of a node that no other object owns"))
				} else {
					all = append(all, may("delete", k.Resource.GroupResource().String(), cluster, "the deletion of a node's "+k.Name))
				}
			}
			all = append(all, may("create", "configmaps", namespace, remediations),
				may("update", "configmaps", namespace, remediations).named(ledger.Name))
		}
	}
	evicts := func(t marks.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }
	if slices.ContainsFunc(cfg.GatingTaints(), evicts) {
		all = append(all, may("list", "pods", cluster, "to see whether ordinary pods run on a node before it is tainted; "+
			"without this right, the taint is added with effect `NoSchedule`"))
	}
	if cfg.Admission.Backfill && !dryRun {
		all = append(all, may("list", "pods", cluster, "to see whether ordinary pods run on a node that admission missed; "+
			"without this right, no such node is tainted"))
	}
	return append(all, prerequisites(cfg)...)
}

const remediations = "the ledger of remediations. The chart creates it; create is for a ledger that somebody deleted." +
	" Then no action is taken for an hour"

const condition = "the condition `node-ready/Verified`"

// DaemonSet is what the DaemonSet's account may do in DaemonSet mode, beside what Worker lists.
func DaemonSet(cfg *config.Config) []Right {
	return append([]Right{
		may("get watch patch", "nodes", cluster, "its own node; RBAC cannot limit it to one name"),
		may("patch", "nodes/status", cluster, condition),
	}, prerequisites(cfg)...)
}

// prerequisites are read by informers, or in DaemonSet mode by the process on the node.
func prerequisites(cfg *config.Config) (all []Right) {
	for _, v := range cfg.Variants() {
		for _, p := range v.Prerequisites.All() {
			for _, s := range p.Sources {
				namespace := s.Namespace
				if s.Anywhere {
					namespace = cluster
				}
				custom := s.Object == nil // its plural is guessed
				all = append(all, may("list watch", s.Resource().GroupResource().String(), namespace, s.Why).guessed(custom))
			}
		}
	}
	return all
}

// Worker is what the checks of workers read, beside what every service account may. A namespace that only OpenShift has
// is left out elsewhere.
func Worker(cfg *config.Config, namespace string, openShift bool) (all []Right) {
	services := slices.DeleteFunc(slices.Clone(dns.Services), func(s string) bool {
		return !openShift && strings.HasPrefix(s, "openshift-")
	})
	for _, v := range cfg.Variants() {
		for _, c := range (worker.Config{Checks: v.Checks}).Expand() {
			switch s := c.Settings().(type) {
			case *servicediscovery.Settings:
				const why = "to compare a Service with DNS. EndpointSlices have generated names"
				s = cmp.Or(s, &servicediscovery.Settings{})
				where := cmp.Or(s.Namespace, metav1.NamespaceDefault)
				all = append(all, may("get", "services", where, why).named(cmp.Or(s.Service, "kubernetes")),
					may("list", "endpointslices.discovery.k8s.io", where, why))
			case *dns.Settings:
				if !s.NeedsAPI() {
					continue
				}
				const why = "to find the DNS servers, by the names that distributions give their Service"
				of, guessed := []string{s.Service}, s.Service == ""
				if guessed {
					of = services
				}
				for _, service := range of {
					where, name, _ := strings.Cut(service, "/")
					if guessed || s.Resolver == dns.ResolverService {
						all = append(all, may("get", "services", where, why).named(name).guessed(guessed))
					}
					if s.Resolver == dns.ResolverEndpoints {
						all = append(all, may("list", "endpointslices.discovery.k8s.io", where, why).guessed(guessed))
					}
				}
			case *peers.Settings:
				const why = "to choose peers"
				where := cmp.Or(s.Namespace, cfg.Worker.Namespace, namespace)
				if s.Service != "" {
					all = append(all, may("list", "endpointslices.discovery.k8s.io", where, why))
				}
				if s.Selector != "" {
					all = append(all, may("list", "pods", where, why))
				}
			}
		}
	}
	return all
}
