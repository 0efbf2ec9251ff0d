// Package clienthello is an HTTP transport for paths that lose a large TLS ClientHello.
//
// With a key share of ML-KEM (X25519MLKEM768) a ClientHello takes two packets of an ordinary link. Some firewalls and
// servers read only the first: they drop the handshake, reset or close the connection, or answer with an alert, as in
// kubernetes-sigs/aws-load-balancer-controller#4167. A program that offers no ML-KEM works there, so that the fault is
// a warning and no failure.
package clienthello

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
)

const (
	// longest is how long a handshake may take before one with a small ClientHello is tried. It is shorter than
	// retry.Lost, so that the request is not repeated before.
	longest = 2 * time.Second
	// padding makes a request as large as a large ClientHello: it shows that the path loses no large packets.
	padding       = 2048
	paddingHeader = "X-Padding"
)

// SmallKeyShares returns the key exchanges whose key shares fit one packet together with the rest of a ClientHello.
func SmallKeyShares() []tls.CurveID {
	return []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521}
}

// Transport sends a request, and sends it once more, with a small ClientHello, if a TLS handshake was lost.
type Transport struct {
	large, small *http.Transport
	// lost is why large ClientHellos are not sent any more; nil until one was lost and a small one answered.
	lost atomic.Pointer[loss]
}

// loss is how a large ClientHello was lost.
type loss struct {
	reason check.Reason
	phrase string
}

// New makes a Transport from one that is not in use yet.
func New(t *http.Transport) *Transport {
	small := t.Clone()
	if small.TLSClientConfig == nil {
		small.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	small.TLSClientConfig.CurvePreferences = SmallKeyShares()
	small.TLSClientConfig.DynamicRecordSizingDisabled = true // it would keep the first packets below a full one
	t.TLSHandshakeTimeout = longest
	return &Transport{large: t, small: small}
}

// CloseIdleConnections closes the connections that no request uses.
func (t *Transport) CloseIdleConnections() {
	t.large.CloseIdleConnections()
	t.small.CloseIdleConnections()
}

// RoundTrip sends the request. A response to a small ClientHello is recorded as a warning of the context's check.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if known := t.lost.Load(); known != nil {
		return t.withSmall(request, known)
	}
	var handshake atomic.Bool // one failed
	trace := &httptrace.ClientTrace{TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
		if err != nil {
			handshake.Store(true)
		}
	}}
	response, err := t.large.RoundTrip(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
	if err == nil || !handshake.Load() || request.Context().Err() != nil {
		return response, err
	}
	reason, phrase := neterror.Of(err)
	if reason != check.ReasonTimeout && reason != check.ReasonConnectionReset && !neterror.IsAlert(err) {
		return nil, err
	}
	again := request.Clone(request.Context())
	if request.GetBody != nil {
		var bodyErr error
		if again.Body, bodyErr = request.GetBody(); bodyErr != nil {
			return nil, bodyErr
		}
	}
	response, smallErr := t.withSmall(again, &loss{reason, phrase})
	if neterror.IsAlert(smallErr) {
		return nil, err // a server without these key exchanges
	}
	return response, smallErr
}

// withSmall sends the request with a small ClientHello. Its first packet after the handshake is a large one.
func (t *Transport) withSmall(request *http.Request, why *loss) (*http.Response, error) {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	padded := request.Clone(httptrace.WithClientTrace(request.Context(), trace))
	padded.Header.Set(paddingHeader, strings.Repeat("x", padding))
	response, err := t.small.RoundTrip(padded)
	switch {
	case err == nil:
		t.lost.Store(why)
		retry.Warn(request.Context(), why.reason, fmt.Sprintf("%s %s when the TLS ClientHello took two packets "+
			"(ML-KEM, as of Go 1.24, OpenSSL 3.5 and browsers), and answered one in a single packet",
			request.URL.Host, why.phrase))
	case connected.Load() && neterror.IsTimeout(err):
		text := "answered a small TLS ClientHello, but neither a large one nor a large request: large packets are " +
			"probably lost on the path (a check of type mtu shows it)"
		return nil, &neterror.Error{Code: check.ReasonTimeout, Text: text}
	}
	return response, err
}
