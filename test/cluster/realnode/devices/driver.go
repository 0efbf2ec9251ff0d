//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// specs is where containerd looks for CDI specifications (cdi_spec_dirs).
const specs = "/var/run/cdi"

// draDriver is a DRA driver's part on a node. It publishes one pool, that of the node, which is empty while no device
// is healthy.
type draDriver struct {
	name, node, folder string
	state              *state
}

// run serves until the process is asked to end. The kubelet deletes its ResourceSlices half a minute later.
func (d *draDriver) run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, folder := range []string{d.folder, specs} {
		if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // as the kubelet makes them
			return err
		}
	}
	helper, err := kubeletplugin.Start(ctx, d, kubeletplugin.DriverName(d.name), kubeletplugin.NodeName(d.node),
		kubeletplugin.KubeClient(client), kubeletplugin.PluginDataDirectoryPath(d.folder))
	if err != nil {
		return err
	}
	defer helper.Stop()
	for {
		devices, changed := d.state.now()
		var slice resourceslice.Slice
		for _, have := range devices {
			if !have.Unhealthy {
				slice.Devices = append(slice.Devices, resource.Device{Name: have.Name})
			}
		}
		pools := map[string]resourceslice.Pool{d.node: {Slices: []resourceslice.Slice{slice}}}
		if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: pools}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// spec is a CDI specification (https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md).
type spec struct {
	Version string      `json:"cdiVersion"`
	Kind    string      `json:"kind"`
	Devices []cdiDevice `json:"devices"`
}

type cdiDevice struct {
	Name  string `json:"name"`
	Edits edits  `json:"containerEdits"`
}

type edits struct {
	Mounts []mount `json:"mounts"`
}

type mount struct {
	HostPath      string   `json:"hostPath"`
	ContainerPath string   `json:"containerPath"`
	Options       []string `json:"options"`
}

// PrepareResourceClaims writes a CDI specification for each claim, which has the containers find the results of the
// claim's devices.
func (d *draDriver) PrepareResourceClaims(_ context.Context, claims []*resource.ResourceClaim) (
	map[types.UID]kubeletplugin.PrepareResult, error) {
	prepared := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		s := spec{Version: "0.6.0", Kind: d.name + "/device"}
		var result kubeletplugin.PrepareResult
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.Driver != d.name {
				continue
			}
			name := string(claim.UID) + "-" + r.Device // not used again, as containerd may remember it
			s.Devices = append(s.Devices, cdiDevice{Name: name, Edits: edits{Mounts: []mount{{
				HostPath: filepath.Join(results, r.Device), ContainerPath: filepath.Join(mounted, r.Device),
				Options: []string{"ro", "nosuid", "nodev", "bind"}}}}})
			result.Devices = append(result.Devices, kubeletplugin.Device{Requests: []string{r.Request}, PoolName: r.Pool,
				DeviceName: r.Device, CDIDeviceIDs: []string{s.Kind + "=" + name}})
		}
		result.Err = d.write(claim.UID, s)
		prepared[claim.UID] = result
		fmt.Printf("devices: prepare claim %s/%s: %d devices, %v\n", claim.Namespace, claim.Name, len(s.Devices), result.Err)
	}
	return prepared, nil
}

func (d *draDriver) spec(claim types.UID) string {
	return filepath.Join(specs, d.name+"-"+string(claim)+".json")
}

func (d *draDriver) write(claim types.UID, s spec) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	path := d.spec(claim)
	half := path + ".new" // containerd reads the folder's *.json at any time
	if err := os.WriteFile(half, text, 0o600); err != nil {
		return err
	}
	return os.Rename(half, path)
}

// UnprepareResourceClaims removes the specifications.
func (d *draDriver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (
	map[types.UID]error, error) {
	removed := map[types.UID]error{}
	for _, claim := range claims {
		err := os.Remove(d.spec(claim.UID))
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		removed[claim.UID] = err
		fmt.Printf("devices: unprepare claim %s/%s: %v\n", claim.Namespace, claim.Name, err)
	}
	return removed, nil
}

// HandleError prints what failed in the background.
func (d *draDriver) HandleError(_ context.Context, err error, message string) {
	fmt.Println("devices:", message+":", err)
}
