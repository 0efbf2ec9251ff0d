package mtu

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
)

// exchange writes the payload at once and waits for the protocol's answer.
func (p path) exchange(conn net.Conn, host string, size int) error {
	switch p.Protocol {
	case ProtocolEcho:
		return echo(conn, size)
	case ProtocolTLS:
		return hello(conn, host, size)
	default:
		_, err := conn.Write(payload(size))
		return err
	}
}

// payload is printable, in case the target logs it.
func payload(size int) []byte {
	text := "kube-node-ready mtu check "
	return []byte(strings.Repeat(text, size/len(text)+1)[:size-1] + "\n")
}

func echo(conn net.Conn, size int) error {
	sent := payload(size)
	if _, err := conn.Write(sent); err != nil {
		return err
	}
	back := make([]byte, size)
	if _, err := io.ReadFull(conn, back); err != nil {
		return err
	}
	if !bytes.Equal(sent, back) {
		text := fmt.Sprintf("sent back other bytes than the %d bytes that it received", size)
		return &neterror.Error{Code: check.ReasonPayloadAltered, Text: text}
	}
	return nil
}

// hello sends a ClientHello of exactly the given size and waits for the server's answer. It pads it with application
// protocols that do not exist, after one that every server accepts.
func hello(conn net.Conn, host string, size int) error {
	config := &tls.Config{
		// The connection has no data: it does not matter who answers.
		InsecureSkipVerify: true,
		MinVersion:         tls.VersionTLS12,
		CurvePreferences:   []tls.CurveID{tls.X25519}, // a small key share, so that the hello can be small
	}
	if _, err := netip.ParseAddr(host); err != nil {
		config.ServerName = host
	}
	var bare bytes.Buffer
	config.NextProtos = []string{"http/1.1"}
	// The hello's length does not depend on its random parts.
	_ = tls.Client(recorder{written: &bare}, config).Handshake()
	config.NextProtos = append(config.NextProtos, padding(size-bare.Len())...)

	client := tls.Client(conn, config)
	err := client.Handshake()
	var alert tls.AlertError
	var record tls.RecordHeaderError
	if errors.As(err, &alert) || errors.As(err, &record) {
		return nil // an alert is an answer too
	}
	return err
}

// padding is a list of protocol names that makes a ClientHello n bytes longer (RFC 7301: a byte with its length before
// each name). A name has 1 to 255 bytes.
func padding(n int) []string {
	var names []string
	for i := 0; n > 1; i++ {
		length := min(n-1, 200)
		if rest := n - 1 - length; rest == 1 {
			length-- // another name needs two bytes
		}
		names = append(names, fmt.Sprintf("%-*.*s", length, length, fmt.Sprintf("x-padding-%d", i)))
		n -= 1 + length
	}
	return names
}

// recorder is a connection that records what is written.
type recorder struct {
	net.Conn
	written *bytes.Buffer
}

func (r recorder) Write(p []byte) (int, error) { return r.written.Write(p) }
func (r recorder) Read([]byte) (int, error)    { return 0, io.EOF }
func (r recorder) Close() error                { return nil }
