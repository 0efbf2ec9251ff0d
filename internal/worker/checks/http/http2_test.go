package http_test

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	httpcheck "github.com/kube-node-ready/kube-node-ready/internal/worker/checks/http"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// Frames of HTTP/2 (RFC 9113, section 6) with the error HTTP_1_1_REQUIRED.
const (
	emptySettings    = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	resetStream      = "\x00\x00\x04\x03\x00\x00\x00\x00\x01" + "\x00\x00\x00\x0d"
	goAway           = "\x00\x00\x08\x07\x00\x00\x00\x00\x00" + "\x00\x00\x00\x01" + "\x00\x00\x00\x0d"
	goAwayUnanswered = "\x00\x00\x08\x07\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x0d"
)

// requiresHTTP11 answers each request over HTTP/2 with one frame, and the others well.
func requiresHTTP11(t *testing.T, certificate tls.Certificate, frame string) string {
	t.Helper()
	s := httptest.NewUnstartedServer(site())
	s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"}}
	s.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		"h2": func(_ *http.Server, c *tls.Conn, _ http.Handler) {
			r := bufio.NewReader(c)
			if _, err := io.CopyN(io.Discard, r, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
				return
			}
			_, _ = io.WriteString(c, emptySettings)
			for header := make([]byte, 9); ; {
				if _, err := io.ReadFull(r, header); err != nil {
					return
				}
				_, _ = io.CopyN(io.Discard, r, int64(binary.BigEndian.Uint32(header)>>8))
				if header[3] == 1 { // HEADERS
					_, _ = io.WriteString(c, frame)
					if frame == goAway {
						_ = c.CloseWrite()
					}
				}
			}
		},
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

// curl and browsers ask again over HTTP/1.1, as in curl#6862.
func TestHTTP11IsRequired(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	certificate := authority.Issue(t, tlstest.Certificate{})
	const says = "answered status 200 over HTTP/1.1, because it refuses HTTP/2 (HTTP_1_1_REQUIRED)"
	for name, frame := range map[string]string{
		"the stream is reset": resetStream, "the connection ends": goAway, "the connection ends before the request": goAwayUnanswered,
	} {
		url := requiresHTTP11(t, certificate, frame)
		verify(t, nil, []want{
			{name, httpcheck.Settings{URL: url + "/ok", CA: authority.PEM()}, check.NoReason, says},
			{name + ", with a body", httpcheck.Settings{URL: url + "/echo", CA: authority.PEM(), Method: "POST", Body: "b", ExpectBody: "^POST 127"}, check.NoReason, says},
			{name + ", after a redirect", httpcheck.Settings{URL: url + "/hop", CA: authority.PEM(), MaxRedirects: 1}, check.NoReason, says},
			{name + ", and another status", httpcheck.Settings{URL: url + "/denied", CA: authority.PEM()}, check.ReasonUnexpectedStatus, "401"},
		})
	}
}
