package resolver

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
)

// Protocols of DNS.
const (
	UDP = "udp"
	TCP = "tcp"
)

const (
	// udpSize is the largest UDP answer that EDNS0 allows: it fits common paths without fragments (DNS Flag Day 2020).
	udpSize = 1232
	// resendAfter is how long to wait for a UDP answer before the query is sent again, within the same attempt.
	resendAfter = time.Second
	// bareAfter is how many UDP queries without an answer are sent with EDNS0 before the next goes without it.
	bareAfter = 2
	// confirmWait is how long to wait, at least, for the answer that shows that EDNS0 is not at fault.
	confirmWait = resendAfter / 2
)

// Error is a server's failure to answer a question.
type Error struct {
	Server   netip.AddrPort
	Protocol string
	Code     check.Reason
	// Text completes a sentence that begins with the server.
	Text string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s over %s: %s", e.Server, strings.ToUpper(e.Protocol), e.Text)
}

// Reason is the check's reason.
func (e *Error) Reason() check.Reason { return e.Code }

// Server is one DNS server.
type Server struct {
	Addr netip.AddrPort
	// Protocol is UDP or TCP. A truncated UDP answer is queried again over TCP.
	Protocol string
	// Timeout of one attempt, within the context's deadline. One attempt that is answered is enough.
	Timeout  time.Duration
	Attempts int
	session  *session
	// stray is the sender of an answer that came from elsewhere than Addr. It is shared by repeated lookups.
	stray *atomic.Pointer[netip.AddrPort]
	// anySender has once receive, and record, such answers.
	anySender bool
}

// session is what the queries of a lookup share.
type session struct {
	stream
	// ednsFault is what the server does with EDNS0, as a phrase that begins with a verb. From then on, queries go without
	// EDNS0. It is nil while nothing is wrong.
	ednsFault atomic.Pointer[string]
	// sizeFault is what was wrong with the size of an answer over UDP, as such a phrase, or nil.
	sizeFault atomic.Pointer[string]
}

func newSession(addr netip.AddrPort) *session { return &session{stream: stream{addr: addr}} }

// Exchange queries the records of qtype at the absolute name. It returns any answer to the question, whatever its
// response code, and how many queries it sent. Everything else is an *Error.
func (s Server) Exchange(ctx context.Context, name string, qtype uint16) (answer *mdns.Msg, tries int, err error) {
	if s.session == nil {
		s.session = newSession(s.Addr)
		defer s.session.close()
	}
	if s.stray == nil {
		s.stray = new(atomic.Pointer[netip.AddrPort])
	}
	attempts := max(s.Attempts, 1)
	for i := range attempts {
		last := err
		var sent int
		answer, sent, err = s.attempt(ctx, name, qtype, i > 0, attempts-i)
		tries += sent
		if sent == 0 && last != nil {
			return nil, tries, last // no time was left
		}
		if err == nil {
			return answer, tries, nil
		}
		if e, ok := errors.AsType[*Error](err); ctx.Err() != nil || ok && e.Code != check.ReasonTimeout {
			return nil, tries, err
		}
	}
	return nil, tries, err
}

// attempt queries once, and leaves time for the remaining attempts. An attempt that is not the first follows silence.
func (s Server) attempt(
	ctx context.Context, name string, qtype uint16, isRepeated bool, remaining int,
) (answer *mdns.Msg, sent int, err error) {
	timeout := s.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline)/time.Duration(remaining))
	}
	if timeout <= 0 {
		return nil, 0, &Error{s.Addr, s.Protocol, check.ReasonTimeout,
			fmt.Sprintf("was not asked for %s: the time of the check was used up", name)}
	}
	attempt, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	start := time.Now()
	waited := func() time.Duration {
		if ctx.Err() != nil {
			return min(time.Since(start), timeout)
		}
		return timeout
	}

	question := fmt.Sprintf("%s (%s)", name, mdns.TypeToString[qtype])
	answer, sent, err = s.query(attempt, s.Protocol, name, qtype, isRepeated)
	if err != nil {
		return nil, sent, s.fail(ctx, s.Protocol, question, waited(), err)
	}
	if !answer.Truncated {
		return answer, sent, nil
	}
	if s.Protocol == TCP {
		return nil, sent, &Error{s.Addr, TCP, check.ReasonMalformedAnswer,
			"sent an answer over TCP that is marked as truncated, which is invalid"}
	}
	answer, _, err = s.query(attempt, TCP, name, qtype, false)
	if err != nil {
		cause := s.fail(ctx, TCP, question, waited(), err)
		if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
			return nil, sent, cause
		}
		return nil, sent, &Error{s.Addr, UDP, check.ReasonTruncated, "truncated its answer for " + name +
			"; asked again over TCP, it " + cause.Text}
	}
	return answer, sent, nil
}

