package chart

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/webhook"
)

const (
	policyAPI  = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
	policyKey  = "MutatingAdmissionPolicy kube-node-ready-taint"
	bindingKey = "MutatingAdmissionPolicyBinding kube-node-ready-taint"
	// Those of the taints of rules.
	rulePolicyKey  = "MutatingAdmissionPolicy kube-node-ready-rule-taints"
	ruleBindingKey = "MutatingAdmissionPolicyBinding kube-node-ready-rule-taints"
	hookKey        = "MutatingWebhookConfiguration kube-node-ready-webhook"
	hookSecret     = "Secret kube-node-ready/kube-node-ready-webhook"
	hookPort       = "Service kube-node-ready/kube-node-ready-webhook"
)

// Each mode has its objects and no others, and the controller is told what was decided.
func TestAdmissionModes(t *testing.T) {
	policies := []string{policyKey, bindingKey, rulePolicyKey, ruleBindingKey}
	all := []string{policyKey, bindingKey, rulePolicyKey, ruleBindingKey, hookKey, hookSecret, hookPort}
	for name, test := range map[string]struct {
		values string
		args   []string
		mode   config.AdmissionMode
		want   []string
	}{
		"default":                {"", []string{"--api-versions", policyAPI}, config.AdmissionOff, nil},
		"off, as YAML 1.1":       {"controller: {config: {admission: {mode: off}}}", nil, config.AdmissionOff, nil},
		"policy":                 {"controller: {config: {admission: {mode: policy}}}", nil, config.AdmissionPolicy, policies},
		"policy without rules":   {"controller: {config: {admission: {mode: policy}, rules: {enabled: false}}}", nil, config.AdmissionPolicy, []string{policyKey, bindingKey}},
		"webhook":                {"controller: {config: {admission: {mode: webhook}}}", []string{"--api-versions", policyAPI}, config.AdmissionWebhook, []string{hookKey, hookSecret, hookPort}},
		"auto, served":           {"controller: {config: {admission: {mode: auto}}}", []string{"--api-versions", policyAPI}, config.AdmissionPolicy, policies},
		"auto, nobody was asked": {"controller: {config: {admission: {mode: auto}}}", nil, config.AdmissionWebhook, []string{hookKey, hookSecret, hookPort}},
		"a dry run":              {"controller: {dryRun: true, config: {admission: {mode: webhook}}}", nil, config.AdmissionOff, nil},
		"no section":             {"controller: {config: {admission: null}}", nil, config.AdmissionOff, nil},
	} {
		t.Run(name, func(t *testing.T) {
			found := render(t, test.values, test.args...)
			for _, key := range all {
				if _, is := found[key]; is != slices.Contains(test.want, key) {
					t.Errorf("%s: rendered %v", key, is)
				}
			}
			read, err := config.Parse([]byte(file(t, found)), "config.yaml")
			if err != nil {
				t.Fatal(err)
			}
			if read.Admission.Mode != test.mode {
				t.Errorf("the controller reads mode %s", read.Admission.Mode)
			}
		})
	}
}

// Policy and webhook leave out the nodes that the controller leaves out: their lists of labels are the controller's.
func TestLabelsOfNodesThatAreLeftOut(t *testing.T) {
	var virtual [][]string
	for _, l := range marks.VirtualLabels() {
		virtual = append(virtual, []string{l.Key, l.Value})
	}
	lists := map[string]any{"not-a-control-plane": marks.ControlPlaneLabels(), "not-virtual": virtual}

	conditions := slices.Concat(
		get[admissionregistrationv1.MutatingWebhookConfiguration](t, render(t, "controller: {config: {admission: {mode: webhook}}}"), hookKey).Webhooks[0].MatchConditions,
		get[admissionregistrationv1.MutatingAdmissionPolicy](t, render(t, "controller: {config: {admission: {mode: policy}}}"), policyKey).Spec.MatchConditions)
	found := 0
	for _, c := range conditions {
		labels, ok := lists[c.Name]
		if !ok {
			continue
		}
		found++
		want, err := json.Marshal(labels)
		if err != nil {
			t.Fatal(err)
		}
		if list, _, _ := strings.Cut(strings.TrimPrefix(c.Expression, "!"), ".exists("); list != string(want) {
			t.Errorf("%s: %s, want the labels %s", c.Name, c.Expression, want)
		}
	}
	if found != 4 {
		t.Errorf("%d conditions, want two of the webhook and two of the policy", found)
	}
}

