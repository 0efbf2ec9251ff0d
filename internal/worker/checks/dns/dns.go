// Package dns is the check type dns: names resolve as expected at each DNS server separately, over each protocol.
package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"

	mdns "github.com/miekg/dns"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
)

// query is one query to one server over one protocol, with its result.
type query struct {
	addr netip.AddrPort
	// name of the server's pod or Service, if known.
	name, protocol string
	finding        check.Finding
	// failure is the phrase of a server that could not be asked.
	failure string
	// notes are about an answer that passed.
	notes []string
	// warning is the reason of the worst note; NoReason if none is a warning.
	warning check.Reason
}

// server describes the server.
func (q *query) server() string {
	if q.name == "" {
		return q.addr.String()
	}
	return fmt.Sprintf("%s (%s)", q.addr, q.name)
}

// New prepares the check.
func (s *Settings) New(pod environment.Pod) check.Func {
	d, r := ptr.Deref(s, Settings{}), pod.Resolver
	d.Name = cmp.Or(d.Name, DefaultName+"."+r.Config.ClusterDomain()+".")
	d.ExpectRcode = cmp.Or(d.ExpectRcode, noError)
	_, err := resolver.ParseServer(d.Resolver)
	if isAddress := err == nil; len(d.Protocols) == 0 || r.Config.UseTCP && !isAddress {
		d.Protocols = []string{r.Config.Protocol()}
	}
	if d.MinAnswers == nil && d.ExpectRcode == noError {
		d.MinAnswers = new(int32(1))
	}
	if addr, literal := d.literal(); literal {
		return func(context.Context) check.Finding { return literalFinding(d, addr) }
	}
	return func(ctx context.Context) check.Finding {
		if r.Err != nil {
			return check.Fail(check.ReasonNoServers, "the pod's resolver settings cannot be used: %v", r.Err)
		}
		targets, from, failure := targetsOf(ctx, d, r.Config, pod.API, pod.Node)
		if failure != nil {
			return *failure
		}
		f := summarise(d, runQueries(ctx, d, r.Config, targets))
		if d.usesPod() {
			f = withOddLines(f, check.ReasonNoServers, r.Config.Odd...)
			if r.Config.LongSearch != "" {
				f = withOddLines(f, check.ReasonSearchIgnored, r.Config.LongSearch)
			}
		}
		return from.addTo(f)
	}
}

// literalFinding is the finding for an address in place of a name.
func literalFinding(d Settings, addr netip.Addr) check.Finding {
	var a resolver.Answer
	switch {
	case addr.Unmap().Is4() && d.RecordType != "AAAA":
		a.Records = []mdns.RR{&mdns.A{A: addr.Unmap().AsSlice()}}
	case !addr.Unmap().Is4() && d.RecordType != "A":
		a.Records = []mdns.RR{&mdns.AAAA{AAAA: addr.AsSlice()}}
	}
	if f := evaluate(d, d.Name, a); !f.Passed() {
		return f
	}
	return check.Pass("%s is already an address, so no server was asked", d.Name)
}

// runQueries queries every server over every protocol concurrently.
func runQueries(ctx context.Context, d Settings, config resolver.Config, targets []target) []query {
	var queries []query
	for _, t := range targets {
		for _, protocol := range d.Protocols {
			q := query{addr: netip.AddrPortFrom(t.ip, t.ports[protocol]), name: t.name, protocol: protocol}
			if q.addr.Port() == 0 {
				q.finding = check.Fail(check.ReasonNoServers,
					"%s has no port for DNS over %s", cmp.Or(t.name, t.ip.String()), strings.ToUpper(protocol))
			}
			queries = append(queries, q)
		}
	}
	answered := map[string]*atomic.Bool{resolver.UDP: {}, resolver.TCP: {}} // by any server of resolv.conf
	recovery.Each(len(queries), func(i int) {
		q := &queries[i]
		if q.finding.Passed() {
			q.run(ctx, d, config, answered[q.protocol])
		}
	})
	for i := range queries {
		queries[i].skipDead(d, answered[queries[i].protocol])
	}
	return queries
}

