package mtu

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
)

// The ways to send a payload.
const (
	// ProtocolRaw writes the payload as it is; the target's kernel acknowledges it.
	ProtocolRaw = "raw"
	// ProtocolEcho also waits for the target to send the payload back.
	ProtocolEcho = "echo"
	// ProtocolTLS sends a TLS ClientHello of the payload's size and waits for the answer.
	ProtocolTLS = "tls"
)

// maxPayload bounds the payload: beyond the jumbo frames of every network, and what one TLS
// record holds (16384 bytes, RFC 8446, section 5.1).
const maxPayload = 16_000

// minHello is what a ClientHello needs itself.
const minHello = 600

// Settings sends a payload to a TCP target in one segment that may not be fragmented.
type Settings struct {
	// Address is the target's host:port. Default: the Kubernetes Service, with protocol tls.
	Address string `json:"address,omitempty"`
	// Protocol is raw (default with an address), echo or tls.
	Protocol string `json:"protocol,omitempty" enum:"raw echo tls"`
	// PayloadBytes of the segment, headers not counted. Default: the largest that this
	// node's kernel believes to fit the path, at most 16000.
	PayloadBytes *int32 `json:"payloadBytes,omitempty" minimum:"1" maximum:"16000"`
}

// Validate reports what no limit of a single setting can.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	if s.Address != "" {
		if err := resolver.ValidateHostPort(s.Address); err != nil {
			faults = append(faults, field.Invalid(p.Child("address"), s.Address, err.Error()))
		}
	} else if s.Protocol != "" && s.Protocol != ProtocolTLS {
		faults = append(faults, field.Invalid(p.Child("protocol"), s.Protocol, "the Kubernetes Service speaks tls only; give an address or remove it"))
	}
	if n := ptr.Deref(s.PayloadBytes, minHello); n < minHello && (s.Protocol == ProtocolTLS || s.Address == "") {
		faults = append(faults, field.Invalid(p.Child("payloadBytes"), n,
			fmt.Sprintf("must be at least %d with protocol tls; leave it out for the default", minHello)))
	}
	return faults
}

// NeedsAPI reports whether the Kubernetes API is called: never.
func (s *Settings) NeedsAPI() bool { return false }
