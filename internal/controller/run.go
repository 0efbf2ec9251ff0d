package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
	"github.com/kube-node-ready/kube-node-ready/internal/workerconfig"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// userAgent names us in the API server's audit log and metrics.
const userAgent = "kube-node-ready-controller"

// Options are what the command line adds to the configuration.
type Options struct {
	// Kubeconfig overrides kubernetes.kubeconfigPath.
	Kubeconfig string
	// DryRun runs workers and changes nothing on nodes.
	DryRun bool
	Log    logr.Logger
}

// Run serves until ctx is done or leadership is lost.
func Run(ctx context.Context, cfg *config.Config, o Options) error {
	rc, namespace, err := connect(cfg, o.Kubeconfig)
	if err != nil {
		return err
	}
	contact := &contact{}
	rc.Wrap(contact.watch)
	ctrl.SetLogger(o.Log)

	workerNamespace := orElse(cfg.Worker.Namespace, namespace)
	mgr, err := ctrl.NewManager(rc, ctrl.Options{
		Scheme: scheme.Scheme, // Karpenter's types are in it too (sigs.k8s.io/karpenter/pkg/apis/v1)
		Logger: o.Log,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Node{}: {Transform: slimNode},
				&corev1.Pod{}: {Transform: slimPod, Namespaces: map[string]cache.Config{workerNamespace: {
					LabelSelector: labels.SelectorFromSet(labels.Set{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: workerpod.Component}),
				}}},
			},
		},
		Metrics:                       server.Options{BindAddress: metricsAddress(cfg)},
		HealthProbeBindAddress:        fmt.Sprintf(":%d", cfg.Health.Port),
		LeaderElection:                *cfg.LeaderElection.Enabled,
		LeaderElectionID:              cfg.LeaderElection.ID,
		LeaderElectionNamespace:       orElse(cfg.LeaderElection.Namespace, namespace),
		LeaderElectionReleaseOnCancel: true,
		Controller:                    ctrlconfig.Controller{CacheSyncTimeout: 5 * time.Minute},
	})
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	watches, err := watchPrerequisites(cfg, rc, mgr)
	if err != nil {
		return err
	}
	r := &Reconciler{
		Config: cfg, Client: mgr.GetClient(), Live: mgr.GetAPIReader(), DryRun: o.DryRun, Now: time.Now,
		Builder: workerpod.Builder{
			Namespace: workerNamespace, Image: cfg.Worker.Image.Reference(version.Version),
			Worker: cfg.Worker, Logging: cfg.Logging, Gating: cfg.GatingTaints(),
		},
		Prerequisites: watches,
		Ledger: remediation.Ledger{Reader: mgr.GetAPIReader(), Writer: mgr.GetClient(), Namespace: namespace,
			Keep: max(time.Hour, cfg.NodeManagement.Remediation.Window.Duration)},
		Counters: metrics.NewCounters(checkTypes(cfg)),
		Events:   NewEvents(mgr.GetClient()),
	}
	if err := mgr.Add(r.Events); err != nil {
		return err
	}
	if err := r.Setup(mgr); err != nil {
		return fmt.Errorf("set up the node controller: %w", err)
	}
	synced := func() bool {
		now, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		return mgr.GetCache().WaitForCacheSync(now)
	}
	if err := serveStatus(cfg, mgr, r, contact, synced); err != nil {
		return err
	}
	o.Log.Info("starting", "version", version.Version, "commit", version.Commit, "namespace", namespace,
		"workerNamespace", workerNamespace, "image", r.Builder.Image, "dryRun", o.DryRun)
	return mgr.Start(ctx)
}

