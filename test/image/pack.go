package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user runs the image where a pod says nothing else: a number, because the kubelet cannot check
// runAsNonRoot against a name.
const user = "65532:65532"

// Platform is what one architecture's image holds.
type Platform struct {
	// Architecture in Go's words: amd64, arm64.
	Architecture string
	// Binaries are files by their path in the image.
	Binaries map[string]string
}

// Labels are what an image says about its origin.
type Labels struct {
	Version, Commit string
	// Created is the time of every file and of the image itself.
	Created time.Time
}

// Pack writes an OCI archive of one image, an index where there are several platforms, under the
// given reference and returns its digest. The base is empty (scratch): both binaries are static, and
// all that they read from an image is the roots that checks of type http trust. What is not there
// needs no updates.
func Pack(name, reference string, platforms []Platform, labels Labels) (v1.Hash, error) {
	dir, err := os.MkdirTemp("", "kube-node-ready-layout-")
	if err != nil {
		return v1.Hash{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	_, tag, _ := strings.Cut(filepath.Base(reference), ":")
	names := layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          reference, // containerd, docker load
		"org.opencontainers.image.ref.name": tag,       // podman, skopeo
	})

	if len(platforms) == 1 {
		image, err := imageOf(platforms[0], labels)
		if err != nil {
			return v1.Hash{}, err
		}
		if err := path.AppendImage(image, names, layout.WithPlatform(platform(platforms[0]))); err != nil {
			return v1.Hash{}, err
		}
		digest, err := image.Digest()
		if err != nil {
			return v1.Hash{}, err
		}
		return digest, archive(name, dir, labels.Created)
	}

	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		image, err := imageOf(p, labels)
		if err != nil {
			return v1.Hash{}, err
		}
		described := platform(p)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &described}})
	}
	if err := path.AppendIndex(index, names); err != nil {
		return v1.Hash{}, err
	}
	digest, err := index.Digest()
	if err != nil {
		return v1.Hash{}, err
	}
	return digest, archive(name, dir, labels.Created)
}

func platform(p Platform) v1.Platform {
	return v1.Platform{OS: "linux", Architecture: p.Architecture}
}

// imageOf has one layer per file, so that a node that has the one need not fetch it again for a
// change of the other.
func imageOf(p Platform, labels Labels) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	files := []file{{path: certificatesPath, mode: 0o444, content: certificates()}}
	for _, path := range slices.Sorted(maps.Keys(p.Binaries)) {
		content, err := os.ReadFile(p.Binaries[path])
		if err != nil {
			return nil, err
		}
		files = append(files, file{path: path, mode: 0o555, content: content})
	}
	for _, f := range files {
		blob, err := f.tar(labels.Created)
		if err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(blob)), nil
		}, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{
			Layer:   layer,
			History: v1.History{Created: v1.Time{Time: labels.Created}, CreatedBy: "COPY " + f.path},
		})
		if err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", p.Architecture
	config.Created = v1.Time{Time: labels.Created}
	config.Config = v1.Config{
		User:       user,
		Entrypoint: []string{"/kube-node-ready-controller"},
		WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":    "kube-node-ready",
			"org.opencontainers.image.source":   "https://github.com/kube-node-ready/kube-node-ready",
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.version":  labels.Version,
			"org.opencontainers.image.revision": labels.Commit,
		},
	}
	return mutate.ConfigFile(image, config)
}

// file is a file of the image, owned by root and writable by nobody.
type file struct {
	path    string
	mode    int64
	content []byte
}

// tar is a layer of this one file.
func (f file) tar(modified time.Time) ([]byte, error) {
	var blob bytes.Buffer
	w := tar.NewWriter(&blob)
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: strings.TrimPrefix(f.path, "/"),
		Mode: f.mode, Size: int64(len(f.content)), ModTime: modified,
	}
	if err := w.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := w.Write(f.content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return blob.Bytes(), nil
}

// archive writes the layout in dir as a tar file, in lexical order and with one time throughout.
func archive(name, dir string, modified time.Time) (err error) {
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() {
		if closing := out.Close(); err == nil {
			err = closing
		}
	}()
	w := tar.NewWriter(out)
	walk := func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		header := &tar.Header{Name: path, Mode: 0o644, ModTime: modified, Typeflag: tar.TypeReg}
		if entry.IsDir() {
			header.Name, header.Mode, header.Typeflag = path+"/", 0o755, tar.TypeDir
			return w.WriteHeader(header)
		}
		content, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			return err
		}
		header.Size = int64(len(content))
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	}
	if err := fs.WalkDir(os.DirFS(dir), ".", walk); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return w.Close()
}
