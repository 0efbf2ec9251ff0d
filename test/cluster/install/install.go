// Package install puts kube-node-ready into a test cluster without Helm and without
// containers: the chart's service accounts and rights, and controllers as local processes
// that have exactly those rights.
package install

import (
	"bytes"
	"context"
	_ "embed" // for the manifest
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

const (
	// Namespace of the controller and its workers.
	Namespace = "kube-node-ready"
	// ControllerAccount and WorkerAccount are the chart's service accounts.
	ControllerAccount = "kube-node-ready-controller"
	// WorkerAccount is the workers' identity.
	WorkerAccount = "kube-node-ready-worker"
	// Image is the worker's image: what Images maps and WorkerImage names in a configuration.
	Image = "ghcr.io/kube-node-ready/kube-node-ready:local"
)

// manifest is what the chart renders with its default values; a test holds it to that.
//
//go:embed rbac.yaml
var manifest []byte

// Rights creates the namespace, service accounts, roles and bindings that the chart makes with
// its default values.
func Rights(ctx context.Context, c *cluster.Cluster) error {
	return Apply(ctx, c, append([]byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+Namespace+"}\n---\n"), manifest...))
}

// Apply is kubectl apply as the cluster's administrator.
func Apply(ctx context.Context, c *cluster.Cluster, manifest []byte) error {
	cmd := exec.CommandContext(ctx, filepath.Join(c.Bin(), "kubectl"), "--kubeconfig", c.Kubeconfig(), "apply", "-f", "-")
	cmd.Stdin = bytes.NewReader(manifest)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl apply: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// Configuration is the controller's, of what the chart renders.
func Configuration(rendered []byte) (map[string]any, error) {
	for document := range strings.SplitSeq("\n"+string(rendered), "\n---\n") {
		var o struct {
			Kind string            `json:"kind"`
			Data map[string]string `json:"data"`
		}
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			return nil, err
		}
		if file, ok := o.Data["config.yaml"]; ok && o.Kind == "ConfigMap" {
			var c map[string]any
			return c, yaml.Unmarshal([]byte(file), &c)
		}
	}
	return nil, errors.New("the chart renders no configuration")
}

// Images maps Image to the worker that make build has built, for a node agent.
func Images() (map[string]nodeagent.Image, error) {
	worker, err := Binary("kube-node-ready-worker")
	if err != nil {
		return nil, err
	}
	return map[string]nodeagent.Image{Image: {workerpod.Command: worker}}, nil
}

// WorkerImage is Image as worker.image of a configuration.
func WorkerImage() map[string]any {
	repository, tag, _ := strings.Cut(Image, ":")
	return map[string]any{"repository": repository, "tag": tag}
}

// Controller is a controller process.
type Controller struct {
	*process.Process
	// MetricsURL and HealthURL are its endpoints: /metrics, and the base of /healthz and /readyz.
	MetricsURL, HealthURL string
	// LogFile has its standard error.
	LogFile string
	// ConfigFile is its configuration.
	ConfigFile string
}

// StartController starts the controller that make build has built, as the chart's service
// account, and waits until it is ready; it ends with the cluster. The configuration has the
// controller's own keys. The ports of metrics and health are replaced by free ones. Name
// tells several of them apart; starting a name again replaces its configuration.
func StartController(ctx context.Context, c *cluster.Cluster, name string, configuration map[string]any, args ...string) (*Controller, error) {
	return StartControllerIn(ctx, c, Namespace, ControllerAccount, name, configuration, args...)
}

// StartControllerIn is StartController of another installation: its namespace, and the service account of its controller.
func StartControllerIn(ctx context.Context, c *cluster.Cluster, namespace, account, name string, configuration map[string]any, args ...string) (*Controller, error) {
	program, err := Binary("kube-node-ready-controller")
	if err != nil {
		return nil, err
	}
	kubeconfig, err := c.KubeconfigFor(ctx, namespace, account)
	if err != nil {
		return nil, err
	}
	ports, err := cluster.FreePorts("127.0.0.1", 2)
	if err != nil {
		return nil, err
	}
	full := maps.Clone(configuration)
	if full == nil {
		full = map[string]any{}
	}
	for i, section := range []string{"metrics", "health"} {
		keys, _ := full[section].(map[string]any)
		if keys = maps.Clone(keys); keys == nil {
			keys = map[string]any{}
		}
		keys["port"], full[section] = ports[i], keys
	}
	content, err := yaml.Marshal(full)
	if err != nil {
		return nil, err
	}
	scheme := "http"
	if full["metrics"].(map[string]any)["secure"] == true {
		scheme = "https"
	}
	r := &Controller{
		MetricsURL: fmt.Sprintf("%s://127.0.0.1:%d/metrics", scheme, ports[0]),
		HealthURL:  fmt.Sprintf("http://127.0.0.1:%d", ports[1]),
		LogFile:    c.LogFile(name), ConfigFile: filepath.Join(c.Dir(), name+".yaml"),
	}
	if err := os.WriteFile(r.ConfigFile, content, 0o600); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(r.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	r.Process, err = c.Processes().Start(process.Spec{
		Path: program, Args: append([]string{"--config", r.ConfigFile, "--kubeconfig", kubeconfig}, args...),
		Env: []string{"POD_NAMESPACE=" + namespace, "POD_NAME=" + name}, Stdout: log, Stderr: log,
	})
	if err != nil {
		return nil, err
	}
	return r, r.awaitReady(ctx)
}

// readyTimeout bounds a controller's start, which waits for its caches.
const readyTimeout = 90 * time.Second

func (r *Controller) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, errors.New("it took too long"))
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.HealthURL+"/readyz", nil)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-r.Done():
			content, _ := os.ReadFile(r.LogFile)
			return fmt.Errorf("the controller ended with exit code %d: %s", r.ExitCode(), content)
		case <-ctx.Done():
			content, _ := os.ReadFile(r.LogFile)
			return fmt.Errorf("the controller is not ready: %w: %s", context.Cause(ctx), content)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// EnvPrograms names the environment variable with the folder of our programs, where they are not in bin: make test, race and e2e set it.
const EnvPrograms = "KUBE_NODE_READY_PROGRAMS"

// Binary is the path of a program of ours; an error says how to build it.
func Binary(name string) (string, error) {
	folder := os.Getenv(EnvPrograms)
	if folder == "" {
		root, err := cluster.ModuleRoot()
		if err != nil {
			return "", err
		}
		folder = filepath.Join(root, "bin")
	}
	path := filepath.Join(folder, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is not built: run \"make build\" (%w)", name, err)
	}
	return path, nil
}
