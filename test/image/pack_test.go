package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"debug/elf"
	"errors"
	"io"
	"maps"
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

var created = time.Unix(1_700_000_000, 0).UTC()

// built is the real product for an architecture: the image, or the worker's.
func built(t *testing.T, target, arch string) Platform {
	t.Helper()
	roots := filepath.Join(t.TempDir(), "roots")
	if err := os.WriteFile(roots, certificates(), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := product(t.Context(), "../..", target, arch, t.TempDir(), roots, stamps{"v1.2.3", "c0ffee", created})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// unpack extracts an archive and returns its index.
func unpack(t *testing.T, file string) (v1.ImageIndex, *v1.IndexManifest) {
	t.Helper()
	dir := t.TempDir()
	if err := extract(file, dir); err != nil {
		t.Fatal(err)
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

// parts are an image's configuration and layers.
func parts(t *testing.T, index v1.ImageIndex, digest v1.Hash) (*v1.ConfigFile, []v1.Layer) {
	t.Helper()
	image, err := index.Image(digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	return config, layers
}

// The image of one architecture: named, non-root, two static binaries, the public roots and nothing else.
func TestImageHoldsBothBinariesAndNothingElse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "image.tar")
	digest, err := Pack(file, reference, []Platform{built(t, "", "amd64")}, created)
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
	config, layers := parts(t, index, digest)
	if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/kube-node-ready-controller"}) {
		t.Errorf("user %q, entrypoint %q", config.Config.User, config.Config.Entrypoint)
	}
	if l := config.Config.Labels; l["org.opencontainers.image.version"] != "v1.2.3" || l["org.opencontainers.image.revision"] != "c0ffee" || l["org.opencontainers.image.created"] != "2023-11-14T22:13:20Z" || len(l) != 6 {
		t.Errorf("labels %v", l)
	}
	if config.Architecture != "amd64" || config.OS != "linux" {
		t.Errorf("platform %s/%s", config.OS, config.Architecture)
	}
	var names []string
	for _, layer := range layers {
		names = append(names, checkLayer(t, layer))
	}
	if want := []string{"etc/ssl/certs/ca-certificates.crt", "kube-node-ready-worker", "kube-node-ready-controller"}; !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
}

// maxWorkerImage is what a new node pulls at most before its first check; docs/design/performance.md says what would
// make it less.
const maxWorkerImage = 23 << 18 // 5.75 MiB

// The worker's image has the first layers of the other, so that a node that has the one pulls less, or nothing, for the other.
func TestWorkersImageIsThatWithoutTheController(t *testing.T) {
	pack := func(target string) (*v1.ConfigFile, []v1.Layer) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "image.tar")
		digest, err := Pack(file, reference, []Platform{built(t, target, "amd64")}, created)
		if err != nil {
			t.Fatal(err)
		}
		index, _ := unpack(t, file)
		return parts(t, index, digest)
	}
	config, layers := pack("worker")
	var size int64
	for _, layer := range layers {
		n, err := layer.Size()
		if err != nil {
			t.Fatal(err)
		}
		size += n
	}
	if size > maxWorkerImage {
		t.Errorf("the worker's image has %.2f MiB compressed, at most %.2f are allowed (docs/design/performance.md)", float64(size)/(1<<20), float64(maxWorkerImage)/(1<<20))
	}
	both, all := pack("")
	if len(layers) != 2 || len(all) != 3 {
		t.Fatalf("%d layers of %d, want 2 of 3", len(layers), len(all))
	}
	for i, layer := range layers {
		own, err := layer.Digest()
		theirs, err2 := all[i].Digest()
		if err != nil || err2 != nil || own != theirs {
			t.Errorf("layer %d is %s (%v), and in the other image %s (%v)", i, own, err, theirs, err2)
		}
	}
	if !slices.Equal(config.Config.Entrypoint, []string{"/kube-node-ready-worker"}) || config.Config.User != both.Config.User || !maps.Equal(config.Config.Labels, both.Config.Labels) {
		t.Errorf("configured %+v, the other image %+v", config.Config, both.Config)
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
	return Platform{Architecture: arch, Stage: Stage{Files: []File{{Path: "/a", Source: file, Mode: 0o444}, {Path: "/b", Source: file, Mode: 0o444}}}}
}

// Several architectures are one index, under one name.
func TestSeveralArchitecturesAreOneIndex(t *testing.T) {
	file := filepath.Join(t.TempDir(), "image.tar")
	digest, err := Pack(file, reference, []Platform{files(t, "amd64"), files(t, "arm64")}, created)
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
		if _, err := Pack(file, reference, platforms, created); err != nil {
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

// What the packer does not understand must not be left out of the image.
func TestReadStageRefusesWhatItDoesNotKnow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "Dockerfile")
	for text, fault := range map[string]string{
		"FROM debian":                                                  "the last stage is not FROM scratch",
		"FROM scratch\nFROM debian":                                    "the last stage is not FROM scratch",
		"FROM scratch\nRUN true":                                       "RUN",
		"FROM scratch\nENV A=b":                                        "ENV",
		"FROM scratch\nCOPY a /a":                                      "--chmod",
		"FROM scratch\nCOPY --chmod=0555 a b /c":                       "the packer does not know a",
		"FROM scratch\nCOPY --chmod=0555 --chown=1 a /c":               "--chown",
		"FROM scratch\nENTRYPOINT /a":                                  "ENTRYPOINT",
		"FROM scratch\nLABEL a=b":                                      "key=",
		"FROM scratch\nCOPY --chmod=0555 a /a\nCOPY --chmod=0555 b /a": "there already",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadStage(path, "", nil); err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%q: %v, want %q", text, err, fault)
		}
	}
	good := "# comment\nFROM golang\nRUN true\nFROM scratch\nARG V=1\nARG W\nLABEL a=\"${V}\" \\\n  b=\"${W}\"\nCOPY --from=x --chmod=0555 /out/a /a\nUSER 1:1\nENTRYPOINT [\"/a\"]\n"
	if err := os.WriteFile(path, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := ReadStage(path, "", map[string]string{"W": "2"})
	if err != nil || s.Config.Labels["a"] != "1" || s.Config.Labels["b"] != "2" || s.Config.User != "1:1" || len(s.Files) != 1 || s.Files[0] != (File{Path: "/a", Source: "/out/a", Built: true, Mode: 0o555}) {
		t.Errorf("%+v %v", s, err)
	}
}

// A stage may be named, and be built on by a later one.
func TestReadStageByName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "Dockerfile")
	text := "FROM golang AS build\nRUN true\nFROM scratch AS small\nARG V=1\nLABEL a=\"${V}\"\nCOPY --from=build --chmod=0555 /a /a\nENTRYPOINT [\"/a\"]\n" +
		"FROM small\nLABEL b=\"2\"\nCOPY --from=build --chmod=0555 /b /b\nENTRYPOINT [\"/b\"]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]struct{ files, labels int }{"small": {1, 1}, "": {2, 2}} {
		s, err := ReadStage(path, target, nil)
		if err != nil || len(s.Files) != want.files || len(s.Config.Labels) != want.labels || s.Config.Entrypoint[0] != s.Files[want.files-1].Path {
			t.Errorf("%q: %+v %v", target, s, err)
		}
	}
	for _, target := range []string{"build", "none"} {
		if _, err := ReadStage(path, target, nil); err == nil || !strings.Contains(err.Error(), "it has no stage "+target+" FROM scratch") {
			t.Errorf("%q: %v", target, err)
		}
	}
}

// Other images are packed from files, and again only when one of them is newer.
func TestPackFiles(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("Dockerfile", "FROM scratch\nCOPY --chmod=0555 a /a\nENTRYPOINT [\"/a\"]")
	put("a", "one")
	out := filepath.Join(dir, "out.tar")
	pack := func() v1.Hash {
		t.Helper()
		if err := packFiles(filepath.Join(dir, "Dockerfile"), dir, reference, out, "amd64"); err != nil {
			t.Fatal(err)
		}
		_, manifest := unpack(t, out)
		return manifest.Manifests[0].Digest
	}
	first := pack()
	if err := os.WriteFile(out+".part", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if pack() != first {
		t.Error("it was packed again, and its file had not changed")
	}
	put("a", "two")
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(filepath.Join(dir, "a"), later, later); err != nil {
		t.Fatal(err)
	}
	if pack() == first {
		t.Error("it was not packed again, and its file had changed")
	}
}
