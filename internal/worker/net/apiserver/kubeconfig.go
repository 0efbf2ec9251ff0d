package apiserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/input"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
)

// kubeconfig holds the fields that are read of a kubeconfig file
// (https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/). Package clientcmd, which reads all of it, imports
// client-go's REST client.
type kubeconfig struct {
	CurrentContext string `yaml:"current-context"`
	Contexts       []struct {
		Name    string
		Context struct{ Cluster, User string }
	}
	Clusters []struct {
		Name    string
		Cluster struct {
			Server     string
			CA         string `yaml:"certificate-authority"`
			CAData     string `yaml:"certificate-authority-data"`
			Insecure   bool   `yaml:"insecure-skip-tls-verify"`
			ServerName string `yaml:"tls-server-name"`
		}
	}
	Users []struct {
		Name string
		User kubeUser
	}
}

// user is the user of the name; nil for none.
func (k *kubeconfig) user(name string) *kubeUser {
	for i := range k.Users {
		if k.Users[i].Name == name {
			return &k.Users[i].User
		}
	}
	return nil
}

type kubeUser struct {
	Token     string
	TokenFile string `yaml:"tokenFile"`
	Cert      string `yaml:"client-certificate"`
	CertData  string `yaml:"client-certificate-data"`
	Key       string `yaml:"client-key"`
	KeyData   string `yaml:"client-key-data"`
	Exec      *struct {
		APIVersion string `yaml:"apiVersion"`
		Command    string
		Args       []string
		Env        []struct{ Name, Value string }
	}
}

// pluginTimeout limits a credential plugin; some call a cloud provider.
const pluginTimeout = 20 * time.Second

// FromKubeconfig makes a client for a dry run from the current context of a kubeconfig file. It makes no connection to
// the API server.
func FromKubeconfig(path string, r *resolver.Resolver) (*Client, error) {
	data, err := input.ReadFile(path, maxFile)
	if err != nil {
		return nil, err
	}
	c, err := parseKubeconfig(data, filepath.Dir(path), r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func parseKubeconfig(data []byte, dir string, r *resolver.Resolver) (*Client, error) {
	var k kubeconfig
	if err := yaml.Unmarshal(data, &k); err != nil {
		return nil, err
	}
	var cluster, user string
	for _, entry := range k.Contexts {
		if entry.Name == k.CurrentContext {
			cluster, user = entry.Context.Cluster, entry.Context.User
		}
	}
	for i := range k.Clusters {
		settings := &k.Clusters[i].Cluster
		if k.Clusters[i].Name != cluster || cluster == "" {
			continue
		}
		server, err := url.Parse(settings.Server)
		switch {
		case err != nil || server.Scheme != "https" || server.Hostname() == "":
			return nil, fmt.Errorf("cluster %s: its server is not an https URL", cluster)
		case settings.Insecure:
			return nil, fmt.Errorf("cluster %s: insecure-skip-tls-verify is set, so the checks would prove nothing", cluster)
		}
		c := &Client{Host: server.Hostname(), Port: cmp.Or(server.Port(), "443"),
			prefix: strings.TrimSuffix(server.Path, "/"), serverName: settings.ServerName, resolver: r}
		ca, err := inlineOrFile(settings.CAData, settings.CA, dir)
		if err != nil {
			return nil, err
		}
		if len(ca) > 0 {
			c.roots = x509.NewCertPool()
			if !c.roots.AppendCertsFromPEM(ca) {
				return nil, fmt.Errorf("cluster %s: its certificate authority holds no PEM certificate", cluster)
			}
		}
		credentials := k.user(user)
		if credentials == nil && user != "" {
			return nil, fmt.Errorf("there is no user %q, which the current context %q names", user, k.CurrentContext)
		}
		err = c.authenticate(ptr.Deref(credentials, kubeUser{}), dir)
		c.http = c.HTTP()
		return c, err
	}
	return nil, fmt.Errorf("there is no cluster for the current context %q", k.CurrentContext)
}

// authenticate sets the user's credentials.
func (c *Client) authenticate(u kubeUser, dir string) error {
	c.Token = func() (string, error) { return u.Token, nil }
	switch {
	case u.TokenFile != "":
		c.Token = tokenFrom(absolute(u.TokenFile, dir))
	case u.Exec != nil:
		token, err := runCredentialPlugin(u, dir)
		if err != nil {
			return fmt.Errorf("credential plugin %s: %w", u.Exec.Command, err)
		}
		c.Token = func() (string, error) { return token, nil }
	}
	cert, err := inlineOrFile(u.CertData, u.Cert, dir)
	key, keyErr := inlineOrFile(u.KeyData, u.Key, dir)
	if err = errors.Join(err, keyErr); err != nil || len(cert) == 0 {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err == nil {
		c.certificates = []tls.Certificate{pair}
	}
	return err
}

// runCredentialPlugin returns the token of a credential plugin (client.authentication.k8s.io).
func runCredentialPlugin(u kubeUser, dir string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), pluginTimeout)
	defer cancel()
	command := u.Exec.Command
	if strings.ContainsRune(command, filepath.Separator) {
		command = absolute(command, dir)
	}
	cmd := exec.CommandContext(ctx, command, u.Exec.Args...)
	cmd.Env = append(os.Environ(), `KUBERNETES_EXEC_INFO={"kind":"ExecCredential","apiVersion":"`+u.Exec.APIVersion+
		`","spec":{"interactive":false}}`)
	for _, e := range u.Exec.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return "", err
	}
	var credential struct{ Status struct{ Token string } }
	if err := json.Unmarshal(out, &credential); err != nil || credential.Status.Token == "" {
		return "", errors.New("it returned no token")
	}
	return credential.Status.Token, nil
}

// inlineOrFile returns data that is inline, in base64, or in a file.
func inlineOrFile(data, path, dir string) ([]byte, error) {
	if data != "" {
		return base64.StdEncoding.DecodeString(data)
	}
	if path == "" {
		return nil, nil
	}
	return input.ReadFile(absolute(path, dir), maxFile)
}

func absolute(path, dir string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
