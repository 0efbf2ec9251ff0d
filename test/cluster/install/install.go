// Package install puts kube-node-ready into a test cluster without Helm and without
// containers: the chart's service accounts and rights, and controllers as local processes
// that have exactly those rights.
package install

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/rights"
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

// Rights creates the namespace, service accounts, roles and bindings that the chart makes with
// its default values.
func Rights(ctx context.Context, c *cluster.Cluster) error {
	var cfg config.Config
	cfg.SetDefaults()
	return RightsOf(ctx, c, &cfg)
}

// RightsOf is Rights for a configuration, with all defaults. The namespaces that it names must exist.
func RightsOf(ctx context.Context, c *cluster.Cluster, cfg *config.Config) error {
	var manifest []byte
	for _, o := range slices.Concat([]client.Object{
		&corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: Namespace}},
		account(ControllerAccount), account(WorkerAccount),
	}, Roles(ControllerAccount, rights.Controller(cfg, Namespace, false)), Roles(WorkerAccount, rights.Worker(cfg, Namespace, false))) {
		document, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		manifest = append(append(manifest, "---\n"...), document...)
	}
	return Apply(ctx, c, manifest)
}

func account(name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}}
}

// Roles gives a service account in Namespace its rights, by a role and a binding for each of their namespaces. A right
// without verbs is none.
func Roles(account string, all []rights.Right) (objects []client.Object) {
	rules := map[string][]rbacv1.PolicyRule{}
	for _, r := range all {
		var granted []rbacv1.PolicyRule
		if len(r.Verbs) > 0 {
			granted = []rbacv1.PolicyRule{{Verbs: r.Verbs, APIGroups: []string{r.Group}, Resources: []string{r.Resource}}}
		}
		if len(r.Verbs) > 0 && r.Name != "" {
			granted[0].ResourceNames = []string{r.Name}
		}
		rules[r.Namespace] = append(rules[r.Namespace], granted...)
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: Namespace, Name: account}}
	kind := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	of := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: account}
	}
	for _, namespace := range slices.Sorted(maps.Keys(rules)) {
		named := metav1.ObjectMeta{Namespace: namespace, Name: account}
		if namespace == "" {
			objects = append(objects, &rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: named, Rules: rules[namespace]},
				&rbacv1.ClusterRoleBinding{TypeMeta: kind("ClusterRoleBinding"), ObjectMeta: named, Subjects: subjects, RoleRef: of("ClusterRole")})
			continue
		}
		objects = append(objects, &rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: named, Rules: rules[namespace]},
			&rbacv1.RoleBinding{TypeMeta: kind("RoleBinding"), ObjectMeta: named, Subjects: subjects, RoleRef: of("Role")})
	}
	return objects
}

// Apply is kubectl apply --server-side as the cluster's administrator, who takes over what others wrote. It is done here
// and not by kubectl, which reads the schema of all that the API server serves before it sends anything.
func Apply(ctx context.Context, c *cluster.Cluster, manifest []byte) error {
	api, err := client.New(c.Config(), client.Options{})
	if err != nil {
		return err
	}
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			return err
		}
		if len(o.Object) == 0 {
			continue // comments alone
		}
		if err := apply(ctx, api, o); err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
}

func apply(ctx context.Context, api client.Client, o *unstructured.Unstructured) error {
	namespaced, err := api.IsObjectNamespaced(o)
	if err != nil {
		return err
	}
	if namespaced && o.GetNamespace() == "" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	return api.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("kubectl"), client.ForceOwnership)
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
