package config

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateUnchecked faults settings under which a node would be released at once: no check is to pass, and no
// prerequisite to hold.
func (c *Config) validateUnchecked() field.ErrorList {
	const fix = "is empty, and so is %s, so nodes would be released at once; name a prerequisite, or remove checks to " +
		"run the built-in checks"
	var faults field.ErrorList
	presets := len(c.NodeManagement.Presets) // each of them has prerequisites
	if e := c.base(); e.Unchecked() && len(e.Prerequisites.All()) == 0 && presets == 0 {
		checks := field.NewPath("worker", "checks")
		faults = append(faults, field.Invalid(checks, "[]", fmt.Sprintf(fix, "nodeManagement.prerequisites")))
	}
	for i := range c.Profiles {
		profile := &c.Profiles[i]
		e := c.effective(profile)
		if !e.Unchecked() || len(e.Prerequisites.All()) > 0 || presets+len(profile.Presets) > 0 {
			continue
		}
		p := field.NewPath("profiles").Index(i)
		switch {
		case profile.Checks != nil && profile.Prerequisites != nil:
			faults = append(faults, field.Invalid(p.Child("checks"), "[]", fmt.Sprintf(fix, p.Child("prerequisites").String())))
		case profile.Checks != nil:
			faults = append(faults, field.Invalid(p.Child("checks"), "[]", fmt.Sprintf(fix, "nodeManagement.prerequisites")))
		case profile.Prerequisites != nil:
			faults = append(faults, field.Invalid(p.Child("prerequisites"), "{}", "is empty, and so is worker.checks, which "+
				"the profile inherits, so its nodes would be released at once; name a prerequisite, or give the profile checks"))
		}
	}
	return faults
}
