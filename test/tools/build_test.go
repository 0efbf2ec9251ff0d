// Package tools tests how third-party programs come to be there.
package tools

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/test/inputs"
)

// what each ready-made program says of its version, and to which question.
var says = map[string]string{
	"etcd":                    `[ "$*" = --version ] && printf 'etcd Version: %s\nGit SHA: 1.2.3\n' VERSION`,
	"kube-apiserver":          `[ "$*" = --version ] && echo Kubernetes vVERSION`,
	"kube-controller-manager": `[ "$*" = --version ] && echo Kubernetes vVERSION`,
	"kube-scheduler":          `[ "$*" = --version ] && echo Kubernetes vVERSION`,
	"kubectl":                 `[ "$*" = "version --client" ] && printf 'Client Version: v%s\nKustomize Version: v5.0.0\n' VERSION`,
	"coredns":                 `[ "$*" = -version ] && echo CoreDNS-VERSION`,
}

// shop is a clone of the script and the pins, a folder of ready-made programs, and a cache without any.
type shop struct {
	*testing.T
	ready, cache string
	clone        string // its folder of scripts and pins
	index        string // where programs can be downloaded
	path         []string
	tamper       func([]byte) []byte // what happens to a download on its way
	pins         map[string]string   // version by tool
}

func open(t *testing.T) *shop {
	t.Helper()
	inputs.Track(t, ".")
	s := &shop{T: t, ready: t.TempDir(), cache: t.TempDir(), index: "off", tamper: func(b []byte) []byte { return b }, pins: map[string]string{}}
	s.clone = s.another()
	for tool, module := range map[string]string{"etcd": "go.etcd.io/etcd/server/v3", "kubernetes": "k8s.io/kubernetes", "coredns": "github.com/coredns/coredns"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", module)
		cmd.Dir = tool
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		s.pins[tool] = strings.TrimPrefix(strings.TrimSpace(string(out)), "v")
	}
	for program := range says {
		s.put(s.ready, program, s.pinned(program))
	}
	// A go that compiles nothing: it writes what it was to compile.
	goProgram, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	tools := t.TempDir()
	script := `#!/bin/sh
[ "$1" = build ] || exec '` + goProgram + `' "$@"
while [ "$1" != -o ]; do shift; done
out=$2; shift 2
echo "$*" >>'` + filepath.Join(s.cache, "compiled") + `'
for package; do
	[ "$package" != tool ] || package=${PWD##*/}
	[ "$package" != etcd ] || package=server # the last element of its package
	echo compiled >"$out/${package##*/}"
	chmod +x "$out/${package##*/}"
done
`
	if err := os.WriteFile(filepath.Join(tools, "go"), []byte(script), 0o700); err != nil { //nolint:gosec // it is to be executed
		t.Fatal(err)
	}
	s.path = []string{tools}
	return s
}

// another makes another clone of the script and the pins.
func (s *shop) another() string {
	s.Helper()
	clone := filepath.Join(s.TempDir(), "test", "tools")
	if err := os.CopyFS(clone, os.DirFS(".")); err != nil {
		s.Fatal(err)
	}
	return clone
}

// bin is where the clone has its programs.
func (s *shop) bin() string { return filepath.Join(s.clone, "..", "..", ".cache", "tools", "bin") }

func (s *shop) pinned(program string) string {
	if version, ok := s.pins[program]; ok {
		return version
	}
	return s.pins["kubernetes"]
}

// put makes a ready-made program of a version.
func (s *shop) put(folder, program, version string) {
	s.Helper()
	script := "#!/bin/sh\n" + strings.ReplaceAll(says[program], "VERSION", version) + "\n"
	if err := os.WriteFile(filepath.Join(folder, program), []byte(script), 0o700); err != nil { //nolint:gosec // it is to be executed
		s.Fatal(err)
	}
}

// publish serves the programs of a version of Kubernetes as an index of setup-envtest, which is compiled by the real go.
func (s *shop) publish(version string) {
	s.Helper()
	compiled, err := exec.CommandContext(s.Context(), "go", "env", "GOCACHE").Output()
	if err != nil {
		s.Fatal(err)
	}
	cmd := exec.CommandContext(s.Context(), filepath.Join(s.clone, "build.sh"), "setup-envtest")
	cmd.Env = append(os.Environ(), "CACHE_DIR="+s.cache, "GOCACHE="+strings.TrimSpace(string(compiled)))
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("%v\n%s", err, out)
	}
	var archive bytes.Buffer
	compressed := gzip.NewWriter(&archive)
	files := tar.NewWriter(compressed)
	for _, program := range []string{"kube-apiserver", "kubectl", "etcd"} {
		script := "#!/bin/sh\n" + strings.ReplaceAll(says[program], "VERSION", version) + "\n"
		header := &tar.Header{Name: "controller-tools/envtest/" + program, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(script))}
		if err := errors.Join(files.WriteHeader(header), second(files.Write([]byte(script)))); err != nil {
			s.Fatal(err)
		}
	}
	if err := errors.Join(files.Close(), compressed.Close()); err != nil {
		s.Fatal(err)
	}
	sum, served := sha512.Sum512(archive.Bytes()), http.NewServeMux()
	server := httptest.NewServer(served)
	s.Cleanup(server.Close)
	name := fmt.Sprintf("envtest-v%s-%s-%s.tar.gz", version, runtime.GOOS, runtime.GOARCH)
	served.HandleFunc("/index.yaml", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "releases:\n  v%s:\n    %s:\n      hash: %x\n      selfLink: %s/%s\n", version, name, sum, server.URL, name)
	})
	served.HandleFunc("/"+name, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(s.tamper(archive.Bytes())) })
	s.index = server.URL + "/index.yaml"
}

