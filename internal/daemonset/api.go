package daemonset

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
)

const (
	nodes = "/api/v1/nodes"

	object = ""        // the Node itself
	status = "/status" // its subresource

	mergePatch          = "application/merge-patch+json"
	strategicMergePatch = "application/strategic-merge-patch+json"
)

// read reads the node, unless the answer to a write has just been it.
func (p *Process) read(ctx context.Context) (*corev1.Node, error) {
	if n := p.seen; n != nil {
		p.seen = nil
		return n, nil
	}
	n := &corev1.Node{}
	return n, p.send(ctx, apiserver.Request{Method: http.MethodGet, Path: p.path()}, n)
}

func (p *Process) path() string { return nodes + "/" + url.PathEscape(p.Node) }

// patch writes the node, or its status, and asks for another pass. A conflict is decided again: somebody was faster, or
// another node has the name.
func (p *Process) patch(ctx context.Context, subresource string, body []byte) error {
	kind := mergePatch
	if subresource == status {
		kind = strategicMergePatch
	}
	n := &corev1.Node{}
	err := p.send(ctx, apiserver.Request{Method: http.MethodPatch, Path: p.path() + subresource, ContentType: kind, Body: body}, n)
	switch {
	case err == nil:
		p.seen = n
		return errAgain
	case refused(err, http.StatusConflict):
		return errAgain
	}
	return err
}

// send sends one request and decodes the answer; any but 200 is an *apiserver.StatusError.
func (p *Process) send(ctx context.Context, r apiserver.Request, into any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	if p.api == nil {
		api, err := p.Connect()
		if err != nil {
			return err
		}
		p.api = api
	}
	response, err := p.api.Send(ctx, r)
	if err != nil {
		return err
	}
	if response.Status != http.StatusOK {
		return apiserver.NewStatusError(response)
	}
	if err := json.Unmarshal(response.Body, into); err != nil {
		return &apiserver.BodyError{Cause: err}
	}
	return nil
}

// list reads a list of one page, and has look watch for changes from then on.
func list[T any](ctx context.Context, p *Process, path string, query url.Values, look *next) ([]T, error) {
	var page struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []T `json:"items"`
	}
	if err := p.send(ctx, apiserver.Request{Method: http.MethodGet, Path: path + "?" + query.Encode()}, &page); err != nil {
		look.sooner(rewatch)
		return nil, err
	}
	look.watches = append(look.watches, watchOf(path, query, page.Metadata.ResourceVersion))
	return page.Items, nil
}

func field(name, value string) url.Values { return url.Values{"fieldSelector": {name + "=" + value}} }

// watchOf is the path of a watch of what the query selects, from a version on.
func watchOf(path string, query url.Values, version string) string {
	watch := url.Values{"watch": {"true"}, "resourceVersion": {version}}
	for k, v := range query {
		watch[k] = v
	}
	return path + "?" + watch.Encode()
}

func refused(err error, code int) bool {
	var s *apiserver.StatusError
	return errors.As(err, &s) && s.Code == code
}

// unread says why something could not be read, in words that stay the same from try to try.
func unread(err error) string {
	var s *apiserver.StatusError
	if errors.As(err, &s) && s.Code < http.StatusInternalServerError && s.Code != http.StatusTooManyRequests {
		return "cannot be read: " + s.Reason().String()
	}
	return "cannot be read: no usable answer from the API server"
}

// stalledAfter is how long after the time for a pass /healthz fails for want of one.
const stalledAfter = 3 * time.Minute
