package admission

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/test/admission/cases"
)

// Helm decides "auto" by what the API server serves, says what it came to, replaces one mode by the other, and leaves alone what the
// controller writes.
func TestHelmDecides(t *testing.T) {
	const name, hook = "decided", "decided-kube-node-ready-webhook"
	helm := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), path(t, "helm"), append(args, "--kubeconfig", control.Kubeconfig(), "--namespace", name)...).CombinedOutput()
		if err != nil {
			t.Fatalf("helm %s: %v: %s", args[0], err, out)
		}
		return string(out)
	}
	release := func(verb, mode string) string {
		t.Helper()
		args := []string{verb, name, chart, "--disable-openapi-validation",
			"--set", "controller.replicas=0,rules.installCRD=false,controller.config.admission.mode=" + mode}
		if verb == "install" {
			args = append(args, "--create-namespace")
		}
		return helm(args...)
	}
	if out := release("install", "auto"); !strings.Contains(out, "A MutatingAdmissionPolicy inside the API server taints nodes on creation") {
		t.Errorf("the notes do not say what auto came to:\n%s", out)
	}
	plain := cases.Groups[0].Cases[0]
	comesOut := func(count int) {
		t.Helper()
		eventually(t, fmt.Sprintf("nodes come out with %d taints", count), func() error {
			got, err := create(t.Context(), plain.Node("decided"), true)
			if err == nil && len(got) != count {
				err = fmt.Errorf("one came out with %q", got)
			}
			return err
		})
	}
	comesOut(1)
	if out := release("upgrade", "webhook"); !strings.Contains(out, "A webhook that every replica serves taints nodes on creation") {
		t.Errorf("the notes do not say that there is a webhook:\n%s", out)
	}
	if _, err := k8s.AdmissionregistrationV1().MutatingAdmissionPolicies().Get(t.Context(), "decided-kube-node-ready-taint", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the policy is still there: %v", err)
	}
	comesOut(0) // nobody serves

	secrets, hooks := k8s.CoreV1().Secrets(name), k8s.AdmissionregistrationV1().MutatingWebhookConfigurations()
	secret, err := secrets.Get(t.Context(), hook, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret.Data = map[string][]byte{corev1.TLSCertKey: []byte("c"), "ca.crt": []byte("ca")}
	if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	bundle := control.CA()
	written, err := hooks.Get(t.Context(), hook, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	written.Webhooks[0].ClientConfig.CABundle = bundle
	if _, err := hooks.Update(t.Context(), written, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	helm("upgrade", name, chart, "--reuse-values", "--disable-openapi-validation",
		"--set", "controller.config.admission.webhook.failurePolicy=Fail")
	secret, err = secrets.Get(t.Context(), hook, metav1.GetOptions{})
	if err != nil || string(secret.Data[corev1.TLSCertKey]) != "c" {
		t.Errorf("Helm took the certificate away: %v (%v)", secret.Data, err)
	}
	written, err = hooks.Get(t.Context(), hook, metav1.GetOptions{})
	if err != nil || !bytes.Equal(written.Webhooks[0].ClientConfig.CABundle, bundle) || *written.Webhooks[0].FailurePolicy != "Fail" {
		t.Errorf("Helm took the authority away, or did not change the failure policy (%v)", err)
	}
	helm("uninstall", name)
	for _, err := range []error{
		second(secrets.Get(t.Context(), hook, metav1.GetOptions{})), second(hooks.Get(t.Context(), hook, metav1.GetOptions{})),
	} {
		if !apierrors.IsNotFound(err) {
			t.Errorf("after its removal: %v", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