// query sends one query and reads its answer. Some servers do not handle EDNS0 (RFC 6891), and a firewall may drop it.
// libc does not use it by default, so a pod resolves names there. Whatever a server does with EDNS0, except an answer
// that makes sense, query therefore asks once more without it. A server that is silent gets such a query from send.
func (s Server) query(
	ctx context.Context, protocol, name string, qtype uint16, isRepeated bool,
) (answer *mdns.Msg, sent int, err error) {
	query := new(mdns.Msg)
	query.SetQuestion(name, qtype)
	if s.session.ednsFault.Load() == nil {
		query.SetEdns0(udpSize, false)
	}
	began := time.Now()
	answer, sent, err = s.send(ctx, protocol, query, isRepeated)
	reason, fault := s.fault(ctx, protocol, answer, err)
	if reason == check.NoReason || reason == check.ReasonTimeout || query.IsEdns0() == nil || ctx.Err() != nil {
		return answer, sent, err
	}
	took := time.Since(began)
	bare, again, bareErr := s.send(ctx, protocol, withoutEDNS(query), false)
	switch without, _ := s.fault(ctx, protocol, bare, bareErr); {
	case without != check.NoReason && !reason.Transient():
		return bare, again, bareErr
	case without != check.NoReason:
		return answer, sent, err
	case reason.Transient() && s.confirm(ctx, protocol, query, took) != nil:
		return answer, sent, err // the fault has passed by itself, or is another server's behind the address
	}
	s.session.ednsFault.Store(&fault)
	return bare, again, nil
}

func withoutEDNS(query *mdns.Msg) *mdns.Msg {
	bare := query.Copy()
	bare.Extra = nil
	return bare
}

// fault returns why an answer, or the error in its place, may be due to EDNS0. The text is a phrase that begins with a
// verb, of which the server is the subject.
func (s Server) fault(ctx context.Context, protocol string, answer *mdns.Msg, err error) (check.Reason, string) {
	isOPT := func(rr mdns.RR) bool { return rr.Header().Rrtype == mdns.TypeOPT }
	switch {
	case neterror.IsTimeout(err):
		return check.ReasonTimeout, "did not answer"
	case err != nil:
		e := s.fail(ctx, protocol, "", 0, err)
		return e.Code, e.Text
	case slices.ContainsFunc(answer.Answer, isOPT) || slices.ContainsFunc(answer.Ns, isOPT):
		return check.ReasonMalformedAnswer, "put the OPT record into the wrong section"
	case answer.Rcode == mdns.RcodeSuccess || answer.Rcode == mdns.RcodeNameError:
		return check.NoReason, ""
	}
	return RcodeReason(answer.Rcode), "answered " + RcodeText(answer.Rcode)
}

// confirm asks with EDNS0 once more, after a query without it was answered. It returns nil if that is not answered as
// it should be either, which shows that EDNS0 is at fault. took is how long the server needs for an answer.
func (s Server) confirm(ctx context.Context, protocol string, query *mdns.Msg, took time.Duration) *mdns.Msg {
	wait := max(confirmWait, 2*took)
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	again, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	answer, err := s.ask(again, protocol, query)
	if reason, _ := s.fault(again, protocol, answer, err); reason != check.NoReason {
		return nil
	}
	return answer
}

// afterSilence asks without EDNS0 what was not answered with it. If that is answered, and with EDNS0 again nothing,
// queries go without EDNS0 from then on. Otherwise the earlier packets were lost.
func (s Server) afterSilence(ctx context.Context, protocol string, query *mdns.Msg) (*mdns.Msg, error) {
	if query.IsEdns0() == nil {
		return s.ask(ctx, protocol, query)
	}
	began := time.Now()
	bare, err := s.ask(ctx, protocol, withoutEDNS(query))
	if reason, _ := s.fault(ctx, protocol, bare, err); reason != check.NoReason {
		return bare, err
	}
	if answer := s.confirm(ctx, protocol, query, time.Since(began)); answer != nil {
		return answer, nil
	}
	if ctx.Err() == nil {
		s.session.ednsFault.Store(new("did not answer"))
	}
	return bare, nil
}

