//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/realnode"
)

// What the profiles of testdata/values.yaml name.
const (
	devicesLabel   = "e2e.test/devices"
	deviceResource = "example.com/gpu"
	deviceDriver   = "gpu.example.com"
)

// gpus are n devices that find no fault in themselves.
func gpus(n int) []realnode.Device {
	var all []realnode.Device
	for i := range n {
		all = append(all, realnode.Device{Name: "gpu-" + strconv.Itoa(i), Result: "0\nno errors\n"})
	}
	return all
}

// A node waits for devices that come late, come in part, and are unhealthy; its worker gets them from the kubelet's
// device manager. Beside it a node without devices is verified by the plain worker. A worker that asks for devices,
// which no prerequisite awaits, does not run without them.
func (s *suite) devicePlugin(ctx context.Context, t *testing.T) {
	const name, plain, unawaited = "node-r", "node-s", "node-t"
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		for _, node := range []string{name, plain, unawaited} {
			s.removeNode(ctx, t, node)
		}
	})
	began := time.Now()
	spent := s.phases(ctx, t)
	s.addEach(ctx, t, map[string]realnode.NodeOptions{
		name:      {Labels: map[string]string{devicesLabel: "plugin"}},
		plain:     {},
		unawaited: {Labels: map[string]string{devicesLabel: "unawaited"}},
	})
	s.awaitVerified(ctx, t, 40*time.Second, plain)
	spent = s.logPhases(ctx, t, "node without devices", spent)
	if pods := s.watch.of(plain, began); len(pods) != 1 || pods[0].devices != "" {
		t.Errorf("the node without devices was not verified by one plain worker: %+v", pods)
	}

	r, u := s.node(name), s.node(unawaited)
	s.awaitHeld(ctx, t, name, began, deviceResource, "the node offers none")
	// The kubelet admits a pod that is bound directly although it has never heard of the resource.
	s.awaitInconclusive(ctx, t, unawaited, "Unschedulable")
	for _, node := range []*realnode.Node{r, u} {
		must(t, node.SetDevices())
		must(t, node.StartDevicePlugin(deviceResource))
	}
	s.awaitHeld(ctx, t, name, began, deviceResource, "the node offers 0")
	must(t, r.SetDevices(gpus(1)...))
	must(t, u.SetDevices(gpus(1)...))
	s.awaitHeld(ctx, t, name, began, deviceResource, "the node offers 1")
	// Of two devices the kubelet has one: it refuses the worker, and the next one is the scheduler's.
	s.awaitInconclusive(ctx, t, unawaited, "KubeletRejected")
	must(t, u.SetDevices(gpus(2)...))
	s.awaitVerified(ctx, t, 40*time.Second, unawaited)
	if pods := s.watch.of(unawaited, began); len(pods) < 2 || !s.scheduled(ctx, t, pods[len(pods)-1].name) {
		t.Errorf("after a worker that the kubelet refused, the scheduler did not place the one that passed: %+v", pods)
	}
	spent = s.logPhases(ctx, t, "node whose kubelet refused a worker", spent)

	must(t, r.SetDevices(gpus(2)...))
	complete := time.Now()
	s.awaitVerified(ctx, t, 40*time.Second, name)
	t.Logf("%s after its devices were complete: verified", time.Since(complete).Round(time.Millisecond))
	s.logPhases(ctx, t, "node with a device plugin", spent)
	pods := s.watch.of(name, began)
	if len(pods) != 1 || pods[0].devices != "2 "+deviceResource || s.scheduled(ctx, t, pods[0].name) {
		t.Errorf("the node was not verified by one worker that was bound directly and asked for devices: %+v", pods)
	}

	// A device of a verified node fails: the next verification waits, and closes no gate.
	s.noWorkersLeft(ctx, t)
	one := gpus(2)
	one[1].Unhealthy = true
	must(t, r.SetDevices(one...))
	s.awaitDevices(ctx, t, name, 2, 1)
	again := time.Now()
	s.reverify(ctx, t, name)
	eventually(ctx, t, 20*time.Second, name+" waits for its devices", func() error {
		m, err := s.marks(ctx, name)
		waits := m.reason == "WaitingForPrerequisites" && strings.Contains(m.message, "the node offers 1")
		if err == nil && (!waits || m.tainted || m.labelled) {
			err = fmt.Errorf("it does not: %s", m)
		}
		return err
	})
	must(t, r.SetDevices(gpus(2)...))
	s.awaitVerified(ctx, t, 40*time.Second, name)
	if pods := s.watch.of(name, again); len(pods) != 1 || !s.scheduled(ctx, t, pods[0].name) {
		t.Errorf("the open node was not verified again by one worker that the scheduler placed: %+v", pods)
	}
	s.watch.check(t)
}