// run asks until the answer is final.
func (q *query) run(ctx context.Context, d Settings, config resolver.Config, answered *atomic.Bool) {
	var answer resolver.Answer
	server := config.Server(q.addr, q.protocol)
	// Lookup resends lost queries itself.
	q.finding = retry.Finding(ctx, 0, func(ctx context.Context) check.Finding {
		var err error
		answer, err = config.Lookup(ctx, server, d.Name, types(d.RecordType)...)
		q.finding = q.evaluate(d, answer, err)
		if q.finding.Passed() {
			answered.Store(true)
		}
		q.skipDead(d, answered)
		return q.finding
	})
	if q.finding.Outcome != check.Passed {
		return
	}
	for _, n := range answer.Notes {
		switch {
		case n.Reason != check.ReasonNXDomain:
			q.warning = n.Reason
		case len(answer.Records) > 0: // some servers answer it for a family that a name does not have
			q.warning = n.Reason
			n.Text += ", at which musl (Alpine) finds no address of " + answer.Name
		}
		q.notes = append(q.notes, n.String())
	}
	for _, n := range answer.Search {
		q.warning = n.Reason
		q.notes = append(q.notes, n.Text+", at which musl (Alpine) stops")
	}
	if answer.SizeFault != "" {
		q.warning = check.ReasonMalformedAnswer
		q.notes = append(q.notes, answer.SizeFault+", which Go's resolver cannot read")
	}
	switch {
	case answer.EDNSFault != "":
		q.warning = check.ReasonEDNSFailed
		q.notes = append(q.notes, "answers only without EDNS0, which Go's resolver uses; with it, the server "+
			answer.EDNSFault)
	case answer.Tries > 1:
		q.warning = check.ReasonQueryLost
		q.notes = append(q.notes, "answered at the "+check.Ordinal(answer.Tries)+" attempt")
	}
}

// skipDead makes a warning of a failure that resolvers do not notice: a server of resolv.conf that fails at once, while
// another answers over the same protocol. They ask the next one at once.
func (q *query) skipDead(d Settings, answered *atomic.Bool) {
	if q.finding.Outcome != check.Failed || !d.usesPod() || !answered.Load() {
		return
	}
	switch q.finding.Reason {
	case check.ReasonConnectionRefused, check.ReasonUnreachable, check.ReasonPermissionDenied,
		check.ReasonConnectionFailed:
		q.finding.Outcome, q.warning = check.Warned, q.finding.Reason
		q.notes = []string{q.failure + "; resolvers ask the next server at once"}
	}
}

// types are the record types to query.
func types(recordType string) []uint16 {
	if recordType == "" || recordType == recordAddress {
		return []uint16{mdns.TypeA, mdns.TypeAAAA}
	}
	return []uint16{mdns.StringToType[recordType]}
}

// evaluate returns the finding of one server's answer.
func (q *query) evaluate(d Settings, a resolver.Answer, err error) check.Finding {
	if failure, ok := errors.AsType[*resolver.Error](err); ok {
		q.failure = failure.Text
		return check.Fail(failure.Code, "%s, asked over %s, %s",
			q.server(), strings.ToUpper(failure.Protocol), failure.Text)
	}
	asked := d.Name
	if name := a.Through(d.Name); name != "" {
		asked += " (as " + name + ")"
	}
	who := fmt.Sprintf("%s, asked for %s over %s,", q.server(), asked, strings.ToUpper(q.protocol))
	return evaluate(d, who, a)
}

