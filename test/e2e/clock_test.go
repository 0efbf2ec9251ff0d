//go:build e2e

package e2e

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/realnode"
)

// skew is above what the check allows (5 s) and below what breaks certificates and tokens.
const skew = 90 * time.Second

// A node's clock is wrong. Linux has one wall clock for all its namespaces. So the test moves the API server's clock,
// for this node alone. The node's connections go to a relay which shows the API server's own certificate, and changes
// nothing but the Date of the answers.
func (s *suite) clockSkewed(ctx context.Context, t *testing.T) {
	server, err := s.cluster.ControlPlane.Relay(net.JoinHostPort(realnode.HostAddress, "0"), func(forward *httputil.ReverseProxy) http.Handler {
		forward.ModifyResponse = func(response *http.Response) error {
			date, err := http.ParseTime(response.Header.Get("Date"))
			if err == nil {
				response.Header.Set("Date", date.Add(skew).Format(http.TimeFormat))
			}
			return err
		}
		return forward
	})
	must(t, err)
	t.Cleanup(func() { _ = server.Close() })

	fault, err := s.node("node-b").Redirect(ctx, s.cluster.ControlPlane.ServiceIP(1), "443", server.Addr)
	s.broken(ctx, t, fault, err, "clock", []string{"clock"})
}