func second(_ int, err error) error { return err }

// build runs the script for the control plane's tools and returns what it said, and what was compiled.
func (s *shop) build(assets string) (said, compiled string) {
	s.Helper()
	_ = os.Remove(filepath.Join(s.cache, "compiled"))
	cmd := exec.CommandContext(s.Context(), filepath.Join(s.clone, "build.sh"), "etcd", "kubernetes", "coredns")
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KUBEBUILDER_ASSETS=") })
	env = append(env, "CACHE_DIR="+s.cache, "PATH="+strings.Join(append(s.path, os.Getenv("PATH")), ":"), "ENVTEST_INDEX="+s.index)
	if assets != "" {
		env = append(env, "KUBEBUILDER_ASSETS="+assets)
	}
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("build.sh: %v\n%s", err, out)
	}
	what, _ := os.ReadFile(filepath.Join(s.cache, "compiled"))
	return string(out), string(what)
}

// linked lists the programs that are links to the folder.
func (s *shop) linked(folder string) []string {
	var found []string
	for program := range says {
		if target, err := os.Readlink(filepath.Join(s.bin(), program)); err == nil && target == filepath.Join(folder, program) {
			found = append(found, program)
		}
	}
	slices.Sort(found)
	return found
}

var all = []string{"coredns", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"}

func TestReadyMadeProgramsAreUsed(t *testing.T) {
	s := open(t)
	said, compiled := s.build(s.ready)
	if compiled != "" || !slices.Equal(s.linked(s.ready), all) || !strings.Contains(said, "etcd "+s.pins["etcd"]+": using "+s.ready) {
		t.Errorf("compiled %q, linked %q, said\n%s", compiled, s.linked(s.ready), said)
	}
	if said, compiled := s.build(""); compiled != "" || said != "" || !slices.Equal(s.linked(s.ready), all) {
		t.Errorf("the next run, without the folder: compiled %q, said %q", compiled, said)
	}
}

func TestReadyMadeProgramsAreFoundInPath(t *testing.T) {
	s := open(t)
	s.path = append(s.path, s.ready)
	if said, compiled := s.build(""); compiled != "" || !slices.Equal(s.linked(s.ready), all) {
		t.Errorf("compiled %q, linked %q, said\n%s", compiled, s.linked(s.ready), said)
	}
}

// One that is of another version, and one that is not there, are compiled; the others are used all the same.
func TestOthersAreCompiled(t *testing.T) {
	s := open(t)
	s.put(s.ready, "kube-scheduler", "1.2.3")
	if err := os.Remove(filepath.Join(s.ready, "kube-controller-manager")); err != nil {
		t.Fatal(err)
	}
	said, compiled := s.build(s.ready)
	if want := "k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes/cmd/kube-scheduler\n"; compiled != want {
		t.Errorf("compiled %q, want %q", compiled, want)
	}
	if want := filepath.Join(s.ready, "kube-scheduler") + " is version 1.2.3 and the pin is " + s.pins["kubernetes"]; !strings.Contains(said, want) {
		t.Errorf("it did not say %q but\n%s", want, said)
	}
	if want := []string{"coredns", "etcd", "kube-apiserver", "kubectl"}; !slices.Equal(s.linked(s.ready), want) {
		t.Errorf("linked %q, want %q", s.linked(s.ready), want)
	}
	if _, compiled := s.build(s.ready); compiled != "" {
		t.Errorf("the next run compiled %q again", compiled)
	}
	// Where the ready-made ones are gone, everything is compiled.
	if err := os.RemoveAll(s.ready); err != nil {
		t.Fatal(err)
	}
	if _, compiled := s.build(""); !strings.Contains(compiled, "cmd/kube-apiserver") || !strings.Contains(compiled, "tool\n") {
		t.Errorf("compiled %q", compiled)
	}
}

// kube-apiserver, kubectl and etcd are downloaded once, of whatever patch release; the rest is compiled.
func TestPublishedProgramsAreDownloaded(t *testing.T) {
	s := open(t)
	minor := s.pins["kubernetes"][:strings.LastIndex(s.pins["kubernetes"], ".")]
	s.publish(minor + ".99")
	said, compiled := s.build("")
	folder := filepath.Join(s.cache, "envtest", "k8s", fmt.Sprintf("%s.99-%s-%s", minor, runtime.GOOS, runtime.GOARCH))
	if want := []string{"etcd", "kube-apiserver", "kubectl"}; !slices.Equal(s.linked(folder), want) {
		t.Errorf("linked %q, want %q, said\n%s", s.linked(folder), want, said)
	}
	if want := "k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes/cmd/kube-scheduler\ntool\n"; compiled != want {
		t.Errorf("compiled %q, want %q", compiled, want)
	}
	if want := "published for Kubernetes " + minor + ".99"; !strings.Contains(said, want) || !strings.Contains(said, "kube-apiserver "+minor+".99: using") {
		t.Errorf("it did not say %q but\n%s", want, said)
	}
	s.index = "http://127.0.0.1:1/index.yaml"
	if said, compiled := s.build(""); compiled != "" || said != "" {
		t.Errorf("the next run, without the index: compiled %q, said\n%s", compiled, said)
	}
	if said, _ := s.build(s.ready); !slices.Equal(s.linked(s.ready), all) {
		t.Errorf("a folder that is given comes first; linked %q, said\n%s", s.linked(s.ready), said)
	}
}

// Another clone compiles nothing again, and one with another pin leaves the programs of the others as they are.
func TestClonesShareWhatWasCompiled(t *testing.T) {
	s := open(t)
	if _, compiled := s.build(""); strings.Count(compiled, "\n") != 3 {
		t.Fatalf("the first clone compiled %q", compiled)
	}
	first := s.programs()
	s.clone = s.another()
	if said, compiled := s.build(""); compiled != "" || said != "" || !maps.Equal(s.programs(), first) {
		t.Errorf("the second clone compiled %q, said %q, and has %v, the first %v", compiled, said, s.programs(), first)
	}
	sums := filepath.Join(s.clone, "coredns", "go.sum")
	data, err := os.ReadFile(sums)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(sums, append(data, "\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, compiled := s.build(""); compiled != "tool\n" || s.programs()["coredns"] == first["coredns"] {
		t.Errorf("a clone with another pin compiled %q and has %s", compiled, s.programs()["coredns"])
	}
	s.clone = s.another()
	if _, compiled := s.build(""); compiled != "" || !maps.Equal(s.programs(), first) {
		t.Errorf("after a clone with another pin, one with the first compiled %q and has %v", compiled, s.programs())
	}
	for program, path := range first {
		if content, err := os.ReadFile(path); err != nil || string(content) != "compiled\n" {
			t.Errorf("%s: %q, %v", program, content, err)
		}
	}
}

// programs are the clone's, with what each is a link to.
func (s *shop) programs() map[string]string {
	s.Helper()
	found := map[string]string{}
	for program := range says {
		path, err := os.Readlink(filepath.Join(s.bin(), program))
		if err != nil {
			s.Fatal(err)
		}
		found[program] = path
	}
	return found
}

// What cannot be had by download is compiled, after five seconds at the latest, and the reason is said.
func TestWhatCannotBeDownloadedIsCompiled(t *testing.T) {
	for name, spoil := range map[string]func(*shop) (reason string){
		"no network": func(s *shop) string {
			s.index = "http://127.0.0.1:1/index.yaml"
			return "connection refused"
		},
		"no answer": func(s *shop) string {
			closed := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-closed }))
			s.Cleanup(server.Close)
			s.Cleanup(func() { close(closed) })
			s.index = server.URL
			return "no answer within five seconds"
		},
		"another minor version": func(s *shop) string {
			s.publish("1.2.3")
			return "unable to find"
		},
		"a wrong checksum": func(s *shop) string {
			s.publish(s.pins["kubernetes"])
			s.tamper = func([]byte) []byte { return []byte("forged") }
			return "checksum"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			s.publish("1.2.3")
			reason := spoil(s)
			began := time.Now()
			said, compiled := s.build("")
			if !strings.Contains(compiled, "cmd/kube-apiserver") || strings.Count(compiled, "tool\n") != 2 || time.Since(began) > 30*time.Second {
				t.Errorf("compiled %q in %s", compiled, time.Since(began))
			}
			if !strings.Contains(said, "are compiled, for they cannot be downloaded") || !strings.Contains(said, reason) || strings.Count(said, "cannot be downloaded") != 1 {
				t.Errorf("it did not say %q once but\n%s", reason, said)
			}
			if said, compiled := s.build(""); said != "" || compiled != "" {
				t.Errorf("the next run: compiled %q, said\n%s", compiled, said)
			}
		})
	}
}
