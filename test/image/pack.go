package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Platform is what one architecture's image holds.
type Platform struct {
	// Architecture in Go's words: amd64, arm64.
	Architecture string
	// Stage is the image; the sources of its files are paths of this machine.
	Stage Stage
}

// Pack writes an OCI archive of one image, an index where there are several platforms, under the
// given reference and returns its digest. Created is the time of every file and of the image itself.
func Pack(name, reference string, platforms []Platform, created time.Time) (v1.Hash, error) {
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
		image, err := imageOf(platforms[0], created)
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
		return digest, archive(name, dir, created)
	}

	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		image, err := imageOf(p, created)
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
	return digest, archive(name, dir, created)
}

func platform(p Platform) v1.Platform {
	return v1.Platform{OS: "linux", Architecture: p.Architecture}
}

// imageOf has one layer per file, so that a node that has the one need not fetch it again for a
// change of the other.
func imageOf(p Platform, created time.Time) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, f := range p.Stage.Files {
		blob, err := f.tar(created)
		if err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(blob)), nil
		}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression))
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{
			Layer:   layer,
			History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "COPY " + f.Path},
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
	config.Created = v1.Time{Time: created}
	config.Config = p.Stage.Config
	return mutate.ConfigFile(image, config)
}

// tar is a layer of this one file.
func (f File) tar(modified time.Time) ([]byte, error) {
	content, err := os.ReadFile(f.Source)
	if err != nil {
		return nil, err
	}
	var blob bytes.Buffer
	w := tar.NewWriter(&blob)
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: strings.TrimPrefix(f.Path, "/"),
		Mode: f.Mode, Size: int64(len(content)), ModTime: modified,
	}
	if err := w.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
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
