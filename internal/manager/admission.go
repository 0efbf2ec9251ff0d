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
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/webhook"
)

// newWebhook is the webhook that this replica serves, with its certificates; nil where nodes are tainted otherwise or not at all, and
// in a dry run, which taints none. rc is not held to leadership: every replica serves, and any may renew the certificates.
func newWebhook(cfg *config.Config, rc *rest.Config, namespace string, o Options) (*webhook.Server, *webhook.Rotation, error) {
	mode, err := admissionMode(cfg.Admission.Mode, rc)
	if err != nil || mode != config.AdmissionWebhook || o.DryRun {
		return nil, nil, err
	}
	settings := cfg.Admission.Webhook
	from := webhook.Source{Dir: settings.CertificateDir}
	if from.Dir == "" {
		direct, err := client.New(rc, client.Options{Scheme: scheme.Scheme})
		if err != nil {
			return nil, nil, err
		}
		lifetime := settings.CertificateLifetime.Duration
		from.Rotation = &webhook.Rotation{
			Rules:     webhook.Rules{Host: fmt.Sprintf("%s.%s.svc", settings.Name, namespace), Lifetime: lifetime},
			Namespace: namespace, Name: settings.Name, Overlap: min(lifetime/10, webhook.MaxOverlap), Client: direct, Now: time.Now,
		}
	}
	return webhook.NewServer(&webhook.Tainter{Config: cfg}, int(settings.Port), from), from.Rotation, nil
}

// admissionMode decides "auto", which the chart otherwise does: by what the API server serves.
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
		return "", fmt.Errorf("find out whether there are MutatingAdmissionPolicies, for admission.mode auto: %w", err)
	}
	for _, r := range served.APIResources {
		if r.Name == "mutatingadmissionpolicies" {
			return config.AdmissionPolicy, nil
		}
	}
	return config.AdmissionWebhook, nil
}

// watchCertificates adds to the cache the two objects that the rotation watches, and no other of their kinds.
func watchCertificates(o *cache.Options, r *webhook.Rotation) {
	one := fields.OneTermEqualSelector(metav1.ObjectNameField, r.Name)
	o.ByObject[&corev1.Secret{}] = cache.ByObject{Namespaces: map[string]cache.Config{r.Namespace: {FieldSelector: one}}}
	o.ByObject[&admissionregistrationv1.MutatingWebhookConfiguration{}] = cache.ByObject{Field: one}
}

// addWebhook has the manager look after the certificates and be ready only when the webhook is.
func addWebhook(mgr ctrl.Manager, s *webhook.Server, r *webhook.Rotation) error {
	var err error
	if r != nil {
		err = r.Setup(mgr, mgr.GetCache())
	}
	return errors.Join(err, mgr.AddReadyzCheck("webhook", s.Ready))
}