// A DRA driver publishes an empty pool: the node waits. Then it publishes devices. The worker claims them, goes through
// the scheduler, and reads what a device reports: a fault, which fails the node, and none.
func (s *suite) draDriver(ctx context.Context, t *testing.T) {
	const name = "node-u"
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		s.removeNode(ctx, t, name)
		s.kubectl(ctx, t, "delete", "--ignore-not-found", "deviceclass/"+deviceDriver)
		s.kubectl(ctx, t, "-n", namespace, "delete", "--ignore-not-found", "resourceclaimtemplate/all-gpus")
	})
	s.apply(ctx, t, `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: `+deviceDriver+`}
spec:
  selectors: [{cel: {expression: 'device.driver == "`+deviceDriver+`"'}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: all-gpus, namespace: `+namespace+`}
spec:
  spec:
    devices:
      requests: [{name: gpus, exactly: {deviceClassName: `+deviceDriver+`, allocationMode: All}}]
`)
	began := time.Now()
	spent := s.phases(ctx, t)
	s.addNodes(ctx, t, realnode.NodeOptions{Labels: map[string]string{devicesLabel: "claimed"}}, name)
	n := s.node(name)
	s.awaitHeld(ctx, t, name, began, deviceDriver, "there are none for the node")
	must(t, n.SetDevices())
	must(t, n.StartDRADriver(deviceDriver))
	s.awaitHeld(ctx, t, name, began, deviceDriver, "they have 0 devices, expected at least 2")
	must(t, n.SetDevices(gpus(1)...))
	s.awaitHeld(ctx, t, name, began, deviceDriver, "they have 1 devices, expected at least 2")
	complete := time.Now()
	must(t, n.SetDevices(gpus(2)...))
	s.awaitVerified(ctx, t, 40*time.Second, name)
	t.Logf("%s after its devices were complete: verified", time.Since(complete).Round(time.Millisecond))
	s.logPhases(ctx, t, "node with a DRA driver", spent)
	pods := s.watch.of(name, began)
	if len(pods) != 1 || pods[0].devices != "claim gpus" || !s.scheduled(ctx, t, pods[0].name) {
		t.Errorf("the node was not verified by one worker that the scheduler placed with its claim: %+v", pods)
	}
	s.noWorkersLeft(ctx, t)
	eventually(ctx, t, 20*time.Second, "the claim of a worker goes with it", func() error {
		if left := s.kubectl(ctx, t, "-n", namespace, "get", "resourceclaims", "-o", "name"); left != "" {
			return errors.New(left)
		}
		return nil
	})

	broken := gpus(2)
	broken[1].Result = "1\nXid 79: the device has fallen off the bus\n"
	must(t, n.SetDevices(broken...))
	must(t, poll(ctx, 5*time.Second, func() error {
		out, err := n.Run(ctx, "cat", "/run/devices/gpu-1")
		if err == nil && out != broken[1].Result {
			err = fmt.Errorf("the device reports %q", out)
		}
		return err
	}))
	s.reverify(ctx, t, name)
	s.awaitSharedFailure(ctx, t, 40*time.Second, name, "gpu-1") // no other node has its profile
	if m, err := s.marks(ctx, name); err != nil || !strings.Contains(m.message, "Xid 79") {
		t.Errorf("the node does not report what its device does: %s, %v", m, err)
	}
	must(t, n.SetDevices(gpus(2)...))
	s.awaitVerified(ctx, t, 40*time.Second, name)
	s.watch.check(t)
}

