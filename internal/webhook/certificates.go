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

// backdated is how long before its creation a certificate of client-go becomes valid, which allows for clock skew.
const backdated = time.Hour

// Pair is a serving certificate with its authority's certificate, and its private key, as PEM. The authority's own key
// is discarded once it has signed, so no stored key can sign another certificate.
type Pair struct {
	Certificate, Key []byte
}

// Certificates are the content of the Secret. A new pair is trusted before it is served. An old one stays trusted until
// it expires. A rotation goes through these states:
//
//	Serving A, trusted A
//	Serving A, Next B, trusted A and B
//	Serving B, trusted A and B
//	Serving B, trusted B
type Certificates struct {
	// Serving is the pair that every replica serves with.
	Serving Pair
	// Next is the pair to serve with once the API server trusts it; empty between rotations.
	Next Pair
	// Authorities are the trusted authorities, as PEM: the caBundle of the webhook configuration.
	Authorities []byte
}

// Plan is the next state of the Certificates.
type Plan struct {
	Certificates
	// Changed reports whether they differ from what is stored.
	Changed bool
	// Renew is when the serving certificate is due for renewal.
	Renew time.Time
}

// Rules are the settings of new certificates.
type Rules struct {
	// Host is the name that the API server calls, as service.namespace.svc.
	Host string
	// Lifetime of a certificate. It is renewed when a third of its lifetime is left.
	Lifetime time.Duration
}

// Next returns the certificates as they should be now. trusted reports whether the API server has had time to learn of
// the authority of Next.
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
		p.Next = Pair{} // the stored one is not usable
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
	crt, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{
		Host: r.Host, MaxAge: backdated + r.Lifetime,
	})
	if err != nil {
		return Pair{}, fmt.Errorf("make a certificate for %s: %w", r.Host, err)
	}
	return Pair{Certificate: crt, Key: key}, nil
}

// authorities returns the authorities in the given files, each once and the oldest first, without expired ones.
func authorities(now time.Time, files ...[]byte) ([]byte, error) {
	var all []*x509.Certificate
	for _, file := range files {
		found, err := cert.ParseCertsPEM(file)
		if err != nil {
			continue // it contains none
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
