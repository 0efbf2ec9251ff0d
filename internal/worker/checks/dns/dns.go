// Package dns is the check type dns: names resolve as expected at each DNS server separately, over each protocol.
package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

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
	target
	protocol string
	finding  check.Finding
	// notes are about an answer that passed.
	notes []string
	// warning is the reason of the worst note; NoReason if none is a warning.
	warning check.Reason
}

// New prepares the check.
func (s *Settings) New(pod environment.Pod) check.Func {
	d, r := ptr.Deref(s, Settings{}), pod.Resolver
	d.Name = cmp.Or(d.Name, DefaultName+"."+r.Config.ClusterDomain()+".")
	d.ExpectRcode = cmp.Or(d.ExpectRcode, mdns.RcodeToString[mdns.RcodeSuccess])
	if len(d.Protocols) == 0 {
		d.Protocols = []string{resolver.UDP}
	}
	e := expectation{rcode: mdns.StringToRcode[d.ExpectRcode]}
	if e.rcode == mdns.RcodeSuccess {
		e.minAnswers = 1
	}
	if d.MinAnswers != nil {
		e.minAnswers = int(*d.MinAnswers)
	}
	for _, c := range d.ExpectCIDRs {
		if prefix, err := netip.ParsePrefix(c); err == nil {
			e.prefixes = append(e.prefixes, prefix)
		}
	}
	if addr, literal := d.literal(); literal {
		return func(context.Context) check.Finding { return literalFinding(e, d, addr) }
	}
	return func(ctx context.Context) check.Finding {
		if r.Err != nil {
			return check.Fail(check.ReasonNoServers, "the pod's resolver settings cannot be used: %v", r.Err)
		}
		targets, source, failure := targetsOf(ctx, d, r.Config, pod.API, pod.Node)
		if failure != nil {
			return *failure
		}
		f := summarise(d, runQueries(ctx, d, e, r.Config, targets))
		if source != "" {
			f.Message += "; asked: " + source
		}
		return f
	}
}

// literalFinding is the finding for an address in place of a name.
func literalFinding(e expectation, d Settings, addr netip.Addr) check.Finding {
	var a resolver.Answer
	switch {
	case addr.Unmap().Is4() && d.RecordType != "AAAA":
		a.Records = []mdns.RR{&mdns.A{A: addr.Unmap().AsSlice()}}
	case !addr.Unmap().Is4() && d.RecordType != "A":
		a.Records = []mdns.RR{&mdns.AAAA{AAAA: addr.AsSlice()}}
	}
	if f := e.evaluate(d, d.Name, a); !f.Passed() {
		return f
	}
	return check.Pass("%s is already an address, so no server was asked", d.Name)
}

// runQueries queries every server over every protocol concurrently.
func runQueries(ctx context.Context, d Settings, e expectation, config resolver.Config, targets []target) []query {
	var queries []query
	for _, t := range targets {
		for _, protocol := range d.Protocols {
			if t.serves(protocol) {
				queries = append(queries, query{target: t, protocol: protocol})
			} else {
				queries = append(queries, query{target: t, protocol: protocol, finding: check.Fail(check.ReasonNoServers,
					"%s has no port for DNS over %s", t.name, strings.ToUpper(protocol))})
			}
		}
	}
	recovery.Each(len(queries), func(i int) {
		q := &queries[i]
		if !q.finding.Passed() {
			return
		}
		var answer resolver.Answer
		server := config.Server(q.addr(q.protocol), q.protocol)
		// Lookup resends lost queries itself.
		q.finding = retry.Finding(ctx, 0, func(ctx context.Context) check.Finding {
			var err error
			answer, err = config.Lookup(ctx, server, d.Name, types(d.RecordType)...)
			return q.evaluate(e, d, answer, err)
		})
		if q.finding.Passed() {
			for _, n := range answer.Notes {
				q.notes = append(q.notes, n.String())
				if n.Reason != check.ReasonNXDomain { // some servers answer it for a family that a name does not have
					q.warning = n.Reason
				}
			}
			if answer.Tries > 1 {
				q.warning = check.ReasonQueryLost
				q.notes = append(q.notes, "answered at the "+check.Ordinal(answer.Tries)+" attempt")
			}
		}
	})
	return queries
}

