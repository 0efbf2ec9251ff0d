package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// MaxOverlap is the longest time that an API server should need to learn of an authority.
const MaxOverlap = 5 * time.Minute

// Rotation keeps the certificates in one Secret, and the authorities in the webhook configuration in step with them.
// Every replica runs it, the leader or not: a replica that waits for its certificate would wait forever if the leader
// is of an older release. Writes are guarded by the resourceVersion that was read, so one replica wins.
type Rotation struct {
	Rules
	// Namespace and Name of the Secret. The MutatingWebhookConfiguration has the same name.
	Namespace, Name string
	// Overlap is how long a new authority must have been in the webhook configuration before its certificate is served.
	// Every API server learns of it by its own watch.
	Overlap time.Duration
	// Client reads from the API server, and writes whether or not this replica is the leader.
	Client client.Client
	// Now returns the time.
	Now func() time.Time

	serving atomic.Pointer[tls.Certificate]
	// trusted reports whether the webhook configuration contains the authority of the serving certificate.
	trusted atomic.Bool
	// published is since when this process has seen the authority of the next certificate in the webhook configuration.
	published struct {
		certificate []byte
		since       time.Time
	}
}

// GetCertificate returns the certificate that a TLS server serves with. Until there is one, it returns an error.
func (r *Rotation) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := r.serving.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("there is no certificate yet")
}

// Ready returns why the API server cannot call this replica yet, or nil if it can.
func (r *Rotation) Ready() error {
	if r.serving.Load() == nil {
		return fmt.Errorf("the webhook has no certificate yet: see the log about Secret %s/%s", r.Namespace, r.Name)
	}
	if !r.trusted.Load() {
		return fmt.Errorf("MutatingWebhookConfiguration %s does not trust the webhook's certificate yet", r.Name)
	}
	return nil
}

// Setup adds the controller to the manager.
func (r *Rotation) Setup(mgr ctrl.Manager, watched cache.Cache) error {
	always := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: r.Name}}
	c, err := controller.New("webhook-certificates", mgr, controller.Options{
		Reconciler: r, NeedLeaderElection: ptr.To(false), MaxConcurrentReconciles: 1,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			200*time.Millisecond, time.Minute),
	})
	if err != nil {
		return err
	}
	one := func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{always} }
	enqueue := handler.EnqueueRequestsFromMapFunc(one)
	return errors.Join(
		c.Watch(unawaited{source.Kind[client.Object](watched, &corev1.Secret{}, enqueue)}),
		c.Watch(unawaited{source.Kind[client.Object](
			watched, &admissionregistrationv1.MutatingWebhookConfiguration{}, enqueue)}),
		c.Watch(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			q.Add(always) // also if neither exists, to log that
			return nil
		})),
	)
}

// unawaited is a source that the controller does not wait for. Rotation reads from the API server, and a watch makes it
// quicker. Awaited, a watch that the API server refuses would end the whole manager after its CacheSyncTimeout.
type unawaited struct{ source.Source }

// Reconcile creates a missing certificate, rotates one that is due, and serves the one in the Secret.
func (r *Rotation) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	// The webhook configuration is read first. Its write is refused if it changed since, so the Secret is at least as new.
	hook := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: r.Name}, hook); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read the CA that the API server trusts: %w", err)
	}
	secret := &corev1.Secret{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Name}, secret); err != nil {
		return reconcile.Result{}, fmt.Errorf(
			"read the webhook's certificates (the chart creates an empty Secret for them): %w", err)
	}
	have, now := certificatesOf(secret.Data), r.Now()
	plan, err := r.Next(have, r.learnt(have, hook, now), now)
	if err != nil {
		return reconcile.Result{}, err
	}
	if plan.Changed {
		secret.Data = plan.data()
		if err := r.Client.Update(ctx, secret); err != nil {
			return again(err, "store the webhook's certificates")
		}
		ctrl.LoggerFrom(ctx).Info("the webhook's certificates have changed", "renewal", plan.Renew,
			"underWay", len(plan.Next.Certificate) > 0)
	}
	if err := r.trust(ctx, hook, plan.Authorities); err != nil {
		return again(err, "write the CA that the API server trusts")
	}
	if err := r.serve(plan.Serving); err != nil {
		return reconcile.Result{}, err
	}
	r.trusted.Store(len(hook.Webhooks) > 0)
	wait := min(max(plan.Renew.Sub(now), time.Second), time.Hour)
	if len(plan.Next.Certificate) > 0 {
		wait = r.Overlap
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// learnt reports whether the API server has had time to learn to trust the next certificate.
func (r *Rotation) learnt(
	have Certificates, hook *admissionregistrationv1.MutatingWebhookConfiguration, now time.Time,
) bool {
	if len(have.Next.Certificate) == 0 || len(hook.Webhooks) == 0 {
		return false
	}
	for _, w := range hook.Webhooks {
		if !bytes.Equal(w.ClientConfig.CABundle, have.Authorities) {
			return false
		}
	}
	if p := &r.published; !bytes.Equal(p.certificate, have.Next.Certificate) {
		p.certificate, p.since = have.Next.Certificate, now
	}
	return now.Sub(r.published.since) >= r.Overlap
}

// trust writes the authorities into the webhook configuration if they are missing there.
func (r *Rotation) trust(
	ctx context.Context, hook *admissionregistrationv1.MutatingWebhookConfiguration, authorities []byte,
) error {
	// It patches and does not update: an older client would drop the fields that it does not know.
	patch := []jsonpatch.Operation{jsonpatch.NewOperation("replace", "/metadata/resourceVersion", hook.ResourceVersion)}
	for i, w := range hook.Webhooks {
		if !bytes.Equal(w.ClientConfig.CABundle, authorities) {
			path := fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i)
			patch = append(patch, jsonpatch.NewOperation("add", path, authorities))
		}
	}
	if len(patch) == 1 {
		return nil
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	return r.Client.Patch(ctx, hook, client.RawPatch(types.JSONPatchType, data))
}

// again requeues soon if another replica wrote first. It returns any other error with what was being done.
func again(err error, doing string) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	return reconcile.Result{}, fmt.Errorf("%s: %w", doing, err)
}

func (r *Rotation) serve(p Pair) error {
	pair, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		return err
	}
	r.serving.Store(&pair)
	return nil
}
