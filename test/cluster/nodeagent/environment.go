package nodeagent

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

// serviceAccountPath is where the ServiceAccount admission plugin mounts the token.
const serviceAccountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// tokenSeconds is the lifetime that the admission plugin asks for.
const tokenSeconds = 3607

func (r *podRun) resolvConf() string { return filepath.Join(r.agent.podDir(r.pod), "resolv.conf") }

func (r *podRun) serviceAccountDir() string {
	return filepath.Join(r.agent.podDir(r.pod), "serviceaccount")
}

// writeResolvConf follows the pod's DNS policy. All policies but None have the node's
// resolver; the cluster's search domains come with ClusterFirst.
func writeResolvConf(pod *corev1.Pod, nameserver, path string) error {
	servers, searches, options := []string{nameserver}, []string(nil), []string(nil)
	switch pod.Spec.DNSPolicy {
	case corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet:
		svc := "svc." + cluster.ClusterDomain
		searches, options = []string{pod.Namespace + "." + svc, svc, cluster.ClusterDomain}, []string{"ndots:5"}
	case corev1.DNSNone:
		servers = nil
	}
	if config := pod.Spec.DNSConfig; config != nil {
		servers, searches = append(servers, config.Nameservers...), append(searches, config.Searches...)
		for _, o := range config.Options {
			name, _, _ := strings.Cut(o.Name, ":")
			options = slices.DeleteFunc(options, func(old string) bool { return old == name || strings.HasPrefix(old, name+":") })
			if o.Value != nil {
				name += ":" + *o.Value
			}
			options = append(options, name)
		}
	}
	var text strings.Builder
	if len(searches) > 0 {
		text.WriteString("search " + strings.Join(searches, " ") + "\n")
	}
	for _, server := range servers {
		text.WriteString("nameserver " + server + "\n")
	}
	if len(options) > 0 {
		text.WriteString("options " + strings.Join(options, " ") + "\n")
	}
	return os.WriteFile(path, []byte(text.String()), 0o644)
}

