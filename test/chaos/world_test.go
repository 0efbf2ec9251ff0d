package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

const (
	// slots are the names of nodes. Those before managed are Karpenter's.
	slots     = 8
	managed   = 5
	labelPool = "karpenter.sh/nodepool"
)

// settings are those of the controller's that invariants depend on.
type settings struct {
	maxRetries, inFlight            int32
	perHour                         int
	maxUnhealthy                    int // percent
	atOnce                          int // workers; 0 for any number
	timeout                         time.Duration
	neverVerifiedOnly, controlProbe bool

	action      string                   // remediation.action
	condition   corev1.NodeConditionType // of remediation.condition
	off, dryRun bool                     // deleteFailedNodes is off; remediation.dryRun is on
	leavesOut   bool                     // the selector leaves the pool out
	corrected   bool                     // the checks are others
	clear       bool                     // nothing disturbs the controllers but what they are configured to do

	waits    bool // driverReady is a prerequisite
	promises bool // admission promises the gating taint

	cooldown   time.Duration
	suspectFor int  // seconds
	closes     bool // a suspicion closes the gate
}

// world is one run: a controller of two replicas, and all others that act on its cluster.
type world struct {
	*stage
	ctx      context.Context
	seed     uint64
	settings settings
	only     []string  // the kinds of faults that there are; all where it is empty
	faults   []endless // that do not end, each with its time in the schedule
	check    *checker
	replicas [replicas]*replica
	tally    *tally

	granting    sync.Mutex // of who writes the roles
	configuring sync.Mutex // of who writes the configuration

	mu      sync.Mutex
	rng     *rand.Rand        // of what is not scheduled
	locks   [slots]sync.Mutex // one for all who write marks on a node
	born    [slots]int
	absent  [slots]time.Time // until when nobody lets it join again
	bad     [slots]bool      // its checks fail
	silent  [slots]time.Time // until when its kubelet does nothing
	ill     [slots]time.Time // until when its checks fail for sure
	dead    [slots]bool      // its kubelet does nothing any more
	wrapped [slots]time.Time // until when its workers exit without a report
	late    [slots]time.Time // when its labels come; zero where they are there
	drivers [slots]driver
	endless []endless // those that have begun
	calm    bool      // no more faults
	briefly []right   // that are refused for a while
	workers map[string]*running
}

// replica is a controller process that is started again whenever it ends.
type replica struct {
	program, log, file string
	ports              []int
	args               []string
	shown              *shownVersions

	mu  sync.Mutex
	now *process.Process
}

func draw(rng *rand.Rand) settings {
	return settings{maxRetries: 1 + rng.Int32N(2), timeout: 2 * time.Second, perHour: 2 + 4*rng.IntN(2),
		inFlight:          1 + rng.Int32N(2),
		maxUnhealthy:      []int{25, 50, 100}[rng.IntN(3)],
		neverVerifiedOnly: rng.IntN(3) > 0, controlProbe: rng.IntN(2) > 0}
}

func (s settings) configuration(ports []int) map[string]any {
	check := func(name string) []any {
		return []any{map[string]any{"name": name, "type": "kubernetesAPI"}}
	}
	other := map[string]string{labelProfile: "b"}
	full := map[string]any{
		"worker": map[string]any{"image": map[string]any{"repository": "kube-node-ready", "tag": "chaos"}, "checks": check(s.checksOf(nil)), "keepFailedSeconds": 1,
			"checkTimeoutSeconds": 1, "timeoutSeconds": int(s.timeout / time.Second), "startTimeoutSeconds": 3},
		"reconciliation": map[string]any{"maxRetries": s.maxRetries, "initialBackoffSeconds": 1, "maxBackoffSeconds": 1,
			"exhaustedRetrySeconds": 2, "intervalSeconds": int(interval / time.Second),
			"maxConcurrentVerifications": s.atOnce},
		"nodeManagement": map[string]any{"remediation": map[string]any{"maxUnhealthy": fmt.Sprint(s.maxUnhealthy, "%"), "maxInFlight": s.inFlight,
			"maxDeletionsPerHour": s.perHour, "neverVerifiedOnly": s.neverVerifiedOnly, "controlProbe": s.controlProbe}},
		"profiles": []any{map[string]any{"name": "b", "nodeSelector": map[string]any{"matchLabels": other}, "checks": check(s.checksOf(other))}},
		"logging":  map[string]any{"level": "info"},
		"metrics":  map[string]any{"port": ports[0]}, "health": map[string]any{"port": ports[1]},
	}
	s.repairs(full["nodeManagement"].(map[string]any))
	s.awaits(full)
	return full
}

