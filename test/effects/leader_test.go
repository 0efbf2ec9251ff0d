package effects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/controller/backfill"
	"github.com/kube-node-ready/kube-node-ready/internal/controller/deletion"
	"github.com/kube-node-ready/kube-node-ready/internal/controller/node"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

var errDead = errors.New("the process is dead")

// fault disturbs one write of a leader.
type fault struct {
	// at is the number of the write, from 1.
	at int
	// code is the HTTP status of the answer, err the answer. 0: the process dies after the write.
	code int
	err  error
	// after: the write is carried out, and its answer is lost.
	after bool
	// hit is the write that was disturbed.
	hit string
}

// leader is one controller process: its reconcilers and all that they remember.
type leader struct {
	w         *world
	nodes     *node.Reconciler
	deletions *deletion.Reconciler
	backfills *backfill.Reconciler
	fleet     *controller.Fleet
	ruling    *ruling // nil in a world without rules
	// noLease: the API server refuses the Lease of rules; served: rules are served although the world has none yet.
	noLease, served bool
	// staleAfter is rules.staleAfter.
	staleAfter time.Duration
	versions   *controller.Versions
	// dry: nothing on nodes changes.
	dry bool
	// before is called before each write, with its name.
	before func(write string)
	// refuse answers a creation in place of the API server, where it returns an error.
	refuse func(client.Object) error
	// forbid says which writes, as "patch Node/status", the API server forbids; nil: none.
	forbid func(write string) bool
	// stale is what the cache says of a node in place of the API server; by name.
	stale map[string]*corev1.Node
	// stalePods is what the cache says of pods in place of the API server; nil: what that has.
	stalePods *corev1.PodList
	// hang, if set, blocks every list of NodeClaims until it is closed.
	hang chan struct{}

	fault fault

	mu         sync.Mutex
	dead       bool
	writes     []string
	lists      []string
	reads      []string // of nodes, from the API server
	errs       []error
	considered []string
	seen       map[types.UID]*corev1.Pod
}

// leads starts a controller process.
func (w *world) leads(change ...func(*leader)) *leader {
	w.Helper()
	l := &leader{w: w, seen: map[types.UID]*corev1.Pod{}, stale: map[string]*corev1.Node{}}
	for _, f := range change {
		f(l)
	}
	builder, err := workerpod.NewBuilder(w.cfg, w.podNamespace(), w.cfg.Worker.Image.Reference("test"))
	w.must(err)
	live, cache, writer := l.live(), l.cache(), l.writer()
	marked := client.Client(writer)
	if l.dry {
		marked = client.NewDryRunClient(writer)
	}
	l.versions = controller.NewVersions(w.clock.Now)
	marked = l.versions.Writer(marked)
	w.must(l.versions.Begin(w.ctx, live, typed.Discovery()))
	l.lists = nil
	view := &controller.View{Config: w.cfg, Cache: cache, Builder: builder, Tracker: controller.NewTracker(w.clock.Now, l.dry),
		OwnerTerminating: func(*corev1.Node, marks.Facts) string { return "" }}
	l.fleet = controller.NewFleet(view)
	counters := metrics.NewCounters(nil)
	l.deletions = &deletion.Reconciler{View: view, Live: live, Writer: marked, Fleet: l.fleet, Counters: counters, Events: w,
		Pods:        controller.Pods{Writer: marked, Namespace: w.podNamespace()},
		Waits:       prerequisites{w}.Evaluate,
		EvidenceFor: time.Minute,
		Owners:      remediation.New(live, marked),
		Ledger:      &deletion.Ledger{Reader: live, Writer: marked, Namespace: w.ns, ReadOnly: l.dry},
	}
	l.nodes = &node.Reconciler{View: view, Live: live, Nodes: marked, Versions: l.versions, Fleet: l.fleet, Counters: counters, Events: w,
		Pods:  controller.Pods{Writer: writer, Namespace: w.podNamespace()},
		Slots: controller.NewSlots(view), Prerequisites: prerequisites{w}, Deletions: l,
		Workloads: func(ctx context.Context, node string) (decide.Workloads, error) {
			return deletion.OrdinaryPods(ctx, live, node)
		},
	}
	if len(w.ruleNames) > 0 || l.served {
		l.ruling = l.rules(live, cache, writer)
	}
	l.backfills = &backfill.Reconciler{View: view, Live: live, Writer: marked, Workloads: l.nodes.Workloads, Counters: counters, Events: w,
		Limit: flowcontrol.NewFakeAlwaysRateLimiter()}
	return l
}

// podNamespace is where the workers are.
func (w *world) podNamespace() string {
	if ns := w.cfg.Worker.Namespace; ns != "" {
		return ns
	}
	return w.ns
}

