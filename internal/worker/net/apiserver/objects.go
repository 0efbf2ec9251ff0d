package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	netutils "k8s.io/utils/net"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
)

// Service holds what the checks read of a v1 Service.
type Service struct {
	Spec struct {
		Type         string        `json:"type"`
		ExternalName string        `json:"externalName"`
		ClusterIP    string        `json:"clusterIP"`
		ClusterIPs   []string      `json:"clusterIPs"`
		Ports        []ServicePort `json:"ports"`
	} `json:"spec"`
}

// ServicePort is one port of a Service or an EndpointSlice.
type ServicePort struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Port     uint16 `json:"port"`
}

// Headless reports whether the Service has no cluster IP.
func (s Service) Headless() bool { return s.Spec.ClusterIP == "None" }

// ExternalName reports whether the Service is an alias of a name outside the cluster. It has no endpoints.
func (s Service) ExternalName() bool { return s.Spec.Type == "ExternalName" }

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

// Addrs are the cluster IPs as addresses.
func (s Service) Addrs() (all []netip.Addr) {
	for _, ip := range s.IPs() {
		if addr, ok := ParseAddr(ip); ok {
			all = append(all, addr)
		}
	}
	return all
}

// ParseAddr parses an IP address in an object. Old objects may have leading zeros, whose numbers are decimal, as for
// Kubernetes itself.
func ParseAddr(s string) (netip.Addr, bool) {
	addr, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(s))
	return addr.Unmap(), ok
}

// EndpointSlice holds what the checks read of a discovery.k8s.io/v1 EndpointSlice.
type EndpointSlice struct {
	AddressType string `json:"addressType"`
	Endpoints   []struct {
		Addresses  []string `json:"addresses"`
		Conditions struct {
			// Ready is true or absent for an endpoint that takes traffic.
			Ready *bool `json:"ready"`
			// Serving is like Ready but ignores publishNotReadyAddresses; absent if unknown.
			Serving *bool `json:"serving"`
		} `json:"conditions"`
		TargetRef *struct {
			Kind      string `json:"kind"`
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
			UID       string `json:"uid"`
		} `json:"targetRef"`
		// NodeName and Zone are absent for an endpoint that is no pod.
		NodeName string `json:"nodeName"`
		Zone     string `json:"zone"`
	} `json:"endpoints"`
	Ports []ServicePort `json:"ports"`
}

const (
	// pageSize of a list that is read to its end: small enough for maxBody if objects have at most 16 KiB.
	pageSize = 250
	// maxSlices limits how much of such a list is kept.
	maxSlices = 10_000
)

// Service reads a Service, and waits for one that does not exist yet.
func (c *Client) Service(ctx context.Context, namespace, name string) (Service, error) {
	var s Service
	err := c.get(ctx, isRefusalOrMissing, servicePath(namespace, name), &s)
	return s, err
}

func servicePath(namespace, name string) string {
	return "/api/v1/namespaces/" + url.PathEscape(namespace) + "/services/" + url.PathEscape(name)
}

// FindService reads the Services of the given names, as namespace/name, and returns the first that is wanted, else the
// first that exists. It skips those that it may not read. If none exists of those that it may read, the error is that
// status. With an error, name is the Service that the error is about.
func (c *Client) FindService(
	ctx context.Context, names []string, wanted func(Service) bool,
) (name string, s Service, err error) {
	retryable := func(status int) bool { return isRefusal(status) && status != http.StatusForbidden }
	var missing error
	for _, n := range names {
		var candidate Service
		err := c.get(ctx, retryable, servicePath(SplitName(n)), &candidate)
		switch {
		case err == nil && wanted(candidate):
			return n, candidate, nil
		case err == nil && name == "":
			name, s = n, candidate
		case err == nil, HasStatus(err, http.StatusForbidden):
		case HasStatus(err, http.StatusNotFound):
			missing = err
		default:
			return n, s, err
		}
	}
	if name != "" {
		return name, s, nil
	}
	if missing != nil {
		return names[0], s, missing
	}
	// The role binding that allows reading the most common one may not be in effect yet: Service waits for it.
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

// EndpointSlicePages reads a Service's slices, size at a time, until more is false.
func (c *Client) EndpointSlicePages(
	ctx context.Context, namespace, service string, size int, more func([]EndpointSlice) bool,
) error {
	path := "/apis/discovery.k8s.io/v1/namespaces/" + url.PathEscape(namespace) + "/endpointslices"
	return listPages(ctx, c, path, url.Values{"labelSelector": {"kubernetes.io/service-name=" + service}}, size, more)
}

// listPages reads a list page by page. When a page is too large, it halves the page size from then on. The requests
// have no resourceVersion: at 0 the API server answers from its watch cache, which ignores the limit.
func listPages[T any](
	ctx context.Context, c *Client, path string, query url.Values, size int, more func([]T) bool,
) error {
	for {
		query.Set("limit", fmt.Sprint(size))
		var page struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []T `json:"items"`
		}
		err := c.get(ctx, isRefusal, path+"?"+query.Encode(), &page)
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

// WhoAmI returns the user name as which the API server at the given host authenticates the worker. It creates a
// SelfSubjectReview, which every authenticated user may do.
func (c *Client) WhoAmI(ctx context.Context, client *http.Client, host string) (string, error) {
	var review struct {
		Status struct {
			UserInfo struct {
				Username string `json:"username"`
			} `json:"userInfo"`
		} `json:"status"`
	}
	response, err := c.Do(ctx, client, host, Request{
		Method: http.MethodPost, Path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", ContentType: "application/json",
		Body: []byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`),
	})
	if err == nil {
		err = response.Decode(&review)
	}
	return review.Status.UserInfo.Username, err
}

// SplitName splits namespace/name.
func SplitName(s string) (namespace, name string) {
	namespace, name, _ = strings.Cut(s, "/")
	return namespace, name
}

// Failure is the finding when what could not be read of a Service, given as namespace/name.
func (c *Client) Failure(what, service string, err error) *check.Finding {
	if HasStatus(err, http.StatusNotFound) {
		return check.Failure(check.ReasonServiceNotFound, "Service %s does not exist", service)
	}
	reason, phrase := neterror.Of(err)
	return check.Failure(reason, "reading %s %s: the API server at %s %s", what, service, c.Address(), phrase)
}

// ZoneLabel holds the zone on pods, since Kubernetes 1.35.
const ZoneLabel = "topology.kubernetes.io/zone"

// Pod holds what the checks read of a v1 Pod.
type Pod struct {
	Metadata struct {
		Name              string            `json:"name"`
		UID               string            `json:"uid"`
		Labels            map[string]string `json:"labels"`
		DeletionTimestamp *string           `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		NodeName string `json:"nodeName"`
	} `json:"spec"`
	Status struct {
		PodIP      string `json:"podIP"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// Ready reports whether the pod is ready and not terminating.
func (p Pod) Ready() bool {
	if p.Metadata.DeletionTimestamp != nil || p.Status.PodIP == "" {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

// PodPages reads the running pods of a namespace that a label selector matches, size at a time, until more is false.
func (c *Client) PodPages(ctx context.Context, namespace, selector string, size int, more func([]Pod) bool) error {
	return listPages(ctx, c, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/pods",
		url.Values{"labelSelector": {selector}, "fieldSelector": {"status.phase=Running"}}, size, more)
}