// The webhook's objects agree with each other and with the controller.
func TestWebhookObjects(t *testing.T) {
	const values = "controller: {config: {admission: {mode: webhook, webhook: {port: 9999}}, nodeManagement: {nodeSelector: {matchLabels: {a: b}}}}}\nnetworkPolicy: {enabled: true}"
	found := render(t, values)
	hook := get[admissionregistrationv1.MutatingWebhookConfiguration](t, found, hookKey).Webhooks[0]
	if *hook.FailurePolicy != admissionregistrationv1.Ignore || *hook.TimeoutSeconds != 5 || *hook.SideEffects != admissionregistrationv1.SideEffectClassNone {
		t.Errorf("failurePolicy %s, timeout %d s, side effects %s", *hook.FailurePolicy, *hook.TimeoutSeconds, *hook.SideEffects)
	}
	if len(hook.Rules) != 1 || !slices.Equal(hook.Rules[0].Operations, []admissionregistrationv1.OperationType{admissionregistrationv1.Create}) ||
		!slices.Equal(hook.Rules[0].Resources, []string{"nodes"}) {
		t.Errorf("it is called for %+v", hook.Rules)
	}
	var conditions []string
	for _, c := range hook.MatchConditions {
		conditions = append(conditions, c.Name)
	}
	want := []string{"not-a-control-plane", "not-of-an-aks-system-pool", "linux", "not-virtual", "not-opted-out", "selected"}
	if !slices.Equal(conditions, want) {
		t.Errorf("matchConditions %q", conditions)
	}
	service := get[corev1.Service](t, found, hookPort)
	if to := hook.ClientConfig.Service; to.Name != service.Name || to.Namespace != service.Namespace || *to.Port != service.Spec.Ports[0].Port || *to.Path != webhook.Path {
		t.Errorf("it calls %+v, the Service is %s", to, service.Name)
	}
	ports := deployment(t, found).Spec.Template.Spec.Containers[0].Ports
	if i := slices.IndexFunc(ports, func(p corev1.ContainerPort) bool { return p.Name == service.Spec.Ports[0].TargetPort.StrVal }); i < 0 || ports[i].ContainerPort != 9999 {
		t.Errorf("the Service leads to %v, the pod has %v", service.Spec.Ports[0].TargetPort, ports)
	}
	policy := get[networkingv1.NetworkPolicy](t, found, "NetworkPolicy kube-node-ready/kube-node-ready-controller")
	if !slices.ContainsFunc(policy.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
		return len(r.From) == 0 && r.Ports[0].Port.StrVal == "webhook"
	}) {
		t.Errorf("the NetworkPolicy lets nobody in: %+v", policy.Spec.Ingress)
	}
	if read := parsed(t, values); read.Admission.Webhook.Name != service.Name {
		t.Errorf("the controller looks for %s", read.Admission.Webhook.Name)
	}
}

// The taints of rules have a policy and a webhook of their own, which keep no node out and which other settings do not reach.
func TestRulesApartFromTheGate(t *testing.T) {
	const strict = "controller: {config: {admission: {mode: %s, webhook: {failurePolicy: Fail}}, nodeManagement: {nodeSelector: {matchLabels: {a: b}}}}}"
	found := render(t, fmt.Sprintf(strict, "policy"))
	policy := get[admissionregistrationv1.MutatingAdmissionPolicy](t, found, rulePolicyKey).Spec
	if *policy.FailurePolicy != admissionregistrationv1.Ignore || *policy.ParamKind != (admissionregistrationv1.ParamKind{APIVersion: "readiness.node.x-k8s.io/v1alpha1", Kind: "NodeReadinessRule"}) {
		t.Errorf("failurePolicy %s, paramKind %v", *policy.FailurePolicy, policy.ParamKind)
	}
	ref := get[admissionregistrationv1.MutatingAdmissionPolicyBinding](t, found, ruleBindingKey).Spec.ParamRef
	if ref == nil || ref.Selector == nil || len(ref.Selector.MatchLabels)+len(ref.Selector.MatchExpressions) > 0 || *ref.ParameterNotFoundAction != admissionregistrationv1.AllowAction {
		t.Errorf("paramRef %+v", ref)
	}
	if gate := get[admissionregistrationv1.MutatingAdmissionPolicy](t, found, policyKey).Spec; gate.ParamKind != nil {
		t.Errorf("the gating taints depend on %v", gate.ParamKind)
	}
	hooks := get[admissionregistrationv1.MutatingWebhookConfiguration](t, render(t, fmt.Sprintf(strict, "webhook")), hookKey).Webhooks
	if len(hooks) != 2 || *hooks[0].FailurePolicy != admissionregistrationv1.Fail || *hooks[1].FailurePolicy != admissionregistrationv1.Ignore ||
		*hooks[1].ClientConfig.Service.Path != webhook.RulesPath || len(hooks[1].MatchConditions) > 0 {
		t.Errorf("%+v", hooks)
	}
	without := get[admissionregistrationv1.MutatingWebhookConfiguration](t, render(t, "controller: {config: {rules: {enabled: false}, admission: {mode: webhook}}}"), hookKey).Webhooks
	if len(without) != 1 {
		t.Errorf("without rules: %+v", without)
	}
}

