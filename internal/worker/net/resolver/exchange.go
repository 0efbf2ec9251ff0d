package resolver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
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
	// stream is shared by the queries of a lookup.
	stream *stream
}

// Exchange queries the records of qtype at the absolute name. It returns any answer to the question, whatever its
// response code, and how many queries it sent. Everything else is an *Error.
func (s Server) Exchange(ctx context.Context, name string, qtype uint16) (answer *mdns.Msg, tries int, err error) {
	if s.stream == nil {
		s.stream = &stream{addr: s.Addr}
		defer s.stream.close()
	}
	attempts := max(s.Attempts, 1)
	for i := range attempts {
		last := err
		var sent int
		answer, sent, err = s.attempt(ctx, name, qtype, attempts-i)
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

// attempt queries once, and leaves time for the remaining attempts.
func (s Server) attempt(
	ctx context.Context, name string, qtype uint16, remaining int,
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

	answer, sent, err = s.query(attempt, s.Protocol, name, qtype)
	if err != nil {
		return nil, sent, s.fail(ctx, s.Protocol, name, waited(), err)
	}
	if !answer.Truncated {
		return answer, sent, nil
	}
	if s.Protocol == TCP {
		return nil, sent, &Error{s.Addr, TCP, check.ReasonMalformedAnswer,
			"sent an answer over TCP that is marked as truncated, which is invalid"}
	}
	answer, _, err = s.query(attempt, TCP, name, qtype)
	if err != nil {
		cause := s.fail(ctx, TCP, name, waited(), err)
		if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
			return nil, sent, cause
		}
		return nil, sent, &Error{s.Addr, UDP, check.ReasonTruncated, "truncated its answer for " + name +
			"; asked again over TCP, it " + cause.Text}
	}
	return answer, sent, nil
}

// query sends one query and reads its answer. A server without EDNS0 answers FORMERR, and gets the query again without
// it (RFC 6891, section 6.2.2).
func (s Server) query(
	ctx context.Context, protocol, name string, qtype uint16,
) (answer *mdns.Msg, sent int, err error) {
	query := new(mdns.Msg)
	query.SetQuestion(name, qtype)
	query.SetEdns0(udpSize, false)
	answer, sent, err = s.send(ctx, protocol, query)
	if err == nil && answer.Rcode == mdns.RcodeFormatError {
		query.Extra = nil
		answer, sent, err = s.send(ctx, protocol, query)
	}
	return answer, sent, err
}

// send sends a query and reads its answer. Over UDP it resends the query.
func (s Server) send(
	ctx context.Context, protocol string, query *mdns.Msg,
) (answer *mdns.Msg, sent int, err error) {
	if protocol == UDP {
		answer, sent, err = s.datagram(ctx, query)
	} else {
		sent = 1
		answer, err = s.stream.exchange(ctx, query)
	}
	if err != nil {
		return nil, sent, err
	}
	if text := cmp.Or(mismatch(query, answer), emptyRecord(answer)); text != "" {
		return nil, sent, &Error{s.Addr, protocol, check.ReasonMalformedAnswer, text}
	}
	return answer, sent, nil
}

// datagram sends a query over UDP, and sends it again after each second without an answer. A resolver like libc's waits
// for its whole timeout of 5 s, and a check has time for only two of those. With packet loss, a lookup through the
// search domains would then rarely finish. The result sent is the number of the query that was answered.
func (s Server) datagram(ctx context.Context, query *mdns.Msg) (answer *mdns.Msg, sent int, err error) {
	var asked atomic.Int32
	last := retry.Do(ctx, resendAfter, func(ctx context.Context) retry.Answer[*mdns.Msg] {
		asked.Add(1)
		q := query.Copy()
		q.Id = mdns.Id()
		answer, err := s.once(ctx, q)
		return retry.Answer[*mdns.Msg]{Value: answer, Err: err}
	})
	if last.Err != nil {
		return nil, int(asked.Load()), last.Err
	}
	return last.Value, last.N, nil
}

// once sends a query over UDP, from a new port: the path that the kernel remembers for another may lead nowhere.
func (s Server) once(ctx context.Context, query *mdns.Msg) (*mdns.Msg, error) {
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, UDP, s.Addr.String())
	if err != nil {
		return nil, err
	}
	defer func() { _ = raw.Close() }()
	// The library uses the context's deadline, but does not notice its cancellation.
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	client := mdns.Client{Net: UDP, Timeout: s.Timeout}
	answer, _, err := client.ExchangeWithConnContext(ctx, query, &mdns.Conn{Conn: raw})
	return answer, err
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

func (s Server) fail(ctx context.Context, protocol, name string, timeout time.Duration, err error) *Error {
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
		e.Text = fmt.Sprintf("did not answer a query for %s in %s", name, timeout.Round(time.Millisecond))
	case errors.As(err, &malformed):
		e.Code, e.Text = check.ReasonMalformedAnswer, "sent something that is not a DNS answer: "+malformed.Error()
	default:
		e.Code, e.Text = neterror.Of(err)
	}
	return e
}
