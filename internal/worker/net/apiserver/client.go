// Package apiserver is the worker's client of the Kubernetes API: HTTPS with the pod's service
// account, and the few fields of the few objects that the checks read. With client-go's rest client the worker
// would be 1.3 times as large, which every new node pulls.
package apiserver

import (
	"bytes"
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
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
)

// DefaultServiceAccountDir is where the kubelet mounts a pod's service account.
const DefaultServiceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

const (
	// maxBody bounds what is read of one response; lists are read in pages that fit.
	maxBody = 4 << 20
	// maxFile bounds the token and the CA, which Secrets and ConfigMaps hold.
	maxFile = 1 << 20
	// idleTimeout closes a connection that a reporter used last a while ago: what lies between may have forgotten it.
	idleTimeout = time.Minute
	// userAgent names the worker in the API server's audit log.
	userAgent = "kube-node-ready-worker"
)

// errTooLarge is a response of more than maxBody bytes.
var errTooLarge = errors.New("it has more than 4 MiB")

// ErrNoCluster is returned by New outside a pod of a cluster.
var ErrNoCluster = errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is no pod of a cluster")

// Client calls one API server.
type Client struct {
	// Host and Port are KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
	Host string
	Port string

	token    func() (string, error)
	roots    *x509.CertPool
	resolver *resolver.Resolver
	http     *http.Client
	// Of a kubeconfig: what URLs begin with, the name in the server's certificate if it is not the
	// host, and the user's certificate.
	prefix, serverName string
	certificates       []tls.Certificate
}

// Address is the API server's host:port.
func (c *Client) Address() string { return net.JoinHostPort(c.Host, c.Port) }

// New sets a client up from a pod's environment and service account directory. Errors say
// what is missing; no connection is made.
func New(host, port, serviceAccountDir string, r *resolver.Resolver) (*Client, error) {
	if host == "" || port == "" {
		return nil, ErrNoCluster
	}
	c := &Client{
		Host: strings.Trim(host, "[]"), Port: port,
		token:    tokenFrom(filepath.Join(serviceAccountDir, "token")),
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

// Token is what a request is sent with; it is empty for a user who has a certificate instead.
func (c *Client) Token() (string, error) { return c.token() }

// tokenFrom reads a service account's token. It is read for each request, because the kubelet
// replaces bound tokens before they expire.
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

// HTTP is a client with connections of its own that trusts the cluster's CA, resolves names
// through resolv.conf, uses no proxy and follows no redirects.
func (c *Client) HTTP() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         c.resolver.DialContext,
			TLSClientConfig:     &tls.Config{RootCAs: c.roots, MinVersion: tls.VersionTLS12, ServerName: c.serverName, Certificates: c.certificates},
			MaxIdleConnsPerHost: 4,
			IdleConnTimeout:     idleTimeout,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// URL of a path at a host, which may be the address or a DNS name.
func (c *Client) URL(host, path string) string {
	return "https://" + net.JoinHostPort(host, c.Port) + c.prefix + path
}

// Response is what a request was answered with.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
	// Sent and Received are when the request was written and its response's head read.
	Sent, Received time.Time
}

// Do sends a request with the service account's token and reads the response. What is refused or lost is
// asked again, within the context's deadline. Whatever its status, a response is no error.
func (c *Client) Do(ctx context.Context, client *http.Client, method, url string, body any) (Response, error) {
	return c.do(ctx, refused, client, method, url, body)
}

func (c *Client) do(ctx context.Context, repeat again, client *http.Client, method, url string, body any) (Response, error) {
	return insist(ctx, repeat, client, func(ctx context.Context) (Response, error) {
		return c.send(ctx, client, method, url, body)
	})
}

// send sends one request.
func (c *Client) send(ctx context.Context, client *http.Client, method, url string, body any) (Response, error) {
	r := Request{Method: method}
	if body != nil {
		var err error
		if r.Body, err = json.Marshal(body); err != nil {
			return Response{}, err
		}
		r.ContentType = "application/json"
	}
	return c.exchange(ctx, client, url, r)
}

// Request is one request to the API server.
type Request struct {
	Method, Path string
	// ContentType of Body; empty where there is none.
	ContentType string
	// Header is sent besides what every request has.
	Header http.Header
	Body   []byte
}

// Send sends a request with the service account's token and reads the response. It asks once: when to ask again is up to the
// caller. Whatever its status, a response is no error.
func (c *Client) Send(ctx context.Context, r Request) (Response, error) {
	return c.exchange(ctx, c.http, c.URL(c.Host, r.Path), r)
}

// request is what is sent: with the service account's token, for JSON.
func (c *Client) request(ctx context.Context, url string, r Request) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, r.Method, url, bytes.NewReader(r.Body))
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

func (c *Client) exchange(ctx context.Context, client *http.Client, url string, r Request) (Response, error) {
	request, err := c.request(ctx, url, r)
	if err != nil {
		return Response{}, err
	}
	sent := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return Response{}, err
	}
	received := time.Now()
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err != nil {
		return Response{}, fmt.Errorf("reading the response: %w", err)
	}
	if len(data) > maxBody {
		return Response{}, &BodyError{errTooLarge}
	}
	return Response{Status: response.StatusCode, Header: response.Header, Body: data, Sent: sent, Received: received}, nil
}

// get reads the object at path into the given value. Statuses other than 200 are a *StatusError.
func (c *Client) get(ctx context.Context, repeat again, path string, into any) error {
	return c.call(ctx, repeat, c.http, http.MethodGet, c.URL(c.Host, path), nil, into)
}

// call sends a request and decodes the response.
func (c *Client) call(ctx context.Context, repeat again, client *http.Client, method, url string, body, into any) error {
	response, err := c.do(ctx, repeat, client, method, url, body)
	if err != nil {
		return err
	}
	if response.Status != http.StatusOK && response.Status != http.StatusCreated {
		return NewStatusError(response)
	}
	if err := json.Unmarshal(response.Body, into); err != nil {
		return &BodyError{err}
	}
	return nil
}

// drain reads the rest of a response, so that its connection can be used again.
func drain(response *http.Response) error {
	_, err := io.Copy(io.Discard, io.LimitReader(response.Body, maxBody))
	return errors.Join(err, response.Body.Close())
}
