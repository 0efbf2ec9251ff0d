// Command imagepack packs one static program as a container image, in the archive format that
// "ctr images import" reads, for the programs of the end-to-end cluster that are not the
// product: CoreDNS, and the pause process of every pod.
//
//	imagepack -out FILE -name NAME:TAG [-user UID] PROGRAM
//
// An archive that is newer than its program is left as it is.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	out := flag.String("out", "", "archive to write")
	image := flag.String("name", "", "the image's name and tag")
	user := flag.String("user", "65532:65532", "user and group that the program runs as")
	flag.Parse()
	if *out == "" || *image == "" || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: imagepack -out FILE -name NAME:TAG [-user UID] PROGRAM")
		os.Exit(2)
	}
	if err := pack(*out, *image, *user, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "imagepack:", err)
		os.Exit(1)
	}
}

func pack(out, image, user, program string) error {
	source, err := os.Stat(program)
	if err != nil {
		return err
	}
	if packed, err := os.Stat(out); err == nil && packed.ModTime().After(source.ModTime()) {
		return nil
	}
	tag, err := name.NewTag(image)
	if err != nil {
		return err
	}
	entry := "/" + filepath.Base(program)
	blob, err := layer(entry, program)
	if err != nil {
		return err
	}
	// The archive goes from one folder of this machine to another: compressing it costs more
	// than it saves.
	files, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(blob)), nil
	}, tarball.WithCompressionLevel(gzip.NoCompression))
	if err != nil {
		return err
	}
	packed, err := mutate.AppendLayers(empty.Image, files)
	if err != nil {
		return err
	}
	config, err := packed.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{User: user, Entrypoint: []string{entry}, WorkingDir: "/"}
	if packed, err = mutate.ConfigFile(packed, config); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	// Only a complete archive has the final name: a run that was cut off leaves nothing to trust.
	if err := tarball.WriteToFile(out+".part", tag, packed); err != nil {
		return err
	}
	return os.Rename(out+".part", out)
}

func layer(path, program string) ([]byte, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var blob bytes.Buffer
	w := tar.NewWriter(&blob)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path[1:], Mode: 0o555, Size: int64(len(content))}); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	return blob.Bytes(), w.Close()
}
