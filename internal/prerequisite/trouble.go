package prerequisite

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	notReadYet   = "not read yet"
	cannotBeRead = "cannot be read: "
	notServed    = cannotBeRead + "the kind is not served"
)

// phrase reduces the error of a request to what stays the same from retry to retry: it ends up in a condition's
// message, which is rewritten whenever it varies, and an error carries ports, durations and resource versions.
func phrase(err error, request string) string {
	switch reason := apierrors.ReasonForError(err); {
	case meta.IsNoMatchError(err), reason == metav1.StatusReasonNotFound:
		return notServed
	case reason == metav1.StatusReasonUnknown, reason == metav1.StatusReasonTimeout, reason == metav1.StatusReasonServerTimeout,
		reason == metav1.StatusReasonServiceUnavailable, reason == metav1.StatusReasonTooManyRequests:
		// During one outage these follow one another.
		return cannotBeRead + "no usable answer from the API server"
	default:
		return cannotBeRead + string(reason) + " (" + request + ")"
	}
}
