package deletion

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

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// LedgerName is the ConfigMap, in the controller's namespace, that remembers deletions across restarts.
const LedgerName = "kube-node-ready-remediations"

// ledgerAge is how long what was read serves nodes that are held anyway.
const ledgerAge = 2 * time.Second

// Ledger is the list of recent deletions. It is written before a deletion: one that was cut short counts, one that
// was never written cannot happen. The zero value with the public fields set is ready for use.
type Ledger struct {
	// Reader must not be a cache.
	Reader    client.Reader
	Writer    client.Writer
	Namespace string
	// Keep is how long entries matter: the longer of an hour, which it is at least, and the unhealthy window.
	Keep time.Duration

	last memo[contents]
}

// contents are the entries of the ConfigMap, and its resourceVersion; that of none is empty.
type contents struct {
	version string
	entries []entry
}

// Read returns the deletions that still matter, the oldest first. fresh reads the ledger anew, which a deletion is decided
// on; without it, what was read up to two seconds ago will do. A ledger that cannot be read or understood is an error and
// holds every deletion.
func (l *Ledger) Read(ctx context.Context, now time.Time, fresh bool) (decide.Ledger, error) {
	have, err := l.last.get(ctx, ledgerAge, fresh, func(ctx context.Context) (contents, error) {
		cm, entries, err := l.load(ctx)
		if err == nil && ahead(entries, now) {
			// Entries from the future may be what holds every deletion, and nobody would then ever write them again.
			// Where this fails they go on counting as made now, which errs on the safe side, and the next reader tries.
			_ = l.save(ctx, cm, settle(entries, now, l.keep()))
		}
		return contents{version: version(cm), entries: entries}, err
	})
	if err != nil {
		return decide.Ledger{}, err
	}
	out := decide.Ledger{Version: have.version}
	for _, e := range settle(have.entries, now, l.keep()) {
		out.Deletions = append(out.Deletions, decide.Deletion{Time: e.Time.Time, NodeUID: e.UID, Pool: e.Pool, Zone: e.Zone})
	}
	return out, nil
}

func version(cm *corev1.ConfigMap) string {
	if cm == nil {
		return ""
	}
	return cm.ResourceVersion
}

// Append enters a deletion that is about to happen at d.Time, which is the present, and was decided on the ledger of the
// version. A node that is entered again has one entry with the later time: its deletion is yet to happen. A Conflict error
// means that somebody else wrote since, so that the limits may not hold any more: decide again.
func (l *Ledger) Append(ctx context.Context, d decide.Deletion, node, kind, decidedOn string) error {
	e := entry{Time: metav1.NewTime(d.Time), Node: node, UID: d.NodeUID, Pool: d.Pool, Zone: d.Zone, Kind: kind}
	if !e.plausible() || node == "" || kind == "" {
		return fmt.Errorf("enter a deletion in the ledger: its time, node, UID or kind is missing, or one of them is too long")
	}
	return l.last.change(ctx, func(ctx context.Context) error {
		cm, entries, err := l.load(ctx)
		if err != nil {
			return err
		}
		if version(cm) != decidedOn {
			return fmt.Errorf("write the ledger of deletions: %w", conflict("it was changed since it was read"))
		}
		entries = slices.DeleteFunc(settle(entries, d.Time, l.keep()), func(old entry) bool { return old.UID == e.UID })
		return l.save(ctx, cm, append(entries, e))
	})
}

func (l *Ledger) keep() time.Duration { return max(l.Keep, time.Hour) }

// load returns the ConfigMap, nil if there is none, and its entries.
func (l *Ledger) load(ctx context.Context) (*corev1.ConfigMap, []entry, error) {
	cm := &corev1.ConfigMap{}
	err := l.Reader.Get(ctx, client.ObjectKey{Namespace: l.Namespace, Name: LedgerName}, cm)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("read the ledger of deletions: %w", err)
	}
	entries, err := parse(cm)
	return cm, entries, err
}

// save writes the entries on condition that the ConfigMap is still what load returned.
func (l *Ledger) save(ctx context.Context, cm *corev1.ConfigMap, entries []entry) error {
	raw, err := encode(entries)
	if err != nil {
		return fmt.Errorf("encode the ledger of deletions: %w", err)
	}
	if cm == nil {
		err = l.Writer.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: LedgerName, Labels: map[string]string{"app.kubernetes.io/name": "kube-node-ready"}},
			Data:       map[string]string{ledgerKey: raw},
		})
		if apierrors.IsAlreadyExists(err) {
			err = conflict("it was created meanwhile")
		}
	} else {
		if cm.Data == nil {
			cm.Data = map[string]string{}
		}
		cm.Data[ledgerKey] = raw
		err = l.Writer.Update(ctx, cm) // with the resourceVersion it was read at
		if apierrors.IsNotFound(err) {
			err = conflict("it was deleted meanwhile")
		}
	}
	if err != nil {
		return fmt.Errorf("write the ledger of deletions: %w", err)
	}
	return nil
}

func conflict(cause string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, LedgerName, errors.New(cause))
}
