// Package http is the check type http: a URL answers with the expected status, body and certificate, and does not
// redirect elsewhere.
package http

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/input"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/clienthello"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
)

const (
	// maxBody limits what is read of a response's body.
	maxBody = 64 << 10
	// maxHeaders limits a response's headers; net/http's own limit is 10 MiB.
	maxHeaders = 64 << 10
	maxBundle  = 1 << 20 // of a CA file; those of distributions have a quarter of it
	userAgent  = "kube-node-ready-worker"
	// http11Required is the name of the error in net/http's errors.
	http11Required = "HTTP_1_1_REQUIRED"
)

// request is a check with its settings.
type request struct {
	Settings
	body     *regexp.Regexp
	resolver *resolver.Resolver
}

// New prepares the check.
func (s *Settings) New(pod environment.Pod) check.Func {
	p := request{Settings: ptr.Deref(s, Settings{}), resolver: pod.Resolver}
	p.Method = cmp.Or(p.Method, http.MethodGet)
	if p.ExpectBody != "" {
		p.body = regexp.MustCompile(p.ExpectBody)
	}
	return func(ctx context.Context) check.Finding { return retry.Finding(ctx, retry.Lost, p.run) }
}

func (p request) run(ctx context.Context) check.Finding {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	f, err := p.send(ctx, protocols)
	// The error of RFC 9113, section 7. net/http has no value for it, and does not send the request again by itself.
	if err == nil || !strings.Contains(err.Error(), http11Required) {
		return f
	}
	protocols.SetHTTP2(false)
	if f, _ = p.send(ctx, protocols); f.Passed() {
		f.Message += " over HTTP/1.1, because it refuses HTTP/2 (" + http11Required + ")"
	}
	return f
}

// send sends the request once. The error is why there was no response.
func (p request) send(ctx context.Context, protocols *http.Protocols) (check.Finding, error) {
	client, err := p.client(protocols)
	if err != nil {
		return check.Fail(check.ReasonConfiguration, "%v", err), nil
	}
	defer client.CloseIdleConnections()
	watched, progress := neterror.Watch(ctx)
	outgoing, err := http.NewRequestWithContext(watched, p.Method, p.URL, strings.NewReader(p.Body))
	if err != nil {
		return check.Fail(check.ReasonConfiguration, "%v", err), nil
	}
	outgoing.Header.Set("User-Agent", userAgent)
	for name, value := range p.Headers {
		if strings.EqualFold(name, "Host") {
			outgoing.Host = value
			continue
		}
		outgoing.Header.Set(name, value)
	}
	response, err := client.Do(outgoing)
	if err != nil {
		return p.failure(err, progress), err
	}
	defer func() { _ = response.Body.Close() }()
	f := p.evaluate(response)
	f.Message += progress.Names()
	return f, nil
}

// client makes an HTTP client with its own connections and the settings' CA.
func (p request) client(protocols *http.Protocols) (*http.Client, error) {
	config := &tls.Config{ServerName: p.ServerName, MinVersion: tls.VersionTLS12}
	bundle := []byte(p.CA)
	if p.CAFile != "" {
		var err error
		if bundle, err = input.ReadFile(p.CAFile, maxBundle); err != nil {
			return nil, fmt.Errorf("caFile: %w", err)
		}
	}
	if len(bundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(bundle) {
			return nil, errors.New("the CA bundle holds no PEM certificate")
		}
	}
	transport := &http.Transport{DialContext: p.resolver.DialContext, TLSClientConfig: config, Protocols: protocols,
		DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeaders}
	if err := p.useProxy(transport); err != nil {
		return nil, err
	}
	return &http.Client{
		Transport: clienthello.New(transport),
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			if len(via) > int(p.MaxRedirects) {
				return http.ErrUseLastResponse // evaluate reports where it leads
			}
			return nil
		},
	}, nil
}

func (p request) failure(err error, progress *neterror.Progress) check.Finding {
	where := redacted(p.URL)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		where = redacted(wrapped.URL) // where redirects led to
		err = wrapped.Err
	}
	where += p.through()
	f := progress.Finding(where, err)
	switch {
	case f.Reason != check.ReasonMalformedResponse:
	// net/http has no error values for these two. Over HTTP/2, headers far beyond the limit are a PROTOCOL_ERROR.
	case strings.Contains(err.Error(), "response header"):
		f.Message = fmt.Sprintf("%s answered with more than %d KiB of headers%s", where, maxHeaders>>10, progress.Names())
	case strings.Contains(err.Error(), "PROTOCOL_ERROR"):
		f.Message = fmt.Sprintf("%s broke the HTTP/2 protocol, or answered with more than %d KiB of headers%s",
			where, maxHeaders>>10, progress.Names())
	}
	if f.Reason == check.ReasonUntrustedAuthority && p.CA == "" && p.CAFile == "" {
		f.Message += "; to trust it, set ca or caFile to the certificate of the authority"
	}
	return f
}

