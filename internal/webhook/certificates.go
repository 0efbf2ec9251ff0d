package webhook

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
)

// Keys of the Secret that the replicas share.
const (
	keyServing, keyServingKey = "tls.crt", "tls.key"
	keyNext, keyNextKey       = "next.crt", "next.key"
	keyAuthorities            = "ca.crt"
)

// backdated is by how much client-go's certificates begin before they are made, against clocks that are apart.
const backdated = time.Hour

// Pair is a serving certificate, followed by that of its authority, and its private key, as PEM. The authority's own key is
// thrown away once it has signed: nothing that is kept can make another certificate.
type Pair struct {
	Certificate, Key []byte
}

// Certificates are what the Secret holds. A new pair is trusted before it is served, and an old one for as long as it is valid:
//
//	Serving A, trusted A  →  Serving A, Next B, trusted A and B  →  Serving B, trusted A and B  →  Serving B, trusted B
type Certificates struct {
	// Serving is what every replica serves with.
	Serving Pair
	// Next will be, once the API server trusts it; empty between rotations.
	Next Pair
	// Authorities are trusted, as PEM: the webhook configuration's caBundle.
	Authorities []byte
}

// Plan is what is to become of the Certificates.
type Plan struct {
	Certificates
	// Changed: they are not what was stored.
	Changed bool
	// Renew is when the serving certificate is due.
	Renew time.Time
}

// Rules are how certificates are made.
type Rules struct {
	// Host is the name that the API server calls, as service.namespace.svc.
	Host string
	// Lifetime of a certificate; it is renewed when a third of that is left.
	Lifetime time.Duration
}

// Next decides about the certificates: what they are to be now. trusted says that the API server has had time to learn of the
// authority of Next.
func (r Rules) Next(have Certificates, trusted bool, now time.Time) (Plan, error) {
	p := Plan{Certificates: have}
	ends, serves := r.usable(have.Serving, now)
	_, waits := r.usable(have.Next, now)
	var err error
	switch {
	case waits && (trusted || !serves):
		p.Serving, p.Next = have.Next, Pair{}
	case !serves:
		p.Serving, err = r.issue()
	case !waits && !now.Before(r.due(ends)):
		p.Next, err = r.issue()
	case !waits:
		p.Next = Pair{} // what is there is of no use
	}
	if err != nil {
		return Plan{}, err
	}
	if p.Authorities, err = authorities(now, have.Authorities, p.Serving.Certificate, p.Next.Certificate); err != nil {
		return Plan{}, err
	}
	ends, _ = r.usable(p.Serving, now)
	p.Renew = r.due(ends)
	p.Changed = !have.equal(p.Certificates)
	return p, nil
}

func (r Rules) due(ends time.Time) time.Time { return ends.Add(-r.Lifetime / 3) }

// usable reports whether the pair serves Host now, and until when.
func (r Rules) usable(p Pair, now time.Time) (ends time.Time, ok bool) {
	pair, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		return time.Time{}, false
	}
	chain, err := cert.ParseCertsPEM(p.Certificate)
	if err != nil {
		return time.Time{}, false
	}
	roots := x509.NewCertPool()
	for _, c := range chain {
		if c.IsCA {
			roots.AddCert(c)
		}
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: r.Host, Roots: roots, CurrentTime: now})
	return pair.Leaf.NotAfter, err == nil
}

func (r Rules) issue() (Pair, error) {
	crt, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{Host: r.Host, MaxAge: backdated + r.Lifetime})
	if err != nil {
		return Pair{}, fmt.Errorf("make a certificate for %s: %w", r.Host, err)
	}
	return Pair{Certificate: crt, Key: key}, nil
}

// authorities are those in the files given, each once, without those that have expired, and the oldest first.
func authorities(now time.Time, files ...[]byte) ([]byte, error) {
	var all []*x509.Certificate
	for _, file := range files {
		found, err := cert.ParseCertsPEM(file)
		if err != nil {
			continue // none in it
		}
		for _, c := range found {
			if c.IsCA && now.Before(c.NotAfter) && !slices.ContainsFunc(all, c.Equal) {
				all = append(all, c)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	var out bytes.Buffer
	for _, c := range all {
		if err := pem.Encode(&out, &pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw}); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

func (c Certificates) equal(other Certificates) bool {
	return c.Serving.equal(other.Serving) && c.Next.equal(other.Next) && bytes.Equal(c.Authorities, other.Authorities)
}

func (p Pair) equal(other Pair) bool {
	return bytes.Equal(p.Certificate, other.Certificate) && bytes.Equal(p.Key, other.Key)
}

// certificatesOf reads the Secret's data.
func certificatesOf(data map[string][]byte) Certificates {
	return Certificates{
		Serving:     Pair{data[keyServing], data[keyServingKey]},
		Next:        Pair{data[keyNext], data[keyNextKey]},
		Authorities: data[keyAuthorities],
	}
}

// data is the Secret's.
func (c Certificates) data() map[string][]byte {
	d := map[string][]byte{keyServing: c.Serving.Certificate, keyServingKey: c.Serving.Key, keyAuthorities: c.Authorities}
	if len(c.Next.Certificate) > 0 {
		d[keyNext], d[keyNextKey] = c.Next.Certificate, c.Next.Key
	}
	return d
}
