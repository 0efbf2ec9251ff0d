package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// serve is a registry in memory that holds the images of some archives, each under its name without the registry's, over plain HTTP. It
// says "serving" once they are there, and ends with ctx.
func serve(ctx context.Context, address string, archives []string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))} //nolint:gosec // for a test on a network of its own
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	for _, archive := range archives {
		if err := push(ctx, listener.Addr().String(), archive); err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
	}
	fmt.Println("serving")
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// push puts the images of an archive that Pack wrote into a registry.
func push(ctx context.Context, address, archive string) error {
	dir, err := os.MkdirTemp("", "kube-node-ready-layout-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := extract(archive, dir); err != nil {
		return err
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, m := range manifest.Manifests {
		if err := pushOne(ctx, address, index, m); err != nil {
			return err
		}
	}
	return nil
}

func pushOne(ctx context.Context, address string, index v1.ImageIndex, m v1.Descriptor) error {
	_, path, found := strings.Cut(m.Annotations["io.containerd.image.name"], "/")
	if !found {
		return errors.New("it has an image without a name, or a name without a registry")
	}
	target, err := name.ParseReference(address+"/"+path, name.Insecure)
	if err != nil {
		return err
	}
	image, err := index.Image(m.Digest)
	if err != nil {
		return err
	}
	return remote.Write(target, image, remote.WithContext(ctx))
}

// extract unpacks an archive of files.
func extract(archive, dir string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for r := tar.NewReader(file); ; {
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case h.Typeflag != tar.TypeReg:
			continue
		}
		if err := root.MkdirAll(filepath.Dir(h.Name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := root.WriteFile(h.Name, content, 0o644); err != nil {
			return err
		}
	}
}