// writeServiceAccount asks for a token that is bound to the pod, where the pod mounts one.
func (r *podRun) writeServiceAccount() error {
	if !slices.ContainsFunc(r.pod.Spec.Volumes, serviceAccountVolume) {
		return nil
	}
	token, err := r.agent.client.CoreV1().ServiceAccounts(r.pod.Namespace).CreateToken(r.stopping, r.pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: ptr.To[int64](tokenSeconds),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: r.pod.Name, UID: r.pod.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("request a token of service account %q: %w", r.pod.Spec.ServiceAccountName, err)
	}
	dir := r.serviceAccountDir()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, content := range map[string]string{"token": token.Status.Token, "ca.crt": string(r.agent.cluster.CA()), "namespace": r.pod.Namespace} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// environment is the container's environment as the kubelet makes it, plus the variables that
// stand for mounts. An error is for the container's status.
func (c *container) environment() ([]string, error) {
	r := c.run
	env := map[string]string{
		"PATH":     "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOSTNAME": r.pod.Name,
	}
	services, err := r.serviceEnvironment()
	if err != nil {
		return nil, err
	}
	maps.Copy(env, services)
	for _, from := range c.spec.EnvFrom {
		if from.ConfigMapRef == nil {
			return nil, fmt.Errorf("envFrom: the node agent reads config maps only")
		}
		data, err := r.configMap(from.ConfigMapRef.Name, deref(from.ConfigMapRef.Optional))
		if err != nil {
			return nil, err
		}
		for key, value := range data {
			env[from.Prefix+key] = value
		}
	}
	for _, v := range c.spec.Env {
		value := expand(v.Value, list(env))
		if v.ValueFrom != nil {
			if value, err = c.run.valueFrom(v.ValueFrom); err != nil {
				return nil, fmt.Errorf("env %s: %w", v.Name, err)
			}
		}
		env[v.Name] = value
	}
	env[EnvServiceAccountDir] = filepath.Join(r.agent.podDir(r.pod), "no-serviceaccount")
	for _, m := range c.spec.VolumeMounts {
		if m.MountPath == serviceAccountPath {
			env[EnvServiceAccountDir] = r.serviceAccountDir()
		}
	}
	env[EnvResolvConf] = r.resolvConf()
	env[EnvTerminationLog] = c.terminationLog()
	return list(env), nil
}

// serviceEnvironment has the variables of the Services of the pod's namespace and always those
// of the API server, with its real address where no local process could reach its ClusterIP.
func (r *podRun) serviceEnvironment() (map[string]string, error) {
	env := map[string]string{}
	add := func(s *corev1.Service) {
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone || len(s.Spec.Ports) == 0 {
			return
		}
		prefix := strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_")) + "_SERVICE_"
		env[prefix+"HOST"] = s.Spec.ClusterIP
		env[prefix+"PORT"] = strconv.Itoa(int(s.Spec.Ports[0].Port))
		for _, port := range s.Spec.Ports {
			if port.Name != "" {
				env[prefix+"PORT_"+strings.ToUpper(strings.ReplaceAll(port.Name, "-", "_"))] = strconv.Itoa(int(port.Port))
			}
		}
	}
	if deref(r.pod.Spec.EnableServiceLinks) {
		services, err := r.agent.services.Services(r.pod.Namespace).List(labels.Everything())
		if err != nil {
			return nil, err
		}
		for _, s := range services {
			add(s)
		}
	}
	kubernetes, err := r.agent.services.Services(metav1.NamespaceDefault).Get("kubernetes")
	if err != nil {
		return nil, err
	}
	add(kubernetes)
	if ip := net.ParseIP(env["KUBERNETES_SERVICE_HOST"]); !ip.IsLoopback() {
		env["KUBERNETES_SERVICE_HOST"] = r.agent.cluster.Host()
		env["KUBERNETES_SERVICE_PORT"] = strconv.Itoa(r.agent.cluster.Port())
		env["KUBERNETES_SERVICE_PORT_HTTPS"] = env["KUBERNETES_SERVICE_PORT"]
	}
	return env, nil
}

func (r *podRun) configMap(name string, optional bool) (map[string]string, error) {
	object, err := r.agent.client.CoreV1().ConfigMaps(r.pod.Namespace).Get(r.stopping, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return object.Data, nil
}

func (r *podRun) valueFrom(from *corev1.EnvVarSource) (string, error) {
	switch {
	case from.FieldRef != nil:
		return r.field(from.FieldRef.FieldPath)
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		data, err := r.configMap(ref.Name, deref(ref.Optional))
		if err != nil {
			return "", err
		}
		value, ok := data[ref.Key]
		if !ok && !deref(ref.Optional) {
			return "", fmt.Errorf("couldn't find key %s in ConfigMap %s/%s", ref.Key, r.pod.Namespace, ref.Name)
		}
		return value, nil
	default:
		return "", fmt.Errorf("the node agent reads fieldRef and configMapKeyRef only")
	}
}

var keyed = regexp.MustCompile(`^metadata\.(labels|annotations)\['(.+)'\]$`)

// field is the downward API.
func (r *podRun) field(path string) (string, error) {
	pod := r.pod
	if m := keyed.FindStringSubmatch(path); m != nil {
		if m[1] == "labels" {
			return pod.Labels[m[2]], nil
		}
		return pod.Annotations[m[2]], nil
	}
	value, ok := map[string]string{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "metadata.uid": string(pod.UID),
		"spec.nodeName": pod.Spec.NodeName, "spec.serviceAccountName": pod.Spec.ServiceAccountName,
		"status.hostIP": r.node.IP, "status.hostIPs": r.node.IP, "status.podIP": r.node.IP, "status.podIPs": r.node.IP,
	}[path]
	if !ok {
		return "", fmt.Errorf("unsupported fieldPath: %s", path)
	}
	return value, nil
}

var reference = regexp.MustCompile(`\$\$|\$\([^)]*\)`)

// expand replaces $(NAME) by a variable that exists; $$ is an escaped dollar.
func expand(text string, env []string) string {
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		name := found[2 : len(found)-1]
		for _, entry := range env {
			if value, ok := strings.CutPrefix(entry, name+"="); ok {
				return value
			}
		}
		return found
	})
}

func list(env map[string]string) []string {
	entries := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		entries = append(entries, name+"="+env[name])
	}
	return entries
}