// prerequisites are as the world says.
type prerequisites struct{ w *world }

func (p prerequisites) Unmet(n *corev1.Node, c config.Prerequisites) []decide.Unmet {
	return p.Evaluate(n, c)
}
func (p prerequisites) Forget(string) {}
func (p prerequisites) Evaluate(n *corev1.Node, _ config.Prerequisites) []decide.Unmet {
	if p.w.lacks == nil || !p.w.lacks(n.Name) {
		return nil
	}
	return []decide.Unmet{{Kind: "pods", Name: "kube-system/k8s-app=agent", Message: "a pod of kube-system/k8s-app=agent"}}
}

// Consider remembers the node, as the queue of the deletion reconciler would.
func (l *leader) Consider(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.considered, name) {
		l.considered = append(l.considered, name)
	}
}

func (l *leader) takeConsidered() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := l.considered
	l.considered = nil
	return names
}

// live reads from the API server, and of nodes and NodeClaims no others than this world's.
func (l *leader) live() client.WithWatch {
	return interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if l.isDead() {
				return errDead
			}
			if _, ok := o.(*corev1.Node); ok {
				l.mu.Lock()
				l.reads = append(l.reads, key.Name)
				l.mu.Unlock()
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if l.isDead() {
				return errDead
			}
			l.listed("live", list)
			return l.list(ctx, c, list, opts...)
		},
	})
}

// cache is live with the indexes of a View, whose values are those of labels.
func (l *leader) cache() client.WithWatch {
	return interceptor.NewClient(l.live(), interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if l.isDead() {
				return errDead
			}
			if old := l.stale[key.Name]; old != nil {
				old.DeepCopyInto(o.(*corev1.Node))
				return nil
			}
			return api.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if l.isDead() {
				return errDead
			}
			l.listed("cached", list)
			if pods, ok := list.(*corev1.PodList); ok && l.stalePods != nil {
				l.stalePods.DeepCopyInto(pods)
				return nil
			}
			o := client.ListOptions{}
			o.ApplyOptions(opts)
			if o.FieldSelector == nil {
				return l.list(ctx, api, list, opts...)
			}
			labels := client.MatchingLabels{}
			for index, label := range map[string]string{"worker/node-uid": workerpod.LabelNodeUID, "worker/probe-group": workerpod.LabelProbeGroup} {
				if v, ok := o.FieldSelector.RequiresExactMatch(index); ok {
					labels[label] = v
				}
			}
			if len(labels) != 1 {
				return fmt.Errorf("no index for %s", o.FieldSelector)
			}
			return api.List(ctx, list, client.InNamespace(o.Namespace), labels)
		},
	})
}

func (l *leader) list(ctx context.Context, c client.Reader, list client.ObjectList, opts ...client.ListOption) error {
	switch list.(type) {
	case *corev1.NodeList:
		opts = append(opts, client.MatchingLabels{worldLabel: l.w.ns})
	case *karpv1.NodeClaimList:
		opts = append(opts, client.MatchingLabels{worldLabel: l.w.ns})
		if l.hang != nil {
			<-l.hang
		}
	}
	return c.List(ctx, list, opts...)
}

func (l *leader) listed(by string, list client.ObjectList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lists = append(l.lists, by+" "+kind(list))
}

