package kubectlplugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// configKey is the chart's key of the controller's configuration in its ConfigMap.
const configKey = "config.yaml"

// Components that the chart's labels give what verifies nodes, by deploymentMode.
const (
	componentController = "controller"
	componentDaemonSet  = "daemonset"
)

// pageSize is how many objects one list request asks for; kubectl's own is 500 too.
const pageSize = 500

// cluster reads what the API server holds about nodes and their workers.
type cluster struct {
	client kubernetes.Interface
	core   corev1client.CoreV1Interface
	config *config.Config
	// component is componentDaemonSet in DaemonSet mode.
	component string
	// namespace of the worker pods; empty for all.
	namespace string
	// controllerNamespace is empty where it is not known; see controllers.
	controllerNamespace string
	leases              coordinationclient.LeasesGetter
	pools               dynamic.NamespaceableResourceInterface // NodePools
	owners              func(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface
	rules               dynamic.NamespaceableResourceInterface // NodeReadinessRules
	reviews             authorizationclient.SubjectAccessReviewInterface
}

// configure finds the controller's configuration: in the file at path if there is one, else in
// the ConfigMap that the chart makes, in namespace if that is given. Without either, the
// defaults count, and warn is told so.
func (c *cluster) configure(ctx context.Context, path, namespace string, warn func(string)) error {
	c.namespace, c.controllerNamespace, c.component = namespace, namespace, componentController
	if path != "" {
		cfg, err := config.Load(path)
		if err != nil {
			return err
		}
		c.use(cfg, namespace)
		return nil
	}
	found, err := c.configMaps(ctx, namespace)
	switch {
	case apierrors.IsForbidden(err):
		warn("the controller's configuration cannot be read, its defaults are assumed (give it with --config): " + err.Error())
	case err != nil:
		return err
	case len(found) == 0:
		warn("no ConfigMap of the controller is found, its defaults are assumed (give its configuration with --config)")
	case len(found) > 1:
		var names []string
		for _, m := range found {
			names = append(names, m.Namespace+"/"+m.Name)
		}
		return fmt.Errorf("there is more than one controller (%s): choose one with --namespace", strings.Join(names, ", "))
	default:
		m := found[0]
		c.component = m.Labels[workerpod.LabelComponent]
		cfg, err := parse(m, "configmap ")
		if err != nil {
			warn("the controller's configuration is of another version, its defaults are assumed (give it with --config):\n" + err.Error())
			break
		}
		c.use(cfg, m.Namespace)
		return nil
	}
	c.config = &config.Config{}
	c.config.SetDefaults()
	return nil
}

// use takes over a configuration; the worker pods are in the namespace that it names, else
// in the controller's.
func (c *cluster) use(cfg *config.Config, controllers string) {
	c.config, c.namespace, c.controllerNamespace = cfg, controllers, controllers
	if cfg.Worker.Namespace != "" {
		c.namespace = cfg.Worker.Namespace
	}
}

// parse reads the configuration in a ConfigMap, whose name in errors follows kind.
func parse(m corev1.ConfigMap, kind string) (*config.Config, error) {
	read := config.Parse
	if m.Labels[workerpod.LabelComponent] == componentDaemonSet {
		read = config.ParseDaemonSet
	}
	return read([]byte(m.Data[configKey]), kind+m.Namespace+"/"+m.Name)
}

func (c *cluster) configMaps(ctx context.Context, namespace string) ([]corev1.ConfigMap, error) {
	list, err := c.core.ConfigMaps(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: fmt.Sprintf("%s=%s,%s in (%s,%s)", workerpod.LabelName, workerpod.Name,
			workerpod.LabelComponent, componentController, componentDaemonSet)})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(m corev1.ConfigMap) bool { return m.Data[configKey] == "" }), nil
}

// node reads one node and its worker pods.
func (c *cluster) node(ctx context.Context, name string) (subject, error) {
	n, err := c.core.Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return subject{}, err
	}
	pods, err := c.pods(ctx, labels.Set{workerpod.LabelNodeUID: string(n.UID)})
	return observe(c.config, n, pods), err
}

// nodes reads the nodes that a label selector selects, sorted by name, and their worker pods.
func (c *cluster) nodes(ctx context.Context, selector string) ([]subject, error) {
	var nodes []corev1.Node
	err := pages(ctx, c.core.Nodes().List, selector, func(page *corev1.NodeList) { nodes = append(nodes, page.Items...) })
	if err != nil {
		return nil, err
	}
	slices.SortFunc(nodes, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	pods, err := c.pods(ctx, nil)
	if err != nil {
		return nil, err
	}
	byNode := map[string][]corev1.Pod{}
	for _, p := range pods {
		uid := p.Labels[workerpod.LabelNodeUID]
		byNode[uid] = append(byNode[uid], p)
	}
	var all []subject
	for i := range nodes {
		all = append(all, observe(c.config, &nodes[i], byNode[string(nodes[i].UID)]))
	}
	return all, nil
}

// pods lists the worker pods, of those the ones with the labels.
func (c *cluster) pods(ctx context.Context, with labels.Set) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	selector := labels.Merge(with, labels.Set{workerpod.LabelComponent: workerpod.Component}).String()
	err := pages(ctx, c.core.Pods(c.namespace).List, selector, func(page *corev1.PodList) { pods = append(pods, page.Items...) })
	if err != nil {
		return nil, fmt.Errorf("list the worker pods: %w", err)
	}
	return pods, nil
}

// pages lists what a label selector selects, pageSize at a time.
func pages[L metav1.ListInterface](ctx context.Context, list func(context.Context, metav1.ListOptions) (L, error), selector string, each func(L)) error {
	options := metav1.ListOptions{LabelSelector: selector, Limit: pageSize}
	for {
		page, err := list(ctx, options)
		if err != nil {
			return err
		}
		each(page)
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
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
	list, err := c.core.Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		"involvedObject.kind": "Node", "involvedObject.name": n.Name, "involvedObject.uid": string(n.UID), "reportingComponent": eventSource}.String()})
	if err != nil {
		return nil, err
	}
	// Events of events.k8s.io/v1 have an eventTime, and neither a first nor a last timestamp.
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	return list.Items[max(0, len(list.Items)-maxEvents):], nil
}