// evaluate compares the response with what is expected.
func (p request) evaluate(r *http.Response) check.Finding {
	where := redacted(r.Request.URL.String()) + p.through()
	expected := slices.Contains(p.ExpectStatus, int32(r.StatusCode)) ||
		len(p.ExpectStatus) == 0 && r.StatusCode >= 200 && r.StatusCode < 300
	if !expected {
		if location := r.Header.Get("Location"); location != "" && r.StatusCode >= 300 && r.StatusCode < 400 {
			return check.Fail(check.ReasonRedirected,
				"%s redirects to %s (status %d), but maxRedirects (%d) is reached",
				where, redacted(location), r.StatusCode, p.MaxRedirects)
		}
		return check.Fail(check.ReasonUnexpectedStatus, "%s answered status %d %s, expected %s",
			where, r.StatusCode, http.StatusText(r.StatusCode), p.statuses())
	}
	if f := p.certificate(where, r.TLS, time.Now()); f != nil {
		return *f
	}
	if p.body != nil {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
		if err != nil {
			reason, phrase := neterror.Of(err)
			return check.Fail(reason, "%s, while its body was read, %s", where, phrase)
		}
		if !p.body.Match(body) {
			return check.Fail(check.ReasonUnexpectedBody, "%s answered a body of %d bytes that does not match %q",
				where, len(body), p.ExpectBody)
		}
	}
	return check.Pass("%s answered status %d", where, r.StatusCode)
}

// certificate checks how long the server's certificate remains valid.
func (p request) certificate(where string, state *tls.ConnectionState, now time.Time) *check.Finding {
	if state == nil || len(state.PeerCertificates) == 0 || p.MinCertificateValidityHours == 0 {
		return nil
	}
	left := state.PeerCertificates[0].NotAfter.Sub(now)
	if left >= time.Duration(p.MinCertificateValidityHours)*time.Hour {
		return nil
	}
	return check.Failure(check.ReasonCertificateExpiring,
		"%s has a certificate that is valid for only %s more, until %s; expected at least %d hours", where,
		left.Round(time.Minute), state.PeerCertificates[0].NotAfter.UTC().Format(time.RFC3339), p.MinCertificateValidityHours)
}

func (p request) statuses() string {
	if len(p.ExpectStatus) == 0 {
		return "200 to 299"
	}
	return strings.Trim(fmt.Sprint(p.ExpectStatus), "[]")
}

// redacted is a URL without user and query, which may be secret.
func redacted(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "the URL"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// useProxy sends the transport's requests through the proxy of the settings. It ignores the environment.
func (p request) useProxy(t *http.Transport) error {
	if p.Proxy == "" {
		return nil
	}
	proxy, err := url.Parse(p.Proxy)
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	t.Proxy = http.ProxyURL(proxy)
	t.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, response *http.Response) error {
		if status := response.StatusCode; status != http.StatusOK {
			return &neterror.Error{Code: check.ReasonUnexpectedStatus, Text: fmt.Sprintf(
				"was not reached: the proxy %s answered CONNECT with status %d %s", p.Proxy, status, http.StatusText(status))}
		}
		return nil
	}
	return nil
}

// through is the part of a message that names the proxy.
func (p request) through() string {
	if p.Proxy == "" {
		return ""
	}
	return " through the proxy " + p.Proxy
}

// validateProxy refuses a user, since messages have the URL, and the parts of a URL that a proxy does not use.
func (s *Settings) validateProxy(path *field.Path) field.ErrorList {
	if s.Proxy == "" {
		return nil
	}
	u, err := url.Parse(s.Proxy)
	switch {
	case err != nil, u.Hostname() == "", u.Scheme != "http", u.Port() == "0", u.User != nil,
		u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "":
		return field.ErrorList{field.Invalid(path, "(not shown)", "must be http://host:port, without a user or password")}
	}
	return nil
}
