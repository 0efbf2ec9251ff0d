package manager

import (
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/rules"
	"github.com/kube-node-ready/kube-node-ready/internal/webhook"
)

// hook is the webhook that this replica serves.
type hook struct {
	*webhook.Server
	certificates *webhook.Rotation // nil where somebody else makes them
	rules        *rules.Lister     // nil where no rules are served
}

// newWebhook creates the webhook. It is nil if nodes are tainted in another way or not at all, and in a dry run, which
// taints no node. Every replica serves the webhook and may renew its certificates, so rc is not limited to the leader.
func newWebhook(cfg *config.Config, rc *rest.Config, namespace string, o Options) (*hook, error) {
	mode, err := admissionMode(cfg.Admission.Mode, rc)
	if err != nil || mode != config.AdmissionWebhook || o.DryRun {
		return nil, err
	}
	settings := cfg.Admission.Webhook
	from := webhook.Source{Dir: settings.CertificateDir}
	if from.Dir == "" {
		direct, err := client.New(rc, client.Options{Scheme: scheme.Scheme})
		if err != nil {
			return nil, err
		}
		lifetime := settings.CertificateLifetime.Duration
		from.Rotation = &webhook.Rotation{
			Rules:     webhook.Rules{Host: fmt.Sprintf("%s.%s.svc", settings.Name, namespace), Lifetime: lifetime},
			Namespace: namespace, Name: settings.Name, Overlap: min(lifetime/10, webhook.MaxOverlap),
			Client: direct, Now: time.Now,
		}
	}
	h, tainter := &hook{certificates: from.Rotation}, &webhook.Tainter{Config: cfg}
	if *cfg.Rules.Enabled {
		untyped, err := dynamic.NewForConfig(rc)
		if err != nil {
			return nil, err
		}
		if h.rules, err = rules.NewLister(untyped, cfg.Vocabulary().Gating); err != nil {
			return nil, err
		}
		tainter.Rules = h.rules.Rules
	}
	h.Server = webhook.NewServer(tainter, int(settings.Port), from)
	return h, nil
}

// admissionMode resolves the mode "auto" by what the API server serves. The chart otherwise does that.
func admissionMode(mode config.AdmissionMode, rc *rest.Config) (config.AdmissionMode, error) {
	if mode != config.AdmissionAuto {
		return mode, nil
	}
	d, err := discovery.NewDiscoveryClientForConfig(rc)
	if err != nil {
		return "", err
	}
	served, err := d.ServerResourcesForGroupVersion(admissionregistrationv1.SchemeGroupVersion.String())
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("find out whether the API server has MutatingAdmissionPolicies, for admission.mode auto: "+
			"%w", err)
	}
	for _, r := range served.APIResources {
		if r.Name == "mutatingadmissionpolicies" {
			return config.AdmissionPolicy, nil
		}
	}
	return config.AdmissionWebhook, nil
}

// watchCertificates makes the cache hold the two objects that the rotation watches, and no others of their kinds.
func watchCertificates(o *cache.Options, r *webhook.Rotation) {
	one := fields.OneTermEqualSelector(metav1.ObjectNameField, r.Name)
	o.ByObject[&corev1.Secret{}] = cache.ByObject{Namespaces: map[string]cache.Config{r.Namespace: {FieldSelector: one}}}
	o.ByObject[&admissionregistrationv1.MutatingWebhookConfiguration{}] = cache.ByObject{Field: one}
}

// add registers the webhook's certificates and rules with the manager, and makes readiness depend on the webhook. The
// webhook does not wait for rules.
func (h *hook) add(mgr ctrl.Manager) error {
	err := mgr.AddReadyzCheck("webhook", h.Ready)
	if h.certificates != nil {
		err = errors.Join(err, h.certificates.Setup(mgr, mgr.GetCache()))
	}
	if h.rules != nil {
		err = errors.Join(err, mgr.Add(h.rules))
	}
	return err
}