// send sends a query and reads its answer. Over UDP it resends the query.
func (s Server) send(
	ctx context.Context, protocol string, query *mdns.Msg, isRepeated bool,
) (answer *mdns.Msg, sent int, err error) {
	switch {
	case protocol == UDP:
		return s.datagrams(ctx, query, isRepeated)
	case isRepeated:
		answer, err = s.afterSilence(ctx, protocol, query)
	default:
		answer, err = s.ask(ctx, protocol, query)
	}
	return answer, 1, err
}

// datagrams sends a query over UDP, and sends it again after each second without an answer. A resolver like libc's
// waits for its whole timeout of 5 s, and a check has time for only two of those. With packet loss, a lookup through
// the search domains would then rarely finish. The result sent is the number of the query that was answered.
func (s Server) datagrams(
	ctx context.Context, query *mdns.Msg, isRepeated bool,
) (answer *mdns.Msg, sent int, err error) {
	var asked atomic.Int32
	last := retry.Do(ctx, resendAfter, func(ctx context.Context) retry.Answer[*mdns.Msg] {
		s, n := s, asked.Add(1)
		s.anySender = n == 1 && isRepeated || n == 2 && !isRepeated // the first query after silence
		ask := s.ask
		if n > bareAfter || isRepeated {
			ask = s.afterSilence
		}
		answer, err := ask(ctx, UDP, query)
		return retry.Answer[*mdns.Msg]{Value: answer, Err: err}
	})
	if last.Err != nil {
		return nil, int(asked.Load()), last.Err
	}
	return last.Value, last.N, nil
}

// ask sends one query, as a copy with an ID of its own, and reads its answer.
func (s Server) ask(ctx context.Context, protocol string, query *mdns.Msg) (answer *mdns.Msg, err error) {
	query = query.Copy()
	query.Id = mdns.Id()
	if protocol == UDP {
		answer, err = s.once(ctx, query)
	} else {
		answer, err = s.session.exchange(ctx, query)
	}
	if err != nil {
		return nil, err
	}
	if text := cmp.Or(mismatch(query, answer), emptyRecord(answer)); text != "" {
		return nil, &Error{s.Addr, protocol, check.ReasonMalformedAnswer, text}
	}
	return answer, nil
}

// once sends a query over UDP, from a new port: the path that the kernel remembers for another may lead nowhere.
func (s Server) once(ctx context.Context, query *mdns.Msg) (*mdns.Msg, error) {
	raw, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = raw.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		_ = raw.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn := &mdns.Conn{Conn: raw, UDPSize: math.MaxUint16}
	if err := conn.WriteMsg(query); err != nil {
		return nil, err
	}
	for {
		packet, err := conn.ReadMsgHeader(nil)
		if err != nil {
			return nil, err
		}
		answer := new(mdns.Msg)
		err = answer.Unpack(packet)
		if answer.Id != query.Id {
			continue
		}
		if socket, ok := raw.(*unconnected); ok && !s.isFrom(socket.sender) {
			s.stray.Store(new(socket.sender))
			continue
		}
		if text := sizeFault(query, answer, packet, err); text != "" {
			s.session.sizeFault.Store(&text)
			answer.Truncated, answer.Answer, answer.Ns, answer.Extra, err = true, nil, nil, nil, nil
		}
		return answer, err
	}
}

// open opens a socket for queries over UDP. A connected one receives the server's packets alone, as those of glibc and
// Go, and its errors by ICMP.
func (s Server) open(ctx context.Context) (net.Conn, error) {
	if !s.anySender {
		var dialer net.Dialer
		return dialer.DialContext(ctx, UDP, s.Addr.String())
	}
	network := "udp6"
	if s.Addr.Addr().Is4() {
		network = "udp4"
	}
	conn, err := net.ListenUDP(network, nil)
	if err != nil {
		return nil, err
	}
	return &unconnected{UDPConn: conn, server: s.Addr}, nil
}

// unconnected is a socket that receives packets from any sender.
type unconnected struct {
	*net.UDPConn
	server netip.AddrPort
	// sender of the last packet.
	sender netip.AddrPort
}

// Write sends a packet to the server.
func (u *unconnected) Write(packet []byte) (int, error) {
	return u.WriteToUDPAddrPort(packet, u.server)
}

