// Package probe finds out whether a TCP address takes connections, for the checks tcp and peers.
package probe

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// settle is how long a connection that was accepted is watched: as long as the reset of a proxy takes that accepts
// everything and has nobody to pass it on to, also from another region.
const settle = 100 * time.Millisecond

// Connect connects to host:port and closes the connection. A connection that is reset right after it was accepted is
// an error, as one that is refused; one that keeps silent, speaks first or is closed is none. took is the time until
// it was accepted.
func Connect(ctx context.Context, address string) (took time.Duration, err error) {
	start := time.Now()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	took = time.Since(start).Round(time.Millisecond)
	if err != nil {
		return took, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(settle))
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, syscall.ECONNRESET) {
		return took, err
	}
	return took, nil
}
