package kubectlplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/leader"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// configKey is the chart's key of the controller's configuration in its ConfigMap.
const configKey = "config.yaml"

// labelVersion is the chart's label of the version that an object was made for.
const labelVersion = "app.kubernetes.io/version"

// Components that the chart's labels give the pods that verify nodes, by deploymentMode.
const (
	componentController = "controller"
	componentDaemonSet  = "daemonset"
)

// fieldManager names this program as the writer of what it changes.
const fieldManager = "kubectl-node-ready"

// cluster reads what the API server has of nodes and their workers.
type cluster struct {
	client  kubernetes.Interface
	dynamic dynamic.Interface
	// as makes a client that impersonates a user; nil where there is none.
	as     func(user string) (kubernetes.Interface, error)
	config *config.Config
	// component is componentDaemonSet in DaemonSet mode.
	component string
	// namespace of the worker pods; empty for all.
	namespace string
	// controllerNamespace is empty where it is not known; see controllers.
	controllerNamespace string
	// installed is when the controller was installed: it verifies nodes that were born later with the verified label.
	installed time.Time
}

// observe is what is known of a node and its worker pods.
func (c *cluster) observe(n *corev1.Node, pods []corev1.Pod) nodeState {
	s := observe(c.config, n, pods)
	s.in.Installed = c.installed
	return s
}

// connect makes the clients.
func (v *invocation) connect() error {
	rc, err := v.connection.ToRESTConfig()
	if err != nil {
		return err
	}
	rc.UserAgent = "kubectl-node_ready/" + version.Version
	rc.QPS, rc.Burst = 50, 300 // as kubectl has them; doctor makes many requests
	v.time = &serverTime{}
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
		v.time.next = next
		return v.time
	})
	connection, err := rest.HTTPClientFor(rc)
	if err != nil {
		return err
	}
	v.cluster = &cluster{}
	if v.cluster.client, err = kubernetes.NewForConfigAndClient(rc, connection); err != nil {
		return err
	}
	v.cluster.as = func(user string) (kubernetes.Interface, error) {
		other := rest.CopyConfig(rc)
		other.Impersonate = rest.ImpersonationConfig{UserName: user}
		return kubernetes.NewForConfig(other)
	}
	v.cluster.dynamic, err = dynamic.NewForConfigAndClient(rc, connection)
	return err
}

// configure finds the controller's configuration: in the file of --config if there is one, else in the ConfigMap that
// the chart makes. The worker pods are in the namespace that it names, else in the controller's.
func (v *invocation) configure(ctx context.Context) (err error) {
	c := v.cluster
	c.component, c.controllerNamespace = componentController, *v.connection.Namespace
	if v.configPath != "" {
		c.config, err = config.Load(v.configPath)
	} else {
		c.config, err = v.chartConfig(ctx)
	}
	if err != nil {
		return err
	}
	c.namespace = cmp.Or(c.config.Worker.Namespace, c.controllerNamespace)
	v.now = v.time.now()
	c.installed = v.leader(ctx).installed
	return nil
}

// chartConfig is the configuration in the ConfigMap that the chart makes, in --namespace if that is given. If it cannot
// be read, the defaults count, with a warning.
func (v *invocation) chartConfig(ctx context.Context) (*config.Config, error) {
	found, err := v.cluster.configMaps(ctx, v.cluster.controllerNamespace)
	switch {
	case apierrors.IsForbidden(err):
		v.warn("cannot read the controller's configuration, so its defaults are used (set it with --config): %v", err)
	case err != nil:
		return nil, err
	case len(found) == 0:
		v.warn("found no ConfigMap of the controller, so its defaults are used (set its configuration with --config)")
	case len(found) > 1:
		var names []string
		for _, m := range found {
			names = append(names, m.Namespace+"/"+m.Name)
		}
		return nil, fmt.Errorf("there is more than one controller (%s): choose one with --namespace",
			strings.Join(names, ", "))
	default:
		v.cluster.component = found[0].Labels[workerpod.LabelComponent]
		v.cluster.controllerNamespace = found[0].Namespace
		cfg, err := parse(found[0], "configmap ")
		if err == nil {
			return cfg, nil
		}
		why := "invalid"
		if of := found[0].Labels[labelVersion]; of != "" && of != leader.VersionLabel(version.Version) {
			why = fmt.Sprintf("of version %s, and this plugin of version %s rejects it", of, version.Version)
		}
		v.warn("the controller's configuration is %s, so its defaults are used (set it with --config):\n%v", why, err)
	}
	cfg := &config.Config{}
	cfg.SetDefaults()
	return cfg, nil
}

// parse reads the configuration in a ConfigMap, whose name in errors follows kind.
func parse(m corev1.ConfigMap, kind string) (*config.Config, error) {
	read := config.Parse
	if m.Labels[workerpod.LabelComponent] == componentDaemonSet {
		read = config.ParseDaemonSet
	}
	return read([]byte(m.Data[configKey]), kind+m.Namespace+"/"+m.Name)
}

// controllersSelector selects the chart's objects of controllers, in either deploymentMode.
func controllersSelector() string {
	return fmt.Sprintf("%s=%s,%s in (%s,%s)", workerpod.LabelName, workerpod.Name, workerpod.LabelComponent,
		componentController, componentDaemonSet)
}