// begin begins a run on the stage.
func begin(ctx context.Context, s *stage, program string, seed uint64, only []string, t *tally) (*world, error) {
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // no secret
	w := &world{stage: s, ctx: ctx, seed: seed, only: only, settings: draw(rng), rng: rng, tally: t, workers: map[string]*running{}}
	w.faults, w.settings.atOnce = drawEndless(seed, eachRight(controllersRights()), only)
	w.settings.drawRepair(seed)
	w.settings.drawActors(seed)
	if slices.ContainsFunc(w.faults, func(e endless) bool { return e.name == poolFails || e.name == claimStuck }) {
		w.settings.action, w.settings.clear = deleteOwner, false // these are about deletions
	}
	if slices.ContainsFunc(w.faults, func(e endless) bool { return e.name == poolFails }) {
		// Of the guards maxUnhealthy alone is in the way of the next deletion.
		w.settings.maxUnhealthy, w.settings.perHour, w.settings.maxRetries = 25, 20, 1
	}
	if w.settings.clear && len(only) == 0 {
		w.faults, w.settings.atOnce = nil, 0
	}
	w.faults = w.settings.interfere(seed, w.faults, only)
	if err := errors.Join(s.clear(ctx), w.beginLedger()); err != nil {
		return nil, err
	}
	w.check = newChecker(w.settings)
	w.check.showed = s.showed
	if err := s.observer.catchUp(ctx); err != nil {
		return nil, err
	}
	s.check(w.check)
	if seed%2 == 0 {
		if err := w.api.Create(ctx, rule()); err != nil {
			return nil, err
		}
	}
	if seed%3 == 1 && !w.settings.clear {
		if err := w.pauseRemediation("true"); err != nil {
			return nil, err
		}
	}
	s.policy.begin(rand.New(rand.NewPCG(seed, 18)), t) //nolint:gosec // no secret
	for i := range w.replicas {
		s.proxies[i].begin(rand.New(rand.NewPCG(seed, uint64(2+i))), t) //nolint:gosec // no secret
		ports, err := cluster.FreePorts("127.0.0.1", 2)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("seed-%d-replica-%d", seed, i)
		file := filepath.Join(s.cluster.Dir(), name+".yaml")
		w.replicas[i] = &replica{program: program, log: s.cluster.LogFile(name), file: file, ports: ports, shown: &s.proxies[i].shown, args: []string{"--config", file, "--kubeconfig", s.configs[i]}}
		if err := w.replicas[i].configure(w.settings); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// configure writes the replica's configuration, and kills its process: the next one has it.
func (r *replica) configure(s settings) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	content, err := json.Marshal(s.configuration(r.ports))
	if err == nil {
		err = os.WriteFile(r.file, content, 0o600)
	}
	if r.now != nil {
		r.now.Kill()
	}
	return err
}

// leadsWithin is how long a new leader is waited for, where one can be elected.
const leadsWithin = 15 * time.Second

// amend runs the controllers with other settings for a while.
func (w *world) amend(ctx context.Context, other settings, d time.Duration) (err error) {
	w.configuring.Lock()
	defer w.configuring.Unlock()
	for _, s := range []settings{other, w.settings} {
		for _, r := range w.replicas {
			err = errors.Join(err, r.configure(s))
		}
		w.check.configure(s, time.Now())
		for end, led := time.Now().Add(leadsWithin), false; !led && time.Now().Before(end); pause(ctx, 100*time.Millisecond) {
			w.check.look(func() { led = !w.check.led.IsZero() })
		}
		if s == other {
			pause(ctx, d)
		}
	}
	return err
}

// beginLedger makes the ledger as one that was begun yesterday: a new one would hold every deletion for an hour.
func (w *world) beginLedger() error {
	l := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ledger.Name}}
	if err := (ledger.Contents{CompleteSince: time.Now().Add(-24 * time.Hour), Entries: []ledger.Entry{}}).Write(l); err != nil {
		return err
	}
	err := w.api.Create(w.ctx, l)
	if apierrors.IsAlreadyExists(err) {
		err = w.api.Update(w.ctx, l)
	}
	return err
}

