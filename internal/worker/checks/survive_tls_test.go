package checks_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	httpcheck "github.com/kube-node-ready/kube-node-ready/internal/worker/checks/http"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// secured is what an HTTPS server does, and whether programs read its answer nevertheless.
type secured struct {
	name  string
	serve func(net.Conn)
	// ca is the bundle of authorities that are trusted.
	ca string
	// curl, wget and musl are what TestTLSPrograms sees.
	curl, wget, musl string
}

// reads is what the programs do with the faults of TestFaultsThatRepeatingDoesNotCure. None of them reads the answer,
// unless it is here: curl, wget, musl.
var reads = map[string][3]string{
	"TLS 1.1":                  {no, yes, no},
	"a negative serial number": {yes, yes, yes},
	// Not of the library: it comes after the handshake.
	"no HTTP":                       {no, yes, none},
	"a header line without a colon": {no, yes, none},
	"an impossible length":          {no, yes, none},
	"a broken body":                 {no, no, none},
}

// none is in the place of what was not asked.
const none = "–"

func securedServers(t *testing.T) []secured {
	t.Helper()
	past, future := time.Now().Add(-time.Hour), time.Now().Add(240*time.Hour)
	authority, old := tlstest.NewAuthority(t), tlstest.NewAuthorityUntil(t, past)
	serve := func(a *tlstest.Authority, c tlstest.Certificate) func(net.Conn) {
		return overTLS(&tls.Config{Certificates: []tls.Certificate{a.Issue(t, c)}, MinVersion: tls.VersionTLS12},
			speaks(answersOK))
	}
	ca := authority.PEM()
	all := []secured{
		{"all is well", serve(authority, tlstest.Certificate{}), ca, yes, yes, yes},
		{"an expired certificate", serve(authority, tlstest.Certificate{NotAfter: past}), ca, no, no, no},
		{"an expired certificate of an intermediate authority", serve(authority.Intermediate(t, past),
			tlstest.Certificate{}), ca, no, no, no},
		{"an expired authority in ca.crt", serve(old, tlstest.Certificate{}), old.PEM(), no, no, no},
		{"an expired authority in ca.crt, above an intermediate one", serve(old.Intermediate(t, future),
			tlstest.Certificate{}), old.PEM(), no, no, no},
		{"a certificate that is not valid yet", serve(authority, tlstest.Certificate{NotBefore: future, NotAfter: future}),
			ca, no, no, no},
		{"a certificate for another name", serve(authority, tlstest.Certificate{OtherName: true}), ca, no, no, no},
	}
	for _, f := range faults(t, authority) {
		programs, found := reads[f.name]
		if !found {
			programs = [3]string{no, no, no}
		}
		all = append(all, secured{f.name, f.serve, ca, programs[0], programs[1], programs[2]})
	}
	return all
}

func (s secured) row(ctx context.Context, address string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	settings := &httpcheck.Settings{URL: "https://" + address, CA: s.ca, ExpectBody: "ok"}
	f := settings.New(environment.Pod{Resolver: &resolver.Resolver{}})(ctx)
	f.Message = strings.NewReplacer(address, "10.96.0.7", "127.0.0.1", "10.96.0.7").Replace(f.Message)
	return fmt.Sprintf("| %s | %s | %s | %s | %s\n", s.name, s.curl, s.wget, s.musl, columns(f))
}

// TestWhatProgramsRead compares the table of docs/reference/checks.md with what a check of type http finds.
func TestWhatProgramsRead(t *testing.T) {
	all := securedServers(t)
	rows := make([]func() string, len(all))
	for i, s := range all {
		address, _ := connections(t, s.serve)
		rows[i] = func() string { return s.row(t.Context(), address) }
	}
	compareTable(t, "https", "| the server | curl | wget | OpenSSL with musl | the check | message |\n"+
		"|---|---|---|---|---|---|\n", rows)
}

// TestTLSPrograms asks curl (OpenSSL), wget (GnuTLS) and, with musl, OpenSSL's library, by hand. testdata/tls.c is
// built as DIR/tls-musl, with Debian's libssl-dev and musl-tools:
//
//	musl-gcc -static -I HEADERS -o DIR/tls-musl testdata/tls.c LIB/libssl.a LIB/libcrypto.a
//	go test -run TestTLSPrograms -libc DIR
func TestTLSPrograms(t *testing.T) {
	if *libc == "" {
		return
	}
	for _, s := range securedServers(t) {
		t.Run(s.name, func(t *testing.T) {
			ca := filepath.Join(t.TempDir(), "ca.crt")
			if err := os.WriteFile(ca, []byte(s.ca), 0o600); err != nil {
				t.Fatal(err)
			}
			address, _ := connections(t, s.serve)
			for want, command := range map[*string][]string{
				&s.curl: {"curl", "-sS", "--noproxy", "*", "--cacert", ca, "https://" + address},
				&s.wget: {"wget", "-nv", "--no-proxy", "--tries=1", "-O", "-", "--ca-certificate", ca, "https://" + address},
				&s.musl: {*libc + "/tls-musl", port(address), ca},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
				cancel()
				got := yes
				if _, failed := errors.AsType[*exec.ExitError](err); failed {
					got = no
				} else if err != nil {
					t.Fatal(err)
				}
				t.Logf("%s: %s: %s", command[0], got, strings.Join(strings.Fields(string(out)), " "))
				if got != *want && *want != none {
					t.Errorf("%s: got %s, want %q", command[0], got, *want)
				}
			}
		})
	}
}