// configMaps are the configurations of controllers, one for each. Without Helm, those of earlier configurations stay:
// the one that a Deployment mounts counts, else the newest.
func (c *cluster) configMaps(ctx context.Context, namespace string) ([]corev1.ConfigMap, error) {
	list, err := c.client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: controllersSelector()})
	if err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(list.Items, func(m corev1.ConfigMap) bool { return m.Data[configKey] == "" })
	byRelease := map[string][]corev1.ConfigMap{}
	for _, m := range all {
		release := strings.Join([]string{m.Namespace, cmp.Or(m.Labels[labelInstance], m.Name),
			m.Labels[workerpod.LabelComponent]}, "/")
		byRelease[release] = append(byRelease[release], m)
	}
	if len(byRelease) == len(all) {
		return all, nil
	}
	mounted, err := c.mountedConfigMaps(ctx, namespace)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	var current []corev1.ConfigMap
	for _, release := range slices.Sorted(maps.Keys(byRelease)) {
		current = append(current, slices.MaxFunc(byRelease[release], func(a, b corev1.ConfigMap) int {
			switch isA, isB := mounted[a.Namespace+"/"+a.Name], mounted[b.Namespace+"/"+b.Name]; {
			case isA && !isB:
				return 1
			case isB && !isA:
				return -1
			}
			return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
		}))
	}
	return current, nil
}

// mountedConfigMaps are the ConfigMaps that the controllers' Deployments mount, by namespace/name.
func (c *cluster) mountedConfigMaps(ctx context.Context, namespace string) (map[string]bool, error) {
	list, err := c.client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: controllersSelector()})
	if err != nil {
		return nil, err
	}
	mounted := map[string]bool{}
	for _, d := range list.Items {
		for _, v := range d.Spec.Template.Spec.Volumes {
			if v.ConfigMap != nil {
				mounted[d.Namespace+"/"+v.ConfigMap.Name] = true
			}
		}
	}
	return mounted, nil
}

// controllers is the namespace of the controller: that of its configuration, else the one that was given, else that
// of the only ledger.
func (c *cluster) controllers(ctx context.Context) (string, error) {
	if c.controllerNamespace != "" {
		return c.controllerNamespace, nil
	}
	list, err := c.client.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, ledger.Name).String()})
	if err != nil {
		return "", err
	}
	if len(list.Items) != 1 {
		return "", errors.New("the controller's namespace is unknown: set it with --namespace")
	}
	c.controllerNamespace = list.Items[0].Namespace
	return c.controllerNamespace, nil
}

// workerNamespace is the namespace in which workers are created.
func (c *cluster) workerNamespace(ctx context.Context) (string, error) {
	if c.namespace != "" {
		return c.namespace, nil
	}
	return c.controllers(ctx)
}

// node reads one node and its worker pods.
func (c *cluster) node(ctx context.Context, name string) (nodeState, error) {
	n, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nodeState{}, err
	}
	pods, err := c.pods(ctx, labels.Set{workerpod.LabelNodeUID: string(n.UID)})
	return c.observe(n, pods), err
}

// nodes reads the nodes that a label selector selects, sorted by name, and their worker pods.
func (c *cluster) nodes(ctx context.Context, selector string) ([]nodeState, error) {
	var nodes []*corev1.Node
	err := each(ctx, c.client.CoreV1().Nodes().List, selector, func(n *corev1.Node) { nodes = append(nodes, n) })
	if err != nil {
		return nil, err
	}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	pods, err := c.pods(ctx, nil)
	if err != nil {
		return nil, err
	}
	byNode := map[string][]corev1.Pod{}
	for _, p := range pods {
		uid := p.Labels[workerpod.LabelNodeUID]
		byNode[uid] = append(byNode[uid], p)
	}
	var all []nodeState
	for _, n := range nodes {
		all = append(all, c.observe(n, byNode[string(n.UID)]))
	}
	return all, nil
}

// pods lists the worker pods, of those the ones with the labels.
func (c *cluster) pods(ctx context.Context, with labels.Set) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	selector := labels.Merge(with, labels.Set{workerpod.LabelComponent: workerpod.Component}).String()
	err := each(ctx, c.client.CoreV1().Pods(c.namespace).List, selector, func(p *corev1.Pod) { pods = append(pods, *p) })
	if err != nil {
		return nil, fmt.Errorf("list the worker pods: %w", err)
	}
	return pods, nil
}

// each lists what a label selector selects, by pages, and calls do for each object.
func each[O any, L runtime.Object](ctx context.Context, list func(context.Context, metav1.ListOptions) (L, error),
	selector string, do func(*O)) error {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return list(ctx, options)
	})
	return pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: selector}, func(o runtime.Object) error {
		do(any(o).(*O))
		return nil
	})
}

const (
	// eventSource is the controller's name in its events.
	eventSource = "kube-node-ready-controller"
	// maxEvents is how many events explain shows.
	maxEvents = 6
)

// events are the last ones that the controller emitted on a node, oldest first.
func (c *cluster) events(ctx context.Context, n *corev1.Node) ([]corev1.Event, error) {
	// Events about cluster-scoped objects are in the namespace default.
	list, err := c.client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		"involvedObject.kind": "Node", "involvedObject.name": n.Name, "involvedObject.uid": string(n.UID),
		"reportingComponent": eventSource}.String()})
	if err != nil {
		return nil, err
	}
	// Events of events.k8s.io/v1 have an eventTime, and neither a first nor a last timestamp.
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	return list.Items[max(0, len(list.Items)-maxEvents):], nil
}

// serverTime is a transport that notes the API server's time: the clock of this machine may be minutes off, and a
// Lease lasts seconds.
type serverTime struct {
	next  http.RoundTripper
	ahead atomic.Int64 // of this machine's clock, in nanoseconds
}

// clockTolerance is how far off a clock may be and count as right: the header Date has whole seconds.
const clockTolerance = 2 * time.Second

// RoundTrip notes the time of the answer.
func (s *serverTime) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		ahead := time.Until(date)
		if ahead.Abs() < clockTolerance {
			ahead = 0
		}
		s.ahead.Store(int64(ahead))
	}
	return resp, nil
}

// now is the API server's time.
func (s *serverTime) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }
