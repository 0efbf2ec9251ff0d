//go:build linux

// Command csidriver registers a CSI driver with the kubelet, and provides no volumes. It uses the kubelet of the
// machine (or mount namespace) that it runs in.
//
//	csidriver -driver e2e.csi.test -node node-d -volumes 8
//
// It does what a real driver's node plugin and its node-driver-registrar do at their start. The kubelet's plugin
// watcher finds the registration socket, asks the driver who it is, and enters it in the node's CSINode. It needs root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer

	name, node, endpoint string
	volumes              int64
}

func main() {
	d := &driver{}
	kubelet := flag.String("kubelet", "/var/lib/kubelet", "the kubelet's root folder")
	flag.StringVar(&d.name, "driver", "", "name of the driver")
	flag.StringVar(&d.node, "node", "", "the node's ID with the driver")
	flag.Int64Var(&d.volumes, "volumes", 0, "how many volumes the node can have; 0 says nothing about it")
	flag.Parse()
	if err := d.run(*kubelet); err != nil {
		fmt.Fprintln(os.Stderr, "csidriver:", err)
		os.Exit(1)
	}
}

// run serves until the process is asked to end. The kubelet takes the driver out of the CSINode once the registration socket is gone.
func (d *driver) run(kubelet string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	d.endpoint = filepath.Join(kubelet, "plugins", d.name, "csi.sock")
	node := grpc.NewServer()
	csi.RegisterIdentityServer(node, d)
	csi.RegisterNodeServer(node, d)
	registrar := grpc.NewServer()
	registration.RegisterRegistrationServer(registrar, d)
	failed := make(chan error, 2)
	// The driver first: the kubelet calls it as soon as it sees the other.
	for _, s := range []struct {
		server *grpc.Server
		path   string
	}{{node, d.endpoint}, {registrar, filepath.Join(kubelet, "plugins_registry", d.name+"-reg.sock")}} {
		if err := os.MkdirAll(filepath.Dir(s.path), 0o750); err != nil {
			return err
		}
		if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		listener, err := net.Listen("unix", s.path)
		if err != nil {
			return err
		}
		go func() { failed <- s.server.Serve(listener) }()
		defer s.server.Stop()
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func (d *driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: d.name, Endpoint: d.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

func (d *driver) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	fmt.Printf("csidriver: registered %t %s\n", s.PluginRegistered, s.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: "1"}, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node, MaxVolumesPerNode: d.volumes}, nil
}

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}
