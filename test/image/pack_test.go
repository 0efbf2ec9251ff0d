package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const reference = "ghcr.io/kube-node-ready/kube-node-ready:v1.2.3"

var labels = Labels{Version: "v1.2.3", Commit: "c0ffee", Created: time.Unix(1_700_000_000, 0).UTC()}

// product builds the real commands for an architecture.
func product(t *testing.T, arch string) Platform {
	t.Helper()
	p := Platform{Architecture: arch, Binaries: map[string]string{}}
	for _, name := range []string{"controller", "worker"} {
		binary := filepath.Join(t.TempDir(), name)
		if err := build(t.Context(), "../..", arch, "./cmd/"+name, binary, labels.Version, labels.Commit); err != nil {
			t.Fatal(err)
		}
		p.Binaries["/kube-node-ready-"+name] = binary
	}
	return p
}

// unpack extracts an archive and returns its index.
func unpack(t *testing.T, file string) (v1.ImageIndex, *v1.IndexManifest) {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(dir, header.Name)
		if header.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(target, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("the archive is not a valid image: %v", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	return index, manifest
}

// The image of one architecture: named, non-root, two static binaries, the public roots and nothing else.
func TestImageHoldsBothBinariesAndNothingElse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "image.tar")
	digest, err := Pack(file, reference, []Platform{product(t, "amd64")}, labels)
	if err != nil {
		t.Fatal(err)
	}
	index, manifest := unpack(t, file)
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Digest != digest {
		t.Fatalf("manifests %+v, want the one of digest %s", manifest.Manifests, digest)
	}
	annotations := manifest.Manifests[0].Annotations
	if got := annotations["io.containerd.image.name"]; got != reference {
		t.Errorf("containerd would call it %q, want %q", got, reference)
	}
	if got := annotations["org.opencontainers.image.ref.name"]; got != "v1.2.3" {
		t.Errorf("ref.name %q, want the tag", got)
	}
	image, err := index.Image(digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/kube-node-ready-controller"}) {
		t.Errorf("user %q, entrypoint %q", config.Config.User, config.Config.Entrypoint)
	}
	if config.Architecture != "amd64" || config.OS != "linux" {
		t.Errorf("platform %s/%s", config.OS, config.Architecture)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, layer := range layers {
		names = append(names, checkLayer(t, layer))
	}
	if want := []string{"etc/ssl/certs/ca-certificates.crt", "kube-node-ready-controller", "kube-node-ready-worker"}; !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
}

// checkLayer expects one file that no one may write, a static executable or the roots, and
// returns its name.
func checkLayer(t *testing.T, layer v1.Layer) string {
	t.Helper()
	content, err := layer.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = content.Close() }()
	r := tar.NewReader(content)
	header, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if header.Mode&0o222 != 0 || header.Uid != 0 {
		t.Errorf("%s: mode %o, uid %d", header.Name, header.Mode, header.Uid)
	}
	if header.Name == strings.TrimPrefix(certificatesPath, "/") {
		checkRoots(t, r)
		return header.Name
	}
	if header.Mode&0o111 != 0o111 {
		t.Errorf("%s is not executable: mode %o", header.Name, header.Mode)
	}
	binary := filepath.Join(t.TempDir(), header.Name)
	out, err := os.Create(binary)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, r); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	executable, err := elf.Open(binary)
	if err != nil {
		t.Fatalf("%s is no ELF executable: %v", header.Name, err)
	}
	defer func() { _ = executable.Close() }()
	for _, program := range executable.Progs {
		if program.Type == elf.PT_INTERP {
			t.Errorf("%s needs a dynamic loader, which an empty image has not", header.Name)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("the layer of %s holds more than it", header.Name)
	}
	return header.Name
}

func checkRoots(t *testing.T, r io.Reader) {
	t.Helper()
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(content) {
		t.Error("the roots are no PEM certificates")
	}
	if n := bytes.Count(content, []byte("BEGIN CERTIFICATE")); n < 100 {
		t.Errorf("%d roots, Mozilla has well over 100", n)
	}
}

// files is a platform of small files, where what is in them does not matter.
func files(t *testing.T, arch string) Platform {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("content for "+arch), 0o644); err != nil {
		t.Fatal(err)
	}
	return Platform{Architecture: arch, Binaries: map[string]string{"/a": file, "/b": file}}
}

// Several architectures are one index, under one name.
func TestSeveralArchitecturesAreOneIndex(t *testing.T) {
	file := filepath.Join(t.TempDir(), "image.tar")
	digest, err := Pack(file, reference, []Platform{files(t, "amd64"), files(t, "arm64")}, labels)
	if err != nil {
		t.Fatal(err)
	}
	outer, manifest := unpack(t, file)
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["io.containerd.image.name"] != reference {
		t.Fatalf("manifests: %+v", manifest.Manifests)
	}
	index, err := outer.ImageIndex(digest)
	if err != nil {
		t.Fatal(err)
	}
	inner, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range inner.Manifests {
		platforms = append(platforms, m.Platform.String())
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("platforms %q, want %q", platforms, want)
	}
}

// The same input is the same archive, so that a digest can be compared with a rebuild's.
func TestPackIsReproducible(t *testing.T) {
	platforms := []Platform{files(t, "amd64"), files(t, "arm64")}
	var archives [2][]byte
	for i := range archives {
		file := filepath.Join(t.TempDir(), "image.tar")
		if _, err := Pack(file, reference, platforms, labels); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		archives[i] = content
	}
	if !slices.Equal(archives[0], archives[1]) {
		t.Error("two packs of the same files differ")
	}
}
