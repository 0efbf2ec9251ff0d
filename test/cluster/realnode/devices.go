//go:build linux

package realnode

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
)

// Device is a made-up device of a node.
type Device struct {
	Name string `json:"name"`
	// Unhealthy: a device plugin reports it as such, and a DRA driver does not publish it.
	Unhealthy bool `json:"unhealthy"`
	// Result is what a container that is given the device reads in /devices/<name>.
	Result string `json:"result"`
}

// SetDevices changes the devices that the node's device plugin or DRA driver offers, now or once it starts.
func (n *Node) SetDevices(devices ...Device) error {
	text, err := json.Marshal(devices)
	if err != nil {
		return err
	}
	path := n.devices()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (n *Node) devices() string { return filepath.Join(n.Dir, "devices.json") }

// StartDevicePlugin starts a device plugin (see devices) that offers the node's devices as an extended resource. A node
// has one device plugin or one DRA driver.
func (n *Node) StartDevicePlugin(resource string) error {
	return n.launch("devices", n.cluster.built("devices"), "-state", n.devices(), "-resource", resource)
}

// StartDRADriver starts a DRA driver (see devices) that publishes the node's devices in a pool of the node's name, once
// the Node is there. A node has one device plugin or one DRA driver.
func (n *Node) StartDRADriver(driver string) error {
	// What its service account may do in a real cluster is not what is tested.
	kubeconfig, err := n.cluster.ControlPlane.KubeconfigForUser("devices-"+n.Name, "devices-"+n.Name, "system:masters")
	if err != nil {
		return err
	}
	return n.launch("devices", n.cluster.built("devices"),
		"-state", n.devices(), "-driver", driver, "-node", n.Name, "-kubeconfig", kubeconfig)
}

// StopDevices ends the node's device plugin or DRA driver. The kubelet then offers none of the resource, and deletes
// what the driver published half a minute later.
func (n *Node) StopDevices(ctx context.Context) error { return n.signal(ctx, "devices", "TERM") }
