//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// socket is the plugin's, in the kubelet's folder.
const socket = "devices.sock"

// plugin is a device plugin (kubelet's API v1beta1).
type plugin struct {
	kubelet.UnimplementedDevicePluginServer
	resource, folder string
	state            *state
}

// run registers the plugin and serves until the process is asked to end. Then the kubelet finds its socket dead, and
// offers none of its devices.
func (p *plugin) run(ctx context.Context) error {
	path := filepath.Join(p.folder, socket)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	kubelet.RegisterDevicePluginServer(server, p)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	defer server.Stop() // not gracefully: the kubelet's ListAndWatch has no end
	if err := p.register(ctx); err != nil {
		return err
	}
	fmt.Printf("devices: registered resource %s\n", p.resource)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func (p *plugin) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+filepath.Join(p.folder, filepath.Base(kubelet.KubeletSocket)),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = kubelet.NewRegistrationClient(conn).Register(ctx, &kubelet.RegisterRequest{
		Version: kubelet.Version, Endpoint: socket, ResourceName: p.resource,
	}, grpc.WaitForReady(true))
	return err
}

func (p *plugin) GetDevicePluginOptions(context.Context, *kubelet.Empty) (*kubelet.DevicePluginOptions, error) {
	return &kubelet.DevicePluginOptions{}, nil
}

// ListAndWatch sends the devices, and again whenever there are others.
func (p *plugin) ListAndWatch(_ *kubelet.Empty, stream kubelet.DevicePlugin_ListAndWatchServer) error {
	for {
		devices, changed := p.state.now()
		var response kubelet.ListAndWatchResponse
		for _, d := range devices {
			health := kubelet.Healthy
			if d.Unhealthy {
				health = kubelet.Unhealthy
			}
			response.Devices = append(response.Devices, &kubelet.Device{ID: d.Name, Health: health})
		}
		if err := stream.Send(&response); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// Allocate has each container find the results of its devices.
func (p *plugin) Allocate(_ context.Context, request *kubelet.AllocateRequest) (*kubelet.AllocateResponse, error) {
	var response kubelet.AllocateResponse
	for _, c := range request.ContainerRequests {
		fmt.Printf("devices: allocate %s\n", strings.Join(c.DevicesIds, ","))
		var mounts []*kubelet.Mount
		for _, id := range c.DevicesIds {
			mounts = append(mounts, &kubelet.Mount{
				HostPath: filepath.Join(results, id), ContainerPath: filepath.Join(mounted, id), ReadOnly: true})
		}
		response.ContainerResponses = append(response.ContainerResponses, &kubelet.ContainerAllocateResponse{Mounts: mounts})
	}
	return &response, nil
}
