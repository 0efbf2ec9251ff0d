package manager

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// brief is a client that asks the API server for only the metadata of a Node that it patches. The whole Node, with up
// to fifty images, would be several times the size of the patch, and no caller reads it. Only the object's metadata is
// set.
type brief struct {
	client.Client
}

// Patch implements client.Client.
func (b brief) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	n, ok := o.(*corev1.Node)
	if !ok {
		return b.Client.Patch(ctx, o, p, opts...)
	}
	return briefly(n, p, func(answer client.Object, p client.Patch) error {
		return b.Client.Patch(ctx, answer, p, opts...)
	})
}

// Status implements client.Client.
func (b brief) Status() client.SubResourceWriter { return briefStatus{b.Client.Status()} }

type briefStatus struct {
	client.SubResourceWriter
}

// Patch implements client.SubResourceWriter.
func (b briefStatus) Patch(ctx context.Context, o client.Object, p client.Patch,
	opts ...client.SubResourcePatchOption) error {
	n, ok := o.(*corev1.Node)
	if !ok {
		return b.SubResourceWriter.Patch(ctx, o, p, opts...)
	}
	return briefly(n, p, func(answer client.Object, p client.Patch) error {
		return b.SubResourceWriter.Patch(ctx, answer, p, opts...)
	})
}

func briefly(n *corev1.Node, p client.Patch,
	patch func(answer client.Object, p client.Patch) error) error {
	data, err := p.Data(n)
	if err != nil {
		return err
	}
	answer := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	answer.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	if err := patch(answer, client.RawPatch(p.Type(), data)); err != nil {
		return err
	}
	n.ObjectMeta = answer.ObjectMeta
	return nil
}
