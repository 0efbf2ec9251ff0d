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

// finding is a problem, and how to fix it.
type finding struct {
	// Check is which of the doctor's checks found it.
	Check string `json:"check"`
	What  string `json:"what"`
	Fix   string `json:"fix,omitempty"`
}

// diagnosis is what doctor prints.
type diagnosis struct {
	Findings []finding `json:"findings"`
	// Notes are facts that an operator should know, and may accept.
	Notes []finding `json:"notes,omitempty"`
	// Passed are the checks without findings and notes.
	Passed []string `json:"passed,omitempty"`
	// Unchecked are the checks that could not run, each with the reason.
	Unchecked []string `json:"unchecked,omitempty"`

	check    string   // that runs
	overview overview // read once, for all checks but that of the installation
}

func (d *diagnosis) found(what, fix string) {
	d.Findings = append(d.Findings, finding{d.check, what, fix})
}

func (d *diagnosis) note(what, fix string) { d.Notes = append(d.Notes, finding{d.check, what, fix}) }

// examinations are the doctor's checks, in the order of their findings.
var examinations = []struct {
	name string
	run  func(context.Context, *invocation, *diagnosis) error
	// passed is what holds where nothing is wrong.
	passed string
}{
	{"installation", examineInstallation, "kube-node-ready is installed"},
	{"leader", examineLeader, "a controller is the leader, if one is needed"},
	{"versions", examineVersions, "plugin, controller and workers have the same version"},
	{"image", examineImage, "the workers run the kube-node-ready image, and write reports"},
	{"rights", examineRights, "the service accounts have the permissions that the configuration needs"},
	{"controllers", examineControllers, "no two controllers act on the same taint, or serve rules"},
	{"tolerations", examineTolerations, "the controller's pods tolerate the taints of NodeReadinessRules"},
	{"workers", examineWorkers, "every worker pod is in a namespace that its controller watches"},
	{"nodes", examineNodes, "worker pods are accepted, and fewer than half of the nodes are closed"},
	{"taints", examineEarlierTaints, "no node has a gating taint of an earlier configuration"},
	{"dns", examineDNS, "cluster DNS can run"},
	{"agents", examineAgents, "no agent can register itself, because no entry of prerequisites.daemonSets has a selector"},
	{"autoscaler", examineAutoscaler, "the autoscaler knows the gating taints"},
	{"repair", examineRepair, "no other repairer bypasses the guards, or waits for a condition that is never set"},
	{"marks", examineMarks, "nodes that pass are released, and no other writer takes back the taint or the label"},
	{"patch", examinePatch, "no policy refuses the patch that opens a gate, or adds to it"},
	{"token", examineToken, "admission policies or Pod Security limit what a stolen token allows"},
}

// examineInstallation looks for an installation. A configuration that was given stands for one.
func examineInstallation(ctx context.Context, v *invocation, d *diagnosis) error {
	maps, err := v.cluster.configMaps(ctx, *v.connection.Namespace)
	if err == nil && len(maps) == 0 && v.configPath == "" {
		where := cmp.Or(*v.connection.Namespace, "any namespace")
		d.found("no ConfigMap of a controller is in "+where+": kube-node-ready is not installed there, or not with its chart",
			"install it (README.md), or set --namespace and --config")
	}
	return err
}

// doctor finds what is set up wrong, and how to fix each.
func doctor(ctx context.Context, v *invocation) error {
	d := diagnosis{Findings: []finding{}}
	var passed []string
	for i, e := range examinations {
		d.check = e.name
		before := len(d.Findings) + len(d.Notes)
		if err := e.run(ctx, v, &d); err != nil {
			d.Unchecked = append(d.Unchecked, e.name+": "+connectionError(err).Error())
		} else if len(d.Findings)+len(d.Notes) == before {
			d.Passed, passed = append(d.Passed, e.name), append(passed, e.name+": "+e.passed)
		}
		if i > 0 {
			continue
		}
		if len(d.Findings) > 0 {
			break // nothing else can be checked
		}
		d.overview = v.overview(ctx)
	}
	switch {
	case v.structured():
		if err := v.printObject(d); err != nil {
			return err
		}
	case v.output == "name":
		for _, f := range d.Findings {
			fmt.Fprintln(&v.out, f.Check)
		}
	default:
		v.printDiagnosis(d, passed)
	}
	if n := len(d.Findings); n > 0 {
		return fmt.Errorf("%d found", n)
	}
	if n := len(d.Unchecked); n > 0 {
		return codedError{fmt.Errorf("%d of %d checks could not run", n, len(examinations)), exitUnchecked}
	}
	return nil
}

