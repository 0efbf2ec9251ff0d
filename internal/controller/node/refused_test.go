package node

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/leader"
)

// An admission webhook may answer with a code and no reason. The API server then passes on only the code.
func TestRefusalWithoutAReason(t *testing.T) {
	denied := func(code int32) error {
		status := metav1.Status{Status: metav1.StatusFailure, Code: code, Message: "denied the request"}
		return &apierrors.StatusError{ErrStatus: status}
	}
	for name, c := range map[string]struct {
		err             error
		refused, passes bool
	}{
		"forbidden":       {denied(http.StatusForbidden), true, false},
		"error":           {denied(http.StatusInternalServerError), true, true},
		"with a reason":   {apierrors.NewServiceUnavailable("busy"), true, true},
		"no answer":       {errors.New("connection refused"), false, false},
		"not the leader":  {fmt.Errorf("post: %w", leader.ErrNotLeading), false, false},
		"wrapped refusal": {fmt.Errorf("create: %w", denied(http.StatusUnprocessableEntity)), true, false},
	} {
		if got := refused(c.err); got != c.refused {
			t.Errorf("%s: refused is %t", name, got)
		}
		if got := transient(c.err); got != c.passes {
			t.Errorf("%s: passes is %t", name, got)
		}
	}
}
