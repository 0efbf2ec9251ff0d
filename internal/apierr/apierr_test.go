package apierr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/leader"
)

// What an error means depends on the request.
func TestOf(t *testing.T) {
	pods, node := corev1.Resource("pods"), corev1.SchemeGroupVersion.WithKind("Node").GroupKind()
	uid := field.Invalid(field.NewPath("metadata", "uid"), "old", "field is immutable")
	code := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: message}}
	}
	// As the API server answers a ValidatingAdmissionPolicy without a reason: no causes in its details.
	policy := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 422, Reason: metav1.StatusReasonInvalid, Message: `nodes "n" is forbidden: ValidatingAdmissionPolicy 'p' denied request`,
		Details: &metav1.StatusDetails{Kind: "nodes", Name: "n"}}}
	all := func(c Class) map[Verb]Class { return map[Verb]Class{Read: c, Create: c, Patch: c, Delete: c} }
	for name, tc := range map[string]struct {
		err  error
		want map[Verb]Class
	}{
		"none":                               {nil, all(None)},
		"no such object":                     {apierrors.NewNotFound(pods, "p"), map[Verb]Class{Read: Gone, Create: Refused, Patch: Gone, Delete: Gone}},
		"another version":                    {apierrors.NewConflict(pods, "p", errors.New("the object has been modified")), map[Verb]Class{Patch: Conflict}},
		"another UID, a deletion":            {apierrors.NewConflict(pods, "p", errors.New("Precondition failed: UID in precondition: a, UID in object meta: b")), map[Verb]Class{Delete: Gone}},
		"another UID, a patch":               {apierrors.NewInvalid(node, "n", field.ErrorList{uid}), map[Verb]Class{Patch: Gone, Delete: Gone}},
		"another UID among other faults":     {apierrors.NewInvalid(node, "n", field.ErrorList{field.Required(field.NewPath("spec"), ""), uid}), map[Verb]Class{Patch: Gone}},
		"another UID, as a conflict":         {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 409, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: "metadata.uid"}}}}}, map[Verb]Class{Patch: Gone, Delete: Gone}},
		"a name that is taken":               {apierrors.NewAlreadyExists(pods, "p"), map[Verb]Class{Create: Exists}},
		"a quota that many use":              {apierrors.NewConflict(corev1.Resource("resourcequotas"), "q", errors.New("the object has been modified")), map[Verb]Class{Create: Later}},
		"too much load":                      {apierrors.NewTooManyRequests("slow down", 7), all(Later)},
		"a webhook that is down":             {apierrors.NewInternalError(errors.New("failed calling webhook")), all(Later)},
		"a gateway":                          {code(502, ""), all(Later)},
		"a server that is starting":          {apierrors.NewServiceUnavailable("starting"), all(Later)},
		"the server's own timeout":           {apierrors.NewTimeoutError("etcd", 1), all(Later)},
		"the request's timeout":              {code(408, ""), all(Later)},
		"an old list":                        {apierrors.NewResourceExpired("too old"), map[Verb]Class{Read: Later}},
		"no permission":                      {apierrors.NewForbidden(pods, "p", errors.New("no")), all(Refused)},
		"no credentials":                     {apierrors.NewUnauthorized("token expired"), all(Refused)},
		"a policy without a reason":          {policy, all(Refused)},
		"an invalid object":                  {apierrors.NewInvalid(node, "n", field.ErrorList{field.Invalid(field.NewPath("spec", "taints"), "t", "no")}), all(Refused)},
		"a UID elsewhere in the object":      {apierrors.NewInvalid(node, "n", field.ErrorList{field.Invalid(field.NewPath("metadata", "ownerReferences").Index(0).Child("uid"), "", "no")}), all(Refused)},
		"a bad request":                      {apierrors.NewBadRequest("no"), all(Refused)},
		"a method that is not served":        {apierrors.NewMethodNotSupported(pods, "patch"), all(Refused)},
		"an object that is too large":        {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), all(Refused)},
		"a webhook's code alone":             {code(403, ""), all(Refused)},
		"a webhook's own code":               {code(418, "no"), all(Refused)},
		"no connection":                      {io.ErrUnexpectedEOF, all(Unknown)},
		"no answer in time":                  {fmt.Errorf("patch: %w", context.DeadlineExceeded), all(Unknown)},
		"not leading, so it was not sent":    {&leader.RefusedError{Method: "PATCH", Path: "/api/v1/nodes/n", Why: "the lease is held by another"}, all(Unknown)},
		"not leading, in short":              {fmt.Errorf("post: %w", leader.ErrNotLeading), all(Unknown)},
		"a status without a code":            {&apierrors.StatusError{}, all(Unknown)},
		"the same answer, with more context": {fmt.Errorf("delete pod p: %w", policy), all(Refused)},
	} {
		for verb, want := range tc.want {
			if got := Of(tc.err, verb); got != want {
				t.Errorf("%s, %s: %q, want %q", name, verb, got, want)
			}
			if got := ReadReason(tc.err); verb == Read && (got != "") != (want == Refused || name == "a webhook that is down") {
				t.Errorf("%s: reason %q", name, got)
			}
			if got := Refusal(tc.err, verb); (got != "") != (want == Refused && name != "a webhook's code alone") {
				t.Errorf("%s, %s: refusal %q", name, verb, got)
			}
		}
	}
}
