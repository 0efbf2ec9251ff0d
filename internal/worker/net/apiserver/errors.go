package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

// StatusError is a response other than success.
type StatusError struct {
	Code int
	// Message is what the API server said.
	Message string
}

// maxStatusMessage bounds how much of a response is repeated in a message.
const maxStatusMessage = 300

// NewStatusError reads the error out of a response: a Status object's message, else the
// beginning of the body.
func NewStatusError(r Response) *StatusError {
	var status struct {
		Kind    string `json:"kind"`
		Message string `json:"message"`
	}
	message := string(r.Body)
	if json.Unmarshal(r.Body, &status) == nil && status.Kind == "Status" {
		message = status.Message
	}
	message = strings.TrimSpace(message)
	if len(message) > maxStatusMessage {
		message = message[:maxStatusMessage]
	}
	return &StatusError{Code: r.Status, Message: message}
}

func (e *StatusError) Error() string {
	what := fmt.Sprintf("answered %d %s", e.Code, http.StatusText(e.Code))
	switch {
	case e.Code == http.StatusUnauthorized:
		what += ": the service account's token is not accepted"
	case e.Code == http.StatusForbidden:
		what += ": the worker's service account lacks a permission"
	case e.Code == http.StatusTooManyRequests:
		what += ": the API server sheds load"
	case e.Code >= 500:
		what += ": the API server, or what it depends on, is broken"
	}
	if e.Message != "" {
		what += " (" + e.Message + ")"
	}
	return what
}

// Reason says why in one word.
func (e *StatusError) Reason() check.Reason {
	switch {
	case e.Code == http.StatusUnauthorized:
		return check.ReasonUnauthorized
	case e.Code == http.StatusForbidden:
		return check.ReasonForbidden
	case e.Code == http.StatusTooManyRequests:
		return check.ReasonTooManyRequests
	case e.Code >= 500:
		return check.ReasonAPIUnavailable
	}
	return check.ReasonUnexpectedStatus
}

// BodyError is a response that cannot be read.
type BodyError struct{ Cause error }

func (e *BodyError) Error() string {
	return "answered something that is not the object asked for: " + e.Cause.Error()
}

// Reason says why in one word.
func (e *BodyError) Reason() check.Reason { return check.ReasonUnexpectedBody }

// Unwrap returns the cause.
func (e *BodyError) Unwrap() error { return e.Cause }
