package world

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/controller/backfill"
	"github.com/kube-node-ready/kube-node-ready/internal/controller/node"
	"github.com/kube-node-ready/kube-node-ready/internal/controller/remediation"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
	backends "github.com/kube-node-ready/kube-node-ready/internal/remediation"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Leader is one controller process: its reconcilers and all that they remember.
type Leader struct {
	W            *World
	Nodes        *node.Reconciler
	Remediations *remediation.Reconciler
	Backfills    *backfill.Reconciler
	Fleet        *controller.Fleet
	ruling       *ruling // nil in a world without rules
	// StaleAfter is rules.staleAfter.
	StaleAfter time.Duration
	// dry: nothing on nodes changes.
	DryRun bool
	// Before is called before each write, with its name.
	Before func(write string)
	// AfterRead is called after each read of a node from the API server, and of a node's pods from the cache; nil: not.
	AfterRead func()
	// Refuse answers a creation in place of the API server, where it returns an error.
	Refuse func(client.Object) error
	// Forbid says which writes, as "patch Node/status", the API server forbids; nil: none.
	Forbid func(write string) bool
	// Denied: they are denied by an admission policy without a reason instead, so the answer is 422 and not 403.
	Denied bool
	// ForbidGet says which objects and lists, by kind as in Pod or PodList, the API server does not show; nil: none.
	ForbidGet func(kind string) bool
	// StaleNodes is what the cache says of a node in place of the API server; by name.
	StaleNodes map[string]*corev1.Node
	// StalePods is what the cache says of pods in place of the API server; nil: what that has.
	StalePods *corev1.PodList
	// OldPods is what the API server has in memory of pods, for lists for which that is enough; nil: the latest state.
	OldPods *corev1.PodList
	// Hang, if set, blocks every list of NodeClaims until it is closed.
	Hang chan struct{}

	Fault Fault

	mu         sync.Mutex
	dead       bool
	Writes     []string
	Lists      []string
	Reads      []string // of nodes, from the w.API server
	Errs       []error
	considered []string
	seen       map[types.UID]*corev1.Pod
	shown      map[string]*corev1.Node // as a watch showed them last
}

// Lead starts a controller process.
func (w *World) Lead(change ...func(*Leader)) *Leader {
	w.Helper()
	l := &Leader{W: w, seen: map[types.UID]*corev1.Pod{}, shown: map[string]*corev1.Node{}, StaleNodes: map[string]*corev1.Node{}}
	for _, f := range change {
		f(l)
	}
	w.podNamespaces[w.PodNamespace()] = true
	builder := w.Builder()
	live, cache, writer := l.Live(), l.cache(), l.Writer()
	marked := client.Client(writer)
	if l.DryRun {
		marked = client.NewDryRunClient(writer)
	}
	view := &controller.View{Config: w.Config, Cache: cache, Builder: builder, Tracker: controller.NewTracker(w.Clock.Now, l.DryRun),
		OwnerTerminating: func(*corev1.Node, marks.Facts) string { return "" }}
	view.SetInstalled(w.Installed)
	l.Fleet = controller.NewFleet(view)
	counters := metrics.NewCounters(nil, nil)
	l.Remediations = &remediation.Reconciler{View: view, Live: live, Writer: marked, Fleet: l.Fleet, Counters: counters, Events: w,
		Pods:        controller.Pods{Writer: marked, Namespace: w.PodNamespace()},
		EvidenceFor: time.Minute,
		Owners:      backends.New(live, marked),
		Ledger:      &remediation.Ledger{Reader: live, Writer: marked, Namespace: w.Namespace, ReadOnly: l.DryRun},
	}
	l.Nodes = &node.Reconciler{View: view, Live: live, Nodes: marked, Fleet: l.Fleet, Counters: counters, Events: w,
		Pods:  controller.Pods{Writer: writer, Namespace: w.PodNamespace()},
		Slots: controller.NewSlots(view), Prerequisites: prerequisites{w}, Remediations: l,
		Workloads: func(ctx context.Context, node string) (decide.Workloads, error) {
			return remediation.OrdinaryPods(ctx, live, node, true)
		},
		Warnings: controller.Warnings{Live: live, Namespace: w.PodNamespace(), Tracker: view.Tracker,
			Limit: flowcontrol.NewFakeAlwaysRateLimiter()},
	}
	if len(w.RuleNames) > 0 {
		l.ruling = l.rules(live, cache, writer)
	}
	l.Backfills = &backfill.Reconciler{View: view, Live: live, Writer: marked, Workloads: l.Nodes.Workloads, Counters: counters, Events: w,
		Limit: flowcontrol.NewFakeAlwaysRateLimiter()}
	return l
}

// PodNamespace is where the workers are.
func (w *World) PodNamespace() string {
	if ns := w.Config.Worker.Namespace; ns != "" {
		return ns
	}
	return w.Namespace
}

// Live reads from the API server, and of nodes and NodeClaims no others than this world's.
func (l *Leader) Live() client.WithWatch {
	return interceptor.NewClient(l.W.API, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if l.isDead() {
				return ErrDead
			}
			if l.ForbidGet != nil && l.ForbidGet(kind(o)) {
				return forbidden("get " + kind(o))
			}
			if _, ok := o.(*corev1.Node); ok {
				l.mu.Lock()
				l.Reads = append(l.Reads, key.Name)
				l.mu.Unlock()
				defer l.hasRead()
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if l.isDead() {
				return ErrDead
			}
			if l.ForbidGet != nil && l.ForbidGet(kind(list)) {
				return forbidden("list " + kind(list))
			}
			if o := (&client.ListOptions{}).ApplyOptions(opts); o.Raw == nil || o.Raw.ResourceVersion != "0" {
				l.listed("live", list)
				return l.list(ctx, c, list, opts...)
			}
			l.listed("any", list)
			if pods, ok := list.(*corev1.PodList); ok && l.OldPods != nil {
				l.OldPods.DeepCopyInto(pods)
				return nil
			}
			return l.list(ctx, c, list, opts...)
		},
	})
}

// Writer writes, unless the fault says otherwise.
func (l *Leader) Writer() client.WithWatch {
	return interceptor.NewClient(l.cache(), interceptor.Funcs{
		Create: func(ctx context.Context, _ client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			options := (&client.CreateOptions{}).ApplyOptions(opts)
			if len(options.DryRun) > 0 {
				return l.W.API.Create(ctx, o, opts...) // asks what would come of it, and stores nothing
			}
			return l.write("create "+kind(o), func() error {
				if l.Refuse != nil {
					if err := l.Refuse(o); err != nil {
						return err
					}
				}
				return l.W.Creates(ctx, o, opts...)
			})
		},
		Update: func(ctx context.Context, _ client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return l.write("update "+kind(o), func() error { return l.W.API.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, _ client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return l.write("patch "+kind(o), func() error { return l.W.patches(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, _ client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return l.write("delete "+kind(o), func() error { return l.W.deletes(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, _ client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return l.write("patch "+kind(o)+"/"+sub, func() error { return l.W.API.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
}

func (l *Leader) showPods(pods []corev1.Pod) {
	if l.StalePods != nil {
		return // events come after the cache has changed
	}
	here := map[types.UID]bool{}
	for _, p := range pods {
		if !l.Nodes.View.Ours(&p) {
			continue
		}
		here[p.UID] = true
		l.Nodes.View.Tracker.ObservePod(&p)
		l.seen[p.UID] = p.DeepCopy()
	}
	for uid, p := range l.seen {
		if !here[uid] {
			l.Nodes.View.Tracker.PodGone(workerpod.Observe(p), p)
			delete(l.seen, uid)
		}
	}
}
