package main

import (
	"bytes"
	"encoding/pem"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// certificatesPath is the first place where crypto/x509 looks for roots on Linux (root_linux.go).
const certificatesPath = "/etc/ssl/certs/ca-certificates.crt"

// certificates is Mozilla's root bundle as PEM, for checks of type http that name no CA. Roots that
// Mozilla trusts only under a condition are left out: a PEM file cannot say so.
func certificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			// Encode fails only if the writer does or a header is bad; there is neither.
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return out.Bytes()
}