func (v *invocation) printDiagnosis(d diagnosis, passed []string) {
	list := func(all []finding, prefix string) {
		for _, f := range all {
			fmt.Fprintf(&v.out, "%s%s: %s\n", prefix, f.Check, singleLine(f.What))
			if f.Fix != "" {
				fmt.Fprintf(&v.out, "  fix: %s\n", singleLine(f.Fix))
			}
		}
	}
	list(d.Findings, "")
	list(d.Notes, "note: ")
	for _, u := range d.Unchecked {
		fmt.Fprintf(&v.out, "not checked: %s\n", singleLine(u))
	}
	for _, p := range passed {
		fmt.Fprintf(&v.out, "ok: %s\n", p)
	}
	if len(d.Findings)+len(d.Unchecked) == 0 {
		fmt.Fprintln(&v.out, "No problems found.")
	}
}

// account is the service account of the pods that verify nodes. In DaemonSet mode there may be no pod, so the DaemonSet
// is read.
func (v *invocation) account(ctx context.Context, o overview) (namespace, name string, err error) {
	if c := v.cluster; c.component == componentDaemonSet {
		of := labels.Set{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: c.component}.String()
		list, err := c.client.AppsV1().DaemonSets(c.controllerNamespace).List(ctx, metav1.ListOptions{LabelSelector: of})
		if err != nil || len(list.Items) == 0 {
			return "", "", errors.Join(err, errors.New("found no DaemonSet that names the service account for verification"))
		}
		d := list.Items[0]
		return d.Namespace, d.Spec.Template.Spec.ServiceAccountName, nil
	}
	if o.podsErr != nil {
		return "", "", o.podsErr
	}
	if len(o.pods) == 0 {
		return "", "", errors.New("found no pod of the controller that names its service account")
	}
	return o.pods[0].Namespace, o.pods[0].Spec.ServiceAccountName, nil
}

// examineRights asks the API server's authorizer what our service accounts may do. That takes the right to create
// SubjectAccessReviews, which cluster administrators have.
func examineRights(ctx context.Context, v *invocation, d *diagnosis) error {
	namespace, account, err := v.account(ctx, d.overview)
	if err != nil {
		return err
	}
	cfg := v.cluster.config
	checks := rights.Worker(cfg, namespace, false)
	if v.cluster.component == componentDaemonSet {
		return v.examineAccount(ctx, d, namespace, account, append(rights.DaemonSet(cfg), checks...))
	}
	needed := rights.Controller(cfg, namespace, d.overview.DryRun)
	if err := v.examineAccount(ctx, d, namespace, account, needed); err != nil {
		return err
	}
	return v.examineAccount(ctx, d, cmp.Or(cfg.Worker.Namespace, namespace), cfg.Worker.ServiceAccountName, checks)
}

func (v *invocation) examineAccount(ctx context.Context, d *diagnosis, namespace, account string,
	needed []rights.Right) error {
	reviewed := map[string]bool{}
	for _, r := range needed {
		if r.Guessed {
			continue // the condition of the node on which it is refused reports it
		}
		r.Verbs = slices.DeleteFunc(slices.Clone(r.Verbs), func(verb string) bool {
			before := reviewed[verb+r.String()]
			reviewed[verb+r.String()] = true
			return before
		})
		missing, err := v.missing(ctx, namespace, account, r)
		if err != nil {
			return err
		}
		if len(missing) > 0 {
			d.found(fmt.Sprintf("service account %s/%s may not %s %s", namespace, account, strings.Join(missing, ", "), r),
				"run helm upgrade, which creates the roles that the configuration needs; with controller.rbac.create=false, "+
					"grant the permission yourself (docs/design/security.md)")
		}
	}
	return nil
}

// missing are the verbs of a right that the service account does not have.
func (v *invocation) missing(ctx context.Context, namespace, account string, r rights.Right) (verbs []string,
	err error) {
	for _, verb := range r.Verbs {
		resource, subresource, _ := strings.Cut(r.Resource, "/")
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + namespace + ":" + account,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: r.Namespace, Verb: verb, Group: r.Group,
				Version: "*", Resource: resource, Subresource: subresource, Name: r.Name},
		}}
		review, err := v.cluster.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		if !review.Status.Allowed {
			verbs = append(verbs, verb)
		}
	}
	slices.Sort(verbs)
	return verbs, nil
}
