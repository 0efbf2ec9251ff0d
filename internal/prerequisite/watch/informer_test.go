package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/resources"
)

// forbidden is a refusal whose text differs from one to the next.
func forbidden(i int) error {
	return fmt.Errorf("failed to list: %w", apierrors.NewForbidden(storageResource.GroupResource(), "", fmt.Errorf("attempt %d", i)))
}

func refused(i int) error {
	return &url.Error{Op: "Get", URL: "https://10.0.0.1", Err: &net.OpError{Op: "read", Addr: &net.TCPAddr{Port: 40000 + i}, Err: errors.New("connection refused")}}
}

func TestReasonOf(t *testing.T) {
	noMatch := &meta.NoKindMatchError{GroupKind: storageKind.GroupKind(), SearchedVersions: []string{"v1"}}
	const (
		noAnswer  = "cannot be read: no usable answer from the API server"
		notServed = "cannot be read: the kind is not served"
	)
	for want, errs := range map[string][]error{
		"cannot be read: Forbidden (list and watch storages.warm.example.com)": {forbidden(1), forbidden(2)},
		"cannot be read: InternalError (list and watch storages.warm.example.com)": {
			apierrors.NewInternalError(errors.New("conversion webhook: dial tcp 10.0.0.1:4711")), apierrors.NewInternalError(errors.New("conversion webhook: EOF"))},
		"cannot be read: HTTP 418 (list and watch storages.warm.example.com)": {apierrors.NewGenericServerResponse(418, "list", schema.GroupResource{}, "", "id 1", 0, true)},
		noAnswer: {apierrors.NewResourceExpired("too old: 17"), apierrors.NewGenericServerResponse(502, "list", schema.GroupResource{}, "", "", 0, true), refused(1), refused(2), io.ErrUnexpectedEOF, fmt.Errorf("failed: %w", context.DeadlineExceeded), apierrors.NewServiceUnavailable("starting"),
			apierrors.NewTimeoutError("after 12.3s", 1), apierrors.NewTooManyRequests("busy", 3), apierrors.NewServerTimeout(schema.GroupResource{}, "list", 2)},
		notServed: {noMatch, fmt.Errorf("failed: %w", noMatch), apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "", "", 0, false),
			&apiutil.ErrResourceDiscoveryFailed{storageKind.GroupVersion(): apierrors.NewNotFound(schema.GroupResource{}, "")}},
	} {
		for _, err := range errs {
			if got := reasonOf(err, "list and watch storages.warm.example.com"); got != want {
				t.Errorf("%v is %q, not %q", err, got, want)
			}
		}
	}
}

// While a watch fails its reason keeps one text and enqueues the node once; it is forgotten when the watch works.
func TestTroubleIsStableAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refusal atomic.Pointer[func(int) error] // nil: the list is served
		var tries atomic.Int64
		const slow = kindRetry + 2*time.Second // so that there is a time when the kind is known and not read
		client := dynamicClient()
		client.PrependReactor("list", "storages", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(slow)
			try := tries.Add(1)
			if err := refusal.Load(); err != nil {
				return true, nil, (*err)(int(try))
			}
			return false, nil, nil
		})
		// retried lets the watch be tried several times.
		retried := func() {
			before := tries.Load()
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if now := tries.Load(); now < before+3 {
				t.Fatalf("%d tries, then %d", before, now)
			}
		}
		refuse := func(err func(int) error) { refusal.Store(&err) }
		refuse(forbidden)
		kind := &lateMapper{}
		f := prepare(t, config.Prerequisites{Resources: resources.Settings{storages("node={{node}}")}}, kind, client)
		const what = "Storage (node=node-a) Attached to be True "
		f.waits("node-a", what+"(not read yet)")
		f.start().waits("node-a", what+"(cannot be read: the kind is not served)")
		f.enqueuesOnly("a kind that is still not served", func() { time.Sleep(time.Minute) })

		kind.served.Store(true)
		time.Sleep(kindRetry + time.Second)
		f.waits("node-a", what+"(not read yet)")
		f.enqueuesOnly("a refusal, however often", retried, "node-a")
		f.waits("node-a", what+"(cannot be read: Forbidden (list and watch storages.warm.example.com))")
		f.enqueuesOnly("the same refusal", retried)
		f.waits("node-a", what+"(cannot be read: Forbidden (list and watch storages.warm.example.com))")

		refuse(refused)
		f.enqueuesOnly("another reason", retried, "node-a")
		f.waits("node-a", what+"(cannot be read: no usable answer from the API server)")

		refusal.Store(nil)
		f.enqueuesOnly("the first list", func() { time.Sleep(5 * time.Minute) }, "node-a")
		f.waits("node-a", what+"(no such object)")
	})
}

// lateMapper knows the kind once its definition is installed.
type lateMapper struct {
	meta.RESTMapper
	served atomic.Bool
}

func (m *lateMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return mapper(m.served.Load()).RESTMapping(kind, versions...)
}
