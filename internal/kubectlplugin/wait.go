package kubectlplugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// wait waits until every node that the command line names or selects is verified. A name may be of a node that has not
// joined yet; a selector selects among the nodes that exist.
func wait(ctx context.Context, v *invocation) error {
	pending := map[string]string{} // nodes that are not verified, with why
	for _, name := range v.args {
		pending[name] = "it does not exist"
	}
	if v.selector != "" {
		list, err := v.cluster.nodes(ctx, v.selector)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return fmt.Errorf("no node matches %s", v.selector)
		}
		for _, s := range list {
			pending[s.node.Name] = ""
		}
	}
	if l := v.leader(ctx); l.Dead && v.text() {
		_, _ = fmt.Fprintf(v.stream, "%s\n", singleLine(l.line(v.now)))
	}
	return v.awaitNodes(ctx, pending, "not verified", func(name string, s *nodeState) error {
		if s == nil {
			pending[name] = "it is gone"
			if v.selector != "" {
				return codedError{fmt.Errorf("node %s is gone", name), exitNever}
			}
			return nil
		}
		n := s.summary(v.now)
		switch n.State {
		case string(decide.StateVerified):
			if v.text() {
				_, _ = fmt.Fprintf(v.stream, "node/%s is verified\n", name)
			} else {
				v.report("node/"+name, "verified")
				_, _ = v.out.WriteTo(v.stream)
			}
			delete(pending, name)
		case excluded, unmanaged, opened, deleting:
			if s.gateIsDue(v.now) {
				pending[name] = n.line() + "; the controller is to taint it"
				return nil
			}
			return codedError{fmt.Errorf("node %s is %s: it will not be verified", name, n.State), exitNever}
		default:
			pending[name] = n.line()
		}
		return nil
	})
}

// gateIsDue reports whether the controller is to taint a node that is open: admission missed it, or another program
// took the taint that admission promises.
func (s nodeState) gateIsDue(now time.Time) bool {
	c := s.in.Node.Condition
	takenBack := decide.OpenedUnverified(s.in) && s.in.Config.Admission.Mode != config.AdmissionOff &&
		(c == nil || c.Reason != marks.ReasonGateRemoved)
	return takenBack || len(decide.MissedTaints(s.node, s.in, now)) > 0
}

// awaitNodes calls do for the nodes in pending whenever they change, until it has removed all of them or returns an
// error. pending has their names, with what is known of each. After --timeout, the error says what is late, and lists
// the nodes that are left.
func (v *invocation) awaitNodes(ctx context.Context, pending map[string]string, late string,
	do func(name string, s *nodeState) error) error {
	if v.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, v.timeout)
		defer cancel()
	}
	var failed error
	err := v.follow(ctx, func(name string, s *nodeState) bool {
		if _, awaited := pending[name]; awaited {
			failed = do(name, s)
		}
		return failed == nil && len(pending) > 0
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = codedError{fmt.Errorf("%s after %s:\n%s", late, v.timeout.Round(time.Millisecond), listPending(pending)),
			exitTime}
	}
	return errors.Join(failed, err)
}

// listPending lists nodes that are waited for, with why.
func listPending(pending map[string]string) string {
	var left []string
	for name, why := range pending {
		left = append(left, fmt.Sprintf("node %s: %s", name, why))
	}
	slices.Sort(left)
	const most = 20
	if more := len(left) - most; more > 0 {
		left = append(left[:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(left, "\n")
}

// line is the state and the reason.
func (n summary) line() string { return joined(": ", n.State, singleLine(n.Why)) }

// indexNode indexes worker pods by their node's UID.
const indexNode = "node"

// follow calls do with every node, or those that the command line names, and again whenever the node or its workers
// change; with nil when it is gone. It ends when do returns false, or with ctx. It watches without the selector: the
// API server reports a node whose labels it does not select any more as deleted.
func (v *invocation) follow(ctx context.Context, do func(name string, s *nodeState) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	changed := workqueue.NewTyped[string]() // names of nodes
	context.AfterFunc(ctx, changed.ShutDown)
	run := func(i cache.SharedIndexInformer, nodeName func(any) string) {
		_ = i.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { // it fails only once the informer runs
			if !i.HasSynced() {
				cancel(fmt.Errorf("watch: %w", err))
			}
		})
		enqueue := func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if name := nodeName(o); name != "" && (len(v.args) == 0 || slices.Contains(v.args, name)) {
				changed.Add(name)
			}
		}
		_, _ = i.AddEventHandler(cache.ResourceEventHandlerFuncs{ // it fails only once the informer has stopped
			AddFunc: enqueue, DeleteFunc: enqueue, UpdateFunc: func(_, o any) { enqueue(o) }})
		go i.RunWithContext(ctx)
	}
	nodes := informers.NewFilteredNodeInformer(v.cluster.client, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		if len(v.args) == 1 {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, v.args[0]).String()
		}
	})
	run(nodes, func(o any) string { return o.(*corev1.Node).Name })
	uid := func(o any) ([]string, error) { return []string{o.(*corev1.Pod).Labels[workerpod.LabelNodeUID]}, nil }
	pods := informers.NewFilteredPodInformer(v.cluster.client, v.cluster.namespace, 0, cache.Indexers{indexNode: uid},
		func(o *metav1.ListOptions) {
			o.LabelSelector = labels.Set{workerpod.LabelComponent: workerpod.Component}.String()
		})
	run(pods, func(o any) string { return o.(*corev1.Pod).Annotations[workerpod.AnnotationNode] })
	if !cache.WaitFor(ctx, "", nodes.HasSyncedChecker(), pods.HasSyncedChecker()) {
		return context.Cause(ctx)
	}
	existed := map[string]bool{}
	for {
		name, shutdown := changed.Get()
		if shutdown {
			return context.Cause(ctx)
		}
		v.now = v.time.now()
		var s *nodeState
		if o, exists, _ := nodes.GetStore().GetByKey(name); exists { // reading memory cannot fail
			n := o.(*corev1.Node)
			workers, _ := pods.GetIndexer().ByIndex(indexNode, string(n.UID))
			list := make([]corev1.Pod, 0, len(workers))
			for _, p := range workers {
				list = append(list, *p.(*corev1.Pod))
			}
			observed := v.cluster.observe(n, list)
			s = &observed
		}
		// A worker's node may be gone.
		if (s != nil || existed[name]) && !do(name, s) {
			return nil
		}
		existed[name] = s != nil
		changed.Done(name)
	}
}
