//go:build bench

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

// surroundings are what the ten checks of a run talk to.
type surroundings struct {
	cluster *cluster.Cluster
	web     *httptest.Server
	dir     string
	env     []string
}

func startSurroundings(ctx context.Context) (_ *surroundings, err error) {
	s := &surroundings{}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "kube-node-ready-bench-"); err != nil {
		return nil, err
	}
	if s.cluster, err = cluster.Start(ctx, cluster.Options{WithoutScheduler: true}); err != nil {
		return nil, err
	}
	dns, err := s.cluster.StartDNS(ctx, map[string]string{"registry.example": "192.0.2.7"})
	if err != nil {
		return nil, err
	}
	s.web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "ok") }))
	if err := s.writeFiles(ctx, dns); err != nil {
		return nil, err
	}
	s.env = []string{
		"NODE_NAME=bench", "POD_NAMESPACE=default", "LOG_LEVEL=error", "PATH=" + os.Getenv("PATH"),
		"KUBERNETES_SERVICE_HOST=" + s.cluster.Host(), fmt.Sprintf("KUBERNETES_SERVICE_PORT=%d", s.cluster.Port()),
		"KUBE_NODE_READY_SERVICEACCOUNT_DIR=" + s.dir, "KUBE_NODE_READY_RESOLV_CONF=" + filepath.Join(s.dir, "resolv.conf"),
		"KUBE_NODE_READY_TERMINATION_LOG=" + filepath.Join(s.dir, "termination-log"),
		"KUBE_NODE_READY_CONFIG=" + s.config(),
	}
	return s, nil
}

// config is ten checks, each of another kind as far as the kinds go without other nodes.
func (s *surroundings) config() string {
	return fmt.Sprintf(`
worker:
  dnsTestDomains: [registry.example]
  checks:
    - {name: dns, type: dns, dns: {protocols: [udp, tcp]}}
    - {name: api, type: kubernetesAPI}
    - {name: network, type: tcp}
    - {name: service-discovery, type: serviceDiscovery}
    - {name: web, type: http, http: {url: %q}}
    - {name: mtu, type: mtu}
    - {name: clock, type: clock}
    - {name: disk, type: disk, disk: {path: %q, minFreePercent: 1}}
    - {name: tool, type: exec, exec: {command: ["true"]}}
`, s.web.URL, s.dir)
}

// writeFiles makes a service account with the rights that the checks need, and resolv.conf.
func (s *surroundings) writeFiles(ctx context.Context, dns string) error {
	client, err := kubernetes.NewForConfig(s.cluster.Config())
	if err != nil {
		return err
	}
	name := metav1.ObjectMeta{Name: "bench", Namespace: "default"}
	if _, err := client.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: name}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := client.RbacV1().Roles("default").Create(ctx, &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
	}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := client.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: name,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "bench"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "bench"}}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	kubeconfig, err := s.cluster.KubeconfigFor(ctx, "default", "bench")
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(dns)
	if err != nil {
		return err
	}
	for file, content := range map[string]string{
		"token": config.BearerToken, "ca.crt": string(s.cluster.CA()),
		"resolv.conf": fmt.Sprintf("nameserver [%s]:%s\nsearch default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n", host, port),
	} {
		if err := os.WriteFile(filepath.Join(s.dir, file), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// warmUp runs the worker until everything that it talks to serves.
func (s *surroundings) warmUp(ctx context.Context, worker string) error {
	var err error
	for range 100 {
		if _, err = measure(ctx, worker, s); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("the checks do not pass: %s", strings.TrimSpace(err.Error()))
}

func (s *surroundings) stop() {
	if s.web != nil {
		s.web.Close()
	}
	s.cluster.Stop()
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}
