// Package kubernetesapi is the check type kubernetesAPI: the API server can be reached and trusted, is ready, and
// authenticates the worker as its service account.
package kubernetesapi

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
)

// The ways to the API server.
const (
	// ViaAddress is KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
	ViaAddress = "address"
	// ViaDNS is the Service's DNS name, kubernetes.default.svc.
	ViaDNS = "dns"
)

// Settings calls the API server as the worker's service account.
type Settings struct {
	// Path that must answer 200. Default /readyz.
	Path string `json:"path,omitempty" enum:"/readyz /livez /version"`
	// Via is how to reach the API server, each way separately: address
	// (KUBERNETES_SERVICE_HOST) and dns (kubernetes.default.svc). Default both.
	Via []string `json:"via,omitempty" enum:"address dns"`
	// ExpectUser is the user name that a SelfSubjectReview must return. Default: the
	// service account that the token names.
	ExpectUser string `json:"expectUser,omitempty"`
}

// NeedsAPI reports whether the Kubernetes API is called: always.
func (s *Settings) NeedsAPI() bool { return true }

// dnsName is a name that the certificate of every API server has.
const dnsName = "kubernetes.default.svc"

// New prepares the check.
func (s *Settings) New(pod environment.Pod) check.Func {
	k, api := ptr.Deref(s, Settings{}), pod.API
	k.Path = cmp.Or(k.Path, "/readyz")
	if len(k.Via) == 0 {
		k.Via = []string{ViaAddress, ViaDNS}
	}
	return func(ctx context.Context) check.Finding {
		findings := make([]check.Finding, len(k.Via))
		recovery.Each(len(k.Via), func(i int) {
			host := api.Host
			if k.Via[i] == ViaDNS {
				host = dnsName
			}
			findings[i] = call(ctx, api, host, k)
		})
		return check.All(findings)
	}
}

// call calls the API server at one host over a new connection.
func call(ctx context.Context, api *apiserver.Client, host string, k Settings) check.Finding {
	client := api.HTTP()
	defer client.CloseIdleConnections()
	server := "the API server at " + strings.TrimSuffix(strings.TrimPrefix(api.URL(host, ""), "https://"), "/")

	watched, progress := neterror.Watch(ctx)
	response, err := api.Do(watched, client, host, apiserver.Request{Method: http.MethodGet, Path: k.Path})
	if err != nil {
		return progress.Finding(server, err)
	}
	if response.Status != http.StatusOK {
		status := apiserver.NewStatusError(response)
		return check.Fail(status.Reason(), "%s, asked for %s, %s", server, k.Path, status)
	}
	watched, progress = neterror.Watch(ctx)
	user, err := api.WhoAmI(watched, client, host)
	if err != nil {
		return progress.Finding(server+", asked for the worker's identity,", err)
	}
	switch want := cmp.Or(k.ExpectUser, tokenUser(api)); {
	case user == "" || user == "system:anonymous":
		return check.Fail(check.ReasonUnauthorized, "%s does not recognize the worker's service account: it identifies "+
			"the worker as %q", server, user)
	case want != "" && user != want:
		return check.Fail(check.ReasonUnexpectedUser, "%s identifies the worker as %s, expected %s", server, user, want)
	}
	return check.Pass("%s answers %s and identifies the worker as %s", server, k.Path, user)
}

// tokenUser is the user in a service account's token; empty if it is another kind of token. Verifying the token is up
// to the API server.
func tokenUser(api *apiserver.Client) string {
	token, err := api.Token()
	if err != nil {
		return ""
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Subject string `json:"sub"`
	}
	if json.Unmarshal(payload, &claims) != nil || !strings.HasPrefix(claims.Subject, "system:serviceaccount:") {
		return ""
	}
	return claims.Subject
}
