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

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
)

// API is what a reporter needs of the worker's API client: one request, not repeated.
type API interface {
	Send(ctx context.Context, r apiserver.Request) (apiserver.Response, error)
}

const (
	// requestTimeout bounds one request to the API server.
	requestTimeout = 10 * time.Second
	// updateAttempts bounds how often an update is tried again that another writer came before; the kubelet writes every 10 s.
	updateAttempts = 5
)

const (
	strategicMerge = "application/strategic-merge-patch+json"
	plainJSON      = "application/json"
)

// errNoNode is an answer that is JSON and no object of an API server, as null.
var errNoNode = errors.New("it has no UID")

// refusal is an answer of the API server other than success.
type refusal struct {
	*apiserver.StatusError
	// retryAfter is how long the server asks not to be asked again.
	retryAfter time.Duration
}

func (r *refusal) Unwrap() error { return r.StatusError }

func refused(err error, code int) bool {
	var r *refusal
	return errors.As(err, &r) && r.Code == code
}

// node is the Node at the API server, as it was read or written last. It needs no more than patch of nodes/status: an empty
// patch changes nothing and is answered with the Node. Where that is forbidden it gets and updates.
type node struct {
	api             API
	name, condition string
	header          http.Header
	// updates is set where patch is forbidden, and where get and update are not.
	updates bool
	uid     string
	// present is the condition, nil where the Node has none.
	present *condition
}

// newNode is the configured node; nothing is asked yet.
func newNode(api API, c Config) *node {
	n := &node{api: api, name: c.Node, condition: c.ConditionType, header: http.Header{}}
	if c.Impersonate {
		n.header.Set("Impersonate-User", "system:node:"+c.Node)
	}
	return n
}

// read learns the Node's UID and present condition, and which way of writing is granted.
func (n *node) read(ctx context.Context) error {
	body, err := n.send(ctx, http.MethodPatch, n.path("/status"), strategicMerge, map[string]any{})
	if refused(err, http.StatusForbidden) {
		object, getErr := n.get(ctx)
		if refused(getErr, http.StatusForbidden) {
			return fmt.Errorf("%w; the reporter needs patch of nodes/status, or get of nodes and update of nodes/status", err)
		}
		if getErr != nil {
			return getErr
		}
		n.updates = true
		return n.take(object)
	}
	if err != nil {
		return err
	}
	n.updates = false
	return n.take(body)
}

// write makes the condition of an observation. It must be preceded by a read.
func (n *node) write(ctx context.Context, o observation, now time.Time) error {
	if n.updates {
		return n.update(ctx, o, now)
	}
	// The UID makes a conflict of a node that was replaced under its name, whose condition is not the one that was read.
	body, err := n.send(ctx, http.MethodPatch, n.path("/status"), strategicMerge, map[string]any{
		"metadata": map[string]any{"uid": n.uid},
		"status":   map[string]any{"conditions": []any{next(n.present, n.condition, o, now)}},
	})
	if err != nil {
		return err
	}
	return n.take(body)
}

// update replaces the Node's status, on condition of the resourceVersion that was read.
func (n *node) update(ctx context.Context, o observation, now time.Time) error {
	var err error
	for range updateAttempts {
		var body []byte
		if body, err = n.get(ctx); err != nil {
			return err
		}
		if err = n.take(body); err != nil {
			return err
		}
		var object map[string]any
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber() // what is not ours goes back as it came
		if err = decoder.Decode(&object); err != nil {
			return &apiserver.BodyError{Cause: err}
		}
		setCondition(object, next(n.present, n.condition, o, now))
		if body, err = n.send(ctx, http.MethodPut, n.path("/status"), plainJSON, object); err == nil {
			return n.take(body)
		}
		if !refused(err, http.StatusConflict) {
			return err
		}
	}
	return err
}

// setCondition puts a condition into a Node, in place of the one of its type.
func setCondition(object map[string]any, c condition) {
	status, _ := object["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
		object["status"] = status
	}
	conditions, _ := status["conditions"].([]any)
	for i := range conditions {
		if present, _ := conditions[i].(map[string]any); present["type"] == c.Type {
			conditions[i] = c
			return
		}
	}
	status["conditions"] = append(conditions, c)
}

// get reads the Node, by whichever of get of nodes and get of nodes/status is granted.
func (n *node) get(ctx context.Context) ([]byte, error) {
	body, err := n.send(ctx, http.MethodGet, n.path(""), "", nil)
	if refused(err, http.StatusForbidden) {
		body, err = n.send(ctx, http.MethodGet, n.path("/status"), "", nil)
	}
	return body, err
}

// take remembers what a Node says.
func (n *node) take(body []byte) error {
	var object struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
		Status struct {
			Conditions []condition `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(body, &object); err != nil {
		return &apiserver.BodyError{Cause: err}
	}
	if object.Metadata.UID == "" {
		return &apiserver.BodyError{Cause: errNoNode}
	}
	n.uid, n.present = object.Metadata.UID, nil
	for i := range object.Status.Conditions {
		if object.Status.Conditions[i].Type == n.condition {
			n.present = &object.Status.Conditions[i]
		}
	}
	return nil
}

func (n *node) path(subresource string) string {
	return "/api/v1/nodes/" + url.PathEscape(n.name) + subresource
}

// send sends one request and returns the answer's body; an answer other than 200 is a *refusal.
func (n *node) send(ctx context.Context, method, path, contentType string, object any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request := apiserver.Request{Method: method, Path: path, ContentType: contentType, Header: n.header}
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
		return nil, &refusal{apiserver.NewStatusError(response), apiserver.RetryAfter(response.Header, time.Now())}
	}
	return response.Body, nil
}
