package clock_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/clock"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/test/servers/apitest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

func TestSkew(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	dated := func(date string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", date)
			w.WriteHeader(http.StatusForbidden)
		}
	}
	at := func(ahead time.Duration) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				w.WriteHeader(http.StatusInternalServerError) // no token is sent to a server whose certificate may be expired
				return
			}
			dated(time.Now().Add(ahead).UTC().Format(http.TimeFormat))(w, r)
		}
	}
	for _, c := range []struct {
		name        string
		handler     http.Handler
		certificate tlstest.Certificate
		settings    *clock.Settings
		reason      check.Reason
		says        string
	}{
		{name: "in step", handler: at(0), says: "ahead of the API server"},
		{name: "behind by what whole seconds cannot show", handler: at(5 * time.Second)},
		{name: "ahead by what whole seconds cannot show", handler: at(-5 * time.Second)},
		{name: "behind", handler: at(time.Minute), reason: check.ReasonClockSkew, says: "behind the API server"},
		{name: "ahead", handler: at(-time.Minute), reason: check.ReasonClockSkew, says: "ahead of the API server"},
		{name: "allowed", handler: at(time.Minute), settings: &clock.Settings{MaxSkewSeconds: new(int32(61))}},
		{name: "not allowed", handler: at(4 * time.Second), settings: &clock.Settings{MaxSkewSeconds: new(int32(2))}, reason: check.ReasonClockSkew, says: "at most 2s are allowed"},
		{name: "so far off that TLS would fail", handler: at(48 * time.Hour), certificate: tlstest.Certificate{NotBefore: time.Now().Add(24 * time.Hour), NotAfter: time.Now().Add(72 * time.Hour)},
			reason: check.ReasonClockSkew, says: "behind"},
		{name: "another server", handler: at(0), certificate: tlstest.Certificate{OtherName: true}, reason: check.ReasonCertificateName},
		{name: "no date", handler: dated("yesterday"), reason: check.ReasonNoDate, says: "no usable Date"},
	} {
		t.Run(c.name, func(t *testing.T) {
			api := apitest.Client(t, authority, authority.Issue(t, c.certificate), c.handler)
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			f := c.settings.New(environment.Pod{API: api})(ctx)
			if f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
				t.Errorf("got %q: %q, want %q with %q", f.Reason, f.Message, c.reason, c.says)
			}
		})
	}
}
