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
)

// alteredError is an echo that is not what was sent.
type alteredError struct{ text string }

func (e alteredError) Error() string        { return e.text }
func (e alteredError) Reason() check.Reason { return check.ReasonPayloadAltered }

// exchange writes the payload in one piece and waits for what the protocol answers.
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

// payload is printable, in case the target logs what it gets.
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
		return alteredError{fmt.Sprintf("sent back other bytes than the %d it was sent", size)}
	}
	return nil
}

// hello sends a ClientHello of exactly the given size, which any TLS server takes for what it
// is, and waits for the server's answer. The size is reached by offering application
// protocols that nobody speaks after one that everybody does.
func hello(conn net.Conn, host string, size int) error {
	config := &tls.Config{
		// The connection carries no data: what is asked is how far packets get, not who answers.
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
		return nil // an answer is an answer, also when it is that of a server that wants a certificate
	}
	return err
}

// padding is a list of protocol names that lengthens a ClientHello by n bytes (RFC 7301: each
// name is preceded by its length, in one byte). A name has 1 to 255 bytes.
func padding(n int) []string {
	var names []string
	for i := 0; n > 1; i++ {
		length := min(n-1, 200)
		if rest := n - 1 - length; rest == 1 {
			length-- // a single byte could not be made up by another name
		}
		names = append(names, fmt.Sprintf("%-*.*s", length, length, fmt.Sprintf("x-padding-%d", i)))
		n -= 1 + length
	}
	return names
}
