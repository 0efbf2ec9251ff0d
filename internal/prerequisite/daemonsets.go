package prerequisite

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// byName is the index of DaemonSets by namespace and name.
const byName = "name"

var setsByName = cache.Indexers{byName: func(o any) ([]string, error) {
	key, err := cache.MetaNamespaceKeyFunc(o)
	return []string{key}, err
}}

// mostNamed is how many DaemonSets a message names.
const mostNamed = 5

// daemonSetWatch watches the DaemonSets of one namespace, or of all, and their pods.
type daemonSetWatch struct {
	client     kubernetes.Interface
	namespace  string
	sets, pods *feed
}

// daemonSetRules makes one rule for auto, and those for each DaemonSet that is named.
func (w *Watches) daemonSetRules(d config.DaemonSets) []rule {
	watched := func(namespace string) *daemonSetWatch {
		return once(w, "daemonSets "+namespace, func() *daemonSetWatch {
			sets := newFeed(w.wakes, setsByName, slimDaemonSet)
			sets.same = sameDaemonSet
			pods := newFeed(w.wakes, daemonPodsByNode, slimDaemonPod)
			pods.same = sameDaemonPod
			return &daemonSetWatch{client: w.clients.Kubernetes, namespace: namespace, sets: sets, pods: pods}
		})
	}
	var rules []rule
	for _, entry := range d.Named {
		named := namedRule{entry: entry}
		for _, name := range entry.Names() {
			named.sets = append(named.sets, namedSet{watched(name.Namespace), name})
		}
		rules = append(rules, named)
		if entry.Provides != nil {
			rules = append(rules, w.providedRules(named)...)
		}
	}
	if d.Mode == config.DaemonSetsAuto {
		all := allDaemonSetsRule{watched(metav1.NamespaceAll), slices.Clone(d.Exclude)}
		for _, entry := range d.Named {
			all.exclude = append(all.exclude, entry.Names()...)
		}
		rules = append(rules, all)
	}
	return rules
}

func (w *daemonSetWatch) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		w.sets.run(ctx, appsinformers.NewDaemonSetInformer(w.client, w.namespace, 0, cache.Indexers{}), "list and watch daemonsets.apps")
	})
	wg.Go(func() {
		// The label that the DaemonSet controller gives each of its pods; besides them only a StatefulSet's have it.
		w.pods.run(ctx, coreinformers.NewFilteredPodInformer(w.client, w.namespace, 0, cache.Indexers{},
			func(o *metav1.ListOptions) { o.LabelSelector = appsv1.DefaultDaemonSetUniqueLabelKey }), "list and watch pods")
	})
}

func (w *daemonSetWatch) topics(nodeName, index, value string) []topic {
	return []topic{w.sets.topic(state, ""), w.sets.topic(index, value), w.pods.topic(state, ""), w.pods.topic(byNode, nodeName)}
}

// read returns the DaemonSets and the node's own pods, or why they are not known.
func (w *daemonSetWatch) read(n *corev1.Node) (sets cache.Indexer, own []any, why string) {
	if sets = w.sets.objects(); sets == nil {
		return nil, nil, w.sets.why()
	}
	pods := w.pods.objects()
	if pods == nil {
		return nil, nil, w.pods.why()
	}
	own, err := pods.ByIndex(byNode, n.Name)
	if err != nil {
		return nil, nil, err.Error()
	}
	return sets, own, ""
}

// allDaemonSetsRule is prerequisites.daemonSets with mode auto.
type allDaemonSetsRule struct {
	*daemonSetWatch
	exclude []config.DaemonSetName
}

func (allDaemonSetsRule) describe() (kind, name string) {
	return "daemonSets", string(config.DaemonSetsAuto)
}

func (r allDaemonSetsRule) topics(nodeName string) []topic {
	return r.daemonSetWatch.topics(nodeName, anyObject, "")
}

func (r allDaemonSetsRule) unmet(n *corev1.Node) lack {
	late, why := r.all(n)
	if why != "" {
		return lack{why: fmt.Sprintf("Ready pods of all DaemonSets (%s)", why)}
	}
	names := slices.Sorted(maps.Keys(late))
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("%s (%s)", name, late[name]))
	}
	switch more := len(all) - mostNamed; {
	case len(all) == 0:
		return lack{}
	case more > 0:
		return lack{why: fmt.Sprintf("Ready pods of DaemonSets %s and %d more", strings.Join(all[:mostNamed], ", "), more), of: names}
	}
	return lack{why: "Ready pods of DaemonSets " + strings.Join(all, ", "), of: names}
}

// all says by its namespace and name what each DaemonSet lacks on the node, or why that is not known.
func (r allDaemonSetsRule) all(n *corev1.Node) (lacks map[string]string, unknown string) {
	sets, own, why := r.read(n)
	if why != "" {
		return nil, why
	}
	lacks = map[string]string{}
	for _, o := range sets.List() {
		ds := o.(*appsv1.DaemonSet)
		name := config.DaemonSetName{Namespace: ds.Namespace, Name: ds.Name}
		if ds.DeletionTimestamp != nil || slices.Contains(r.exclude, name) {
			continue
		}
		if why := late(ds, n, own); why != "" {
			lacks[name.String()] = why
		}
	}
	return lacks, ""
}

// slimDaemonSet keeps what runsOn reads.
func slimDaemonSet(o any) (any, error) {
	if d, ok := o.(*appsv1.DaemonSet); ok {
		d.ManagedFields, d.Labels, d.Annotations = nil, nil, nil
		full := d.Spec.Template.Spec
		d.Spec, d.Status = appsv1.DaemonSetSpec{}, appsv1.DaemonSetStatus{}
		d.Spec.Template.Spec = corev1.PodSpec{NodeName: full.NodeName, NodeSelector: full.NodeSelector, Tolerations: full.Tolerations, HostNetwork: full.HostNetwork}
		if full.Affinity != nil && full.Affinity.NodeAffinity != nil {
			d.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: full.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution}}
		}
	}
	return o, nil
}

// sameDaemonSet spares the waiting nodes the status, which changes with every pod of every node.
func sameDaemonSet(old, now any) bool {
	a, okA := old.(*appsv1.DaemonSet)
	b, okB := now.(*appsv1.DaemonSet)
	return okA && okB && a.UID == b.UID && a.DeletionTimestamp.Equal(b.DeletionTimestamp) && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}