// With cert-manager the controller has no certificate of its own.
func TestCertManager(t *testing.T) {
	const certificate = "Certificate kube-node-ready/kube-node-ready-webhook"
	const values = "controller: {config: {admission: {mode: webhook}}}\nwebhook: {certManager: {enabled: true}}"
	found := render(t, values)
	for key, want := range map[string]bool{certificate: true, "Issuer kube-node-ready/kube-node-ready-webhook": true, "Certificate kube-node-ready/kube-node-ready-webhook-ca": true, hookSecret: false} {
		if _, is := found[key]; is != want {
			t.Errorf("%s: rendered %v", key, is)
		}
	}
	if from := found[hookKey].GetAnnotations()["cert-manager.io/inject-ca-from"]; from != "kube-node-ready/kube-node-ready-webhook" {
		t.Errorf("the authority is from %q", from)
	}
	pod := get[appsv1.Deployment](t, found, deploymentKey).Spec.Template.Spec
	dir := parsed(t, values).Admission.Webhook.CertificateDir
	if !slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == dir && m.Name == "webhook-certificate" }) ||
		!slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
			return v.Secret != nil && v.Secret.SecretName == at(found[certificate].Object, "spec", "secretName")
		}) {
		t.Errorf("nothing is mounted at %s: %+v", dir, pod.Volumes)
	}
	found = render(t, values+"\n# yours\n", "--set", "webhook.certManager.issuerRef.kind=ClusterIssuer", "--set", "webhook.certManager.issuerRef.name=mine")
	if _, is := found["Issuer kube-node-ready/kube-node-ready-webhook"]; is || at(found[certificate].Object, "spec", "issuerRef", "name") != "mine" {
		t.Errorf("issuer %v", at(found[certificate].Object, "spec", "issuerRef"))
	}
}

// A certificate that another program renews needs an authority that the API server trusts, and nothing of the
// controller's own.
func TestCertificateOfAnotherProgram(t *testing.T) {
	const values = "controller: {config: {admission: {mode: webhook, webhook: {certificateDir: /certs}}}}\n"
	const trusted = "webhook: {caBundle: UEVN}\n"
	found := render(t, values+trusted)
	if _, is := found[hookSecret]; is {
		t.Error("a Secret is rendered that nobody reads")
	}
	hooks := get[admissionregistrationv1.MutatingWebhookConfiguration](t, found, hookKey).Webhooks
	if len(hooks) != 2 || string(hooks[0].ClientConfig.CABundle) != "PEM" || string(hooks[1].ClientConfig.CABundle) != "PEM" {
		t.Errorf("the API server does not trust it: %+v", hooks)
	}
	const unused = "webhook.caBundle has no effect"
	for values, want := range map[string]string{
		values: "set webhook.caBundle to the authority of its certificate, or set webhook.certManager.enabled to true",
		"controller: {config: {admission: {mode: webhook}}}\n" + trusted:   unused,
		values + "webhook: {caBundle: UEVN, certManager: {enabled: true}}": unused,
		values + `webhook: {caBundle: "-----BEGIN CERTIFICATE-----"}`:      "caBundle",
	} {
		if _, failure := template(t, values); !strings.Contains(failure, want) {
			t.Errorf("%s: %q, want %q", values, failure, want)
		}
	}
}