// types are the record types to query.
func types(recordType string) []uint16 {
	if recordType == "" || recordType == recordAddress {
		return []uint16{mdns.TypeA, mdns.TypeAAAA}
	}
	return []uint16{mdns.StringToType[recordType]}
}

// expectation is what an answer must have.
type expectation struct {
	rcode      int
	minAnswers int
	prefixes   []netip.Prefix
}

// evaluate returns the finding of one server's answer.
func (q query) evaluate(e expectation, d Settings, a resolver.Answer, err error) check.Finding {
	if failure, ok := errors.AsType[*resolver.Error](err); ok {
		return check.Fail(failure.Code, "%s, asked over %s, %s",
			q.describe(q.protocol), strings.ToUpper(failure.Protocol), failure.Text)
	}
	who := fmt.Sprintf("%s, asked for %s over %s,", q.describe(q.protocol), d.Name, strings.ToUpper(q.protocol))
	return e.evaluate(d, who, a)
}

// evaluate compares an answer with the expectation.
func (e expectation) evaluate(d Settings, who string, a resolver.Answer) check.Finding {
	if a.Rcode != e.rcode {
		reason := resolver.RcodeReason(a.Rcode)
		if e.rcode != mdns.RcodeSuccess && !reason.Transient() {
			reason = check.ReasonUnexpectedRcode
		}
		if e.rcode != mdns.RcodeSuccess {
			return check.Fail(reason, "%s answered %s, expected %s", who, resolver.RcodeText(a.Rcode), d.ExpectRcode)
		}
		return check.Fail(reason, "%s answered %s", who, resolver.RcodeText(a.Rcode))
	}
	if len(a.Records) < e.minAnswers {
		return check.Fail(check.ReasonNoAnswers, "%s gave %d %s, expected at least %d",
			who, len(a.Records), records(d.RecordType), e.minAnswers)
	}
	for _, addr := range a.Addrs() {
		inPrefix := func(p netip.Prefix) bool { return p.Contains(addr) }
		if len(e.prefixes) > 0 && !slices.ContainsFunc(e.prefixes, inPrefix) {
			return check.Fail(check.ReasonUnexpectedAnswer, "%s answered %s, which is in none of %s",
				who, addr, strings.Join(d.ExpectCIDRs, ", "))
		}
	}
	return check.Pass("%s", brief(a))
}

// summarise combines the findings of all servers: the first failure, and how many others passed.
func summarise(d Settings, queries []query) check.Finding {
	var failures []check.Finding
	var notes string
	passed, warning := 0, check.NoReason
	for _, q := range queries {
		warning = cmp.Or(warning, q.warning)
		for _, n := range q.notes {
			notes += fmt.Sprintf("; %s over %s %s", q.describe(q.protocol), strings.ToUpper(q.protocol), n)
		}
		if q.finding.Passed() {
			passed++
		} else {
			failures = append(failures, q.finding)
		}
	}
	if len(failures) == 0 {
		protocols := strings.ReplaceAll(strings.ToUpper(strings.Join(d.Protocols, " ")), " ", " and ")
		f := check.Pass("%s: %s from %s over %s%s", d.Name, queries[0].finding.Message,
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

// brief summarises an answer that passed.
func brief(a resolver.Answer) string {
	if a.Rcode != mdns.RcodeSuccess {
		return mdns.RcodeToString[a.Rcode] + ", as expected"
	}
	if len(a.Records) == 0 {
		return "no records"
	}
	first := a.Records[0].String()[len(a.Records[0].Header().String()):]
	if len(a.Records) > 1 {
		return fmt.Sprintf("%s and %d more", first, len(a.Records)-1)
	}
	return first
}

func records(recordType string) string {
	if recordType == "" || recordType == recordAddress {
		return "addresses"
	}
	return recordType + " records"
}
