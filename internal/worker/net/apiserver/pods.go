package apiserver

import (
	"context"
	"net/url"
)

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

// Ready is true for a pod that is ready and is not being deleted.
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

// PodPages reads the running pods of a namespace that a label selector matches, size at a time, until more is false or
// there are no more.
func (c *Client) PodPages(ctx context.Context, namespace, selector string, size int, more func([]Pod) bool) error {
	return listPages(ctx, c, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/pods",
		url.Values{"labelSelector": {selector}, "fieldSelector": {"status.phase=Running"}}, size, more)
}
