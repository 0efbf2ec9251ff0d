// Package apiserver is the worker's client of the Kubernetes API: HTTPS with the pod's service account, and only the
// fields that the checks read. With client-go's REST client the worker, which every new node pulls, would be 1.3 times
// as large.
package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/input"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/clienthello"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
)

// DefaultServiceAccountDir is where the kubelet mounts a pod's service account.
const DefaultServiceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

const (
	// maxBody limits the size of a response; lists are read in pages that fit.
	maxBody = 4 << 20
	// maxFile limits the size of the token and the CA: a Secret or ConfigMap holds no more.
	maxFile = 1 << 20
	// idleTimeout closes idle connections: a NAT or load balancer on the path may have forgotten them.
	idleTimeout = time.Minute
	// userAgent names the worker in the API server's audit log.
	userAgent = "kube-node-ready-worker"
)

var (
	errTooLarge = errors.New("it has more than 4 MiB")
	// ErrNoCluster is returned by New outside a pod of a cluster.
	ErrNoCluster = errors.New(
		"KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this process does not run in a pod")
	// ErrNoDate is returned by Date for a response without a usable Date header.
	ErrNoDate = errors.New("no usable Date header")
)

// Client calls one API server.
type Client struct {
	// Host and Port are KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
	Host, Port string
	// Token returns the bearer token, which is empty for a user with a client certificate.
	Token func() (string, error)

	roots    *x509.CertPool
	resolver *resolver.Resolver
	http     *http.Client
	// From a kubeconfig: the path prefix of URLs, the name in the server's certificate if it is not the host, and the
	// client certificate.
	prefix, serverName string
	certificates       []tls.Certificate
}

// Address is the API server's host:port.
func (c *Client) Address() string { return net.JoinHostPort(c.Host, c.Port) }

// New makes a client from a pod's environment and service account directory. It makes no connection; the error names
// what is missing.
func New(host, port, serviceAccountDir string, r *resolver.Resolver) (*Client, error) {
	if host == "" || port == "" {
		return nil, ErrNoCluster
	}
	c := &Client{
		Host: strings.Trim(host, "[]"), Port: port,
		Token:    tokenFrom(filepath.Join(serviceAccountDir, "token")),
		roots:    x509.NewCertPool(),
		resolver: r,
	}
	caFile := filepath.Join(serviceAccountDir, "ca.crt")
	ca, err := input.ReadFile(caFile, maxFile)
	if err != nil {
		return nil, fmt.Errorf("the cluster's CA cannot be read: %w", err)
	}
	if !c.roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("the cluster's CA in %s holds no PEM certificate", caFile)
	}
	if _, err := c.Token(); err != nil {
		return nil, err
	}
	c.http = c.HTTP()
	return c, nil
}

// tokenFrom reads a service account's token for each request, because the kubelet rotates it.
func tokenFrom(path string) func() (string, error) {
	return func() (string, error) {
		data, err := input.ReadFile(path, maxFile)
		if err != nil {
			return "", fmt.Errorf("the service account's token cannot be read: %w", err)
		}
		token := strings.TrimSpace(string(data))
		if token == "" {
			return "", fmt.Errorf("the service account's token in %s is empty", path)
		}
		return token, nil
	}
}

// HTTP returns a new HTTP client with its own connections. It trusts the cluster's CA, resolves names through
// resolv.conf, uses no proxy and follows no redirects.
func (c *Client) HTTP() *http.Client {
	return c.client(&tls.Config{RootCAs: c.roots, MinVersion: tls.VersionTLS12, ServerName: c.serverName,
		Certificates: c.certificates})
}

