package remediation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// ErrLedger says that the ledger is there and cannot be understood. Trying again does not help.
var ErrLedger = errors.New("the ledger of deletions is not readable")

// LedgerName is the ConfigMap, in the controller's namespace, that remembers deletions across restarts.
const LedgerName = "kube-node-ready-remediations"

const ledgerKey = "deletions.json"

// entry is one deletion in the ledger.
type entry struct {
	Time metav1.Time `json:"time"`
	Node string      `json:"node"`
	UID  string      `json:"nodeUID"`
	Pool string      `json:"pool,omitempty"`
	Kind decide.Kind `json:"kind"`
}

// Ledger is the list of recent deletions. It is written before a deletion: one that was cut short counts, one that
// was never written cannot happen.
type Ledger struct {
	// Reader must not be a cache.
	Reader    client.Reader
	Writer    client.Writer
	Namespace string
	// Keep is how long entries matter: the longer of an hour and the unhealthy window.
	Keep time.Duration
}

// Read returns the deletions that still matter. A ledger that cannot be read or understood is an error and
// holds every deletion.
func (l Ledger) Read(ctx context.Context, now time.Time) ([]decide.Deletion, error) {
	_, entries, err := l.load(ctx, now)
	if err != nil {
		return nil, err
	}
	out := make([]decide.Deletion, 0, len(entries))
	for _, e := range entries {
		out = append(out, decide.Deletion{Time: e.Time.Time, NodeUID: e.UID, Pool: e.Pool})
	}
	return out, nil
}

// Append enters a deletion that is about to happen. Entering the same node twice is one entry. A Conflict error
// means that somebody else wrote meanwhile: decide again.
func (l Ledger) Append(ctx context.Context, now time.Time, name, uid, pool string, kind decide.Kind) error {
	cm, entries, err := l.load(ctx, now)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.UID == uid {
			return nil
		}
	}
	raw, err := json.Marshal(append(entries, entry{Time: metav1.NewTime(now), Node: name, UID: uid, Pool: pool, Kind: kind}))
	if err != nil {
		return err
	}
	if cm == nil {
		return l.Writer.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: LedgerName, Labels: map[string]string{"app.kubernetes.io/name": "kube-node-ready"}},
			Data:       map[string]string{ledgerKey: string(raw)},
		})
	}
	if cm.Data == nil {
		cm.Data = map[string]string{}
	}
	cm.Data[ledgerKey] = string(raw)
	return l.Writer.Update(ctx, cm)
}

func (l Ledger) load(ctx context.Context, now time.Time) (*corev1.ConfigMap, []entry, error) {
	cm := &corev1.ConfigMap{}
	err := l.Reader.Get(ctx, client.ObjectKey{Namespace: l.Namespace, Name: LedgerName}, cm)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the ledger of deletions: %w", err)
	}
	var all, kept []entry
	if raw := cm.Data[ledgerKey]; raw != "" {
		if err := json.Unmarshal([]byte(raw), &all); err != nil {
			return nil, nil, fmt.Errorf("%w: remove key %s of ConfigMap %s/%s to start a new one: %w", ErrLedger, ledgerKey, l.Namespace, LedgerName, err)
		}
	}
	for _, e := range all {
		if now.Sub(e.Time.Time) < l.Keep {
			kept = append(kept, e)
		}
	}
	return cm, kept, nil
}

func ptrUID(uid string) *types.UID { return ptr.To(types.UID(uid)) }
