// Command image packs the image that a stage of a Dockerfile describes, without a container engine. The stage is the
// last one, or the one that --target names. The result is an OCI archive. It can be read by "ctr images import",
// "podman load", "skopeo copy oci-archive:..." and "docker load" (25 and later).
//
//	image --version V [--target T] [--arch A,B] [--out FILE]  the product, whose binaries it has make build
//	image --file DOCKERFILE --context DIR --reference NAME:TAG --out FILE   another, of files that are there
//	image --serve ADDRESS ARCHIVE...                         no image, but a registry of such archives, for a test
//
// The same sources give the same archive of the product, byte for byte: times in it are SOURCE_DATE_EPOCH or the commit's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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
	out := flags.String("out", "", "the archive to write; default <source>/dist/<the image's name>-<version>.oci.tar")
	repository := flags.String("repository", "", "the image's name without a tag; default ghcr.io/kube-node-ready/kube-node-ready, with the target's name at its end")
	target := flags.String("target", "", "the stage to pack; default the last")
	version := flags.String("version", "", "stamped into the binaries and the image's tag; default git describe")
	arches := flags.String("arch", runtime.GOARCH, "architectures, separated by commas: amd64, arm64")
	file := flags.String("file", "", "pack what this Dockerfile describes, from files that are there, in place of the product")
	files := flags.String("context", ".", "with --file: the folder of the files that it copies")
	name := flags.String("reference", "", "with --file: the image's name and tag")
	address := flags.String("serve", "", "pack nothing, and serve archives as a registry at this address, over plain HTTP")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *address != "" {
		return serve(ctx, *address, flags.Args())
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *file != "" {
		return packFiles(*file, *files, *name, *out, *arches)
	}
	if *version == "" {
		described, err := git(ctx, *source, "describe", "--tags", "--always", "--dirty")
		if err != nil {
			return fmt.Errorf("--version is not set, and git describe failed: %w", err)
		}
		*version = described
	}
	if *repository == "" {
		*repository = "ghcr.io/kube-node-ready/kube-node-ready"
		if *target != "" {
			*repository += "-" + *target
		}
	}
	if *out == "" {
		*out = filepath.Join(*source, "dist", path.Base(*repository)+"-"+*version+".oci.tar")
	}
	commit, created := revision(ctx, *source)

	work, err := os.MkdirTemp("", "kube-node-ready-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()

	roots := filepath.Join(work, filepath.Base(certificatesPath))
	if err := os.WriteFile(roots, certificates(), 0o600); err != nil {
		return err
	}
	var platforms []Platform
	for arch := range strings.SplitSeq(*arches, ",") {
		p, err := product(ctx, *source, *target, strings.TrimSpace(arch), filepath.Join(work, arch), roots, stamps{*version, commit, created})
		if err != nil {
			return err
		}
		platforms = append(platforms, p)
	}
	if err := os.MkdirAll(filepath.Dir(*out), 0o755); err != nil {
		return err
	}
	reference := *repository + ":" + *version
	digest, err := Pack(*out, reference, platforms, created)
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

// stamps is what a build says of itself.
type stamps struct {
	version, commit string
	created         time.Time
}

// arguments are the Dockerfile's and the Makefile's names of them.
func (s stamps) arguments() map[string]string {
	return map[string]string{"VERSION": s.version, "COMMIT_HASH": s.commit, "BUILD_DATE": s.created.Format(time.RFC3339)}
}

// product is the product's image for an architecture. What the Dockerfile's first stage does, make does: it compiles the
// binaries into the folder. The roots come from a Go module in place of the builder's image.
func product(ctx context.Context, source, target, arch, folder, roots string, s stamps) (Platform, error) {
	stage, err := ReadStage(filepath.Join(source, "Dockerfile"), target, s.arguments())
	if err != nil {
		return Platform{}, err
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return Platform{}, err
	}
	cmd := exec.CommandContext(ctx, "make", "-s", "-C", source, "binaries", "BIN="+folder)
	for name, value := range s.arguments() {
		cmd.Args = append(cmd.Args, name+"="+value)
	}
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "GOWORK=off")
	if output, err := cmd.CombinedOutput(); err != nil {
		return Platform{}, fmt.Errorf("make binaries for %s: %w\n%s", arch, err, output)
	}
	for i := range stage.Files {
		f := &stage.Files[i]
		if f.Source == certificatesPath {
			f.Source = roots
		} else {
			f.Source = filepath.Join(folder, filepath.Base(f.Source))
		}
	}
	return Platform{Architecture: arch, Stage: stage}, nil
}

// packFiles packs an image of files that are there. An archive that is newer than all of them is left as it is.
func packFiles(file, folder, reference, out, arch string) error {
	if reference == "" || out == "" {
		return errors.New("--file needs --reference and --out")
	}
	stage, err := ReadStage(file, "", nil)
	if err != nil {
		return err
	}
	packed, err := os.Stat(out)
	stale := err != nil
	for i := range stage.Files {
		f := &stage.Files[i]
		if f.Built {
			return fmt.Errorf("%s: %s is copied from a stage, and none is built", file, f.Source)
		}
		f.Source = filepath.Join(folder, f.Source)
		info, err := os.Stat(f.Source)
		if err != nil {
			return err
		}
		stale = stale || info.ModTime().After(packed.ModTime())
	}
	if !stale {
		return nil
	}
	_, err = Pack(out+".part", reference, []Platform{{Architecture: arch, Stage: stage}}, time.Unix(0, 0).UTC())
	if err != nil {
		return err
	}
	return os.Rename(out+".part", out) // a run that was cut off leaves nothing to trust
}

// revision is the commit and the time of the sources, as the Makefile has them: SOURCE_DATE_EPOCH, else the commit's; outside
// a git checkout "unknown" and the epoch itself.
func revision(ctx context.Context, source string) (commit string, created time.Time) {
	created = time.Unix(0, 0).UTC()
	commit, err := git(ctx, source, "rev-parse", "HEAD")
	if err != nil {
		commit = "unknown"
	}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		seconds, _ = git(ctx, source, "log", "-1", "--format=%ct")
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
