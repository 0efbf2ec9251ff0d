package leader

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/kube-node-ready/kube-node-ready/internal/version"
)

// LabelVersion on the Lease is the version of who holds it.
const LabelVersion = "node-ready/version"

// VersionLabel is the label's value for a version.
func VersionLabel(v string) string {
	v = strings.Map(func(r rune) rune {
		if strings.ContainsRune("+/: ", r) {
			return '_'
		}
		return r
	}, v)
	return strings.Trim(v[:min(len(v), validation.LabelValueMaxLength)], "-_.")
}

// New makes a fence of the Lease namespace/name, as controller-runtime makes its lock (pkg/leaderelection). It copies
// cfg, which may be wrapped with the fence's Transport afterwards. If recorder is nil, there is no event about the
// leader, which the Lease, the log and leader_election_master_status still show. One that is given must not write
// through the fence either: its last event comes after the release.
func New(cfg *rest.Config, namespace, name string, recorder resourcelock.EventRecorder) (*Fence, error) {
	if namespace == "" || name == "" {
		return nil, errors.New("leader election needs the namespace and the name of a Lease")
	}
	// A container that is restarted keeps its host name, and must not take itself for its predecessor.
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find a name for this replica: %w", err)
	}
	own := rest.CopyConfig(cfg)
	own.UserAgent += "/leader-election"
	own.RateLimiter = nil           // a renewal does not queue behind the reconciles' requests
	own.Timeout = RenewDeadline / 2 // one request that hangs must leave time for another
	client, err := coordinationv1.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("make a client for the Lease: %w", err)
	}
	return Wrap(&resourcelock.LeaseLock{
		Labels:     map[string]string{LabelVersion: VersionLabel(version.Version)},
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + uuid.NewString(), EventRecorder: recorder},
	}), nil
}