// supervise runs a replica until ctx ends, as a kubelet would.
func (w *world) supervise(r *replica) error {
	for w.ctx.Err() == nil {
		log, err := os.OpenFile(r.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		r.shown.forget()
		r.mu.Lock()
		p, err := w.cluster.Processes().Start(process.Spec{Path: r.program, Args: r.args, Env: []string{"POD_NAMESPACE=" + namespace}, Stdout: log, Stderr: log})
		r.now = p
		r.mu.Unlock()
		_ = log.Close()
		if err != nil {
			return err
		}
		w.tally.add("controllers started", 1)
		select {
		case <-p.Done():
			pause(w.ctx, 300*time.Millisecond)
		case <-w.ctx.Done():
			p.Kill()
			<-p.Done()
		}
	}
	return nil
}

// written is how many writes the controllers have sent.
func (w *world) written() (writes int) {
	for _, p := range w.proxies {
		writes += p.written()
	}
	return writes
}

// do does something with the replica's process.
func (r *replica) do(f func(*process.Process)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now != nil {
		f(r.now)
	}
}

// freeze stops the process for a while: it may go on in the belief that it leads.
func (r *replica) freeze(ctx context.Context, d time.Duration) {
	r.do(func(p *process.Process) { p.Signal(syscall.SIGSTOP) })
	pause(ctx, d)
	r.do(func(p *process.Process) { p.Signal(syscall.SIGCONT) })
}

// within is a random time from least to most.
func (w *world) within(least, most time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return least + time.Duration(w.rng.Int64N(int64(most-least)))
}

func nodeName(slot int) string { return fmt.Sprintf("node-%d", slot) }

func slotOf(node string) int {
	slot := -1
	_, _ = fmt.Sscanf(node, "node-%d", &slot)
	return slot
}

// errSame says that a change changes nothing, and is not written.
var errSame = errors.New("nothing to write")

// mark changes what others than the controller have put on a node.
func (w *world) mark(slot int, change func(*corev1.Node) error) error {
	w.locks[slot].Lock()
	defer w.locks[slot].Unlock()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n := &corev1.Node{}
		if err := w.api.Get(w.ctx, client.ObjectKey{Name: nodeName(slot)}, n); err != nil {
			return err
		}
		if n.Annotations[annotationMarks] != foreign(n) {
			return errSame // a fault already: it is not to be covered up
		}
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		if err := change(n); err != nil {
			return err
		}
		announce(n)
		return w.api.Update(w.ctx, n)
	})
	if errors.Is(err, errSame) {
		return nil
	}
	return err
}

// annotated annotates a node, or takes the annotation away where the value is empty.
func annotated(key, value string) func(*corev1.Node) error {
	return func(n *corev1.Node) error {
		if n.Annotations[key] == value {
			return errSame
		}
		if n.Annotations[key] = value; value == "" {
			delete(n.Annotations, key)
		}
		return nil
	}
}

// labelled is annotated for labels.
func labelled(key, value string) func(*corev1.Node) error {
	return func(n *corev1.Node) error {
		if n.Labels[key] == value {
			return errSame
		}
		if n.Labels[key] = value; value == "" {
			delete(n.Labels, key)
		}
		return nil
	}
}

// remove deletes a node in somebody else's name.
func (w *world) remove(slot int) error {
	n := &corev1.Node{}
	err := w.mark(slot, func(have *corev1.Node) error {
		n = have
		return annotated(annotationEnded, "true")(have)
	})
	if err != nil || n.UID == "" {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(w.api.Delete(w.ctx, n, client.Preconditions{UID: &n.UID}))
}

// end deletes another object in somebody else's name.
func (w *world) end(o client.Object, grace int64) error {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:"true"}}}`, o.GetUID(), annotationEnded)
	if err := w.api.Patch(w.ctx, o, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return client.IgnoreNotFound(err)
	}
	uid := o.GetUID()
	return client.IgnoreNotFound(w.api.Delete(w.ctx, o, client.GracePeriodSeconds(grace), client.Preconditions{UID: &uid}))
}

// newClaims is an empty list of NodeClaims.
func newClaims() *karpv1.NodeClaimList { return &karpv1.NodeClaimList{} }

func items(list client.ObjectList) (objects []client.Object) {
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		objects = append(objects, o.(client.Object))
		return nil
	})
	return objects
}

func command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	return cmd
}