// Read receives a packet.
func (u *unconnected) Read(packet []byte) (int, error) {
	n, from, err := u.ReadFromUDPAddrPort(packet)
	u.sender = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	return n, err
}

// isFrom reports whether a packet's sender is the server, whose zone may be a number or a name.
func (s Server) isFrom(sender netip.AddrPort) bool {
	return sender.Port() == s.Addr.Port() && sender.Addr().WithZone("") == s.Addr.Addr().WithZone("")
}

// sizeFault returns what is wrong with the size of an answer over UDP that is not marked as truncated; empty if nothing
// is. unpacked is the error of unpacking it. Such an answer counts as truncated. libc reads it as far as it goes, or
// asks over TCP, and Go's resolver fails.
func sizeFault(query, answer *mdns.Msg, packet []byte, unpacked error) string {
	allowed := mdns.MinMsgSize
	if opt := query.IsEdns0(); opt != nil {
		allowed = int(opt.UDPSize())
	}
	switch {
	case !answer.Response || answer.Truncated || len(answer.Question) != 1:
		return ""
	case len(packet) > allowed:
		return fmt.Sprintf("sent %d bytes, where %d are allowed, and did not mark them as truncated",
			len(packet), allowed)
	case unpacked != nil, len(answer.Answer) < int(binary.BigEndian.Uint16(packet[6:8])): // ANCOUNT
		return fmt.Sprintf("sent an answer that is cut off after %d bytes, and did not mark it as truncated", len(packet))
	}
	return ""
}

// mismatch returns why the answer is not one to the query; empty if it is.
func mismatch(query, answer *mdns.Msg) string {
	if !answer.Response {
		return "sent back a query instead of an answer"
	}
	if len(answer.Question) == 0 && answer.Rcode != mdns.RcodeSuccess {
		return "" // FORMERR and some REFUSED come without the question
	}
	if len(answer.Question) != 1 {
		return fmt.Sprintf("sent an answer with %d questions", len(answer.Question))
	}
	q, a := query.Question[0], answer.Question[0]
	if !strings.EqualFold(q.Name, a.Name) || q.Qtype != a.Qtype || q.Qclass != a.Qclass {
		return fmt.Sprintf("answered another question (%s %s) than the one that was asked (%s %s)",
			a.Name, mdns.TypeToString[a.Qtype], q.Name, mdns.TypeToString[q.Qtype])
	}
	return ""
}

// emptyRecord describes a record without data. The library unpacks RDLENGTH 0, which is for dynamic updates, to a
// record without an address.
func emptyRecord(answer *mdns.Msg) string {
	for _, rr := range answer.Answer {
		if h := rr.Header(); h.Rdlength == 0 && slices.Contains(typesWithData, h.Rrtype) {
			return fmt.Sprintf("sent a record without data (%s %s)", h.Name, mdns.TypeToString[h.Rrtype])
		}
	}
	return ""
}

// typesWithData are the record types that a check can query.
var typesWithData = []uint16{mdns.TypeA, mdns.TypeAAAA, mdns.TypeCNAME, mdns.TypeMX, mdns.TypeNS, mdns.TypePTR,
	mdns.TypeSOA, mdns.TypeSRV, mdns.TypeTXT}

func (s Server) fail(ctx context.Context, protocol, question string, timeout time.Duration, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := &Error{Server: s.Addr, Protocol: protocol}
	var malformed *mdns.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		e.Code, e.Text = check.ReasonInterrupted, "was not waited for: the worker was stopped"
	case neterror.IsTimeout(err):
		e.Code = check.ReasonTimeout
		e.Text = fmt.Sprintf("did not answer a query for %s in %s", question, timeout.Round(time.Millisecond))
		if stray := s.stray.Load(); stray != nil && protocol == UDP {
			e.Text += fmt.Sprintf(" (an answer came from %s, and programs ignore it: the kernel module br_netfilter may "+
				"be missing)", stray)
		}
	case errors.As(err, &malformed):
		e.Code, e.Text = check.ReasonMalformedAnswer, "sent something that is not a DNS answer: "+malformed.Error()
	default:
		e.Code, e.Text = neterror.Of(err)
		if errors.Is(err, syscall.EADDRNOTAVAIL) && s.Addr.Addr().Is6() {
			e.Text += " (this pod has no IPv6 address)"
		}
	}
	return e
}
