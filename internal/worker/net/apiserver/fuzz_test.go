package apiserver

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
)

// answering is an API server that gives every request one answer.
type answering struct {
	status int
	body   []byte
}

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(a.body))}, nil
}

// FuzzAPIServer: whatever an API server, or what answers in its place, sends, reading it comes to an end, and an error has a message.
func FuzzAPIServer(f *testing.F) {
	for _, seed := range []string{`{"type":"BOOKMARK","object":{}}` + "\n" + `{"type":"ADDED","object":{}}`, `{"items":[{"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true}}],"ports":[{"port":1}]}]}`,
		`{"kind":"Status","message":"\ud800"}`, `{"metadata":{"continue":"x"}}`, "<html>", "null"} {
		f.Add(200, []byte(seed))
		f.Add(503, []byte(seed))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		c := &Client{Host: "a", Port: "1", Token: func() (string, error) { return "t", nil }, http: &http.Client{Transport: answering{100 + max(status, -status)%500, body}}}
		ctx := t.Context() // without a deadline there is no retry
		_, err := c.Watch(ctx, "/")
		errs := []error{err}
		var object json.RawMessage
		errs = append(errs, c.get(ctx, isRefusal, "/", &object))
		_, err = c.Service(ctx, "n", "s")
		errs = append(errs, err)
		for _, err := range errs {
			if err != nil && err.Error() == "" {
				t.Errorf("%T without a message", err)
			}
		}
	})
}

// FuzzKubeconfig: whatever a kubeconfig holds, it is refused or makes a client of an https server.
func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte("current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: k, cluster: {server: 'https://[::1]/x/'}}]\nusers: [{name: u, user: {token: t}}]"))
	f.Add([]byte("current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: k, cluster: {server: 'https://a:b', certificate-authority-data: eA==}}]\nusers: [{name: u, user: {client-certificate-data: eA==, client-key-data: eA==}}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var k kubeconfig
		if yaml.Unmarshal(data, &k) == nil {
			for _, u := range k.Users {
				if u.User.Exec != nil || u.User.TokenFile != "" || u.User.Cert != "" || u.User.Key != "" {
					return // it would run a program, or read a file
				}
			}
			for _, c := range k.Clusters {
				if c.Cluster.CA != "" {
					return // it would read a file
				}
			}
		}
		c, err := parseKubeconfig(data, "/none", &resolver.Resolver{})
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a message")
			}
			return
		}
		if c.Host == "" || c.Port == "" {
			t.Errorf("%q", c.Address())
		}
		if _, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.URL(c.Host, "/version"), nil); err != nil {
			t.Error(err)
		}
	})
}
