package kubectlplugin

import (
	"context"
	"fmt"
)

// finding is something that is wrong, and what to do about it.
type finding struct {
	// Check is which of the doctor's checks found it.
	Check string `json:"check"`
	What  string `json:"what"`
	Fix   string `json:"fix"`
}

// diagnosis is what doctor prints.
type diagnosis struct {
	Findings []finding `json:"findings"`
	// Unchecked are checks that could not be made, each with why.
	Unchecked []string `json:"unchecked,omitempty"`
}

func (d *diagnosis) found(check, what, fix string) {
	d.Findings = append(d.Findings, finding{check, what, fix})
}

// examinations are the doctor's checks, in the order of their findings.
var examinations = []struct {
	name string
	run  func(context.Context, *invocation, *diagnosis) error
}{
	{"leader", examineLeader},
	{"versions", examineVersions},
	{"rights", examineRights},
	{"controllers", examineControllers},
	{"dns", examineDNS},
	{"autoscaler", examineAutoscaler},
}

// doctor looks for what is set up wrong, and says how to mend each.
func doctor(ctx context.Context, v *invocation) error {
	d := diagnosis{Findings: []finding{}}
	for _, e := range examinations {
		if err := e.run(ctx, v, &d); err != nil {
			d.Unchecked = append(d.Unchecked, e.name+": "+err.Error())
		}
	}
	if v.output != "" {
		if err := v.printObject(d); err != nil {
			return err
		}
	} else {
		for _, f := range d.Findings {
			fmt.Fprintf(&v.out, "%s: %s\n  fix: %s\n", f.Check, plain(f.What), plain(f.Fix))
		}
		for _, u := range d.Unchecked {
			fmt.Fprintf(&v.out, "not checked: %s\n", plain(u))
		}
		if len(d.Findings) == 0 {
			fmt.Fprintln(&v.out, "Nothing wrong was found.")
		}
	}
	if n := len(d.Findings); n > 0 {
		return fmt.Errorf("%d found", n)
	}
	return nil
}
