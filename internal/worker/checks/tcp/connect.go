package tcp

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// settleTime is how long Connect watches an accepted connection. A proxy that accepts every connection and has no
// backend resets it within this time, also from another region.
const settleTime = 100 * time.Millisecond

// Connect connects to host:port and closes the connection. A reset right after the connection is accepted is an error,
// as a refusal is. A peer that stays silent, sends first or closes is not. took is the time until it was accepted.
func Connect(ctx context.Context, address string) (took time.Duration, err error) {
	start := time.Now()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	took = time.Since(start).Round(time.Millisecond)
	if err != nil {
		return took, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(settleTime))
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, syscall.ECONNRESET) {
		return took, err
	}
	return took, nil
}
