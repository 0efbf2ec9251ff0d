package remediation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/apiread"
	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// ledgerAge is how long a read of the ledger is reused for nodes that are held anyway.
const ledgerAge = 2 * time.Second

// Ledger is the list of recent actions on nodes. It is written before an action, so an interrupted action counts, and
// no action happens that is not in it. The zero value with the public fields set is ready for use.
type Ledger struct {
	// Reader must not be a cache.
	Reader    client.Reader
	Writer    client.Writer
	Namespace string
	// Keep is how long entries matter; see decide.LookBack. An hour at least.
	Keep time.Duration
	// ReadOnly is for a dry run, which may not write it.
	ReadOnly bool

	last apiread.Last[ledger.Contents]
}

// Read returns the actions that still count, the oldest first. With fresh, it reads the ledger from the API server, as
// a decision about an action needs. Otherwise a read of up to two seconds ago is enough. A ledger without a start time
// gets the present time. A ledger that cannot be read, parsed or created is an error, and holds every action.
func (l *Ledger) Read(ctx context.Context, now time.Time, fresh bool) (decide.Ledger, error) {
	have, err := l.read(ctx, now, fresh)
	if err == nil && have.CompleteSince.IsZero() && !l.ReadOnly {
		if err = l.begin(ctx, now); err == nil {
			have, err = l.read(ctx, now, true)
		}
	}
	if err != nil {
		return decide.Ledger{}, err
	}
	settled := have.Prune(now, l.keep())
	all := settled.Entries
	settled.Entries = ledger.NewerThan(all, now, l.keep())
	earlier := all[:len(all)-len(settled.Entries)] // they are sorted by time
	settled.Paused = attempt.Text(settled.Paused)
	if settled.CompleteSince.IsZero() {
		settled.CompleteSince = now
	}
	return decide.Ledger{Contents: settled, Earlier: earlier}, nil
}

func (l *Ledger) read(ctx context.Context, now time.Time, fresh bool) (ledger.Contents, error) {
	return l.last.Get(ctx, ledgerAge, fresh, func(ctx context.Context) (ledger.Contents, error) {
		cm, c, err := l.load(ctx)
		if err == nil && c.HasFutureTimes(now) && !l.ReadOnly {
			// Entries from the future may be what holds every action. Then no action would ever write the ledger again. If
			// this write fails, the entries go on counting as made now. That is the safe side, and the next reader tries again.
			if version, err := l.save(ctx, cm, c.Prune(now, l.keep())); err == nil {
				c.Version = version
			}
		}
		return c, err
	})
}

// begin records the time since which the ledger is kept, unless that is recorded already.
func (l *Ledger) begin(ctx context.Context, now time.Time) error {
	return l.last.Change(ctx, func(ctx context.Context) error {
		cm, c, err := l.load(ctx)
		if err != nil || !c.CompleteSince.IsZero() {
			return err
		}
		c.CompleteSince = now
		_, err = l.save(ctx, cm, c.Prune(now, l.keep()))
		return err
	})
}

// Append adds an action that is about to happen at e.Time, the present. It was decided on the given version of the
// ledger. passed is when the node last passed, or zero. A deletion that is added again keeps one entry with the later
// time, because it has not happened yet. A condition that is set again was counted before, and keeps the time of that.
// A Conflict error means that somebody else has written the ledger since. Decide
// again, because the limits may no longer allow the action.
func (l *Ledger) Append(ctx context.Context, e ledger.Entry, passed time.Time, decidedOn string) error {
	if err := e.Validate(); err != nil {
		return err
	}
	return l.last.Change(ctx, func(ctx context.Context) error {
		cm, c, err := l.load(ctx)
		if err != nil {
			return err
		}
		if c.Version != decidedOn {
			return fmt.Errorf("write the ledger of remediations: %w", conflict("it changed after it was read"))
		}
		c = c.Prune(e.Time.Time, l.keep())
		added := e
		c.Entries = slices.DeleteFunc(c.Entries, func(earlier ledger.Entry) bool {
			if !e.Repeats(earlier, passed) {
				return false
			}
			if e.Kind == marks.KindCondition && e.Time.Sub(earlier.Time.Time) < l.keep() {
				added.Time, added.Set = earlier.Time, &e.Time
			}
			return true
		})
		c.Entries = append(c.Entries, added)
		_, err = l.save(ctx, cm, c)
		return err
	})
}

func (l *Ledger) keep() time.Duration { return max(l.Keep, time.Hour) }

// load returns the ConfigMap, or nil if there is none, and its contents.
func (l *Ledger) load(ctx context.Context) (*corev1.ConfigMap, ledger.Contents, error) {
	cm := &corev1.ConfigMap{}
	err := l.Reader.Get(ctx, client.ObjectKey{Namespace: l.Namespace, Name: ledger.Name}, cm)
	switch {
	case apierrors.IsNotFound(err):
		return nil, ledger.Contents{}, nil
	case err != nil:
		return nil, ledger.Contents{}, fmt.Errorf("read the ledger of remediations: %w", err)
	}
	c, err := ledger.Parse(cm)
	return cm, c, err
}

// save writes the contents on condition that the ConfigMap is still what load returned, and returns its new version.
func (l *Ledger) save(ctx context.Context, cm *corev1.ConfigMap, c ledger.Contents) (version string, err error) {
	missing := cm == nil
	if missing {
		cm = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: ledger.Name,
			Labels: map[string]string{"app.kubernetes.io/name": "kube-node-ready"}}}
	}
	if err := c.Write(cm); err != nil {
		return "", err
	}
	if missing {
		if err = l.Writer.Create(ctx, cm); apierrors.IsAlreadyExists(err) {
			err = conflict("it was created meanwhile")
		}
	} else if err = l.Writer.Update(ctx, cm); apierrors.IsNotFound(err) { // with the resourceVersion it was read at
		err = conflict("it was deleted meanwhile")
	}
	if err != nil {
		return "", fmt.Errorf("write the ledger of remediations: %w", err)
	}
	return cm.ResourceVersion, nil
}

func conflict(cause string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, ledger.Name, errors.New(cause))
}
