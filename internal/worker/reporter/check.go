package reporter

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/input"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
)

const (
	// checkTimeout is that of the SIG's reporter.
	checkTimeout = 10 * time.Second
	// maxBody and maxHeader limit, in bytes, what is read of a response; maxShown and maxMessage what of it is written to
	// the Node.
	maxBody    = 4 << 10
	maxHeader  = 64 << 10
	maxShown   = 512
	maxMessage = 1024
	// maxCA limits the CA file; the bundles of distributions have a quarter of it.
	maxCA = 1 << 20
	// maxRedirects is net/http's own limit.
	maxRedirects = 10
)

// Reasons of the condition: the first three are those of the SIG's reporter.
const (
	reasonOK              = "EndpointOK"
	reasonNotReady        = "EndpointNotReady"
	reasonConnectionError = "EndpointConnectionError"
	reasonStopped         = "ReporterStopped"
)

// observation is the result of a check, as the condition reports it.
type observation struct {
	status          corev1.ConditionStatus
	reason, message string
}

// newObservation makes the message safe for terminals, whatever the endpoint answered.
func newObservation(status corev1.ConditionStatus, reason, format string, a ...any) observation {
	return observation{status, reason, result.Clip(result.Sanitise(fmt.Sprintf(format, a...)), maxMessage)}
}

// sameOrigin follows only redirects within the endpoint's scheme, host and port, as from /healthz to /healthz/: the
// configuration trusts no other host.
func sameOrigin(to *http.Request, via []*http.Request) error {
	if from := via[0].URL; to.URL.Scheme != from.Scheme || to.URL.Host != from.Host || len(via) > maxRedirects {
		return http.ErrUseLastResponse
	}
	return nil
}

// check sends one request to the endpoint. The status of the response decides.
func check(ctx context.Context, c Config) observation { return checkBy(ctx, c, dial) }

func checkBy(ctx context.Context, c Config, dial func(context.Context, string, string) (net.Conn, error)) observation {
	where := redacted(c.Endpoint)
	unreachable := func(err error) observation {
		return newObservation(corev1.ConditionFalse, reasonConnectionError, "Failed to reach endpoint %s: %s",
			where, describe(err))
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		var err error
		if config.RootCAs, err = roots(c.CAFile); err != nil { // read each time: CAs are rotated
			return unreachable(err)
		}
	}
	client := &http.Client{
		// A new connection per check also shows that the agent accepts connections. No proxy: the endpoint is on this node.
		Transport: &http.Transport{
			DialContext: dial, TLSClientConfig: config,
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
		},
		CheckRedirect: sameOrigin,
	}
	defer client.CloseIdleConnections() // also a TLS handshake, which net/http does not end with its request
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Endpoint.String(), nil)
	if err != nil {
		return unreachable(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return unreachable(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		return newObservation(corev1.ConditionTrue, reasonOK, "Endpoint reports ready at %s", where)
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxBody)) // a partial body is shown too
	return newObservation(corev1.ConditionFalse, reasonNotReady, "Endpoint returned non-2xx status code %d at %s: %s",
		response.StatusCode, where, result.Clip(result.Sanitise(string(body)), maxShown))
}

// dial connects to the endpoint. localhost is always the loopback addresses (RFC 6761, section 6.3).
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err == nil && strings.EqualFold(host, "localhost") {
		loopback := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
		return resolver.DialAny(ctx, net.Dialer{}, network, loopback, port)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, network, address)
}

// roots reads the certificates of a CA file.
func roots(file string) (*x509.CertPool, error) {
	bundle, err := input.ReadFile(file, maxCA)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("%s holds no PEM certificate", file)
	}
	return pool, nil
}

// describe is an error without the local port, which would change the message every time.
func describe(err error) string {
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err
	}
	var operation *net.OpError
	switch {
	case neterror.IsTimeout(err):
		return fmt.Sprintf("no answer within %v", checkTimeout)
	case errors.As(err, &operation):
		return operation.Op + ": " + operation.Err.Error()
	}
	return err.Error()
}

// redacted is a URL without user and query, which may be secret.
func redacted(u *url.URL) string {
	copied := *u
	copied.User, copied.RawQuery, copied.Fragment = nil, "", ""
	return copied.String()
}
