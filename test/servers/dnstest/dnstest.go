// Package dnstest runs DNS servers for tests: well-behaved ones, and ones that fail in each of
// the ways in which DNS servers fail.
package dnstest

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
)

// Behaviour is what a server does; the zero value answers NXDOMAIN to everything.
type Behaviour struct {
	// Zone holds records in zone file form, by absolute lower-case name: "A 10.0.0.1",
	// "SRV 0 100 443 host.", ... A name that is a key exists.
	Zone map[string][]string
	// Rcodes are the response codes of names that are answered otherwise than by the zone; -1 does not answer them.
	Rcodes map[string]int
	// Types are the response codes of questions for a type, by its name; -1 does not answer them.
	Types map[string]int
	// Rcode, if not 0, is the response code of every answer.
	Rcode int
	// DropUDP and DropTCP take queries and do not answer.
	DropUDP, DropTCP bool
	// DropFirst drops so many UDP queries before it answers.
	DropFirst int
	// FailFirst answers so many UDP queries with SERVFAIL before it answers them.
	FailFirst int
	// Port of the server. Default: any that is free.
	Port uint16
	// NoTCP has nothing listen on TCP.
	NoTCP bool
	// Accepted, if not nil, counts the TCP connections; each is only served after AcceptAfter,
	// as on a line that loses the packets of handshakes.
	Accepted    *atomic.Int32
	AcceptAfter time.Duration
	// OneTCPQuery closes each TCP connection once it has answered.
	OneTCPQuery bool
	// CloseTCP accepts TCP connections and closes them.
	CloseTCP bool
	// Delay of each answer.
	Delay time.Duration
	// TruncateUDP marks UDP answers as truncated and leaves the records out. TruncateTCP does
	// so over TCP.
	TruncateUDP, TruncateTCP bool
	// CutUDP, if not 0, cuts off UDP answers after so many bytes, without marking them as truncated.
	CutUDP int
	// OtherQuestion answers a question that was not asked.
	OtherQuestion bool
	// OtherID answers with the ID of another query.
	OtherID bool
	// From, if not empty, is the IP address from which UDP answers come in place of the server's own.
	From string
	// OtherName answers with records of another name.
	OtherName bool
	// NoData answers with address records that hold no address (RDLENGTH 0).
	NoData bool
	// EDNS, if not nil, answers queries with EDNS0 in place of the rest; it gets the answer without an OPT record.
	EDNS func(w mdns.ResponseWriter, a *mdns.Msg)
	// EchoQuery sends the query back.
	EchoQuery bool
	// Garbage answers bytes that are no DNS message.
	Garbage bool
}

// FormatError is the EDNS of servers from before RFC 6891: FORMERR, without the question.
func FormatError(w mdns.ResponseWriter, a *mdns.Msg) {
	a.Rcode, a.Question, a.Answer = mdns.RcodeFormatError, nil, nil
	_ = w.WriteMsg(a)
}

// Rcode is the EDNS of servers that answer with a response code.
func Rcode(rcode int) func(mdns.ResponseWriter, *mdns.Msg) {
	return func(w mdns.ResponseWriter, a *mdns.Msg) {
		a.Rcode, a.Answer = rcode, nil
		if rcode > 0xF {
			a.SetEdns0(mdns.DefaultMsgSize, false) // which has the upper bits
		}
		_ = w.WriteMsg(a)
	}
}

// Drop is the EDNS of a firewall that drops what it does not know.
func Drop(mdns.ResponseWriter, *mdns.Msg) {}

// Close is the EDNS of servers that close the connection.
func Close(w mdns.ResponseWriter, _ *mdns.Msg) { _ = w.Close() }

// Append is the EDNS of servers that take a query for its question alone: they append their records to it and count
// them as answers. The OPT record comes first then, and the last answer is among the additional records.
func Append(w mdns.ResponseWriter, a *mdns.Msg) {
	a.SetEdns0(mdns.DefaultMsgSize, false)
	all := slices.Concat(a.Extra, a.Answer)
	last := max(len(all)-1, 0)
	a.Answer, a.Extra = all[:last], all[last:]
	_ = w.WriteMsg(a)
}

// Start runs a server on loopback until the test ends and returns its address.
func Start(t testing.TB, b Behaviour) netip.AddrPort {
	t.Helper()
	return StartAt(t, "127.0.0.1", b)
}

// StartAt runs a server on a local address, on one port for UDP and TCP.
func StartAt(t testing.TB, ip string, b Behaviour) netip.AddrPort {
	t.Helper()
	udp, tcp := listen(t, ip, b.Port)
	h := &handler{Behaviour: b}
	if b.From != "" {
		var err error
		if h.other, err = net.ListenPacket("udp", net.JoinHostPort(b.From, "0")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.other.Close() })
	}
	run := func(s *mdns.Server) {
		ready := make(chan struct{})
		s.NotifyStartedFunc = func() { close(ready) }
		s.Handler = h
		go func() { _ = s.ActivateAndServe() }()
		<-ready
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	run(&mdns.Server{PacketConn: udp})
	switch {
	case b.NoTCP:
		_ = tcp.Close()
	case b.CloseTCP:
		go closeAll(tcp)
		t.Cleanup(func() { _ = tcp.Close() })
	default:
		s := &mdns.Server{Listener: &slow{tcp, b}}
		if b.OneTCPQuery {
			s.MaxTCPQueries = 1
		}
		run(s)
	}
	return netip.MustParseAddrPort(udp.LocalAddr().String())
}

