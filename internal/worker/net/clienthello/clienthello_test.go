package clienthello_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/clienthello"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
	"github.com/kube-node-ready/kube-node-ready/test/servers/hellotest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// TestMain fails if a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// post sends a body twice over a transport of its own, and describes what a check would report of that.
func post(t *testing.T, url string, timeout time.Duration) (check.Finding, error) {
	t.Helper()
	transport := clienthello.New(&http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}})
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	ctx, record := retry.WithRecord(ctx)
	for range 2 {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("the body"))
		if err != nil {
			t.Fatal(err)
		}
		response, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			return check.Finding{}, err
		}
		body, err := io.ReadAll(response.Body)
		if _ = response.Body.Close(); err != nil || string(body) != "the body" {
			t.Errorf("got %q, %v", body, err)
		}
	}
	return record.Describe(check.Pass("answered")), nil
}

func echo(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }

func TestALargeClientHelloIsLost(t *testing.T) {
	var requests atomic.Int64
	count := func(w http.ResponseWriter, r *http.Request) { requests.Add(1); echo(w, r) }
	server := tlstest.Serve(t, tlstest.NewAuthority(t).Issue(t, tlstest.Certificate{}), http.HandlerFunc(count))
	for _, c := range []struct {
		way    hellotest.Way
		reason check.Reason
		says   string
	}{
		{hellotest.Drops, check.ReasonTimeout, "did not answer in time"},
		{hellotest.Halves, check.ReasonTimeout, "did not answer in time"},
		{hellotest.Resets, check.ReasonConnectionReset, "reset the connection"},
		{hellotest.Closes, check.ReasonConnectionReset, "closed the connection"},
		{hellotest.Alerts, check.ReasonTLSFailed, "ended the TLS handshake"},
	} {
		address := hellotest.Front(t, c.way, server.Listener.Addr().String())
		began, before := time.Now(), requests.Load()
		f, err := post(t, "https://"+address, 10*time.Second)
		if err != nil {
			t.Errorf("%s: %v", c.way, err)
			continue
		}
		if f.Outcome != check.Warned || f.Reason != c.reason || !strings.Contains(f.Message, address+" "+c.says) ||
			strings.Count(f.Message, "ML-KEM") != 1 {
			t.Errorf("%s: got %d, %q: %s", c.way, f.Outcome, f.Reason, f.Message)
		}
		if n, took := requests.Load()-before, time.Since(began); n != 2 || took > 3500*time.Millisecond {
			t.Errorf("%s: %d requests in %s", c.way, n, took)
		}
	}
}

// What is lost whatever the ClientHello is like stays lost. A path that loses every large packet is this node's fault:
// a small handshake alone does not pass there.
func TestWhatIsLostInAnyCase(t *testing.T) {
	server := tlstest.Serve(t, tlstest.NewAuthority(t).Issue(t, tlstest.Certificate{}), http.HandlerFunc(echo))
	plain := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(plain.Close)
	modern := tlstest.Serve(t, tlstest.NewAuthority(t).Issue(t, tlstest.Certificate{}), http.HandlerFunc(echo),
		tls.X25519MLKEM768)
	for _, c := range []struct {
		name, url string
		reason    check.Reason
		says      string
	}{
		{"large packets vanish", "https://" + hellotest.Front(t, hellotest.Vanish, server.Listener.Addr().String()),
			check.ReasonTimeout, "large packets are probably lost"},
		{"a server that speaks no TLS", strings.Replace(plain.URL, "http:", "https:", 1), check.ReasonTLSFailed, "plain HTTP"},
		{"a server with ML-KEM alone, behind a reset",
			"https://" + hellotest.Front(t, hellotest.Resets, modern.Listener.Addr().String()), check.ReasonConnectionReset, "reset"},
		{"nothing listens", "https://127.0.0.1:1", check.ReasonConnectionRefused, "refused"},
	} {
		_, err := post(t, c.url, 4*time.Second)
		if reason, text := neterror.Of(err); err == nil || reason != c.reason || !strings.Contains(text, c.says) {
			t.Errorf("%s: got %q: %s", c.name, reason, text)
		}
	}
}

// A handshake that works leaves no warning, nor does a request without TLS.
func TestNothingIsLost(t *testing.T) {
	server := tlstest.Serve(t, tlstest.NewAuthority(t).Issue(t, tlstest.Certificate{}), http.HandlerFunc(echo))
	plain := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(plain.Close)
	for _, url := range []string{server.URL, plain.URL} {
		if f, err := post(t, url, 4*time.Second); err != nil || f.Outcome != check.Passed || f.Message != "answered" {
			t.Errorf("%s: got %+v, %v", url, f, err)
		}
	}
}