func (c *Client) client(config *tls.Config) *http.Client {
	return &http.Client{
		Transport: clienthello.New(&http.Transport{
			DialContext:         c.resolver.DialContext,
			TLSClientConfig:     config,
			MaxIdleConnsPerHost: 4,
			IdleConnTimeout:     idleTimeout,
		}),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// URL of a path at a host, which may be the address or a DNS name.
func (c *Client) URL(host, path string) string {
	return "https://" + net.JoinHostPort(host, c.Port) + c.prefix + path
}

// Request is one request to the API server.
type Request struct {
	Method, Path string
	// ContentType of Body; empty without a body.
	ContentType string
	// Header is added to the headers of every request.
	Header http.Header
	Body   []byte
}

// Response is the answer to a request.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Decode decodes the body. A status other than 200 and 201 is a *StatusError, another body a *BodyError.
func (r Response) Decode(into any) error {
	if r.Status != http.StatusOK && r.Status != http.StatusCreated {
		return NewStatusError(r)
	}
	if err := json.Unmarshal(r.Body, into); err != nil {
		return &BodyError{err}
	}
	return nil
}

// Send sends a request once, with the service account's token, and reads the response. A response is no error, whatever
// its status.
func (c *Client) Send(ctx context.Context, r Request) (Response, error) {
	return c.send(ctx, c.http, c.Host, r)
}

// Do sends a request to the given host, like Send, and retries it within the context's deadline while the server
// refuses it or does not answer.
func (c *Client) Do(ctx context.Context, client *http.Client, host string, r Request) (Response, error) {
	return c.sendWithRetry(ctx, isRefusal, client, host, r)
}

// newRequest adds the headers that every request has.
func (c *Client) newRequest(ctx context.Context, host string, r Request) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, r.Method, c.URL(host, r.Path), bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	token, err := c.Token()
	if err != nil {
		return nil, err
	}
	maps.Copy(request.Header, r.Header)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", userAgent)
	if r.ContentType != "" {
		request.Header.Set("Content-Type", r.ContentType)
	}
	return request, nil
}

func (c *Client) send(ctx context.Context, client *http.Client, host string, r Request) (Response, error) {
	request, err := c.newRequest(ctx, host, r)
	if err != nil {
		return Response{}, err
	}
	response, err := client.Do(request)
	if err != nil {
		client.CloseIdleConnections() // also a TLS handshake that no request waits for any more, which has no limit
		return Response{}, err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err != nil {
		return Response{}, fmt.Errorf("reading the response: %w", err)
	}
	if len(data) > maxBody {
		return Response{}, &BodyError{errTooLarge}
	}
	return Response{Status: response.StatusCode, Header: response.Header, Body: data}, nil
}

// get reads the object at path into the given value. A status other than 200 is a *StatusError.
func (c *Client) get(ctx context.Context, retryable func(status int) bool, path string, into any) error {
	response, err := c.sendWithRetry(ctx, retryable, c.http, c.Host, Request{Method: http.MethodGet, Path: path})
	if err != nil {
		return err
	}
	return response.Decode(into)
}

// Watch sends a watch request, whose path has its query, and returns at the first change, or when the server ends the
// watch. The value changed is also true if the server no longer has the resource version at which the watch starts. The
// caller reads again in any case.
func (c *Client) Watch(ctx context.Context, path string) (changed bool, err error) {
	request, err := c.newRequest(ctx, c.Host, Request{Method: http.MethodGet, Path: path})
	if err != nil {
		return false, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return false, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, maxBody)) // without it the status still says enough
		err := NewStatusError(Response{Status: response.StatusCode, Body: body})
		return response.StatusCode == http.StatusGone, err
	}
	events := json.NewDecoder(response.Body)
	for {
		var event struct {
			Type string `json:"type"`
		}
		switch err := events.Decode(&event); {
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil:
			return false, err
		case event.Type != "BOOKMARK":
			return true, nil
		}
	}
}

// Date reads the API server's clock from a response's Date header, with this node's time before and after the request.
// It verifies the server's certificate except for its validity, which depends on the clock that is in doubt. It sends
// no token: a refusal has the header too.
func (c *Client) Date(ctx context.Context) (date, sent, received time.Time, err error) {
	client := c.client(&tls.Config{
		RootCAs: c.roots, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection verifies all but the time
		VerifyConnection: func(s tls.ConnectionState) error {
			return recovery.Try(func() error { return c.verifyIgnoringTime(s) })
		},
	})
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL(c.Host, "/version"), nil)
	if err != nil {
		return date, sent, received, err
	}
	request.Header.Set("User-Agent", userAgent)
	for range 2 { // the first request also connects; the second measures without that delay
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
		// The connection is used again only if the body was read to its end.
		_, err = io.Copy(io.Discard, io.LimitReader(response.Body, maxBody))
		if err := errors.Join(err, response.Body.Close()); err != nil {
			return date, sent, received, err
		}
	}
	return date, sent, received, nil
}

// verifyIgnoringTime verifies the chain and the name at a time at which the certificate is valid.
func (c *Client) verifyIgnoringTime(state tls.ConnectionState) error {
	leaf := state.PeerCertificates[0]
	options := x509.VerifyOptions{Roots: c.roots, DNSName: cmp.Or(c.serverName, c.Host),
		Intermediates: x509.NewCertPool(), CurrentTime: leaf.NotBefore}
	for _, cert := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(cert)
	}
	_, err := leaf.Verify(options)
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok && e.Reason == x509.Expired {
		// The authority may be younger than the leaf's NotBefore, which is often backdated.
		options.CurrentTime = leaf.NotAfter
		_, err = leaf.Verify(options)
	}
	return err
}
