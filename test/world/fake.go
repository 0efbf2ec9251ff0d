package world

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
)

// terminating is the finalizer of a fake pod that its kubelet has not ended yet.
const terminating = "world/terminating"

// fakeAPI is an API server of one world in memory: controller-runtime's fake client, with what that leaves out and
// worlds rely on. Those are UIDs and preconditions on them, a pod's phase, and its deletion in two steps.
// Which manager wrote which field is kept where it is asked for: that makes each write many times as slow.
func fakeAPI(managedFields bool) client.WithWatch {
	scheme := fakeScheme()
	builder := fake.NewClientBuilder().WithReturnManagedFields()
	if !managedFields {
		decoder := serializer.NewCodecFactory(scheme).UniversalDecoder()
		builder = fake.NewClientBuilder().WithObjectTracker(clienttesting.NewObjectTracker(scheme, decoder))
	}
	stored := builder.WithScheme(scheme).
		WithStatusSubresource(&corev1.Node{}, &corev1.Pod{}, &v1alpha1.NodeReadinessRule{}, &karpv1.NodeClaim{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&karpv1.NodeClaim{}, metav1.ObjectNameField, func(o client.Object) []string { return []string{o.GetName()} }).
		Build()
	return interceptor.NewClient(stored, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := c.List(ctx, list, opts...); err != nil {
				return err
			}
			list.SetResourceVersion("1") // no older than what is in it: worlds have no watches
			return nil
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			o.SetUID(types.UID(uuid.NewString()))
			o.SetCreationTimestamp(metav1.Now())
			o.SetGeneration(1)
			if p, ok := o.(*corev1.Pod); ok && p.Status.Phase == "" {
				p.Status.Phase = corev1.PodPending
			}
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := sameUID(ctx, c, o, p); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := sameUID(ctx, c, o, p); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return deleteFake(ctx, c, o, (&client.DeleteOptions{}).ApplyOptions(opts))
		},
	})
}

// fakeScheme has the types of worlds only: a client of a world reads all of its scheme. A client adds what it meets, so
// no two share one.
func fakeScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Node{}, &corev1.NodeList{}, &corev1.Pod{}, &corev1.PodList{},
		&corev1.ConfigMap{}, &corev1.ConfigMapList{}, &corev1.Namespace{}, &corev1.NamespaceList{}, &corev1.ServiceAccount{},
		&corev1.ServiceAccountList{}, &corev1.Event{}, &corev1.EventList{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	karpenter := schema.GroupVersion{Group: "karpenter.sh", Version: "v1"}
	scheme.AddKnownTypes(karpenter, &karpv1.NodeClaim{}, &karpv1.NodeClaimList{})
	metav1.AddToGroupVersion(scheme, karpenter)
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		panic(err) // two types of one name: a fault of the program
	}
	return scheme
}

// sameUID refuses a patch that names the UID of another object, as the API server does.
func sameUID(ctx context.Context, c client.Client, o client.Object, p client.Patch) error {
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	var patch struct {
		Metadata struct {
			UID types.UID `json:"uid"`
		} `json:"metadata"`
	}
	if p.Type() != types.JSONPatchType {
		if err := json.Unmarshal(data, &patch); err != nil {
			return err
		}
	}
	if patch.Metadata.UID == "" {
		return nil
	}
	have := &metav1.PartialObjectMetadata{}
	gvk, err := c.GroupVersionKindFor(o)
	if err != nil {
		return err
	}
	have.SetGroupVersionKind(gvk)
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), have); err != nil {
		return err
	}
	return precondition(have, &patch.Metadata.UID)
}

// precondition is the conflict of an object that has another UID.
func precondition(o client.Object, uid *types.UID) error {
	if uid == nil || *uid == o.GetUID() {
		return nil
	}
	return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), fmt.Errorf("precondition failed: UID in precondition: %s, "+
		"UID in object meta: %s", *uid, o.GetUID()))
}

// deleteFake deletes an object. A pod that is bound and has not ended goes in two steps: its kubelet's is the second.
func deleteFake(ctx context.Context, c client.WithWatch, o client.Object, options *client.DeleteOptions) error {
	have := o.DeepCopyObject().(client.Object)
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), have); err != nil {
		return err
	}
	if p := options.Preconditions; p != nil {
		if err := precondition(have, p.UID); err != nil {
			return err
		}
	}
	if len(options.DryRun) > 0 {
		return nil
	}
	pod, ok := have.(*corev1.Pod)
	if !ok {
		return c.Delete(ctx, have)
	}
	atOnce := options.GracePeriodSeconds != nil && *options.GracePeriodSeconds == 0 || pod.Spec.NodeName == "" ||
		pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case atOnce && pod.DeletionTimestamp == nil:
		return c.Delete(ctx, pod)
	case atOnce:
		pod.Finalizers = nil
		return client.IgnoreNotFound(c.Update(ctx, pod))
	case pod.DeletionTimestamp != nil:
		return nil
	}
	pod.Finalizers = append(pod.Finalizers, terminating)
	if err := c.Update(ctx, pod); err != nil {
		return err
	}
	return c.Delete(ctx, pod)
}
