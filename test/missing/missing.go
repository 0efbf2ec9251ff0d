// Package missing leaves out tests for which something is missing: a tool, a right, or a property of the machine. Every
// test that can be left out is left out here, so that one rule holds:
//
//   - It says in one line what is missing, and how to get it.
//   - Where the environment variable CI is "true" it fails instead. Excepted are tests that need root (Root), those that
//     -short leaves out (Short), and those that run on request only (Request).
//   - What make builds is never missing without notice (Built): go test of several packages prints nothing of a package
//     that passes, so this package fails.
package missing

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
)

// EnvCI names the environment variable that is "true" in continuous integration, as GitHub Actions sets it.
const EnvCI = "CI"

// Skip leaves the test out: what is missing, and get says how to get it. Where CI is "true" the test fails.
func Skip(t testing.TB, what, get string) {
	t.Helper()
	if os.Getenv(EnvCI) == "true" {
		t.Fatalf("missing: %s: %s (with %s=true nothing may be left out for that)", what, get, EnvCI)
	}
	t.Skipf("missing: %s: %s", what, get)
}

// Root leaves the test out, in continuous integration too, where it does not run as root. what needs root?
func Root(t testing.TB, what string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("missing: root, for %s: run the test as root", what)
	}
}

// Short leaves the test out, in continuous integration too, where it runs with -short. why is the reason.
func Short(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("left out by -short: %s: run it without", why)
	}
}

// Request leaves the test out, in continuous integration too, unless the environment variable is set, and returns its value.
// target is what sets it.
func Request(t testing.TB, variable, target string) string {
	t.Helper()
	value, set := os.LookupEnv(variable)
	if !set {
		t.Skipf("it runs on request: %s sets %s", target, variable)
	}
	return value
}

// unbuilt counts the tests that Built has left out, and reason is why it left out the last one.
var (
	unbuilt atomic.Int64
	reason  atomic.Pointer[string]
)

// Built leaves the test out if err says that a tool is not built. Code then fails the package, with one line for all its
// tests. With -short the package passes.
func Built(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	what := err.Error()
	Short(t, what)
	unbuilt.Add(1)
	reason.Store(&what)
	Skip(t, what, "or leave the test out with -short")
}

// Code returns the exit code of a package whose tests ended with code: of one that passed without the tests that Built
// left out, 1. In a line on standard error it reports how many those were.
func Code(code int) int {
	n := unbuilt.Load()
	if n == 0 {
		return code
	}
	fmt.Fprintf(os.Stderr, "missing: %s: %d tests were left out; -short leaves them out and passes\n", *reason.Load(), n)
	return max(code, 1)
}
