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

// udpSize is the largest answer that is accepted over UDP: EDNS0 at the size that fits
// every common path without fragments (the DNS Flag Day 2020 recommendation).
const udpSize = 1232

// Error is a server's failure to answer a question properly.
type Error struct {
	Server   netip.AddrPort
	Protocol string
	Name     string
	Code     check.Reason
	// Text completes a sentence that begins with the server.
	Text string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s over %s: %s", e.Server, strings.ToUpper(e.Protocol), e.Text)
}

// Reason says why in one word.
func (e *Error) Reason() check.Reason { return e.Code }

// Server is one DNS server and how patiently it is asked.
type Server struct {
	Addr netip.AddrPort
	// Protocol is UDP or TCP. A truncated answer over UDP is asked again over TCP.
	Protocol string
	// Timeout of one query and Attempts at it, within the context's deadline. A lost UDP
	// packet is no failure as long as one of the attempts is answered.
	Timeout  time.Duration
	Attempts int
	// stream is shared by the queries of a look-up.
	stream *stream
}

// Exchange asks for the records of qtype at the absolute name. Any answer that belongs to
// the question is returned, whatever its response code, with how often the question was put;
// everything else is an *Error.
func (s Server) Exchange(ctx context.Context, name string, qtype uint16) (answer *mdns.Msg, tries int, err error) {
	if s.stream == nil {
		s.stream = &stream{addr: s.Addr}
		defer s.stream.close()
	}
	attempts := max(s.Attempts, 1)
	for i := range attempts {
		var sent int
		answer, sent, err = s.attempt(ctx, name, qtype, attempts-i)
		tries += sent
		if err == nil {
			return answer, tries, nil
		}
		var e *Error
		if ctx.Err() != nil || errors.As(err, &e) && e.Code != check.ReasonTimeout {
			return nil, tries, err
		}
	}
	return nil, tries, err
}

// attempt asks once, leaving time for the attempts that remain.
func (s Server) attempt(ctx context.Context, name string, qtype uint16, remaining int) (answer *mdns.Msg, sent int, err error) {
	timeout := s.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline)/time.Duration(remaining))
	}
	attempt, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	start := time.Now()
	waited := func() time.Duration {
		if ctx.Err() != nil { // it has been cut short
			return min(time.Since(start), timeout)
		}
		return timeout
	}

	answer, sent, err = s.ask(attempt, s.Protocol, name, qtype)
	if err != nil {
		return nil, sent, s.fail(ctx, s.Protocol, name, waited(), err)
	}
	if !answer.Truncated {
		return answer, sent, nil
	}
	if s.Protocol == TCP {
		return nil, sent, &Error{s.Addr, TCP, name, check.ReasonMalformedAnswer, "sent an answer marked as truncated, which makes no sense over TCP"}
	}
	answer, _, err = s.ask(attempt, TCP, name, qtype)
	if err != nil {
		cause := s.fail(ctx, TCP, name, waited(), err)
		if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
			return nil, sent, cause
		}
		return nil, sent, &Error{s.Addr, UDP, name, check.ReasonTruncated, "truncated its answer for " + name +
			", and asked again over TCP it " + cause.Text}
	}
	return answer, sent, nil
}

