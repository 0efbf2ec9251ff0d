package check

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ExplicitZeros faults the zeros that a file itself sets where zero stands for the default:
// written down, a 0 is meant as a value, and none of these can be 0. holds says whether the
// file sets the value with the given path.
func ExplicitZeros(specs []Spec, path *field.Path, holds func(path string) bool) field.ErrorList {
	var faults field.ErrorList
	for i, s := range specs {
		p := path.Index(i)
		zero := func(p *field.Path, value int32) {
			if value == 0 && holds(p.String()) {
				faults = append(faults, field.Invalid(p, value, "must be at least 1; leave it out for the default"))
			}
		}
		zero(p.Child("timeoutSeconds"), s.TimeoutSeconds)
		zero(p.Child("attempts"), s.Attempts)
		zero(p.Child("intervalSeconds"), s.IntervalSeconds)
		if s.Peers != nil {
			zero(p.Child("peers", "sample"), s.Peers.Sample)
			zero(p.Child("peers", "failPercent"), s.Peers.FailPercent)
		}
		if s.MTU != nil {
			zero(p.Child("mtu", "payloadBytes"), s.MTU.PayloadBytes)
		}
		if s.Clock != nil {
			zero(p.Child("clock", "maxSkewSeconds"), s.Clock.MaxSkewSeconds)
		}
		if s.Exec != nil {
			zero(p.Child("exec", "maxOutputBytes"), s.Exec.MaxOutputBytes)
		}
	}
	return faults
}
