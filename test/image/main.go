// Command image builds both binaries and packs them as the container image that the Dockerfile
// describes, without a container engine: an OCI archive that "ctr images import", "podman load",
// "skopeo copy oci-archive:..." and "docker load" (25 and later) read.
//
// The same sources give the same archive, byte for byte: times in it are the commit's.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	source := flags.String("source", "../..", "the product's source tree")
	out := flags.String("out", "", "the archive to write; default <source>/dist/kube-node-ready-<version>.oci.tar")
	repository := flags.String("repository", "ghcr.io/kube-node-ready/kube-node-ready", "the image's name without a tag")
	version := flags.String("version", "", "stamped into the binaries and the image's tag; default git describe")
	arches := flags.String("arch", "amd64", "architectures, separated by commas: amd64, arm64")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *version == "" {
		described, err := git(ctx, *source, "describe", "--tags", "--always", "--dirty")
		if err != nil {
			return fmt.Errorf("--version is not set, and git describe failed: %w", err)
		}
		*version = described
	}
	if *out == "" {
		*out = filepath.Join(*source, "dist", "kube-node-ready-"+*version+".oci.tar")
	}
	commit, created := revision(ctx, *source)

	work, err := os.MkdirTemp("", "kube-node-ready-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()

	var platforms []Platform
	for _, arch := range strings.Split(*arches, ",") {
		platform := Platform{Architecture: strings.TrimSpace(arch), Binaries: map[string]string{}}
		for _, name := range []string{"controller", "worker"} {
			binary := filepath.Join(work, platform.Architecture, "kube-node-ready-"+name)
			if err := build(ctx, *source, platform.Architecture, "./cmd/"+name, binary, *version, commit); err != nil {
				return err
			}
			platform.Binaries["/kube-node-ready-"+name] = binary
		}
		platforms = append(platforms, platform)
	}
	if err := os.MkdirAll(filepath.Dir(*out), 0o755); err != nil {
		return err
	}
	reference := *repository + ":" + *version
	digest, err := Pack(*out, reference, platforms, Labels{Version: *version, Commit: commit, Created: created})
	if err != nil {
		return err
	}
	info, err := os.Stat(*out)
	if err != nil {
		return err
	}
	fmt.Printf("%s\n%s@%s (%s, %.1f MiB)\n", *out, reference, digest, *arches, float64(info.Size())/(1<<20))
	return nil
}

// build compiles one command for an architecture, static and without paths of this machine.
func build(ctx context.Context, source, arch, pkg, out, version, commit string) error {
	const stamp = "github.com/kube-node-ready/kube-node-ready/internal/version"
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", fmt.Sprintf("-s -w -X %s.Version=%s -X %s.Commit=%s", stamp, version, stamp, commit),
		"-o", out, pkg)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOWORK=off")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s for %s: %w\n%s", pkg, arch, err, output)
	}
	return nil
}

// revision is the commit and its time; outside a git checkout "unknown" and SOURCE_DATE_EPOCH or
// the epoch itself.
func revision(ctx context.Context, source string) (commit string, created time.Time) {
	created = time.Unix(0, 0).UTC()
	commit, err := git(ctx, source, "rev-parse", "HEAD")
	if err != nil {
		commit = "unknown"
	}
	seconds, err := git(ctx, source, "log", "-1", "--format=%ct")
	if err != nil {
		seconds = os.Getenv("SOURCE_DATE_EPOCH")
	}
	if n, err := strconv.ParseInt(seconds, 10, 64); err == nil {
		created = time.Unix(n, 0).UTC()
	}
	return commit, created
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...).Output()
	return strings.TrimSpace(string(out)), err
}