func listen(t testing.TB, ip string, port uint16) (net.PacketConn, net.Listener) {
	t.Helper()
	var failure error
	for range 20 {
		tcp, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(int(port))))
		if err != nil {
			t.Fatal(err)
		}
		udp, err := net.ListenPacket("udp", tcp.Addr().String())
		if err == nil {
			return udp, tcp
		}
		failure = err
		_ = tcp.Close()
	}
	t.Fatal(failure)
	return nil, nil
}

// slow hands connections over as its behaviour says.
type slow struct {
	net.Listener
	Behaviour
}

func (s *slow) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if s.Accepted != nil {
		s.Accepted.Add(1)
	}
	return &late{c, time.Now().Add(s.AcceptAfter)}, nil
}

// late is a connection from which nothing can be read before a time.
type late struct {
	net.Conn
	from time.Time
}

func (l *late) Read(p []byte) (int, error) {
	time.Sleep(time.Until(l.from))
	return l.Conn.Read(p)
}

func closeAll(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_ = c.Close()
	}
}

// handler is driven by one goroutine per query.
type handler struct {
	Behaviour
	queries atomic.Int64 // over UDP
	other   net.PacketConn
}

// elsewhere sends answers from another socket than the one that has the query.
type elsewhere struct {
	mdns.ResponseWriter
	from net.PacketConn
}

// WriteMsg sends an answer.
func (e *elsewhere) WriteMsg(m *mdns.Msg) error {
	packed, err := m.Pack()
	if err != nil {
		return err
	}
	_, err = e.from.WriteTo(packed, e.RemoteAddr())
	return err
}

// ServeDNS answers, or does not.
func (h *handler) ServeDNS(w mdns.ResponseWriter, q *mdns.Msg) {
	_, udp := w.RemoteAddr().(*net.UDPAddr)
	if udp && h.DropUDP || !udp && h.DropTCP {
		return
	}
	nth := int64(0)
	if udp && h.other != nil {
		w = &elsewhere{w, h.other}
	}
	if udp {
		nth = h.queries.Add(1)
	}
	if udp && nth <= int64(h.DropFirst) {
		return
	}
	if h.Types[mdns.TypeToString[q.Question[0].Qtype]] < 0 || h.Rcodes[strings.ToLower(q.Question[0].Name)] < 0 {
		return
	}
	time.Sleep(h.Delay)
	switch {
	case h.Garbage:
		_, _ = w.Write([]byte("no dns"))
		return
	case h.EchoQuery:
		_ = w.WriteMsg(q)
		return
	}
	a := h.answer(q)
	if udp && nth <= int64(h.DropFirst+h.FailFirst) {
		a.Rcode, a.Answer = mdns.RcodeServerFailure, nil
	}
	if opt := q.IsEdns0(); opt != nil && h.EDNS != nil {
		h.EDNS(w, a)
		return
	} else if opt != nil {
		a.SetEdns0(opt.UDPSize(), false)
	}
	if udp && h.TruncateUDP || !udp && h.TruncateTCP {
		a.Truncated, a.Answer = true, nil
	}
	if packed, err := a.Pack(); err == nil && udp && h.CutUDP > 0 {
		_, _ = w.Write(packed[:min(len(packed), h.CutUDP)])
		return
	}
	_ = w.WriteMsg(a)
}

func (h *handler) answer(q *mdns.Msg) *mdns.Msg {
	a := new(mdns.Msg)
	a.SetReply(q)
	a.RecursionAvailable = true // glibc takes an empty answer without it for that of a lame server
	a.Rcode = h.Rcode
	name := strings.ToLower(q.Question[0].Name)
	records, exists := h.Zone[name]
	if h.Rcode == 0 && !exists {
		a.Rcode = mdns.RcodeNameError
	}
	if rcode, special := h.Rcodes[name]; special {
		a.Rcode = rcode
	}
	if rcode, special := h.Types[mdns.TypeToString[q.Question[0].Qtype]]; special {
		a.Rcode = rcode
	}
	if a.Rcode == 0 {
		a.Answer = h.records(name, records, q.Question[0].Qtype)
	}
	for _, rr := range a.Answer {
		switch rr := rr.(type) {
		case *mdns.A:
			if h.NoData {
				rr.A = nil
			}
		case *mdns.AAAA:
			if h.NoData {
				rr.AAAA = nil
			}
		}
	}
	if h.OtherQuestion {
		a.Question[0].Name = "other.example."
	}
	if h.OtherID {
		a.Id++
	}
	if h.OtherName {
		for _, rr := range a.Answer {
			rr.Header().Name = "other.example."
		}
	}
	return a
}

// records of the type, and CNAMEs with what they lead to.
func (h *handler) records(name string, records []string, qtype uint16) []mdns.RR {
	var found []mdns.RR
	for _, r := range records {
		rr, err := mdns.NewRR(name + " 5 IN " + r)
		if err != nil {
			panic(err)
		}
		cname, isCNAME := rr.(*mdns.CNAME)
		if rr.Header().Rrtype == qtype || isCNAME {
			found = append(found, rr)
		}
		if isCNAME && qtype != mdns.TypeCNAME {
			found = append(found, h.records(cname.Target, h.Zone[cname.Target], qtype)...)
		}
	}
	return found
}
