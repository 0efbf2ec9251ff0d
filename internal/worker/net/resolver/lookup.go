package resolver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	mdns "github.com/miekg/dns"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
)

// Answer is the result of a lookup.
type Answer struct {
	// Name is the absolute name that was answered, after the search domains.
	Name string
	// Rcode is the response code (mdns.RcodeSuccess, ...).
	Rcode int
	// Records of the queried types, without the CNAMEs that lead to them.
	Records []mdns.RR
	// Notes are about the types that were not answered as they should be, while another was.
	Notes []Note
	// Search are the earlier names of the search list at which some resolvers stop. Each text is a phrase that begins
	// with a verb, of which the server is the subject.
	Search []Note
	// Other describes the records of the answers if none is relevant; empty if there are none.
	Other string
	// Tries is the highest number of queries for one question.
	Tries int
	// EDNSFault is what the server does with EDNS0 if it answers only queries without it, as a phrase that begins with a
	// verb.
	EDNSFault string
	// SizeFault is what was wrong with the size of an answer over UDP that was then asked for over TCP, as such a phrase.
	SizeFault string
}

// Note is what was wrong with the answer for one type.
type Note struct {
	Qtype  uint16
	Reason check.Reason
	Text   string
}

func (n Note) String() string { return mdns.TypeToString[n.Qtype] + ": " + n.Text }

// Addrs are the addresses among the records.
func (a Answer) Addrs() []netip.Addr {
	var addrs []netip.Addr
	for _, rr := range a.Records {
		switch rr := rr.(type) {
		case *mdns.A:
			if addr, ok := netip.AddrFromSlice(rr.A); ok {
				addrs = append(addrs, addr.Unmap())
			}
		case *mdns.AAAA:
			if addr, ok := netip.AddrFromSlice(rr.AAAA); ok {
				addrs = append(addrs, addr)
			}
		}
	}
	return addrs
}

// Through returns the absolute name that was answered, if it is one of the search list. It is empty if that is the name
// that was asked.
func (a Answer) Through(asked string) string {
	if strings.EqualFold(a.Name, mdns.Fqdn(asked)) {
		return ""
	}
	return a.Name
}

// Lookup looks a name up at one server, through the search domains, as libc does. It goes on to the next name after a
// name that does not exist or has no such records, and after SERVFAIL, which it returns if no name is answered. It also
// goes on after one name without an answer, as glibc and Go do, and returns that error if no other name has records.
// The error is always an *Error.
func (c Config) Lookup(ctx context.Context, s Server, name string, qtypes ...uint16) (Answer, error) {
	s.session = newSession(s.Addr)
	defer s.session.close()
	var best *Answer
	var search []Note
	var silence error
	tries := 0
	names := c.Names(name)
	for i, n := range names {
		limited, cancel := s.limit(ctx, silence != nil, i+1 < len(names))
		a, err := s.lookup(limited, n, qtypes)
		cancel()
		if e, ok := errors.AsType[*Error](err); ok && e.Code == check.ReasonTimeout {
			if silence != nil || i+1 == len(names) {
				return Answer{}, cmp.Or(silence, err)
			}
			silence = err
			search = append(search, Note{Reason: e.Code, Text: e.Text})
			continue
		}
		if err != nil {
			return Answer{}, err
		}
		tries = max(tries, a.Tries)
		a.Tries = tries
		a.EDNSFault = ptr.Deref(s.session.ednsFault.Load(), "")
		a.SizeFault = ptr.Deref(s.session.sizeFault.Load(), "")
		if a.Rcode == mdns.RcodeSuccess && len(a.Records) > 0 {
			a.Search = search
			return a, nil
		}
		if a.Rcode != mdns.RcodeNameError {
			search = append(search,
				Note{Reason: RcodeReason(a.Rcode), Text: "answered " + n + " with " + RcodeText(a.Rcode)})
		}
		if best == nil || rank(a.Rcode) >= rank(best.Rcode) {
			best = &a
		}
	}
	if silence != nil {
		return Answer{}, silence
	}
	best.Tries = tries
	return *best, nil
}

// silentWait limits the queries for each name after one without an answer, so that time is left for the last name.
const silentWait = 2 * time.Second

// limit limits the queries for one name of a search list, within the context's deadline: to silentWait if an earlier
// name was not answered, and so that there is time for another name if more follow.
func (s Server) limit(ctx context.Context, isSilent, hasMore bool) (context.Context, context.CancelFunc) {
	deadline, bounded := ctx.Deadline()
	switch left := time.Until(deadline); {
	case isSilent:
		return context.WithTimeout(ctx, silentWait)
	case hasMore && bounded:
		return context.WithTimeout(ctx, left-min(silentWait, left/4))
	}
	return context.WithCancel(ctx)
}

// rank orders the response codes of a lookup without records: a broken server over a name without records over a name
// that does not exist.
func rank(rcode int) int {
	switch rcode {
	case mdns.RcodeNameError:
		return 0
	case mdns.RcodeSuccess:
		return 1
	default:
		return 2
	}
}

// otherTypeWait is how long to wait for the answer for one type after that for another: two queries, so that it
// survives one lost packet.
const otherTypeWait = 2 * resendAfter

// reply is the answer for one type.
type reply struct {
	qtype uint16
	msg   *mdns.Msg
	tries int
	err   error
}

