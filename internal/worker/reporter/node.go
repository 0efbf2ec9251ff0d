package reporter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
)

// API is the part of the worker's API client that a reporter uses.
type API interface {
	Send(ctx context.Context, r apiserver.Request) (apiserver.Response, error)
}

const (
	// requestTimeout of one request to the API server.
	requestTimeout = 10 * time.Second
	// updateAttempts limits the retries of an update after a conflict; the kubelet writes every 10 s.
	updateAttempts = 5
	// messagePeriod limits how often the condition is written when only its message changes.
	messagePeriod = 10 * time.Second
)

const patchType = string(types.StrategicMergePatchType)

// errNoUID is returned for JSON that is no object of an API server, such as null.
var errNoUID = errors.New("it has no UID")

// node is the Node as it was read or written last. It needs only patch of nodes/status: the answer to an empty patch is
// the Node. If patch is forbidden, it uses get and update.
type node struct {
	api             API
	name, condition string
	header          http.Header
	// useUpdate is true if patch is forbidden, and get is not.
	useUpdate bool
	uid       string
	// present is nil if the Node does not have the condition.
	present *corev1.NodeCondition
}

// newNode makes the configured node. It sends no request.
func newNode(api API, c Config) *node {
	n := &node{api: api, name: c.Node, condition: c.ConditionType, header: http.Header{}}
	if c.Impersonate {
		n.header.Set("Impersonate-User", "system:node:"+c.Node)
	}
	return n
}

// read reads the Node's UID and condition, and finds out whether patch is permitted.
func (n *node) read(ctx context.Context) error {
	body, err := n.send(ctx, http.MethodPatch, "/status", patchType, map[string]any{})
	if apiserver.HasStatus(err, http.StatusForbidden) {
		object, getErr := n.get(ctx)
		if apiserver.HasStatus(getErr, http.StatusForbidden) {
			return fmt.Errorf(
				"%w; the reporter needs patch of nodes/status, or get of nodes and update of nodes/status", err)
		}
		if getErr != nil {
			return getErr
		}
		n.useUpdate = true
		return n.observe(object)
	}
	if err != nil {
		return err
	}
	n.useUpdate = false
	return n.observe(body)
}

// write writes the condition of an observation. The caller must have called read.
func (n *node) write(ctx context.Context, o observation, now time.Time) error {
	if n.useUpdate {
		return n.update(ctx, o, now)
	}
	// With the UID, the patch conflicts if the Node has been replaced by another of the same name.
	body, err := n.send(ctx, http.MethodPatch, "/status", patchType, map[string]any{
		"metadata": map[string]any{"uid": n.uid},
		"status":   map[string]any{"conditions": []any{nextCondition(n.present, n.condition, o, now)}},
	})
	if err != nil {
		return err
	}
	return n.observe(body)
}

// update replaces the Node's status, guarded by the resourceVersion that it has read.
func (n *node) update(ctx context.Context, o observation, now time.Time) error {
	var err error
	for range updateAttempts {
		var body []byte
		if body, err = n.get(ctx); err != nil {
			return err
		}
		if err = n.observe(body); err != nil {
			return err
		}
		var object map[string]any
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber() // the other fields are written back unchanged
		if err = decoder.Decode(&object); err != nil {
			return &apiserver.BodyError{Cause: err}
		}
		setCondition(object, nextCondition(n.present, n.condition, o, now))
		if body, err = n.send(ctx, http.MethodPut, "/status", runtime.ContentTypeJSON, object); err == nil {
			return n.observe(body)
		}
		if !apiserver.HasStatus(err, http.StatusConflict) {
			return err
		}
	}
	return err
}

// setCondition sets a condition of a Node.
func setCondition(object map[string]any, c corev1.NodeCondition) {
	status, _ := object["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
		object["status"] = status
	}
	conditions, _ := status["conditions"].([]any)
	for i := range conditions {
		if present, _ := conditions[i].(map[string]any); present["type"] == string(c.Type) {
			conditions[i] = c
			return
		}
	}
	status["conditions"] = append(conditions, c)
}

// get reads the Node, by get of nodes or else of nodes/status.
func (n *node) get(ctx context.Context) ([]byte, error) {
	body, err := n.send(ctx, http.MethodGet, "", "", nil)
	if apiserver.HasStatus(err, http.StatusForbidden) {
		body, err = n.send(ctx, http.MethodGet, "/status", "", nil)
	}
	return body, err
}

// observe takes the UID and the condition from a Node.
func (n *node) observe(body []byte) error {
	var object struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
		Status struct {
			Conditions []corev1.NodeCondition `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(body, &object); err != nil {
		return &apiserver.BodyError{Cause: err}
	}
	if object.Metadata.UID == "" {
		return &apiserver.BodyError{Cause: errNoUID}
	}
	n.uid, n.present = object.Metadata.UID, nil
	for i := range object.Status.Conditions {
		if c := &object.Status.Conditions[i]; string(c.Type) == n.condition {
			n.present = c
		}
	}
	return nil
}

// send sends one request and returns the response's body. A status other than 200 is an *apiserver.StatusError.
func (n *node) send(ctx context.Context, method, subresource, contentType string, object any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request := apiserver.Request{Method: method, Path: "/api/v1/nodes/" + url.PathEscape(n.name) + subresource,
		ContentType: contentType, Header: n.header}
	if object != nil {
		var err error
		if request.Body, err = json.Marshal(object); err != nil {
			return nil, err
		}
	}
	response, err := n.api.Send(ctx, request)
	if err != nil {
		return nil, err
	}
	if response.Status != http.StatusOK {
		return nil, apiserver.NewStatusError(response)
	}
	return response.Body, nil
}

// nextCondition is the condition of an observation. Its times have the API's precision, a second. The transition time
// changes only with the status of the present condition, which may be nil.
func nextCondition(
	present *corev1.NodeCondition, conditionType string, o observation, now time.Time,
) corev1.NodeCondition {
	at := metav1.NewTime(now.UTC().Truncate(time.Second))
	c := corev1.NodeCondition{Type: corev1.NodeConditionType(conditionType), Status: o.status,
		LastHeartbeatTime: at, LastTransitionTime: at, Reason: o.reason, Message: o.message}
	if present != nil && present.Status == o.status && !present.LastTransitionTime.IsZero() {
		c.LastTransitionTime = present.LastTransitionTime
	}
	return c
}

// due reports whether to write an observation over the present condition. present may be nil, and written is when it
// was written. failing is how long the endpoint has failed.
func due(
	c Config, present *corev1.NodeCondition, written time.Time, o observation, failing time.Duration, now time.Time,
) bool {
	if present == nil {
		return true
	}
	age := now.Sub(written)
	elapsed := func(period time.Duration) bool { return age < 0 || age >= period } // a future time is from another clock
	switch {
	case present.Status == corev1.ConditionTrue && o.status == corev1.ConditionFalse:
		return failing >= c.Grace
	case present.Status != o.status, present.Reason != o.reason:
		return true
	case present.Message != o.message:
		return elapsed(min(messagePeriod, c.Heartbeat))
	}
	return elapsed(c.Heartbeat)
}
