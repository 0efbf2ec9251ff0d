// Package environment is the pod that a check runs in.
package environment

import (
	"net"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
)

// Pod is the worker's pod, or in a dry run the host.
type Pod struct {
	Resolver *resolver.Resolver
	// API is nil if there is no Kubernetes client.
	API *apiserver.Client
	// Node and Namespace of the worker; empty if they are not set.
	Node, Namespace string
	// ServiceHost and ServicePort are KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
	ServiceHost, ServicePort string
}

// Service is the Kubernetes Service's host:port, empty outside a pod.
func (p Pod) Service() string {
	if p.ServiceHost == "" || p.ServicePort == "" {
		return ""
	}
	return net.JoinHostPort(p.ServiceHost, p.ServicePort)
}