// awaitHeld waits until a gated node reports what it waits for, in a message with all of the parts, and insists that it
// had no worker.
func (s *suite) awaitHeld(ctx context.Context, t *testing.T, name string, since time.Time, parts ...string) {
	t.Helper()
	eventually(ctx, t, 40*time.Second, fmt.Sprintf("%s waits for %q", name, parts), func() error {
		m, err := s.marks(ctx, name)
		if err != nil {
			return err
		}
		for _, part := range parts {
			if m.reason != "WaitingForPrerequisites" || !m.tainted || !strings.Contains(m.message, part) {
				return fmt.Errorf("it does not: %s", m)
			}
		}
		return nil
	})
	if pods := s.watch.of(name, since); len(pods) != 0 {
		t.Fatalf("a worker was started: %+v", pods)
	}
}

// awaitInconclusive waits until the last attempt of a gated node was inconclusive for a reason, and insists that none
// passed, failed or ran without its devices.
func (s *suite) awaitInconclusive(ctx context.Context, t *testing.T, name, reason string) {
	t.Helper()
	eventually(ctx, t, 60*time.Second, name+" is inconclusive: "+reason, func() error {
		m, err := s.marks(ctx, name)
		must(t, err)
		r := m.recorded
		if m.labelled || !m.tainted || m.record && r.LastOutcome != "inconclusive" || r.LastReason == "Unknown" {
			t.Fatalf("a worker ran without its devices: %s", m)
		}
		if m.recorded.LastReason != reason {
			return fmt.Errorf("it is not: %s", m)
		}
		return nil
	})
}

// awaitDevices waits until the kubelet reports how many devices there are, and how many of them it offers.
func (s *suite) awaitDevices(ctx context.Context, t *testing.T, name string, capacity, allocatable int64) {
	t.Helper()
	what := fmt.Sprintf("%s has %d devices and offers %d", name, capacity, allocatable)
	eventually(ctx, t, 20*time.Second, what, func() error {
		node, err := s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		have, offered := node.Status.Capacity[deviceResource], node.Status.Allocatable[deviceResource]
		if have.Value() != capacity || offered.Value() != allocatable {
			return fmt.Errorf("%s and %s", have.String(), offered.String())
		}
		return nil
	})
}

// scheduled reports whether kube-scheduler placed a worker pod.
func (s *suite) scheduled(ctx context.Context, t *testing.T, pod string) bool {
	t.Helper()
	selector := "involvedObject.name=" + pod + ",reason=Scheduled"
	events, err := s.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: selector})
	must(t, err)
	return len(events.Items) > 0
}

// phases are the seconds that all new nodes together have spent in each phase, by the leader's metrics, and under ""
// how many nodes that are.
func (s *suite) phases(ctx context.Context, t *testing.T) map[string]float64 {
	t.Helper()
	spent := map[string]float64{}
	for key, query := range map[string]string{
		"":              `sum(kube_node_ready_time_to_schedulable_seconds_count{phase="release"})`,
		"prerequisites": "", "slot": "", "start": "", "init": "", "checks": "", "release": "",
	} {
		if query == "" {
			query = `sum(kube_node_ready_time_to_schedulable_seconds_sum{phase="` + key + `"})`
		}
		text, err := s.prometheus.value(ctx, query)
		must(t, err)
		spent[key], err = strconv.ParseFloat(text, 64)
		must(t, err)
	}
	return spent
}

// logPhases logs what the one node that was released since then spent in each phase. The figures of
// docs/guides/gpu-nodes.md are from here.
func (s *suite) logPhases(ctx context.Context, t *testing.T, what string, since map[string]float64) map[string]float64 {
	t.Helper()
	var now map[string]float64
	eventually(ctx, t, 10*time.Second, "the metrics have one more node", func() error {
		if now = s.phases(ctx, t); now[""] != since[""]+1 {
			return fmt.Errorf("%g after %g", now[""], since[""])
		}
		return nil
	})
	text := what
	for _, phase := range []string{"prerequisites", "slot", "start", "init", "checks", "release"} {
		text += fmt.Sprintf(", %s %.2f s", phase, now[phase]-since[phase])
	}
	t.Log(text)
	return now
}
