package webhook

import (
	"bytes"
	"encoding/pem"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/cert"
)

var rules = Rules{Host: "hook.ns.svc", Lifetime: 30 * 24 * time.Hour}

// state walks certificates through time, in a bubble of testing/synctest.
type state struct {
	*testing.T
	Certificates
}

// next decides after a while, and says how many authorities are trusted, whether the serving pair changed, and whether another waits.
func (s *state) next(after time.Duration, trusted bool) (authorities int, renewed, waits bool) {
	s.Helper()
	time.Sleep(after)
	before := s.Certificates
	p, err := rules.Next(s.Certificates, trusted, time.Now())
	if err != nil {
		s.Fatal(err)
	}
	if p.Changed == before.equal(p.Certificates) {
		s.Errorf("Changed is %v", p.Changed)
	}
	all, err := cert.ParseCertsPEM(p.Authorities)
	if err != nil {
		s.Fatal(err)
	}
	for _, pair := range []Pair{p.Serving, p.Next} { // what is or will be served is trusted
		chain, err := cert.ParseCertsPEM(pair.Certificate)
		if err == nil && !bytes.Contains(p.Authorities, encode(chain[len(chain)-1].Raw)) {
			s.Error("a certificate's authority is not trusted")
		}
	}
	s.Certificates = certificatesOf(p.data()) // through the Secret
	return len(all), !before.Serving.equal(p.Serving), len(p.Next.Certificate) > 0
}

func TestRotation(t *testing.T) { synctest.Test(t, rotation) }

func rotation(t *testing.T) {
	s := &state{T: t}
	expect := func(what string, after time.Duration, trusted bool, authorities int, renewed, waits bool) {
		t.Helper()
		if a, r, w := s.next(after, trusted); a != authorities || r != renewed || w != waits {
			t.Errorf("%s: %d authorities, renewed %v, another waits %v; want %d, %v, %v", what, a, r, w, authorities, renewed, waits)
		}
	}
	day := 24 * time.Hour
	expect("at first", 0, false, 1, true, false)
	expect("a day later", day, false, 1, false, false)
	expect("a third is left", 20*day, false, 2, false, true)
	expect("the API server has not learnt of it", time.Minute, false, 2, false, true)
	expect("it has", time.Minute, true, 2, true, false)
	expect("the old one is trusted until it ends", 8*day, false, 2, false, false)
	expect("it has ended", 2*day, false, 1, false, false)
	expect("the next rotation", 10*day, false, 2, false, true)
	s.Certificates = Certificates{}
	expect("the Secret was emptied", 0, false, 1, true, false)
	old := s.Authorities
	s.Serving.Key = nil
	expect("the key was lost", 0, false, 2, true, false)
	if !bytes.HasPrefix(s.Authorities, old) {
		t.Error("a replica that still serves the old certificate is not trusted")
	}
}

// One that has ended is replaced at once, and what waits is taken before another is made.
func TestExpired(t *testing.T) { synctest.Test(t, expired) }

func expired(t *testing.T) {
	s := &state{T: t}
	s.next(0, false)
	s.next(21*24*time.Hour, false)
	waiting := s.Next
	waiting.Certificate = bytes.Clone(waiting.Certificate)
	s.Serving = Pair{}
	if _, renewed, waits := s.next(0, false); !renewed || waits || !s.Serving.equal(waiting) {
		t.Error("the pair that waited is not served")
	}
}

// A certificate for another name is of no use.
func TestRenamed(t *testing.T) { synctest.Test(t, renamed) }

func renamed(t *testing.T) {
	other := Rules{Host: "other.ns.svc", Lifetime: rules.Lifetime}
	p, err := other.Next(Certificates{}, false, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s := &state{T: t, Certificates: p.Certificates}
	if authorities, renewed, _ := s.next(0, false); !renewed || authorities != 2 {
		t.Errorf("renewed %v, %d authorities", renewed, authorities)
	}
}

func encode(raw []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: raw})
}
