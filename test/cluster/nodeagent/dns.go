package nodeagent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

// DNSMode is how a node's resolver behaves.
type DNSMode int

const (
	// DNSWorks passes queries to the cluster's DNS server.
	DNSWorks DNSMode = iota
	// DNSDrops answers nothing: queries vanish and TCP connections stay silent.
	DNSDrops
	// DNSRefuses has nothing listening: UDP is answered by ICMP, TCP by a reset.
	DNSRefuses
	// DNSFails answers SERVFAIL to every query.
	DNSFails
)

// resolver is a node's way to the cluster's DNS server: a relay on a loopback port of its
// own, so that the path from one node can break while the server is fine.
type resolver struct {
	upstream string
	queries  atomic.Int64

	mu    sync.Mutex
	mode  DNSMode
	port  int // chosen once, then kept across closing and opening
	udp   *net.UDPConn
	tcp   net.Listener
	conns map[net.Conn]struct{}
	kept  *reservation // of the port, while nothing listens on it
	ended bool
}

// reservation keeps a port from others while queries to it are refused: another node's resolver would answer them.
type reservation struct {
	udp *net.UDPConn // connected elsewhere, so that what comes from anybody is answered by ICMP
	tcp int          // bound and not listening, so that connections are reset
}

func reserve(port int) *reservation {
	r := &reservation{tcp: -1}
	loopback := net.IPv4(127, 0, 0, 1)
	const discard = 9 // RFC 863; nothing is sent to it
	r.udp, _ = net.DialUDP("udp4", &net.UDPAddr{IP: loopback, Port: port}, &net.UDPAddr{IP: loopback, Port: discard})
	if fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0); err == nil {
		syscall.CloseOnExec(fd)
		if syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}) != nil {
			_ = syscall.Close(fd)
		} else {
			r.tcp = fd
		}
	}
	return r
}

func (r *reservation) release() {
	if r == nil {
		return
	}
	if r.udp != nil {
		_ = r.udp.Close()
	}
	if r.tcp >= 0 {
		_ = syscall.Close(r.tcp)
	}
}

// patience bounds the wait for the DNS server's answer and the life of a silent connection.
const patience = 30 * time.Second

// nameserver is the resolver's address as resolv.conf is to have it; the relay starts with the first call.
func (r *resolver) nameserver() (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.port == 0 {
		if err := r.open(); err != nil {
			return "", err
		}
		if r.mode == DNSRefuses {
			r.shut()
		}
	}
	return fmt.Sprintf("[127.0.0.1]:%d", r.port), nil
}

func (r *resolver) set(mode DNSMode) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mode = mode
	switch {
	case r.port == 0: // not in use yet
		return nil
	case mode == DNSRefuses:
		r.shut()
		return nil
	case r.udp == nil:
		return r.open()
	default:
		return nil
	}
}

func (r *resolver) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.shut()
	r.kept.release()
	r.kept = nil
}

// open listens on UDP and TCP with one port number.
func (r *resolver) open() error {
	if r.ended {
		return errors.New("the node is gone")
	}
	r.kept.release()
	r.kept = nil
	var last error
	for range 20 {
		choice := r.port
		if choice == 0 {
			// None that the system gives to outgoing queries: one of those could take it while it is closed.
			free, err := cluster.FreePorts("127.0.0.1", 1)
			if err != nil {
				return err
			}
			choice = free[0]
		}
		udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: choice})
		if err != nil {
			if last = err; r.port == 0 {
				continue
			}
			break
		}
		port := udp.LocalAddr().(*net.UDPAddr).Port
		tcp, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			r.udp, r.tcp, r.port, r.conns = udp, tcp, port, map[net.Conn]struct{}{}
			go r.serveUDP(udp)
			go r.serveTCP(tcp)
			return nil
		}
		_ = udp.Close()
		last = err
		if r.port != 0 {
			break
		}
	}
	return fmt.Errorf("open the node's resolver: %w", last)
}

func (r *resolver) shut() {
	if r.udp == nil {
		return
	}
	_ = r.udp.Close()
	_ = r.tcp.Close()
	for conn := range r.conns {
		_ = conn.Close()
	}
	r.udp, r.tcp, r.conns = nil, nil, nil
	r.kept = reserve(r.port)
}

func (r *resolver) current() DNSMode {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mode
}

func (r *resolver) serveUDP(conn *net.UDPConn) {
	buffer := make([]byte, dns.MaxMsgSize)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		query := append([]byte(nil), buffer[:n]...)
		go func() {
			if answer := r.answer("udp", query); answer != nil {
				_, _ = conn.WriteToUDPAddrPort(answer, from)
			}
		}()
	}
}

func (r *resolver) serveTCP(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		if r.conns == nil {
			r.mu.Unlock()
			_ = conn.Close()
			return
		}
		r.conns[conn] = struct{}{}
		r.mu.Unlock()
		go func() {
			defer func() {
				_ = conn.Close()
				r.mu.Lock()
				delete(r.conns, conn)
				r.mu.Unlock()
			}()
			_ = conn.SetDeadline(time.Now().Add(patience))
			framed := &dns.Conn{Conn: conn}
			for {
				query, err := framed.ReadMsgHeader(nil)
				if err != nil {
					return
				}
				answer := r.answer("tcp", query)
				if answer == nil {
					_, _ = io.Copy(io.Discard, conn) // silent until the client gives up
					return
				}
				if _, err := framed.Write(answer); err != nil {
					return
				}
			}
		}()
	}
}

// answer is what a query gets; nil is silence.
func (r *resolver) answer(network string, query []byte) []byte {
	r.queries.Add(1)
	mode := r.current()
	if mode == DNSWorks && r.upstream != "" {
		if answer, err := exchange(network, r.upstream, query); err == nil {
			return answer
		}
	}
	if mode == DNSDrops {
		return nil
	}
	question := new(dns.Msg)
	if question.Unpack(query) != nil {
		return nil
	}
	failure, err := new(dns.Msg).SetRcode(question, dns.RcodeServerFailure).Pack()
	if err != nil {
		return nil
	}
	return failure
}

// exchange passes a message on as it is.
func exchange(network, server string, query []byte) ([]byte, error) {
	conn, err := net.DialTimeout(network, server, patience)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	framed := &dns.Conn{Conn: conn, UDPSize: dns.MaxMsgSize}
	if _, err := framed.Write(query); err != nil {
		return nil, err
	}
	return framed.ReadMsgHeader(nil)
}

// String names the mode for messages.
func (m DNSMode) String() string {
	return strings.Fields("works drops refuses fails")[m]
}
