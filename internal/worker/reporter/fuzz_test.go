package reporter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"testing"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
)

// scripted is a connection to an endpoint that answers a request, once it came, with the given bytes and then closes.
type scripted struct {
	net.Conn
	answer *bytes.Reader
	asked  context.Context
	ask    context.CancelFunc
}

func script(answer []byte) scripted {
	c := scripted{answer: bytes.NewReader(answer)}
	c.asked, c.ask = context.WithCancel(context.Background())
	return c
}

func (c scripted) Read(p []byte) (int, error) {
	<-c.asked.Done()
	return c.answer.Read(p)
}

func (c scripted) Write(p []byte) (int, error) {
	c.ask()
	return len(p), nil
}

func (c scripted) Close() error {
	c.ask()
	return nil
}

// FuzzEndpoint checks that any answer of an endpoint gives a condition of True or False with one of the known reasons.
// No other address is asked. The message is bounded and printable, and the same answer gives the same message.
func FuzzEndpoint(f *testing.F) {
	for _, answer := range []string{"HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nok", "HTTP/1.0 503 x\r\n\r\n\x1b[2J\u202epassword=hunter2",
		"HTTP/1.1 302 Found\r\nLocation: /other\r\n\r\n", "HTTP/1.1 301 x\r\nLocation: http://elsewhere/\r\n\r\n", "HTTP/1.1 500 x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 Switching Protocols\r\n\r\n", "\x16\x03\x01", ""} {
		f.Add([]byte(answer))
	}
	endpoint := &url.URL{Scheme: "http", Host: "agent:9099", Path: "/readiness", RawQuery: "token=secret"}
	f.Fuzz(func(t *testing.T, answer []byte) {
		ask := func() observation {
			return checkBy(t.Context(), Config{Endpoint: endpoint}, func(_ context.Context, _, address string) (net.Conn, error) {
				if address != endpoint.Host {
					t.Errorf("%s was asked", address)
				}
				return script(answer), nil
			})
		}
		o := ask()
		switch {
		case o.status == corev1.ConditionTrue && o.reason == reasonOK:
		case o.status == corev1.ConditionFalse && (o.reason == reasonNotReady || o.reason == reasonConnectionError):
		default:
			t.Errorf("%+v", o)
		}
		if len(o.message) > maxMessage || !utf8.ValidString(o.message) {
			t.Errorf("%d bytes: %q", len(o.message), o.message)
		}
		for _, r := range o.message {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q", o.message)
			}
		}
		if again := ask(); again != o {
			t.Errorf("%+v, then %+v", o, again)
		}
	})
}

// FuzzFromEnv: whatever the environment holds, it is refused with words, or there is an endpoint to ask and a condition to write.
func FuzzFromEnv(f *testing.F) {
	f.Add("n", "http://localhost:9099/readiness", "example.com/Ready", "30s", "5m")
	f.Add("N", "https://user:password@[::1%25eth0]:0/", "Ready", "-1s", "9999999h")
	f.Fuzz(func(t *testing.T, node, endpoint, condition, interval, heartbeat string) {
		c, _, err := FromEnv(func(name string) string {
			return map[string]string{EnvNodeName: node, EnvEndpoint: endpoint, EnvConditionType: condition, EnvInterval: interval, EnvHeartbeat: heartbeat}[name]
		})
		if err != nil {
			return
		}
		if c.Interval < minInterval || c.Heartbeat < minInterval || c.Grace < 0 {
			t.Errorf("%+v", c)
		}
		if request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Endpoint.String(), nil); err != nil || request.URL.Hostname() == "" {
			t.Errorf("%s: %v", c.Endpoint, err)
		}
	})
}

// replaying is an API server that answers every request with the same body, patches with 403 where it does not grant them.
type replaying struct {
	body   []byte
	grants bool
}

func (r replaying) Send(_ context.Context, request apiserver.Request) (apiserver.Response, error) {
	if request.Method == http.MethodPatch && !r.grants {
		return apiserver.Response{Status: http.StatusForbidden}, nil
	}
	if request.Method != http.MethodGet && !json.Valid(request.Body) {
		return apiserver.Response{}, errors.New("it sends no JSON")
	}
	return apiserver.Response{Status: http.StatusOK, Body: r.body}, nil
}

// FuzzNode: whatever an API server says a Node is, the reporter reads and writes it or has an error.
func FuzzNode(f *testing.F) {
	for _, body := range []string{`{"metadata":{"uid":"u"},"status":{"conditions":[{"type":"T","status":"True","lastTransitionTime":"2026-01-02T12:00:00Z"},null,5]}}`,
		`{"status":null}`, `{"status":{"conditions":{}}}`, `{"status":{"conditions":[{"type":"T","status":"True","lastTransitionTime":"9999-12-31T23:59:59-23:59"}]}}`, "[]", "5", "null", "{} {}"} {
		f.Add([]byte(body), true)
		f.Add([]byte(body), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, patches bool) {
		n := newNode(replaying{body, patches}, Config{Node: "n", ConditionType: "T"})
		if n.read(t.Context()) != nil {
			return
		}
		err := n.write(t.Context(), observation{corev1.ConditionTrue, reasonOK, "m"}, noon)
		var unreadable *apiserver.BodyError
		if err != nil && !errors.As(err, &unreadable) {
			t.Error(err)
		}
	})
}
