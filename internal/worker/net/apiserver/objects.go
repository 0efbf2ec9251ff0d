package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
)

// Service holds what the checks read of a v1 Service.
type Service struct {
	Spec struct {
		Type       string        `json:"type"`
		ClusterIP  string        `json:"clusterIP"`
		ClusterIPs []string      `json:"clusterIPs"`
		Ports      []ServicePort `json:"ports"`
	} `json:"spec"`
}

// ServicePort is one port of a Service.
type ServicePort struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Port     uint16 `json:"port"`
}

// Headless is true for a Service without a cluster IP.
func (s Service) Headless() bool { return s.Spec.ClusterIP == "None" }

// IPs are the Service's cluster IPs.
func (s Service) IPs() []string {
	if s.Headless() {
		return nil
	}
	if len(s.Spec.ClusterIPs) > 0 {
		return s.Spec.ClusterIPs
	}
	if s.Spec.ClusterIP == "" {
		return nil
	}
	return []string{s.Spec.ClusterIP}
}

// EndpointSlice holds what the checks read of a discovery.k8s.io/v1 EndpointSlice.
type EndpointSlice struct {
	AddressType string `json:"addressType"`
	Endpoints   []struct {
		Addresses  []string `json:"addresses"`
		Conditions struct {
			// Ready is true or absent for an endpoint that may be used.
			Ready *bool `json:"ready"`
			// Serving is what Ready is without publishNotReadyAddresses; absent where it is not known.
			Serving *bool `json:"serving"`
		} `json:"conditions"`
		TargetRef *struct {
			Kind      string `json:"kind"`
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
			UID       string `json:"uid"`
		} `json:"targetRef"`
		// NodeName and Zone are where the endpoint is; absent for what is no pod.
		NodeName string `json:"nodeName"`
		Zone     string `json:"zone"`
	} `json:"endpoints"`
	Ports []struct {
		Name     string `json:"name"`
		Protocol string `json:"protocol"`
		Port     uint16 `json:"port"`
	} `json:"ports"`
}

// list is any list.
type list[T any] struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []T `json:"items"`
}

const (
	// pageSize of lists that are read whole: small enough for the worker's memory, as long as objects have 16 KiB.
	pageSize = 250
	// maxSlices bounds a list that is read whole.
	maxSlices = 10_000
)

// Service reads a Service, and waits for one that is not there.
func (c *Client) Service(ctx context.Context, namespace, name string) (Service, error) {
	var s Service
	err := c.get(ctx, refusedOrMissing, servicePath(namespace, name), &s)
	return s, err
}

func servicePath(namespace, name string) string {
	return "/api/v1/namespaces/" + url.PathEscape(namespace) + "/services/" + url.PathEscape(name)
}

// FindService reads the Services of the given names, as namespace/name, and returns the first that
// is wanted, else the first that exists. Those that may not be read are passed over. With an error, name is the one that it
// is about.
func (c *Client) FindService(ctx context.Context, names []string, wanted func(Service) bool) (name string, s Service, err error) {
	broken := func(status int) bool { return refused(status) && status != http.StatusForbidden }
	missing := 0
	for _, n := range names {
		var candidate Service
		err := c.get(ctx, broken, servicePath(SplitName(n)), &candidate)
		var status *StatusError
		switch {
		case err == nil && wanted(candidate):
			return n, candidate, nil
		case err == nil && name == "":
			name, s = n, candidate
		case err == nil, errors.As(err, &status) && status.Code == http.StatusForbidden:
		case IsNotFound(err):
			if missing++; missing == len(names) {
				return names[0], s, err
			}
		default:
			return n, s, err
		}
	}
	if name != "" {
		return name, s, nil
	}
	// The right to read the most common one may be on its way.
	namespace, first := SplitName(names[0])
	s, err = c.Service(ctx, namespace, first)
	return names[0], s, err
}

// EndpointSlices lists a Service's slices.
func (c *Client) EndpointSlices(ctx context.Context, namespace, service string) ([]EndpointSlice, error) {
	var all []EndpointSlice
	err := c.EndpointSlicePages(ctx, namespace, service, pageSize, func(page []EndpointSlice) bool {
		all = append(all, page...)
		return len(all) < maxSlices
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// EndpointSlicePages reads a Service's slices, size at a time, until more is false or there are no more.
func (c *Client) EndpointSlicePages(
	ctx context.Context, namespace, service string, size int, more func([]EndpointSlice) bool,
) error {
	path := "/apis/discovery.k8s.io/v1/namespaces/" + url.PathEscape(namespace) + "/endpointslices"
	return listPages(ctx, c, path, url.Values{"labelSelector": {"kubernetes.io/service-name=" + service}}, size, more)
}

// listPages reads a list page by page. A page that is too large is asked for again, and from then on, with half as
// many. The requests name no resourceVersion: at 0 the API server answers from its watch cache, which ignores the
// limit.
func listPages[T any](
	ctx context.Context, c *Client, path string, query url.Values, size int, more func([]T) bool,
) error {
	for {
		query.Set("limit", fmt.Sprint(size))
		var page list[T]
		err := c.get(ctx, refused, path+"?"+query.Encode(), &page)
		if errors.Is(err, errTooLarge) && size > 1 {
			size /= 2
			continue
		}
		if err != nil {
			return err
		}
		if !more(page.Items) || page.Metadata.Continue == "" {
			return nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// WhoAmI asks the API server, at the given host, for whom it takes the worker: the user
// name of a SelfSubjectReview, which every authenticated user may create.
func (c *Client) WhoAmI(ctx context.Context, client *http.Client, host string) (string, error) {
	review := map[string]string{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
	var answer struct {
		Status struct {
			UserInfo struct {
				Username string `json:"username"`
			} `json:"userInfo"`
		} `json:"status"`
	}
	err := c.call(ctx, refused, client, http.MethodPost, c.URL(host, "/apis/authentication.k8s.io/v1/selfsubjectreviews"), review, &answer)
	return answer.Status.UserInfo.Username, err
}

// IsNotFound is true for a 404.
func IsNotFound(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == http.StatusNotFound
}

// SplitName splits namespace/name.
func SplitName(s string) (namespace, name string) {
	namespace, name, _ = strings.Cut(s, "/")
	return namespace, name
}

// Failure is why what of a Service, given as namespace/name, could not be read.
func (c *Client) Failure(what, service string, err error) *check.Finding {
	if IsNotFound(err) {
		return check.Failure(check.ReasonServiceNotFound, "Service %s does not exist", service)
	}
	reason, phrase := neterror.Of(err)
	return check.Failure(reason, "reading %s %s: the API server at %s %s", what, service, c.Address(), phrase)
}
