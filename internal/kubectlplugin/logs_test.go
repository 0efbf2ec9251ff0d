package kubectlplugin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A kubelet that the API server cannot get a log from is named, with what to do, and with the command that needs no
// kubelet.
func TestLogsOfAKubeletThatDoesNotAnswer(t *testing.T) {
	const get = `Get "https://10.0.0.7:10250/containerLogs/ns/p/worker": `
	for name, tc := range map[string]struct {
		code      int
		message   string
		says, not []string
	}{
		"without a serving certificate": {500, get + "remote error: tls: internal error",
			[]string{"kubectl get csr", "system:node:n", "kubectl node-ready explain n", "tls: internal error"}, nil},
		"with one of an unknown authority": {500, get + "tls: failed to verify certificate: x509: certificate signed by unknown authority",
			[]string{"kubectl get csr", "explain n"}, nil},
		"without its address in it": {500, get + "x509: cannot validate certificate for 10.0.0.7 because it doesn't contain any IP SANs", []string{"kubectl get csr"}, nil},
		"behind a firewall": {500, get + "dial tcp 10.0.0.7:10250: i/o timeout",
			[]string{"cannot reach the kubelet of node n", "explain n"}, []string{"csr"}},
		"forbidden": {403, "user may not get pods/log", []string{"may not get pods/log"}, []string{"csr", "explain"}},
	} {
		answer := func(w http.ResponseWriter, code int, o any) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(o)
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch path := r.URL.Path; {
			case path == "/api/v1/nodes/n":
				answer(w, 200, makeNode(gated))
			case strings.HasSuffix(path, "/log"):
				reason := map[int]metav1.StatusReason{500: metav1.StatusReasonInternalError, 403: metav1.StatusReasonForbidden}[tc.code]
				answer(w, tc.code, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
					Code: int32(tc.code), Reason: reason, Message: tc.message})
			default:
				answer(w, 200, corev1.PodList{Items: workers(t, 1)})
			}
		}))
		client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		v := &invocation{args: []string{"n"}, container: "worker", now: now, stream: &strings.Builder{},
			cluster: &cluster{client: client, config: configuration(t, ""), namespace: "ns"}}
		err = logs(t.Context(), v)
		server.Close()
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, want := range tc.says {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q lacks %q", name, err, want)
			}
		}
		for _, not := range tc.not {
			if strings.Contains(err.Error(), not) {
				t.Errorf("%s: %q", name, err)
			}
		}
	}
}