// lookup queries all the types at one absolute name, concurrently. Records of one type are enough; the answer's notes
// describe failures of the others.
func (s Server) lookup(ctx context.Context, name string, qtypes []uint16) (Answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	replies := make(chan reply, len(qtypes))
	for _, qtype := range qtypes {
		recovery.Go(func() {
			msg, tries, err := s.Exchange(ctx, name, qtype)
			replies <- reply{qtype, msg, tries, err}
		}, func(p *recovery.Panic) { replies <- reply{qtype: qtype, err: p} })
	}
	got := map[uint16]reply{}
	var enough <-chan time.Time
	for waiting := true; waiting && len(got) < len(qtypes); {
		select {
		case r := <-replies:
			got[r.qtype] = r
			if enough == nil && r.msg != nil && len(relevant(r.msg, name, r.qtype)) > 0 {
				enough = time.After(otherTypeWait)
			}
		case <-enough:
			waiting = false
		}
	}
	answer := Answer{Name: name, Rcode: mdns.RcodeNameError}
	var failure *Error
	for _, t := range qtypes {
		if r, answered := got[t]; !answered {
			text := fmt.Sprintf("did not answer within %s", otherTypeWait)
			answer.Notes = append(answer.Notes, Note{Qtype: t, Reason: check.ReasonTimeout, Text: text})
		} else if err := answer.add(r); err != nil && failure == nil {
			failure = err
		}
	}
	switch {
	case len(answer.Records) > 0:
		answer.Rcode = mdns.RcodeSuccess
	case failure != nil:
		return Answer{}, failure.beside(got, qtypes)
	}
	return answer, nil
}

// beside adds to a timeout what the queries for the other types got.
func (e *Error) beside(got map[uint16]reply, qtypes []uint16) *Error {
	if e.Code != check.ReasonTimeout {
		return e
	}
	all := *e
	for _, t := range qtypes {
		r, name := got[t], mdns.TypeToString[t]
		other, failed := errors.AsType[*Error](r.err)
		switch {
		case other == e:
		case r.msg != nil:
			all.Text += ", and answered that for " + name + " with " + RcodeText(r.msg.Rcode)
		case failed && other.Code == check.ReasonTimeout:
			all.Text += ", nor that for " + name
		case failed:
			all.Text += ", and, asked for " + name + ", " + other.Text
		}
	}
	return &all
}

// add adds the answer for one type.
func (a *Answer) add(r reply) *Error {
	if panicked, ok := errors.AsType[*recovery.Panic](r.err); ok {
		panic(panicked)
	}
	if e, ok := errors.AsType[*Error](r.err); ok {
		a.Notes = append(a.Notes, Note{Qtype: r.qtype, Reason: e.Code, Text: e.Text})
		return e
	}
	if r.msg.Rcode != mdns.RcodeSuccess {
		a.Notes = append(a.Notes, Note{Qtype: r.qtype, Reason: RcodeReason(r.msg.Rcode), Text: RcodeText(r.msg.Rcode)})
	}
	if rank(r.msg.Rcode) > rank(a.Rcode) {
		a.Rcode = r.msg.Rcode
	}
	a.Tries = max(a.Tries, r.tries)
	found := relevant(r.msg, a.Name, r.qtype)
	if len(found) == 0 {
		a.Other = cmp.Or(a.Other, other(r.msg, a.Name))
	}
	a.Records = append(a.Records, found...)
	return nil
}

// other describes the records of an answer that has none of the type for the name.
func other(msg *mdns.Msg, name string) string {
	if len(msg.Answer) == 0 {
		return ""
	}
	last := msg.Answer[len(msg.Answer)-1]
	if c, ok := last.(*mdns.CNAME); ok {
		return fmt.Sprintf("%s is a CNAME of %s, which came without such records", c.Hdr.Name, c.Target)
	}
	return fmt.Sprintf("the answer has a record of %s (%s), and none of %s",
		last.Header().Name, mdns.TypeToString[last.Header().Rrtype], name)
}

// relevant returns the answer's records of the type for the name, after its CNAMEs. It ignores records for other names.
func relevant(msg *mdns.Msg, name string, qtype uint16) []mdns.RR {
	owners := map[string]bool{strings.ToLower(name): true}
	// The CNAMEs of a chain may be in any order.
	for known := 0; len(owners) > known; {
		known = len(owners)
		for _, rr := range msg.Answer {
			if c, ok := rr.(*mdns.CNAME); ok && owners[strings.ToLower(c.Hdr.Name)] {
				owners[strings.ToLower(c.Target)] = true
			}
		}
	}
	var records []mdns.RR
	for _, rr := range msg.Answer {
		if rr.Header().Rrtype == qtype && owners[strings.ToLower(rr.Header().Name)] {
			records = append(records, rr)
		}
	}
	return records
}

// rcodes are the response codes that messages explain, with the reason that each stands for.
var rcodes = map[int]struct {
	reason check.Reason
	text   string
}{
	mdns.RcodeSuccess:       {check.ReasonNoAnswers, "NOERROR (the name exists, without such records)"},
	mdns.RcodeNameError:     {check.ReasonNXDomain, "NXDOMAIN (the name does not exist)"},
	mdns.RcodeServerFailure: {check.ReasonServerFailure, "SERVFAIL (the server or its upstream is broken)"},
	mdns.RcodeRefused: {check.ReasonQueryRefused,
		"REFUSED (the server does not answer this client, or not for this name)"},
	// The library calls it BADSIG, which has the same number.
	mdns.RcodeBadVers: {check.ReasonUnexpectedRcode, "BADVERS (the server does not handle this version of EDNS)"},
}

// RcodeText is a response code with what it means.
func RcodeText(rcode int) string {
	return cmp.Or(rcodes[rcode].text, mdns.RcodeToString[rcode], fmt.Sprintf("response code %d", rcode))
}

// RcodeReason is the reason that a response code stands for.
func RcodeReason(rcode int) check.Reason {
	return cmp.Or(rcodes[rcode].reason, check.ReasonUnexpectedRcode)
}
