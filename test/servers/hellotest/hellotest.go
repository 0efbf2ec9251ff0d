// Package hellotest runs the firewalls of tests that stand in front of TLS servers and expect a ClientHello in one
// packet.
package hellotest

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
)

// A Way is what a front does with a ClientHello that takes two packets of an ordinary link.
type Way string

// The ways.
const (
	Drops  Way = "drops"  // it leads on nothing, and keeps the connection
	Halves Way = "halves" // it leads on the first packet alone
	Resets Way = "resets"
	Closes Way = "closes"
	Alerts Way = "alerts" // it answers with the alert decode_error
	// Vanish is a path on which all packets of this size are lost: not only those of the handshake.
	Vanish Way = "vanish"
)

// packet is less than an ordinary link carries in one packet, and more than a ClientHello without ML-KEM has.
const packet = 1300

// Front returns the address of a front of the server until the test ends. It leads on what is small.
func Front(t testing.TB, way Way, server string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended); _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go front(c.(*net.TCPConn), way, server, ended)
		}
	}()
	return l.Addr().String()
}

func front(client *net.TCPConn, way Way, server string, ended <-chan struct{}) {
	defer func() { _ = client.Close() }()
	behind, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-ended:
		case <-done:
		}
		_, _ = client.Close(), behind.Close()
	}()
	for first := true; ; first = false {
		record, err := readRecord(client)
		if err != nil {
			return
		}
		if len(record) > packet && (first || way == Vanish) {
			refuse(client, behind, way, record)
			return
		}
		if first {
			go func() { _, _ = client.ReadFrom(behind); _ = client.CloseWrite() }()
		}
		if _, err := behind.Write(record); err != nil {
			return
		}
	}
}

// refuse returns when the front is done with the connection.
func refuse(client *net.TCPConn, behind net.Conn, way Way, record []byte) {
	switch way {
	case Resets:
		_ = client.SetLinger(0)
		return
	case Closes:
		return
	case Alerts:
		_, _ = client.Write([]byte("\x15\x03\x03\x00\x02\x02\x32"))
		return
	case Halves:
		_, _ = behind.Write(record[:packet])
	}
	_, _ = io.Copy(io.Discard, client)
}

// readRecord reads a TLS record (RFC 8446, section 5.1).
func readRecord(r io.Reader) ([]byte, error) {
	record := make([]byte, 5, 1<<14)
	if _, err := io.ReadFull(r, record); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint16(record[3:]))
	_, err := io.ReadFull(r, body)
	return append(record, body...), err
}
