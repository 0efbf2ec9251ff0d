package kubernetesapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/kubernetesapi"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/test/servers/apitest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

const reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

// server answers /readyz with a status and reviews with a user.
func server(status int, body, user string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == reviews {
			if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer header.") {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(w, `{"status":{"userInfo":{"username":%q}}}`, user)
			return
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body)
	})
}

func TestFailures(t *testing.T) {
	authority, other := tlstest.NewAuthority(t), tlstest.NewAuthority(t)
	now := time.Now()
	const worker = "system:serviceaccount:default:worker"
	hang := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for _, c := range []struct {
		name        string
		certificate tlstest.Certificate
		issuer      *tlstest.Authority
		handler     http.Handler
		reason      check.Reason
		says        string
	}{
		{name: "good", handler: server(200, "ok", worker), says: "identifies the worker as " + worker},
		{name: "another authority", issuer: other, handler: server(200, "ok", worker), reason: check.ReasonUntrustedAuthority, says: "not trusted here"},
		{name: "another name", certificate: tlstest.Certificate{OtherName: true}, handler: server(200, "ok", worker), reason: check.ReasonCertificateName, says: "another name"},
		{name: "expired", certificate: tlstest.Certificate{NotAfter: now.Add(-time.Hour)}, handler: server(200, "ok", worker),
			reason: check.ReasonCertificateExpired, says: "the clock is wrong"},
		{name: "not yet valid", certificate: tlstest.Certificate{NotBefore: now.Add(time.Hour)}, handler: server(200, "ok", worker),
			reason: check.ReasonCertificateNotYet, says: "the clock is probably wrong"},
		{name: "401", handler: server(401, `{"kind":"Status","message":"Unauthorized"}`, worker), reason: check.ReasonUnauthorized, says: "the service account's token is not accepted (Unauthorized)"},
		{name: "403", handler: server(403, `{"kind":"Status","message":"no"}`, worker), reason: check.ReasonForbidden, says: "lacks a permission (no)"},
		{name: "429", handler: server(429, "", worker), reason: check.ReasonTooManyRequests, says: "is overloaded"},
		{name: "500", handler: server(500, "[-]etcd failed: reason withheld\n"+strings.Repeat("x", 1000), worker), reason: check.ReasonAPIUnavailable, says: "[-]etcd failed"},
		{name: "503", handler: server(503, "", worker), reason: check.ReasonAPIUnavailable, says: "is broken"},
		{name: "a redirect", handler: http.RedirectHandler("/elsewhere", http.StatusFound), reason: check.ReasonUnexpectedAPIStatus, says: "302 Found: any node gets this answer"},
		{name: "anonymous", handler: server(200, "ok", "system:anonymous"), reason: check.ReasonUnauthorized, says: "does not recognize"},
		{name: "someone else", handler: server(200, "ok", "alice"), reason: check.ReasonUnexpectedUser, says: "identifies the worker as alice, expected " + worker},
		{name: "no answer", handler: hang, reason: check.ReasonTimeout, says: "took the request, but did not answer within"},
		{name: "a cut connection", handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), reason: check.ReasonConnectionReset, says: "closed the connection"},
		{name: "not an API server", handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "<html>") }),
			reason: check.ReasonUnexpectedBody, says: "something else than the requested object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			issuer := authority
			if c.issuer != nil {
				issuer = c.issuer
			}
			api := apitest.Client(t, authority, issuer.Issue(t, c.certificate), c.handler)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			f := (&kubernetesapi.Settings{Via: []string{kubernetesapi.ViaAddress}}).New(environment.Pod{API: api})(ctx)
			want := check.Failed
			switch c.reason {
			case check.NoReason:
				want = check.Passed
			case check.ReasonUnauthorized, check.ReasonForbidden, check.ReasonTooManyRequests, check.ReasonAPIUnavailable,
				check.ReasonUnexpectedAPIStatus:
				want = check.Inconclusive // it was reached, and might refuse any node
			}
			if f.Outcome != want {
				t.Errorf("got outcome %d, want %d", f.Outcome, want)
			}
			if f.Reason != c.reason || !strings.Contains(f.Message, c.says) || len(f.Message) > 600 {
				t.Errorf("got %q: %q, want %q with %q", f.Reason, f.Message, c.reason, c.says)
			}
		})
	}
}

// An answer of any status proves the connection, whose certificate is trusted, and any node gets that answer. It is so
// too when only the review gets it, as from a proxy that knows no such path.
func TestAnyStatusProvesTheConnection(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	certificate := authority.Issue(t, tlstest.Certificate{})
	for _, status := range []int{204, 206, 301, 304, 307, 400, 404, 405, 408, 409, 410, 415, 418, 421, 422, 431, 451} {
		for _, path := range []string{"/readyz", reviews} {
			api := apitest.Client(t, authority, certificate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == path {
					w.WriteHeader(status)
				}
			}))
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			f := (&kubernetesapi.Settings{Via: []string{kubernetesapi.ViaAddress}}).New(environment.Pod{API: api})(ctx)
			cancel()
			if f.Outcome != check.Inconclusive || f.Reason != check.ReasonUnexpectedAPIStatus || !strings.Contains(f.Message, fmt.Sprint(status)) {
				t.Errorf("%s answers %d: got %d, %q: %s", path, status, f.Outcome, f.Reason, f.Message)
			}
		}
	}
}
