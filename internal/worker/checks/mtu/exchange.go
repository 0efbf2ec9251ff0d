package mtu

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/clienthello"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
)

// payload is what to send in one segment over a connection in the given state, or why nothing can be sent.
func (p path) payload(host string, s state) ([]byte, *check.Finding) {
	// Linux acknowledges the SYN, so that both are at least 1 from the start. gVisor leaves all of TCP_INFO at 0.
	if s.mss == 0 || s.acked == 0 {
		return nil, check.Failure(check.ReasonUnknown, "the kernel does not show the segment size or the "+
			"acknowledgements of the connection to %s", p.Address)
	}
	size := int(ptr.Deref(p.PayloadBytes, int32(min(s.mss, maxPayload))))
	if size > s.mss {
		return nil, p.tooSmall(size, s)
	}
	if p.Protocol != ProtocolTLS {
		return text(size), nil
	}
	sent := hello(host, size)
	if len(sent) > s.mss {
		return nil, check.Failure(check.ReasonUnknown, "a ClientHello of %d bytes does not fit one segment to %s, "+
			"which has %d: use protocol raw or echo", len(sent), p.Address, s.mss)
	}
	return sent, nil
}

// exchange writes the payload at once and waits for the protocol's answer.
func (p path) exchange(conn net.Conn, payload []byte) error {
	switch p.Protocol {
	case ProtocolEcho:
		return echo(conn, payload)
	case ProtocolTLS:
		if _, err := conn.Write(payload); err != nil {
			return err
		}
		// An alert, too, shows that the server has read the ClientHello.
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err
	default:
		_, err := conn.Write(payload)
		return err
	}
}

// text is printable, in case the target logs it.
func text(size int) []byte {
	line := "kube-node-ready mtu check "
	return []byte(strings.Repeat(line, size/len(line)+1)[:size-1] + "\n")
}

func echo(conn net.Conn, sent []byte) error {
	if _, err := conn.Write(sent); err != nil {
		return err
	}
	back := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, back); err != nil {
		return err
	}
	if !bytes.Equal(sent, back) {
		text := fmt.Sprintf("sent back other bytes than the %d bytes that it received", len(sent))
		return &neterror.Error{Code: check.ReasonPayloadAltered, Text: text}
	}
	return nil
}

// hello is a ClientHello of the given size, or of its least size if that is larger. It is padded with application
// protocols that do not exist, after one that every server accepts.
func hello(host string, size int) []byte {
	config := &tls.Config{
		InsecureSkipVerify: true, // there is no handshake
		MinVersion:         tls.VersionTLS12,
		CurvePreferences:   clienthello.SmallKeyShares(), // ML-KEM's alone exceeds many a segment
		NextProtos:         []string{"http/1.1"},
	}
	if _, err := netip.ParseAddr(host); err != nil {
		config.ServerName = host
	}
	write := func() []byte {
		var written bytes.Buffer
		_ = tls.Client(recorder{written: &written}, config).Handshake()
		return written.Bytes()
	}
	bare := write() // its length does not depend on its random parts
	config.NextProtos = append(config.NextProtos, padding(size-len(bare))...)
	return write()
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
