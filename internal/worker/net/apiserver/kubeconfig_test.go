package apiserver_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

const contexts = `
apiVersion: v1
kind: Config
current-context: here
contexts:
  - {name: there, context: {cluster: other, user: other}}
  - {name: here, context: {cluster: c, user: u}}
`

func TestKubeconfig(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	server := tlstest.Serve(t, authority.Issue(t, tlstest.Certificate{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer t0ken" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if !strings.HasPrefix(r.URL.Path, "/k8s/api/v1/") {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = fmt.Fprint(w, `{"spec":{"clusterIP":"10.96.0.1"}}`)
	}))
	dir := t.TempDir()
	for name, content := range map[string]string{"ca.crt": authority.PEM(), "token": "t0ken\n", "plugin": "#!/bin/sh\necho '{\"status\":{\"token\":\"'$A'\"}}'\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ca := base64.StdEncoding.EncodeToString([]byte(authority.PEM()))
	cluster := "clusters:\n  - {name: c, cluster: {server: " + server.URL + "/k8s/, certificate-authority-data: " + ca + "}}\n"
	for _, c := range []struct{ name, yaml, fails string }{
		{"token and CA in the file", contexts + cluster + "users: [{name: u, user: {token: t0ken}}]", ""},
		{"token and CA in files beside it", contexts + "clusters: [{name: c, cluster: {server: '" + server.URL + "/k8s', certificate-authority: ca.crt}}]\nusers: [{name: u, user: {tokenFile: token}}]", ""},
		{"a credential plugin", contexts + cluster + "users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, env: [{name: A, value: t0ken}]}}}]", ""},
		{"a plugin without a token", contexts + cluster + "users: [{name: u, user: {exec: {command: ./plugin}}}]", "it returned no token"},
		{"a plugin that is not there", contexts + cluster + "users: [{name: u, user: {exec: {command: ./none}}}]", "credential plugin ./none"},
		{"no such context", "current-context: gone\n" + cluster, `no cluster for the current context "gone"`},
		{"no such user", contexts + cluster + "users: [{name: other, user: {token: t0ken}}]", `no user "u", which the current context "here" names`},
		{"a context without a user", strings.ReplaceAll(contexts, ", user: u", "") + cluster, "401"},
		{"nothing", "", "no cluster for the current context"},
		{"no YAML", "\t", "yaml"},
		{"unverified", contexts + "clusters: [{name: c, cluster: {server: 'https://a', insecure-skip-tls-verify: true}}]", "would prove nothing"},
		{"plain HTTP", contexts + "clusters: [{name: c, cluster: {server: 'http://a'}}]", "not an https URL"},
		{"a CA that is none", contexts + "clusters: [{name: c, cluster: {server: 'https://a', certificate-authority-data: eA==}}]", "holds no PEM certificate"},
		{"half a certificate", contexts + cluster + "users: [{name: u, user: {client-certificate: ca.crt}}]", "tls"},
	} {
		path := filepath.Join(dir, "config")
		if err := os.WriteFile(path, []byte(c.yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		api, err := apiserver.FromKubeconfig(path, &resolver.Resolver{})
		if err == nil {
			_, err = api.Service(context.Background(), "default", "kubernetes")
		}
		if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.fails)
		}
	}
}