// evaluate compares an answer with what the settings expect.
func evaluate(d Settings, who string, a resolver.Answer) check.Finding {
	if mdns.RcodeToString[a.Rcode] != d.ExpectRcode {
		reason, answered := resolver.RcodeReason(a.Rcode), resolver.RcodeText(a.Rcode)
		if d.ExpectRcode == noError {
			return check.Fail(reason, "%s answered %s", who, answered)
		}
		if !reason.Transient() {
			reason = check.ReasonUnexpectedRcode
		}
		return check.Fail(reason, "%s answered %s, expected %s", who, answered, d.ExpectRcode)
	}
	if least := int(ptr.Deref(d.MinAnswers, 0)); len(a.Records) < least {
		f := check.Fail(check.ReasonNoAnswers, "%s gave %d %s, expected at least %d",
			who, len(a.Records), records(d.RecordType), least)
		if len(a.Records) == 0 && a.Other != "" {
			f.Message += ": " + a.Other
		}
		return f
	}
	if len(d.ExpectCIDRs) == 0 {
		return check.Pass("%s", brief(d.Name, a))
	}
	compared := len(a.Notes) > 0 // the family to compare may be the one without an answer, which is a warning
	for _, addr := range a.Addrs() {
		var contained, sameFamily bool
		for _, cidr := range d.ExpectCIDRs {
			prefix, err := netip.ParsePrefix(cidr)
			sameFamily = sameFamily || err == nil && prefix.Addr().Is4() == addr.Is4()
			contained = contained || err == nil && prefix.Contains(addr)
		}
		compared = compared || contained
		if sameFamily && !contained {
			return check.Fail(check.ReasonUnexpectedAnswer, "%s answered %s, which is in none of %s",
				who, addr, strings.Join(d.ExpectCIDRs, ", "))
		}
	}
	if addrs := a.Addrs(); !compared && len(addrs) > 0 {
		return check.Fail(check.ReasonUnexpectedAnswer, "%s answered %s, which is of another IP family than %s",
			who, addrs[0], strings.Join(d.ExpectCIDRs, ", "))
	}
	return check.Pass("%s", brief(d.Name, a))
}

// summarise combines the findings of all servers: the first failure, and how many others passed.
func summarise(d Settings, queries []query) check.Finding {
	var failures []check.Finding
	var brief, notes string
	passed, warning := 0, check.NoReason
	for _, q := range queries {
		warning = cmp.Or(warning, q.warning)
		for _, n := range q.notes {
			notes += fmt.Sprintf("; %s over %s %s", q.server(), strings.ToUpper(q.protocol), n)
		}
		switch q.finding.Outcome {
		case check.Passed:
			brief = cmp.Or(brief, q.finding.Message)
			passed++
		case check.Warned:
		default:
			failures = append(failures, q.finding)
		}
	}
	if len(failures) == 0 {
		protocols := strings.ReplaceAll(strings.ToUpper(strings.Join(d.Protocols, " ")), " ", " and ")
		f := check.Pass("%s: %s from %s over %s%s", d.Name, brief,
			check.Count(len(queries)/len(d.Protocols), "server"), protocols, notes)
		if warning != check.NoReason {
			f.Outcome, f.Reason = check.Warned, warning
		}
		return f
	}
	f := failures[0]
	for _, other := range failures[1:] {
		f.Message += "; " + other.Message
	}
	switch {
	case passed == 1:
		f.Message += "; the other query succeeded"
	case passed > 1:
		f.Message += fmt.Sprintf("; the %d other queries succeeded", passed)
	}
	f.Message += notes
	return f
}

// withOddLines adds the lines of resolv.conf that are not as they should be.
func withOddLines(f check.Finding, reason check.Reason, odd ...string) check.Finding {
	if len(odd) == 0 {
		return f
	}
	f.Message += "; resolv.conf: " + strings.Join(odd, "; ")
	if f.Outcome == check.Passed {
		f.Outcome, f.Reason = check.Warned, reason
	}
	return f
}

// brief summarises an answer that passed to the name that was asked.
func brief(asked string, a resolver.Answer) string {
	if a.Rcode != mdns.RcodeSuccess {
		return mdns.RcodeToString[a.Rcode] + ", as expected"
	}
	if len(a.Records) == 0 {
		return "no records"
	}
	first := a.Records[0].String()[len(a.Records[0].Header().String()):]
	if len(a.Records) > 1 {
		first = fmt.Sprintf("%s and %d more", first, len(a.Records)-1)
	}
	if name := a.Through(asked); name != "" {
		first += " (of " + name + ")"
	}
	return first
}

func records(recordType string) string {
	if recordType == "" || recordType == recordAddress {
		return "addresses"
	}
	return recordType + " records"
}
