package chaos

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/inputs"
	worlds "github.com/kube-node-ready/kube-node-ready/test/world"
)

const (
	namespace = "kube-node-ready"
	// controllerAccount is the controller's service account.
	controllerAccount = "kube-node-ready-controller"
	replicas          = 2
)

// stage is a control plane on which runs take place, one after the other.
type stage struct {
	cluster  *cluster.Cluster
	etcd     *component
	server   *component
	observer *observer
	api      client.Client // the administrator's, past all proxies
	proxies  [replicas]*proxy
	configs  [replicas]string // kubeconfigs by replica, each through its proxy
	webhook  *webhook
	policy   *policy

	mu      sync.Mutex
	checker *checker // of the run that takes place
}

func newStage(ctx context.Context) (_ *stage, err error) {
	s := &stage{webhook: newWebhook(), policy: newPolicy()}
	context.AfterFunc(ctx, s.webhook.server.Close)
	context.AfterFunc(ctx, s.policy.server.Close)
	defer func() {
		if err != nil {
			s.cluster.Stop()
		}
	}()
	if s.cluster, err = cluster.Start(ctx, cluster.Options{WithoutControllerManager: true, WithoutScheduler: true,
		APIServerArgs: []string{"--etcd-compaction-interval=0"}}); err != nil { // the observer must find every revision
		return nil, err
	}
	if s.etcd, err = componentOf(s.cluster, "etcd"); err == nil {
		s.server, err = componentOf(s.cluster, "kube-apiserver")
	}
	if err != nil {
		return nil, err
	}
	if err = worlds.Define(s.cluster.Config()); err != nil {
		return nil, err
	}
	config := s.cluster.Config()
	config.Timeout = 3 * time.Second // a frozen API server must not hold up who plays the rest of the cluster
	if s.api, err = client.New(config, client.Options{Scheme: scheme.Scheme}); err != nil {
		return nil, err
	}
	if err = s.accounts(ctx); err != nil {
		return nil, err
	}
	for i := range s.proxies {
		if s.proxies[i], err = newProxy(ctx, s.cluster); err != nil {
			return nil, err
		}
		if s.configs[i], err = s.cluster.KubeconfigVia(ctx, fmt.Sprintf("replica-%d", i), namespace, controllerAccount, s.proxies[i].url); err != nil {
			return nil, err
		}
	}
	go s.etcd.supervise(ctx)
	go s.server.supervise(ctx)
	s.observer = &observer{url: s.etcd.flag("listen-client-urls"), see: s.see}
	go s.observer.run(ctx)
	return s, nil
}

// accounts makes the namespace and the service accounts, with the chart's roles.
func (s *stage) accounts(ctx context.Context) error {
	for _, o := range slices.Concat([]client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kube-node-ready-worker"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: controllerAccount}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}},
		s.policy.configuration(),
	}, install.Roles(controllerAccount, controllersRights())) {
		if err := s.api.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) see(ch change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.checker != nil {
		s.checker.see(ch)
	}
}

func (s *stage) check(c *checker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checker = c
}

// clear takes away what a run has left.
func (s *stage) clear(ctx context.Context) error {
	for end := time.Now().Add(time.Minute); ; pause(ctx, 200*time.Millisecond) {
		left, err := s.sweep(ctx)
		err = errors.Join(err, s.permit(ctx))
		if err == nil && left == 0 {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return fmt.Errorf("%d objects are left: %w", left, err)
		}
	}
}

func (s *stage) sweep(ctx context.Context) (left int, err error) {
	var objects []client.Object
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &corev1.PodList{}, newClaims(), &v1alpha1.NodeReadinessRuleList{}} {
		if err := s.api.List(ctx, list); err != nil {
			return 0, err
		}
		objects = append(objects, items(list)...)
	}
	for _, o := range objects {
		if len(o.GetFinalizers()) > 0 {
			_ = s.api.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
		}
		err = errors.Join(err, client.IgnoreNotFound(s.api.Delete(ctx, o, client.GracePeriodSeconds(0))))
	}
	return len(objects), err
}

func init() {
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		panic(err)
	}
}

// build builds the controller with the short election into the folder.
func build(t *testing.T, folder string, flags ...string) (string, error) {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return "", err
	}
	inputs.Track(t, filepath.Join(root, "cmd"), filepath.Join(root, "internal"), filepath.Join(root, "go.mod"))
	program := filepath.Join(folder, "controller")
	args := append([]string{"build", "-buildvcs=false", "-tags", "chaos", "-ldflags", "-s -w", "-o", program}, flags...)
	out, err := command(t.Context(), root, "go", append(args, "./cmd/controller")...).CombinedOutput()
	return program, errorOf("build the controller", err, out)
}

// errorOf is the error of a command, with what it printed.
func errorOf(what string, err error, out []byte) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: %s", what, err, out)
}
