package apiserver

import (
	"context"
	"net/url"
)

// ZoneLabel holds the zone on nodes, and since Kubernetes 1.35 on pods as well.
const ZoneLabel = "topology.kubernetes.io/zone"

// maxPods and maxNodes bound the lists that peers are chosen from.
const (
	maxPods  = 5_000
	maxNodes = 10_000
)

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

// Pods lists the pods of a namespace that a label selector matches.
func (c *Client) Pods(ctx context.Context, namespace, selector string) ([]Pod, error) {
	return listAll[Pod](ctx, c, refused, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/pods",
		url.Values{"labelSelector": {selector}, "fieldSelector": {"status.phase=Running"}}, maxPods)
}

// Zones lists the zone of each node that has one. A worker can do without, so nothing is insisted on.
func (c *Client) Zones(ctx context.Context) (map[string]string, error) {
	type node struct {
		Metadata struct {
			Name   string            `json:"name"`
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	nodes, err := listAll[node](ctx, c, never, "/api/v1/nodes", url.Values{"labelSelector": {ZoneLabel}}, maxNodes)
	zones := make(map[string]string, len(nodes))
	for _, n := range nodes {
		zones[n.Metadata.Name] = n.Metadata.Labels[ZoneLabel]
	}
	return zones, err
}
