//go:build bench

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/internal/worker"
)

// A pod on each of so many nodes, and as many endpoints in slices of a hundred, as the EndpointSlice controller makes
// them.
const (
	peerPods          = 5000
	endpointsPerSlice = 100
	// podBytes is the size of a pod beside what a test needs of it: environment, volumes, managed fields.
	podBytes = 8 << 10
)

// read is what a worker read whose peers were found in one way.
type read struct {
	by    string
	bytes int64
}

// peers measures what a peers check reads where its pods are on many nodes.
func (s *surroundings) peers(ctx context.Context, program string) ([]read, error) {
	ip, err := machineAddress()
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = listener.Close() }()
	if err := s.createPeers(ctx, ip); err != nil {
		return nil, err
	}
	var reads []read
	for _, by := range []string{"service: peers", "selector: app=peer"} {
		config := fmt.Sprintf("%s=worker: {checks: [{name: peers, type: peers, peers: {%s, port: %d}}]}",
			worker.EnvVar, by, listener.Addr().(*net.TCPAddr).Port)
		env := slices.DeleteFunc(slices.Clone(s.env), func(e string) bool { return strings.HasPrefix(e, worker.EnvVar+"=") })
		_, n, err := traced(program, append(env, config))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", by, err)
		}
		by, _, _ = strings.Cut(by, ":")
		reads = append(reads, read{by, n})
	}
	return reads, nil
}

func (s *surroundings) createPeers(ctx context.Context, ip string) error {
	config := s.cluster.Config()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(32)
	var slice *discoveryv1.EndpointSlice
	for i := range peerPods {
		if i%endpointsPerSlice == 0 {
			slice = &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("peers-%d", i), Labels: map[string]string{discoveryv1.LabelServiceName: "peers"}}}
		}
		pod := peerPod(i, ip)
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{ip}, NodeName: &pod.Spec.NodeName, Zone: new(fmt.Sprintf("eu-west-1%c", 'a'+i%3)),
			Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: pod.Name,
				UID: "01234567-89ab-cdef-0123-456789abcdef"},
		})
		g.Go(func() error {
			created, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			created.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
			_, err = client.CoreV1().Pods("default").UpdateStatus(ctx, created, metav1.UpdateOptions{})
			return err
		})
		if full := slice; len(full.Endpoints) == endpointsPerSlice {
			g.Go(func() error {
				_, err := client.DiscoveryV1().EndpointSlices("default").Create(ctx, full, metav1.CreateOptions{})
				return err
			})
		}
	}
	return g.Wait()
}

func peerPod(i int, ip string) *corev1.Pod {
	size := corev1.EnvVar{Name: "SIZE", Value: strings.Repeat(ip, podBytes/len(ip))}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("peer-7d9c6b5f44-%05d", i),
			Labels: map[string]string{"app": "peer"}},
		Spec: corev1.PodSpec{NodeName: fmt.Sprintf("ip-10-0-%d-%d.eu-west-1.compute.internal", i/256, i%256),
			Containers: []corev1.Container{{Name: "main", Image: "none", Env: []corev1.EnvVar{size}}}},
	}
}

// machineAddress is an IPv4 address of this machine that an endpoint may have: the API server refuses loopback ones.
func machineAddress() (string, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String(), nil
		}
	}
	return "", errors.New("this machine has no address but loopback ones, which no endpoint may have")
}
