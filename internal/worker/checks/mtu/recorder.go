package mtu

import (
	"bytes"
	"io"
	"net"
)

// recorder is a connection to nowhere that keeps what is written.
type recorder struct {
	net.Conn
	written *bytes.Buffer
}

func (r recorder) Write(p []byte) (int, error) { return r.written.Write(p) }
func (r recorder) Read([]byte) (int, error)    { return 0, io.EOF }
func (r recorder) Close() error                { return nil }