// writer writes, unless the fault says otherwise.
func (l *leader) writer() client.WithWatch {
	return interceptor.NewClient(l.cache(), interceptor.Funcs{
		Create: func(ctx context.Context, _ client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			options := (&client.CreateOptions{}).ApplyOptions(opts)
			if _, pod := o.(*corev1.Pod); pod && len(options.DryRun) > 0 {
				return api.Create(ctx, o, opts...) // asks what would come of it, and stores nothing
			}
			return l.write("create "+kind(o), func() error {
				if l.refuse != nil {
					if err := l.refuse(o); err != nil {
						return err
					}
				}
				return l.w.creates(ctx, o, opts...)
			})
		},
		Update: func(ctx context.Context, _ client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return l.write("update "+kind(o), func() error { return api.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, _ client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return l.write("patch "+kind(o), func() error { return l.w.patches(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, _ client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return l.write("delete "+kind(o), func() error { return l.w.deletes(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, _ client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return l.write("patch "+kind(o)+"/"+sub, func() error { return api.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
}

func kind(o any) string {
	t := fmt.Sprintf("%T", o)
	return t[strings.LastIndex(t, ".")+1:]
}

func (l *leader) write(what string, do func() error) error {
	l.mu.Lock()
	if l.dead {
		l.mu.Unlock()
		return errDead
	}
	l.writes = append(l.writes, what)
	disturbed := len(l.writes) == l.fault.at
	if disturbed {
		l.fault.hit = what
		if l.fault.code != 0 {
			l.fault.err = refusal(l.fault.code, what)
		}
	}
	l.mu.Unlock()
	if l.before != nil {
		l.before(what)
	}
	switch {
	case l.forbid != nil && l.forbid(what):
		return forbidden(what)
	case !disturbed:
		return do()
	case l.fault.err == nil:
		_ = do()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.dead = true
		return errDead
	case l.fault.after:
		if err := do(); err != nil {
			return err
		}
	}
	return l.fault.err
}

func (l *leader) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

func (l *leader) written() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.writes)
}

// show delivers what watches would: every node for the fleet, every pod as it is now, and those that are gone.
func (l *leader) show() {
	var nodes corev1.NodeList
	l.w.must(api.List(l.w.ctx, &nodes, client.MatchingLabels{worldLabel: l.w.ns}))
	for i := range nodes.Items {
		l.fleet.See(l.nodes.View.Observe(&nodes.Items[i]))
		l.versions.See(&nodes.Items[i])
	}
	l.showPods(l.w.pods(""))
	if l.ruling != nil {
		l.ruling.show(nodes.Items)
	}
}

func (l *leader) showPods(pods []corev1.Pod) {
	if l.stalePods != nil {
		return // events come after the cache has changed
	}
	here := map[types.UID]bool{}
	for _, p := range pods {
		if !l.nodes.View.Ours(&p) {
			continue
		}
		here[p.UID] = true
		l.nodes.SeePod(&p)
		l.seen[p.UID] = p.DeepCopy()
	}
	for uid, p := range l.seen {
		if !here[uid] {
			l.nodes.PodGone(p)
			delete(l.seen, uid)
		}
	}
}

// pass reconciles every node once, and considers the deletions that were asked for. It returns when to look again.
func (l *leader) pass() time.Duration {
	wait := time.Duration(l.w.cfg.Reconciliation.IntervalSeconds) * time.Second
	sooner := func(r reconcile.Result, err error) {
		switch {
		case err != nil:
			l.mu.Lock()
			l.errs = append(l.errs, err)
			l.mu.Unlock()
			wait = min(wait, time.Second)
		case r.RequeueAfter > 0:
			wait = min(wait, r.RequeueAfter)
		}
	}
	for _, name := range l.w.nodes {
		sooner(l.nodes.Reconcile(l.w.ctx, request(name)))
	}
	if l.ruling != nil {
		for _, name := range l.w.ruleNames {
			sooner(l.ruling.reconciler.Reconcile(l.w.ctx, request(name)))
		}
	}
	for _, name := range l.takeConsidered() {
		r, err := l.deletions.Reconcile(l.w.ctx, request(name))
		if sooner(r, err); err != nil || r.RequeueAfter > 0 {
			l.Consider(name)
		}
	}
	return wait
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

const (
	// settled is how long nothing may change before a world counts as settled. It is longer than worker.keepFailedSeconds.
	settled = 75 * time.Second
	// maxPasses bounds a drive: what takes more is a loop.
	maxPasses = 300
)

// drive reconciles until nothing changes any more, or the leader is dead.
func (l *leader) drive() {
	l.w.Helper()
	quiet := time.Duration(0)
	for n := 0; quiet < settled; n++ {
		if n == maxPasses {
			l.w.Fatalf("nothing settled after %d passes; the last writes: %v", n, l.writes[max(0, len(l.writes)-20):])
		}
		changed, wait := l.turn()
		switch {
		case l.isDead():
			return
		case changed:
			quiet = 0
		default:
			quiet += wait
			l.w.clock.advance(wait)
		}
	}
}

// turn is one pass, and what kubelets make of it.
func (l *leader) turn() (changed bool, wait time.Duration) {
	l.w.Helper()
	before := l.written()
	l.show()
	wait = l.pass()
	if l.isDead() {
		return true, 0
	}
	return l.w.kubelets(l) || l.written() > before, wait
}

// forbidden is the API server's answer to a request that its caller may not make.
func forbidden(what string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", fmt.Errorf("user \"controller\" may not %s", what))
}

// refusal is the answer of an API server with the HTTP status to a write.
func refusal(code int, write string) error {
	verb, _, _ := strings.Cut(write, " ")
	if verb == "create" {
		verb = "post" // whose conflict is that the name is taken
	}
	return apierrors.NewGenericServerResponse(code, verb, schema.GroupResource{Resource: "things"}, "name", "injected", 0, true)
}
