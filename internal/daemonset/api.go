package daemonset

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
)

const (
	nodes = "/api/v1/nodes"

	object = ""        // the Node itself
	status = "/status" // its subresource
)

// read returns the node from the response to the last write, or else reads it.
func (p *Process) read(ctx context.Context) (*corev1.Node, error) {
	if n := p.latest; n != nil {
		p.latest = nil
		return n, nil
	}
	n := &corev1.Node{}
	return n, p.send(ctx, apiserver.Request{Method: http.MethodGet, Path: p.path()}, n)
}

func (p *Process) path() string { return nodes + "/" + url.PathEscape(p.Node) }

// patch writes the node, or its status, and returns errAgain. A conflict means another writer, or another node of the
// name: the next pass decides again.
func (p *Process) patch(ctx context.Context, subresource string, body []byte) error {
	kind := types.MergePatchType
	if subresource == status {
		kind = types.StrategicMergePatchType
	}
	n := &corev1.Node{}
	err := p.send(ctx, apiserver.Request{Method: http.MethodPatch, Path: p.path() + subresource, ContentType: string(kind),
		Body: body}, n)
	switch {
	case err == nil:
		p.latest = n
		return errAgain
	case apiserver.HasStatus(err, http.StatusConflict):
		return errAgain
	}
	return err
}

// send sends one request and decodes the response. Another status is an *apiserver.StatusError.
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
	return response.Decode(into)
}

// list reads a list of one page, and adds a watch from its version to the schedule.
func (p *Process) list(ctx context.Context, path string, query url.Values, s *schedule) ([]json.RawMessage, error) {
	var page struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	request := apiserver.Request{Method: http.MethodGet, Path: path + "?" + query.Encode()}
	if err := p.send(ctx, request, &page); err != nil {
		s.within(rewatch)
		return nil, err
	}
	s.watches = append(s.watches, watchOf(path, query, page.Metadata.ResourceVersion))
	return page.Items, nil
}

// watchOf is the path of a watch of what the query selects, from a version on.
func watchOf(path string, query url.Values, version string) string {
	watch := url.Values{"watch": {"true"}, "resourceVersion": {version}}
	maps.Copy(watch, query)
	return path + "?" + watch.Encode()
}

// readProblem is why something could not be read, in a text that does not change from try to try.
func readProblem(err error) string {
	s, ok := errors.AsType[*apiserver.StatusError](err)
	if ok && s.Code < http.StatusInternalServerError && s.Code != http.StatusTooManyRequests {
		return "cannot be read: " + s.Reason().String()
	}
	return "cannot be read: no usable answer from the API server"
}