// ask sends one query and reads the answer to it. A server from before EDNS0 answers FORMERR and
// is asked without (RFC 6891, section 6.2.2).
func (s Server) ask(ctx context.Context, protocol, name string, qtype uint16) (answer *mdns.Msg, sent int, err error) {
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

// send sends a query, over UDP as often as it takes, and reads the answer to it.
func (s Server) send(ctx context.Context, protocol string, query *mdns.Msg) (answer *mdns.Msg, sent int, err error) {
	if protocol == UDP {
		answer, sent, err = s.datagram(ctx, query)
	} else {
		sent = 1
		answer, err = s.stream.exchange(ctx, query)
	}
	if err != nil {
		return nil, sent, err
	}
	if text := cmp.Or(mismatch(query, answer), hollow(answer)); text != "" {
		return nil, sent, &Error{s.Addr, protocol, query.Question[0].Name, check.ReasonMalformedAnswer, text}
	}
	return answer, sent, nil
}

// datagram sends a query over UDP, and once more after each second without an answer, so that one lost packet costs
// no more. libc waits a whole timeout (5 s), two of which are all that a check has: on a line that loses packets, a
// look-up through the search domains would hardly ever come to its end. sent says which of the queries was answered.
func (s Server) datagram(ctx context.Context, query *mdns.Msg) (answer *mdns.Msg, sent int, err error) {
	type reply struct {
		msg *mdns.Msg
		err error
		nth int
	}
	var asked atomic.Int32
	r := retry.Do(ctx, resendAfter, func(ctx context.Context) retry.Answer[reply] {
		nth, q := int(asked.Add(1)), query.Copy()
		q.Id = mdns.Id()
		msg, err := s.once(ctx, q)
		return retry.Answer[reply]{Value: reply{msg, err, nth}}
	})
	if r.err != nil {
		return nil, int(asked.Load()), r.err
	}
	return r.msg, r.nth, nil
}

// resendAfter is how long an answer over UDP is waited for before the query is sent once more, within the same attempt.
const resendAfter = time.Second

// once sends a query over UDP, from a port of its own: a path that the kernel has remembered for another may lead
// nowhere.
func (s Server) once(ctx context.Context, query *mdns.Msg) (*mdns.Msg, error) {
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, UDP, s.Addr.String())
	if err != nil {
		return nil, err
	}
	defer func() { _ = raw.Close() }()
	// The library reads deadlines from the context and does not notice its cancellation.
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	client := mdns.Client{Net: UDP, Timeout: s.Timeout}
	answer, _, err := client.ExchangeWithConnContext(ctx, query, &mdns.Conn{Conn: raw})
	return answer, err
}

// mismatch says how an answer does not belong to the query; it is empty if it does.
func mismatch(query, answer *mdns.Msg) string {
	if !answer.Response {
		return "sent back a query and no answer"
	}
	if len(answer.Question) == 0 && answer.Rcode != mdns.RcodeSuccess {
		return "" // FORMERR and some REFUSED come without the question
	}
	if len(answer.Question) != 1 {
		return fmt.Sprintf("sent an answer with %d questions", len(answer.Question))
	}
	q, a := query.Question[0], answer.Question[0]
	if !strings.EqualFold(q.Name, a.Name) || q.Qtype != a.Qtype || q.Qclass != a.Qclass {
		return fmt.Sprintf("answered another question (%s %s) than was asked (%s %s)",
			a.Name, mdns.TypeToString[a.Qtype], q.Name, mdns.TypeToString[q.Qtype])
	}
	return ""
}

// hollow says which record of an answer holds nothing, where its type has something to hold:
// the library unpacks RDLENGTH 0, which is for dynamic updates, into a record without an address.
func hollow(answer *mdns.Msg) string {
	for _, rr := range answer.Answer {
		if h := rr.Header(); h.Rdlength == 0 && slices.Contains(held, h.Rrtype) {
			return fmt.Sprintf("sent a record without data (%s %s)", h.Name, mdns.TypeToString[h.Rrtype])
		}
	}
	return ""
}

// held are the types that are asked for.
var held = []uint16{mdns.TypeA, mdns.TypeAAAA, mdns.TypeCNAME, mdns.TypeMX, mdns.TypeNS, mdns.TypePTR, mdns.TypeSOA, mdns.TypeSRV, mdns.TypeTXT}

func (s Server) fail(ctx context.Context, protocol, name string, timeout time.Duration, err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	e = &Error{Server: s.Addr, Protocol: protocol, Name: name}
	var malformed *mdns.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		e.Code, e.Text = check.ReasonInterrupted, "was not waited for: the worker was told to stop"
	case neterror.IsTimeout(err):
		e.Code, e.Text = check.ReasonTimeout, fmt.Sprintf("did not answer a query for %s in %s", name, timeout.Round(time.Millisecond))
	case errors.As(err, &malformed):
		e.Code, e.Text = check.ReasonMalformedAnswer, "sent something that is no DNS answer: "+malformed.Error()
	default:
		e.Code, e.Text = neterror.Of(err)
	}
	return e
}
