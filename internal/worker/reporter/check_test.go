package reporter

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// ask checks a URL, with a CA file unless it is empty.
func ask(t *testing.T, raw, ca string) observation {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return check(t.Context(), Config{Endpoint: u, CAFile: ca})
}

func expect(t *testing.T, what string, got, want observation) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

func TestTheStatusDecides(t *testing.T) {
	followed := 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed++ }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/loop":
			followed++
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/301":
			http.Redirect(w, r, "/200", http.StatusMovedPermanently)
		case "/204":
			w.WriteHeader(http.StatusNoContent)
		case "/302":
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		case "/503":
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprint(w, "starting\n")
		}
	}))
	defer server.Close()
	at := func(path string) string { return server.URL + path }
	expect(t, "200", ask(t, at("/200"), ""), observation{"True", "EndpointOK", "Endpoint reports ready at " + at("/200")})
	expect(t, "204", ask(t, at("/204"), ""), observation{"True", "EndpointOK", "Endpoint reports ready at " + at("/204")})
	expect(t, "503", ask(t, at("/503"), ""), observation{"False", "EndpointNotReady", "Endpoint returned non-2xx status code 503 at " + at("/503") + ": starting"})
	got := ask(t, at("/302"), "")
	if got.status != "False" || got.reason != "EndpointNotReady" || !strings.Contains(got.message, "status code 302") || followed > 0 {
		t.Errorf("a redirect to elsewhere: got %+v, followed %d times", got, followed)
	}
	expect(t, "a redirect", ask(t, at("/301"), ""), observation{"True", "EndpointOK", "Endpoint reports ready at " + at("/301")})
	if got := ask(t, at("/loop"), ""); got.status != "False" || followed != 1+maxRedirects {
		t.Errorf("redirects in a circle: got %+v, followed %d times", got, followed)
	}
	local := strings.Replace(at("/200"), "127.0.0.1", "LocalHost", 1)
	expect(t, "localhost", ask(t, local, ""), observation{"True", "EndpointOK", "Endpoint reports ready at " + local})
	secret := strings.Replace(at("/200?token=s#f"), "http://", "http://user:password@", 1)
	expect(t, "a URL with secrets", ask(t, secret, ""), observation{"True", "EndpointOK", "Endpoint reports ready at " + at("/200")})
}

func TestNoAnswer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	hang, resets := "http://"+address+"/", make(chan bool, 1)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if <-resets {
				_, _ = conn.Read(make([]byte, 1)) // the request has come
				_ = conn.(*net.TCPConn).SetLinger(0)
				_ = conn.Close()
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond) // in place of checkTimeout
	defer cancel()
	u, _ := url.Parse(hang)
	resets <- false
	expect(t, "an endpoint that hangs", check(ctx, Config{Endpoint: u}), observation{"False", "EndpointConnectionError", "Failed to reach endpoint " + hang + ": no answer within 10s"})
	var messages [2]string
	for i := range messages {
		resets <- true
		messages[i] = ask(t, hang, "").message
	}
	if messages[0] != messages[1] || !strings.HasPrefix(messages[0], "Failed to reach endpoint "+hang+": ") {
		t.Errorf("the same fault makes two messages: %q", messages)
	}
	_ = listener.Close()
	expect(t, "nobody listens", ask(t, hang, ""), observation{"False", "EndpointConnectionError", "Failed to reach endpoint " + hang + ": dial: connect: connection refused"})
}

// An agent that hangs gets a connection with each check, and none of them outlives its check.
func TestNoConnectionOutlivesACheck(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	ended := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_ = conn.SetReadDeadline(time.Now().Add(checkTimeout / 2))
			_, err = io.Copy(io.Discard, conn) // the ClientHello, and then the end
			_ = conn.Close()
		}
		ended <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	u, _ := url.Parse("https://" + listener.Addr().String())
	if o := check(ctx, Config{Endpoint: u}); !strings.Contains(o.message, "no answer") {
		t.Errorf("got %+v", o)
	}
	if err := <-ended; err != nil {
		t.Errorf("the connection is still open: %v", err)
	}
}

// A hostile endpoint costs neither memory nor time nor a terminal.
func TestHostileEndpoint(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/endless", "/endless-ok":
			if r.URL.Path == "/endless" {
				w.WriteHeader(http.StatusInternalServerError)
			}
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte(strings.Repeat("ä", 4096)))
			}
		case "/header":
			for i := range 100 {
				w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", 4096))
			}
		case "/secret":
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprint(w, "refused Authorization: Bearer abcdefghijkl")
		case "/control":
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte("\x1b[2J\x00a\r\n\u202eb\xff\u2028  c\x7f"))
		}
	}))
	defer server.Close()
	began := time.Now()
	got := ask(t, server.URL+"/endless", "")
	if got.reason != "EndpointNotReady" || len(got.message) > maxMessage || !strings.HasSuffix(got.message, strings.Repeat("ä", 200)+"…") {
		t.Errorf("an endless body: %d bytes: %+v", len(got.message), got)
	}
	if got := ask(t, server.URL+"/endless-ok", ""); got.status != "True" {
		t.Errorf("an endless body of a 200: got %+v", got)
	}
	if got := ask(t, server.URL+"/header", ""); got.reason != "EndpointConnectionError" || len(got.message) > maxMessage {
		t.Errorf("an endless head: got %+v", got)
	}
	if got := ask(t, server.URL+"/control", ""); !strings.HasSuffix(got.message, ": [2J a b? c") {
		t.Errorf("control characters: got %q", got.message)
	}
	if got := ask(t, server.URL+"/secret", ""); strings.Contains(got.message, "abcdefghijkl") || !strings.Contains(got.message, "refused") {
		t.Errorf("a secret: got %q", got.message)
	}
	if got := ask(t, server.URL+"/200/"+strings.Repeat("a", 2000), ""); len(got.message) > maxMessage || !strings.HasSuffix(got.message, "…") {
		t.Errorf("a long URL: got %d bytes, %q", len(got.message), got.message)
	}
	if took := time.Since(began); took > checkTimeout/2 {
		t.Errorf("took %v", took)
	}
}

func TestHTTPS(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	server := tlstest.Serve(t, authority.Issue(t, tlstest.Certificate{}), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	url := "https://" + server.Listener.Addr().String() + "/healthz"
	ca := filepath.Join(t.TempDir(), "ca.crt")
	write := func(pem string) {
		if err := os.WriteFile(ca, []byte(pem), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(authority.PEM())
	expect(t, "with its CA", ask(t, url, ca), observation{"True", "EndpointOK", "Endpoint reports ready at " + url})
	if got := ask(t, url, ""); got.reason != "EndpointConnectionError" || !strings.Contains(got.message, "unknown authority") {
		t.Errorf("without its CA: got %+v", got)
	}
	write(tlstest.NewAuthority(t).PEM()) // rotated
	if got := ask(t, url, ca); got.reason != "EndpointConnectionError" || !strings.Contains(got.message, "unknown authority") {
		t.Errorf("with another's CA: got %+v", got)
	}
	_ = os.Remove(ca)
	if got := ask(t, url, ca); got.reason != "EndpointConnectionError" || !strings.Contains(got.message, "cannot be read") {
		t.Errorf("without the file: got %+v", got)
	}
}
