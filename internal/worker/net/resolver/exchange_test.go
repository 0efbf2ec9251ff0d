package resolver

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

func TestRelevantFollowsAliases(t *testing.T) {
	msg := new(mdns.Msg)
	for _, s := range []string{
		"c.example. 5 IN A 192.0.2.3", // the end of the chain comes first
		"b.example. 5 IN CNAME C.example.",
		"A.example. 5 IN CNAME b.example.",
		"x.example. 5 IN A 192.0.2.9",
		"loop.example. 5 IN CNAME loop.example.",
	} {
		rr, err := mdns.NewRR(s)
		if err != nil {
			t.Fatal(err)
		}
		msg.Answer = append(msg.Answer, rr)
	}
	got := Answer{Records: relevant(msg, "a.example.", mdns.TypeA)}.Addrs()
	if len(got) != 1 || got[0].String() != "192.0.2.3" {
		t.Errorf("got %v", got)
	}
	if got := relevant(msg, "loop.example.", mdns.TypeA); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	if got := relevant(msg, "a.example.", mdns.TypeCNAME); len(got) != 2 {
		t.Errorf("got %v", got)
	}
}

// FuzzAnswer: whatever a server sends, judging it does not panic, and records that are
// accepted are of the type that was asked for.
func FuzzAnswer(f *testing.F) {
	query := new(mdns.Msg)
	query.SetQuestion("a.example.", mdns.TypeA)
	answer := new(mdns.Msg)
	answer.SetReply(query)
	for _, s := range []string{"a.example. 5 IN CNAME b.example.", "b.example. 5 IN A 192.0.2.1"} {
		rr, err := mdns.NewRR(s)
		if err != nil {
			f.Fatal(err)
		}
		answer.Answer = append(answer.Answer, rr)
	}
	packed, err := answer.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed, mdns.TypeA)
	f.Add([]byte{0, 0, 0x80, 0, 0, 1, 0, 1}, mdns.TypeSRV)
	f.Fuzz(func(t *testing.T, data []byte, qtype uint16) {
		var msg mdns.Msg
		if msg.Unpack(data) != nil {
			return
		}
		_ = mismatch(query, &msg)
		a := Answer{Rcode: msg.Rcode, Records: relevant(&msg, "a.example.", qtype)}
		for _, rr := range a.Records {
			if rr.Header().Rrtype != qtype {
				t.Errorf("asked for type %d, accepted %s", qtype, rr)
			}
		}
		for _, addr := range a.Addrs() {
			if !addr.IsValid() {
				t.Errorf("invalid address in %v", a.Records)
			}
		}
		if RcodeText(a.Rcode) == "" || RcodeReason(a.Rcode) == check.NoReason || strings.Contains(RcodeText(a.Rcode), "\n") {
			t.Errorf("rcode %d", a.Rcode)
		}
	})
}

// A query for which no time is left is not sent, and no negative time is reported.
func TestNoTimeIsLeft(t *testing.T) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-2*time.Millisecond))
	defer cancel()
	addr := netip.MustParseAddrPort("127.0.0.1:53")
	for _, s := range []Server{{Addr: addr, Protocol: UDP, Timeout: time.Second}, {Addr: addr, Protocol: TCP, Timeout: time.Second, Attempts: 3}} {
		_, tries, err := s.Exchange(ctx, "example.com.", mdns.TypeA)
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Code != check.ReasonTimeout || e.Text != "was not asked for example.com.: the time of the check was used up" || tries != 0 {
			t.Errorf("%s: %d tries, %v", s.Protocol, tries, err)
		}
	}
}
