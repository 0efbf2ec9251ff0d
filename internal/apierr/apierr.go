// Package apierr classifies the errors of requests to the API server by what follows from them.
package apierr

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Verb is what a request does. The same status has another meaning for each.
type Verb string

// The verbs.
const (
	Read   Verb = "read" // get, list or watch
	Create Verb = "create"
	// Patch is also an update. One of ours carries the object's UID or its resourceVersion.
	Patch Verb = "patch"
	// Delete carries the object's UID as its only precondition.
	Delete Verb = "delete"
)

// Class is what an error means for the request.
type Class string

// The classes.
const (
	None     Class = ""         // no error
	Gone     Class = "gone"     // the object does not exist, or another one has its name
	Conflict Class = "conflict" // the object has another version: decide again on a fresh read
	Exists   Class = "exists"   // an object of the name exists
	Later    Class = "later"    // the same request may succeed soon: too much load, a failing server or webhook
	Refused  Class = "refused"  // a person must change a permission, a policy or the request
	Unknown  Class = "unknown"  // no answer of the API server's: whether the request took effect is not known
)

// Of is the class of the error of a request. It depends on the code of the API server's answer and not on its reason,
// because a webhook may return only a code.
func Of(err error, verb Verb) Class {
	s, ok := answer(err)
	switch {
	case err == nil:
		return None
	case !ok:
		return Unknown
	}
	switch {
	case s.Code == http.StatusNotFound && verb != Create:
		return Gone
	case s.Code == http.StatusConflict:
		return ofConflict(s, verb)
	case s.Code == http.StatusUnprocessableEntity && otherUID(s):
		return Gone
	case s.Code == http.StatusTooManyRequests, s.Code == http.StatusRequestTimeout,
		s.Code >= http.StatusInternalServerError:
		return Later
	case s.Code == http.StatusGone && verb == Read: // the list begins again
		return Later
	case s.Code >= http.StatusBadRequest:
		return Refused
	}
	return Unknown
}

// ofConflict is the class of a 409. One of a create is that of a name that is taken, or of a ResourceQuota that several
// creates use at once.
func ofConflict(s metav1.Status, verb Verb) Class {
	switch {
	case verb == Create && s.Reason == metav1.StatusReasonAlreadyExists:
		return Exists
	case verb == Create:
		return Later
	case verb == Delete, otherUID(s):
		return Gone
	}
	return Conflict
}

// otherUID reports whether the API server rejects a change of metadata.uid: the object of that UID is gone, and another
// one has its name. Any other 422 is a refusal. An admission policy without a reason answers with it, too
// (Validation.reason in k8s.io/api/admissionregistration/v1).
func otherUID(s metav1.Status) bool {
	return s.Details != nil && slices.ContainsFunc(s.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "metadata.uid"
	})
}

// Refusal is the API server's message if it refuses the request (Refused); otherwise empty.
func Refusal(err error, verb Verb) string {
	if Of(err, verb) != Refused {
		return ""
	}
	s, _ := answer(err)
	return s.Message
}

// ReadReason is the part of the error of a read that is the same in every retry: the reason of a refusal, or that of a
// webhook that fails (500). It is empty for other errors, which follow one another during an outage.
func ReadReason(err error) string {
	s, _ := answer(err)
	failing := s.Code == http.StatusInternalServerError && s.Reason == metav1.StatusReasonInternalError
	switch {
	case Of(err, Read) != Refused && !failing:
		return ""
	case s.Reason == "" || s.Reason == metav1.StatusReasonUnknown:
		return fmt.Sprintf("HTTP %d", s.Code)
	}
	return string(s.Reason)
}

// answer is the status that the API server returned. ok is false if err is none of its answers.
func answer(err error) (s metav1.Status, ok bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return metav1.Status{}, false
	}
	return status.Status(), true
}
