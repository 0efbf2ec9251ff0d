package resolver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
)

// stream sends all queries to a server over one TCP connection (RFC 7766, section 6.2.1): with packet loss, each
// handshake costs time.
type stream struct {
	addr netip.AddrPort
	mu   sync.Mutex
	conn *connection // nil after a timeout
	all  []*connection
}

// exchange sends a query and waits for its answer. A server may close a connection at any time: if it has answered on
// that connection before, exchange sends the query over a new one. After a timeout, the next query goes over a new one.
func (s *stream) exchange(ctx context.Context, query *mdns.Msg) (*mdns.Msg, error) {
	for {
		c, err := s.connect(ctx)
		if err != nil {
			return nil, err
		}
		answer, err := c.exchange(ctx, query)
		if neterror.IsTimeout(err) {
			s.abandon(c)
		}
		if err == nil || !c.closedAfterUse(err) {
			return answer, err
		}
	}
}

// connect returns the connection, and makes it if there is none.
func (s *stream) connect(ctx context.Context) (*connection, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil && s.conn.ended() == nil {
		return s.conn, nil
	}
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, TCP, s.addr.String())
	if err != nil {
		return nil, err
	}
	c := &connection{raw: &mdns.Conn{Conn: raw}, waiting: map[uint16]chan *mdns.Msg{}}
	recovery.Go(c.read, func(p *recovery.Panic) { c.end(p) })
	s.conn, s.all = c, append(s.all, c)
	return c, nil
}

func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.all {
		c.end(net.ErrClosed)
	}
}

// abandon makes the next query use a new connection. Other queries may still wait on the old one.
func (s *stream) abandon(old *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == old {
		s.conn = nil
	}
}

// connection is a TCP connection for several concurrent queries.
type connection struct {
	raw *mdns.Conn

	mu sync.Mutex
	// waiting has each query's channel, by its ID; nil after it has been answered or given up. It is closed without an
	// answer if the connection ends.
	waiting  map[uint16]chan *mdns.Msg
	answered bool
	err      error
}

func (c *connection) exchange(ctx context.Context, query *mdns.Msg) (*mdns.Msg, error) {
	answers := make(chan *mdns.Msg, 1)
	if err := c.send(ctx, query, answers); err != nil {
		return nil, err
	}
	select {
	case answer, ok := <-answers:
		if !ok {
			return nil, c.ended()
		}
		return answer, nil
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiting[query.Id] = nil
		return nil, ctx.Err()
	}
}

func (c *connection) send(ctx context.Context, query *mdns.Msg, answer chan *mdns.Msg) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	for _, taken := c.waiting[query.Id]; taken; _, taken = c.waiting[query.Id] {
		query.Id = mdns.Id()
	}
	c.waiting[query.Id] = answer
	deadline, _ := ctx.Deadline()
	return errors.Join(c.raw.SetWriteDeadline(deadline), c.raw.WriteMsg(query))
}

// read delivers the answers until the connection ends.
func (c *connection) read() {
	_ = c.raw.SetReadDeadline(time.Time{})
	for {
		answer, err := c.raw.ReadMsg()
		if err != nil {
			c.end(err)
			return
		}
		c.mu.Lock()
		waiting, known := c.waiting[answer.Id]
		c.waiting[answer.Id], c.answered = nil, true
		c.mu.Unlock()
		if !known {
			c.end(mdns.ErrId)
			return
		}
		if waiting != nil {
			waiting <- answer
		}
	}
}

// end closes the connection and fails the queries that wait.
func (c *connection) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	_ = c.raw.Close()
	for id, waiting := range c.waiting {
		if waiting != nil {
			close(waiting)
		}
		c.waiting[id] = nil
	}
}

func (c *connection) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// closedAfterUse reports whether the error is the end of a connection that has had an answer.
func (c *connection) closedAfterUse(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE))
}
