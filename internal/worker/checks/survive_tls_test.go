package checks_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
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
	// ofHTTP: the fault comes after the handshake, so a program's own code meets it, and no library of TLS.
	ofHTTP bool
	reading
}

// reading is what TestTLSPrograms sees. musl is OpenSSL's and, where it is asked, BusyBox's; busybox is BusyBox's with
// glibc.
type reading struct{ curl, wget, musl, busybox string }

// reads is what the programs do with the faults of TestFaultsThatRepeatingDoesNotCure. None of them reads the answer,
// unless it is here.
var reads = map[string]reading{
	"TLS 1.1":                       {curl: no, wget: yes, musl: no},
	"a negative serial number":      {curl: yes, wget: yes, musl: yes},
	"no HTTP":                       {no, yes, no, no},
	"a header line without a colon": {no, yes, no, no},
	"an impossible length":          {no, yes, no, no},
	// For no digits, musl's strtoll sets errno, and glibc's does not: the body is then an empty one.
	"a broken body": {no, no, no, yes},
}

func securedServers(t *testing.T) []secured {
	t.Helper()
	past, future := time.Now().Add(-time.Hour), time.Now().Add(240*time.Hour)
	authority, old := tlstest.NewAuthority(t), tlstest.NewAuthorityUntil(t, past)
	serve := func(a *tlstest.Authority, c tlstest.Certificate) func(net.Conn) {
		return overTLS(&tls.Config{Certificates: []tls.Certificate{a.Issue(t, c)}, MinVersion: tls.VersionTLS12},
			speaks(answersOK))
	}
	ca, good := authority.PEM(), serve(authority, tlstest.Certificate{})
	none := reading{no, no, no, ""}
	all := []secured{
		{"all is well", good, ca, false, reading{yes, yes, yes, yes}},
		{"an expired certificate", serve(authority, tlstest.Certificate{NotAfter: past}), ca, false, none},
		{"an expired certificate of an intermediate authority", serve(authority.Intermediate(t, past),
			tlstest.Certificate{}), ca, false, none},
		{"an expired authority in ca.crt", serve(old, tlstest.Certificate{}), old.PEM(), false, none},
		{"an expired authority in ca.crt, above an intermediate one", serve(old.Intermediate(t, future),
			tlstest.Certificate{}), old.PEM(), false, none},
		{"a certificate that is not valid yet", serve(authority, tlstest.Certificate{NotBefore: future, NotAfter: future}),
			ca, false, none},
		{"a certificate for another name", serve(authority, tlstest.Certificate{OtherName: true}), ca, false, none},
	}
	for _, f := range faults(t, authority) {
		programs, found := reads[f.name]
		if !found {
			programs = none
		}
		all = append(all, secured{f.name, f.serve, ca, f.reason == check.ReasonMalformedResponse, programs})
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
	compareTable(t, "https", "| the server | curl | wget | with musl | the check | message |\n"+
		"|---|---|---|---|---|---|\n", rows)
}

// plainly serves over plain HTTP what the HTTPS server at the address answers.
func plainly(address string) func(net.Conn) {
	return func(c net.Conn) {
		secure, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(secure, c) }()
		_, _ = io.Copy(c, secure)
		_ = secure.Close()
	}
}

// TestTLSPrograms asks curl (OpenSSL), wget (GnuTLS) and, with musl, OpenSSL's library and wget of BusyBox, by hand.
// testdata/tls.c is built as DIR/tls-musl, with Debian's libssl-dev and musl-tools. BusyBox is the source of Debian's
// package, with "make allnoconfig" and CONFIG_STATIC, LFS, LONG_OPTS, FEATURE_IPV6, WGET and FEATURE_WGET_LONG_OPTIONS.
// Its wget is DIR/busybox-musl/wget and, built by gcc without CONFIG_STATIC, DIR/busybox-glibc/wget. Its TLS has no
// algorithm in common with these servers, so it reads their answers over plain HTTP.
//
//	musl-gcc -static -I HEADERS -o DIR/tls-musl testdata/tls.c LIB/libssl.a LIB/libcrypto.a
//	make CC="musl-gcc -idirafter KERNEL_HEADERS" busybox
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
			url := "https://" + address
			asks := func(want string, command ...string) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
				got := yes
				if _, failed := errors.AsType[*exec.ExitError](err); failed {
					got = no
				} else if err != nil {
					t.Fatal(err)
				}
				t.Logf("%s: %s: %s", command[0], got, strings.Join(strings.Fields(string(out)), " "))
				if got != want {
					t.Errorf("%s: got %s, want %q", command[0], got, want)
				}
			}
			asks(s.curl, "curl", "-sS", "--noproxy", "*", "--cacert", ca, url)
			asks(s.wget, "wget", "-nv", "--no-proxy", "--tries=1", "-O", "-", "--ca-certificate", ca, url)
			if !s.ofHTTP {
				asks(s.musl, *libc+"/tls-musl", port(address), ca)
			}
			if s.busybox != "" {
				plain, _ := connections(t, plainly(address))
				asks(s.musl, *libc+"/busybox-musl/wget", "-q", "-O", "-", "http://"+plain)
				asks(s.busybox, *libc+"/busybox-glibc/wget", "-q", "-O", "-", "http://"+plain)
			}
		})
	}
}
