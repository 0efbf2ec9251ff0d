package http

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

// proxyError is a proxy that did not open a tunnel.
type proxyError struct {
	proxy  string
	status int
}

func (e *proxyError) Error() string {
	return fmt.Sprintf("was not reached: the proxy %s answered CONNECT with status %d %s",
		e.proxy, e.status, http.StatusText(e.status))
}

// Reason of the failure.
func (e *proxyError) Reason() check.Reason { return check.ReasonUnexpectedStatus }

// useProxy sends the transport's requests through the proxy that the settings name; the environment names none.
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
		if response.StatusCode != http.StatusOK {
			return &proxyError{p.Proxy, response.StatusCode}
		}
		return nil
	}
	return nil
}

// through is what a message adds to a URL that is requested through a proxy.
func (p request) through() string {
	if p.Proxy == "" {
		return ""
	}
	return " through the proxy " + p.Proxy
}

// validateProxy takes what messages may show: no user, and nothing that a proxy is not asked.
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
