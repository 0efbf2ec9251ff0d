//go:build linux

// Command devices offers made-up devices to the kubelet of the machine (or mount namespace) that it runs in, as
// vendors' programs do on nodes with accelerators. It needs root.
//
//	devices -state FILE -resource example.com/gpu
//	devices -state FILE -driver gpu.example.com -node node-a -kubeconfig FILE
//
// The first is a device plugin of the extended resource, the second a DRA driver that publishes one pool. Both follow
// the file, a JSON list of devices, and read it again whenever it changes:
//
//	[{"name": "gpu-0", "unhealthy": false, "result": "0\nno errors\n"}]
//
// A container that is given a device finds its result in the file /devices/<name>, in the form that a check of type
// exec reads.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// device is one of the state file.
type device struct {
	Name string `json:"name"`
	// Unhealthy: the device plugin reports it as such, and the DRA driver does not publish it.
	Unhealthy bool `json:"unhealthy"`
	// Result is what its file says.
	Result string `json:"result"`
}

const (
	// results is where the files of the devices are on the node, and mounted where in a container.
	results = "/run/devices"
	mounted = "/devices"
	// look is how often the state file is read.
	look = 100 * time.Millisecond
)

func main() {
	state := flag.String("state", "", "the file that lists the devices; one that is missing lists none")
	resource := flag.String("resource", "", "be a device plugin of this extended resource")
	driver := flag.String("driver", "", "be the DRA driver of this name")
	node := flag.String("node", "", "the node's name, for a DRA driver")
	kubeconfig := flag.String("kubeconfig", "", "a kubeconfig with which a DRA driver publishes its devices")
	kubelet := flag.String("kubelet", "/var/lib/kubelet", "the kubelet's root folder")
	flag.Parse()
	if err := run(*state, *resource, *driver, *node, *kubeconfig, *kubelet); err != nil {
		fmt.Fprintln(os.Stderr, "devices:", err)
		os.Exit(1)
	}
}

// run offers the devices until the process is asked to end.
func run(path, resource, driver, node, kubeconfig, kubelet string) error {
	if (resource == "") == (driver == "") {
		return errors.New("give either -resource or -driver")
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	devices := follow(ctx, path)
	if resource != "" {
		return (&plugin{resource: resource, folder: filepath.Join(kubelet, "device-plugins"), state: devices}).run(ctx)
	}
	d := &draDriver{name: driver, node: node, folder: filepath.Join(kubelet, "plugins", driver), state: devices}
	return d.run(ctx, kubeconfig)
}

// state is the devices as the file has them.
type state struct {
	mu      sync.Mutex
	devices []device
	changed chan struct{} // closed by the next change
}

// follow reads the file now and whenever it changes.
func follow(ctx context.Context, path string) *state {
	s := &state{changed: make(chan struct{})}
	var last []byte
	s.read(path, &last)
	go func() {
		for tick := time.Tick(look); ctx.Err() == nil; <-tick {
			s.read(path, &last)
		}
	}()
	return s
}

func (s *state) read(path string, last *[]byte) {
	text, err := os.ReadFile(path)
	if err != nil || bytes.Equal(text, *last) {
		return
	}
	var devices []device
	if err := json.Unmarshal(text, &devices); err != nil {
		fmt.Println("devices: half of the file was read:", err) // the rest comes
		return
	}
	if err := write(devices); err != nil {
		fmt.Println("devices:", err)
		return
	}
	*last = text
	fmt.Printf("devices: %s\n", text)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.devices = devices
	close(s.changed)
	s.changed = make(chan struct{})
}

// now is the present devices, and a channel that is closed once there are others.
func (s *state) now() ([]device, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.devices, s.changed
}

// write writes the files of the devices.
func write(devices []device) error {
	if err := os.MkdirAll(results, 0o755); err != nil {
		return err
	}
	for _, d := range devices {
		path := filepath.Join(results, d.Name)
		if err := os.WriteFile(path, []byte(d.Result), 0o644); err != nil { //nolint:gosec // the worker is not root
			return err
		}
	}
	return nil
}
