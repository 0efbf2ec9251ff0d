package tcp_test

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/tcp"
)

func TestAfterTheConnectionIsAccepted(t *testing.T) {
	for _, c := range []struct {
		name   string
		accept func(*net.TCPConn)
		resets bool
	}{
		{"resets", func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() }, true},
		{"resets a moment later", func(c *net.TCPConn) {
			time.Sleep(20 * time.Millisecond)
			_ = c.SetLinger(0)
			_ = c.Close()
		}, true},
		{"keeps silent", func(*net.TCPConn) {}, false},
		{"speaks first", func(c *net.TCPConn) { _, _ = c.Write([]byte("220 ready\r\n")) }, false},
		{"closes", func(c *net.TCPConn) { _ = c.Close() }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			go func() {
				if conn, err := l.Accept(); err == nil {
					c.accept(conn.(*net.TCPConn))
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			_, err = tcp.Connect(ctx, l.Addr().String())
			if errors.Is(err, syscall.ECONNRESET) != c.resets || (err != nil) != c.resets {
				t.Errorf("got %v", err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}
