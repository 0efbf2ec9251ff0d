package chart

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

const secured = `
controller:
  replicas: 0 # the controllers are local processes
  image: {tag: local}
  config: {metrics: {secure: true}}
`

// With metrics.secure every replica, the one that leads and the one that waits, serves its metrics to whom the API server lets have
// them, by the chart's rights.
func testSecureMetrics(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	installOn(t, c, secured)
	defer helmOn(t, c, "uninstall", "kube-node-ready")
	token := func(account string) string {
		t.Helper()
		if _, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		request, err := client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return request.Status.Token
	}
	stranger, prometheus := token("stranger"), token("prometheus")
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kube-node-ready-metrics-reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "prometheus"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	authority := tlstest.NewAuthority(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(authority.PEM()))
	for name, replica := range map[string]struct {
		certificate string
		trust       *tls.Config
	}{
		"its own certificate":   {"", &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec // nobody signed it
		"one that it was given": {certificateDir(t, authority.Issue(t, tlstest.Certificate{})), &tls.Config{RootCAs: roots}},
	} {
		configuration := decoded(t, render(t, secured))
		if replica.certificate != "" {
			configuration["metrics"].(map[string]any)["certificateDir"] = replica.certificate
		}
		controller, err := install.StartController(t.Context(), c, strings.ReplaceAll(name, " ", "-"), configuration)
		if err != nil {
			t.Fatal(err)
		}
		defer controller.Terminate(10 * time.Second)
		eventually(t, name+": the port is open", func() bool {
			connection, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(controller.MetricsURL, "https://"), "/metrics"))
			return err == nil && connection.Close() == nil
		})
		transport := &http.Transport{TLSClientConfig: replica.trust}
		defer transport.CloseIdleConnections()
		scrape := func(header string) (int, string) {
			t.Helper()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, controller.MetricsURL, nil)
			if err != nil {
				t.Fatal(err)
			}
			if header != "" {
				request.Header.Set("Authorization", header)
			}
			response, err := (&http.Client{Transport: transport}).Do(request)
			if err != nil {
				t.Fatal(name, err)
			}
			defer func() { _ = response.Body.Close() }()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			return response.StatusCode, string(body)
		}
		for who, test := range map[string]struct {
			header string
			want   int
		}{
			"no token":             {"", http.StatusUnauthorized},
			"an empty token":       {"Bearer ", http.StatusUnauthorized},
			"a name and password":  {"Basic YTpi", http.StatusUnauthorized},
			"a made-up token":      {"Bearer x", http.StatusUnauthorized},
			"a token of no rights": {"Bearer " + stranger, http.StatusForbidden},
			"a reader's":           {"Bearer " + prometheus, http.StatusOK},
		} {
			status, body := scrape(test.header)
			if status != test.want || strings.Contains(body, "kube_node_ready_") != (test.want == http.StatusOK) {
				t.Errorf("%s, %s: %d %.200s, want %d", name, who, status, body, test.want)
			}
		}
		plain, err := http.Get(strings.Replace(controller.MetricsURL, "https", "http", 1))
		if err == nil {
			_ = plain.Body.Close()
		}
		if err == nil && plain.StatusCode != http.StatusBadRequest {
			t.Errorf("%s, without TLS: %d", name, plain.StatusCode)
		}
	}

	missing := decoded(t, render(t, secured))
	missing["metrics"].(map[string]any)["certificateDir"] = t.TempDir()
	if _, err := install.StartController(t.Context(), c, "missing", missing); err == nil || !strings.Contains(err.Error(), "metrics.certificateDir") {
		t.Errorf("without the certificate that it was given: %v", err)
	}
}

// certificateDir is a folder with a certificate and its key.
func certificateDir(t *testing.T, certificate tls.Certificate) string {
	t.Helper()
	dir := t.TempDir()
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}, "tls.key": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The monitors ask as the metrics are served.
func TestMonitorsOfSecureMetrics(t *testing.T) {
	const secure = "controller: {config: {metrics: {secure: true}}}\n"
	endpoint := func(values, kind, list string) map[string]any {
		t.Helper()
		found := render(t, values)
		object := found[kind+" kube-node-ready/kube-node-ready-controller"]
		if object == nil {
			t.Fatalf("no %s", kind)
		}
		return at(object.Object, "spec").(map[string]any)[list].([]any)[0].(map[string]any)
	}
	plain := endpoint("serviceMonitor: {enabled: true}", "ServiceMonitor", "endpoints")
	if plain["scheme"] != nil || plain["bearerTokenFile"] != nil || plain["tlsConfig"] != nil {
		t.Errorf("plain: %v", plain)
	}
	own := endpoint(secure+"serviceMonitor: {enabled: true}", "ServiceMonitor", "endpoints")
	if own["scheme"] != "https" || at(own, "tlsConfig", "insecureSkipVerify") != true || own["bearerTokenFile"] != "/var/run/secrets/kubernetes.io/serviceaccount/token" {
		t.Errorf("secure: %v", own)
	}
	const given = "{enabled: true, tlsConfig: {serverName: a.example}, authorization: {credentials: {name: scraper, key: token}}}"
	for kind, list := range map[string]string{"ServiceMonitor": "endpoints", "PodMonitor": "podMetricsEndpoints"} {
		got := endpoint(secure+strings.ToLower(kind[:1])+kind[1:]+": "+given, kind, list)
		if got["scheme"] != "https" || at(got, "tlsConfig", "serverName") != "a.example" || at(got, "tlsConfig", "insecureSkipVerify") != nil ||
			at(got, "authorization", "credentials", "name") != "scraper" || got["bearerTokenFile"] != nil {
			t.Errorf("%s: %v", kind, got)
		}
	}
	if _, failure := template(t, secure+"podMonitor: {enabled: true}"); !strings.Contains(failure, "podMonitor.authorization") {
		t.Errorf("a PodMonitor without a token: %q", failure)
	}
	if _, failure := template(t, "deploymentMode: daemonset\n"+secure); !strings.Contains(failure, "metrics.secure") {
		t.Errorf("in DaemonSet mode: %q", failure)
	}
}
