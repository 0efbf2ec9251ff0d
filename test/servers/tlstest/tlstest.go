// Package tlstest makes authorities and certificates for tests, good and bad ones.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// Authority issues certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// chain is the certificates that a server presents after its own.
	chain [][]byte
}

// Certificate says what a server's certificate is like; the zero value is a good one for
// 127.0.0.1 and the name good.example.
type Certificate struct {
	NotBefore, NotAfter time.Time
	// OtherName makes it out to another name.
	OtherName bool
}

// NewAuthority makes a root.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	return NewAuthorityUntil(t, time.Now().Add(10*365*24*time.Hour))
}

// NewAuthorityUntil makes a root that expires at a time.
func NewAuthorityUntil(t testing.TB, notAfter time.Time) *Authority {
	t.Helper()
	a := &Authority{key: newKey(t)}
	a.cert = a.sign(t, authority("test authority", notAfter), nil, a.key)
	return a
}

// Intermediate makes an authority below this one, which servers present, and which expires at a time.
func (a *Authority) Intermediate(t testing.TB, notAfter time.Time) *Authority {
	t.Helper()
	key := newKey(t)
	cert := a.sign(t, authority("intermediate authority", notAfter), a.cert, key)
	return &Authority{cert: cert, key: key, chain: append([][]byte{cert.Raw}, a.chain...)}
}

func authority(name string, notAfter time.Time) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-10 * 365 * 24 * time.Hour), NotAfter: notAfter}
}

// PEM is the root's certificate.
func (a *Authority) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

// Issue makes a server certificate.
func (a *Authority) Issue(t testing.TB, c Certificate) tls.Certificate {
	t.Helper()
	if c.NotBefore.IsZero() {
		c.NotBefore = time.Now().Add(-24 * time.Hour)
	}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(24 * time.Hour)
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "server"}, NotBefore: c.NotBefore, NotAfter: c.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"good.example"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	if c.OtherName {
		template.DNSNames, template.IPAddresses = []string{"other.example"}, nil
	}
	key := newKey(t)
	chain := append([][]byte{a.sign(t, template, a.cert, key).Raw}, a.chain...)
	return tls.Certificate{Certificate: chain, PrivateKey: key}
}

// Negative signs a server certificate again, with a negative serial number, which Go does not read (istio/istio#56815).
func (a *Authority) Negative(t testing.TB, c tls.Certificate) tls.Certificate {
	t.Helper()
	var outer struct {
		TBS       asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}
	// Version, serial number and the rest (RFC 5280, section 4.1).
	var inner []asn1.RawValue
	if _, err := asn1.Unmarshal(c.Certificate[0], &outer); err != nil {
		t.Fatal(err)
	}
	if _, err := asn1.Unmarshal(outer.TBS.FullBytes, &inner); err != nil {
		t.Fatal(err)
	}
	inner[1] = asn1.RawValue{Tag: asn1.TagInteger, Bytes: []byte{0x80, 1}}
	tbs, err := asn1.Marshal(inner)
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(tbs)
	signature, err := ecdsa.SignASN1(rand.Reader, a.key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	outer.TBS = asn1.RawValue{FullBytes: tbs}
	outer.Signature = asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)}
	der, err := asn1.Marshal(outer)
	if err != nil {
		t.Fatal(err)
	}
	c.Certificate = append([][]byte{der}, c.Certificate[1:]...)
	return c
}

// Serve runs an HTTPS server on 127.0.0.1 until the test ends, with these key exchanges, or with Go's.
func Serve(t testing.TB, cert tls.Certificate, h http.Handler, curves ...tls.CurveID) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, CurvePreferences: curves}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // tests make handshakes fail
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (a *Authority) sign(t testing.TB, template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	if parent == nil {
		parent = template
	}
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
