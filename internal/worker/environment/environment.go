// Package environment is what a check finds where it runs.
package environment

import (
	"net"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
)

// Pod is the worker's own, or what a dry run takes for one.
type Pod struct {
	// Resolver is the pod's own.
	Resolver *resolver.Resolver
	// API is nil when no Kubernetes client could be set up.
	API *apiserver.Client
	// Node and Namespace are the worker's own; empty where the environment does not say them.
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