// connect finds the API server and our own namespace in it.
func connect(cfg *config.Config, kubeconfig string) (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = orElse(kubeconfig, cfg.Kubernetes.KubeconfigPath)
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
	rc, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("no way to the API server: set --kubeconfig, kubernetes.kubeconfigPath or KUBECONFIG, or run in a pod with a service account: %w", err)
	}
	rc.UserAgent = userAgent + "/" + version.Version
	rc.QPS, rc.Burst = cfg.Kubernetes.QPS, int(cfg.Kubernetes.Burst)
	if cfg.Kubernetes.QPS == 0 {
		rc.QPS = -1 // client-go's "no limit"; its 0 means 5
	}
	namespace := os.Getenv("POD_NAMESPACE")
	if namespace == "" {
		// In a pod, the service account's; else the kubeconfig context's, else "default".
		if namespace, _, err = loader.Namespace(); err != nil {
			return nil, "", fmt.Errorf("find the controller's namespace: %w", err)
		}
	}
	return rc, namespace, nil
}

func orElse(s, fallback string) string {
	if s != "" {
		return s
	}
	return fallback
}

func metricsAddress(cfg *config.Config) string {
	if !*cfg.Metrics.Enabled {
		return "0" // controller-runtime's "off"
	}
	return fmt.Sprintf(":%d", cfg.Metrics.Port)
}

func watchPrerequisites(cfg *config.Config, rc *rest.Config, mgr ctrl.Manager) (*prerequisite.Watches, error) {
	typed, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return nil, err
	}
	untyped, err := dynamic.NewForConfig(rc)
	if err != nil {
		return nil, err
	}
	w, err := prerequisite.New(cfg, prerequisite.Clients{Kubernetes: typed, Dynamic: untyped, Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, err
	}
	return w, mgr.Add(w)
}

// checkTypes lists all checks that a worker may be told to run, with their types.
func checkTypes(cfg *config.Config) map[string]string {
	types := map[string]string{}
	for _, e := range cfg.Variants() {
		for _, s := range (workerconfig.Config{Checks: e.Checks, DNSTestDomains: e.DNSTestDomains}).Expand() {
			types[s.Name] = string(s.Type)
		}
	}
	return types
}

// serveStatus registers metrics and health checks.
func serveStatus(cfg *config.Config, mgr ctrl.Manager, r *Reconciler, c *contact, synced func() bool) error {
	leader := func() bool {
		select {
		case <-mgr.Elected():
			return true
		default:
			return false
		}
	}
	collector := metrics.NewCollector(cfg.Metrics.PerNode, r.snapshot, func() bool { return synced() && c.recent(r.Now()) }, leader, r.Now)
	for _, m := range append(r.Counters.Collectors(), collector) {
		if err := ctrlmetrics.Registry.Register(m); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("caches", func(*http.Request) error {
		if !synced() {
			return errors.New("the informers are not in step with the API server yet")
		}
		return nil
	})
}

// snapshot reads what a scrape exports.
func (r *Reconciler) snapshot(ctx context.Context) ([]decide.Input, error) {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(r.Builder.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	byNode := map[string][]*corev1.Pod{}
	for i := range pods.Items {
		uid := pods.Items[i].Labels[workerpod.LabelNodeUID]
		byNode[uid] = append(byNode[uid], &pods.Items[i])
	}
	inputs := make([]decide.Input, 0, len(nodes.Items))
	for i := range nodes.Items {
		in := observe(ctx, r.Config, &nodes.Items[i])
		for _, p := range byNode[in.Node.UID] {
			if workerpod.Ours(p, r.Builder.Namespace, workerpod.Target{Name: in.Node.Name, UID: in.Node.UID}) {
				in.Pods = append(in.Pods, workerpod.Observe(p))
			}
		}
		inputs = append(inputs, in)
	}
	return inputs, nil
}

// slimNode drops what no decision reads: the image list alone is most of a Node.
func slimNode(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		n.ManagedFields = nil
		n.Status = corev1.NodeStatus{Conditions: n.Status.Conditions, NodeInfo: corev1.NodeSystemInfo{BootID: strings.Clone(n.Status.NodeInfo.BootID)}}
	}
	return o, nil
}

// slimPod keeps of a worker pod what tells its identity and its end.
func slimPod(o any) (any, error) {
	if p, ok := o.(*corev1.Pod); ok {
		p.ManagedFields = nil
		p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName}
	}
	return o, nil
}
