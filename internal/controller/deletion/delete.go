package deletion

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// Delete deletes the NodeClaim or Node, on condition that it still has the UID that was decided on. The API server's
// error is wrapped: apierrors.IsNotFound means that it is gone, apierrors.IsConflict that another one has its name now.
func Delete(ctx context.Context, w client.Writer, kind, name, uid string) error {
	var obj client.Object
	switch kind {
	case decide.KindNodeClaim:
		obj = &karpv1.NodeClaim{}
	case decide.KindNode:
		obj = &corev1.Node{}
	default:
		return fmt.Errorf("delete %s %s: not a kind that may be deleted", kind, name)
	}
	if name == "" || uid == "" {
		return fmt.Errorf("delete %s %q: the name or the UID that was decided on is missing", kind, name)
	}
	obj.SetName(name)
	if err := w.Delete(ctx, obj, client.Preconditions{UID: ptr.To(types.UID(uid))}); err != nil {
		return fmt.Errorf("delete %s %s (UID %s): %w", kind, name, uid, err)
	}
	return nil
}
