package apiserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
)

// ErrNoDate is returned by Date for a response without a Date header that can be read.
var ErrNoDate = errors.New("no usable Date header")

// Date reads the API server's clock from a response's Date header, and the times before
// and after it on this node's. The server must be the cluster's own, but its certificate's
// validity is not looked at, for that would ask the clock that is in doubt. No token is
// sent: the header comes with a refusal as well.
func (c *Client) Date(ctx context.Context) (date, sent, received time.Time, err error) {
	client := c.HTTP()
	transport := client.Transport.(*http.Transport)
	transport.TLSClientConfig = &tls.Config{
		RootCAs: c.roots, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection verifies all but the time
		VerifyConnection:   func(s tls.ConnectionState) error { return recovery.Try(func() error { return c.verifyTimeless(s) }) },
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL(c.Host, "/version"), nil)
	if err != nil {
		return date, sent, received, err
	}
	request.Header.Set("User-Agent", userAgent)
	// The first request sets the connection up; the second measures without that delay.
	for range 2 {
		sent = time.Now()
		response, err := client.Do(request)
		if err != nil {
			return date, sent, received, err
		}
		received = time.Now()
		if date, err = http.ParseTime(response.Header.Get("Date")); err != nil {
			_ = response.Body.Close()
			return date, sent, received, ErrNoDate
		}
		if err := drain(response); err != nil {
			return date, sent, received, err
		}
	}
	return date, sent, received, nil
}

// verifyTimeless verifies the chain and the name as of a moment at which the certificate is valid.
func (c *Client) verifyTimeless(state tls.ConnectionState) error {
	leaf := state.PeerCertificates[0]
	options := x509.VerifyOptions{Roots: c.roots, DNSName: cmp.Or(c.serverName, c.Host), Intermediates: x509.NewCertPool(), CurrentTime: leaf.NotBefore}
	for _, cert := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(cert)
	}
	_, err := leaf.Verify(options)
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		// An authority younger than the leaf's NotBefore, which is often backdated.
		options.CurrentTime = leaf.NotAfter
		_, err = leaf.Verify(options)
	}
	return err
}
