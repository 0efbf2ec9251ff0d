package controller

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Refusal is the API server's message where it refuses a request and will do so again until somebody changes a
// permission or an admission policy; empty for a nil error and for every other one, which may pass: no answer, a
// conflict, an object that is not there or expired, too many requests, an error of the server.
func Refusal(err error) string {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return ""
	}
	switch s := answer.Status(); s.Code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity:
		return s.Message
	}
	return ""
}
