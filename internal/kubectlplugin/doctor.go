package kubectlplugin

import (
	"cmp"
	"context"
	"fmt"
)

// finding is something that is wrong, and what to do about it.
type finding struct {
	// Check is which of the doctor's checks found it.
	Check string `json:"check"`
	What  string `json:"what"`
	Fix   string `json:"fix,omitempty"`
}

// diagnosis is what doctor prints.
type diagnosis struct {
	Findings []finding `json:"findings"`
	// Notes are what an operator should know and may accept.
	Notes []finding `json:"notes,omitempty"`
	// Passed are checks that found nothing to say.
	Passed []string `json:"passed,omitempty"`
	// Unchecked are checks that could not be made, each with why.
	Unchecked []string `json:"unchecked,omitempty"`

	head head // read once, for all checks but that of the installation
}

func (d *diagnosis) found(check, what, fix string) {
	d.Findings = append(d.Findings, finding{check, what, fix})
}

func (d *diagnosis) note(check, what, fix string) {
	d.Notes = append(d.Notes, finding{check, what, fix})
}

// examinations are the doctor's checks, in the order of their findings.
var examinations = []struct {
	name string
	run  func(context.Context, *invocation, *diagnosis) error
	// passed says what holds where nothing is wrong.
	passed string
}{
	{"installation", examineInstallation, "kube-node-ready is installed"},
	{"leader", examineLeader, "a controller leads, or nobody has to"},
	{"versions", examineVersions, "plugin, controller and workers are of one version"},
	{"image", examineImage, "the workers' image is of this product, and reports"},
	{"rights", examineRights, "the service accounts may do what the configuration needs"},
	{"controllers", examineControllers, "no two controllers act on one taint"},
	{"workers", examineWorkers, "no worker pod is where no controller sees it"},
	{"dns", examineDNS, "cluster DNS can run"},
	{"autoscaler", examineAutoscaler, "the autoscaler knows the gating taints"},
	{"token", examineToken, "an admission policy limits what a stolen token allows"},
}

// examineInstallation looks for an installation. A configuration that was given stands for one.
func examineInstallation(ctx context.Context, v *invocation, d *diagnosis) error {
	maps, err := v.cluster.configMaps(ctx, *v.connection.Namespace)
	if err == nil && len(maps) == 0 && v.configPath == "" {
		where := cmp.Or(*v.connection.Namespace, "any namespace")
		d.found("installation",
			"no ConfigMap of a controller is in "+where+": kube-node-ready is not installed there, or not by its chart",
			"install it (README.md), or give --namespace and --config")
	}
	return err
}

// doctor looks for what is set up wrong, and says how to fix each.
func doctor(ctx context.Context, v *invocation) error {
	d := diagnosis{Findings: []finding{}}
	var passed []string
	for i, e := range examinations {
		before := len(d.Findings) + len(d.Notes)
		if err := e.run(ctx, v, &d); err != nil {
			d.Unchecked = append(d.Unchecked, e.name+": "+connectionError(err).Error())
		} else if len(d.Findings)+len(d.Notes) == before {
			d.Passed, passed = append(d.Passed, e.name), append(passed, e.name+": "+e.passed)
		}
		if i > 0 {
			continue
		}
		if len(d.Findings) > 0 {
			break // there is nothing to look at
		}
		d.head = v.head(ctx)
	}
	if v.output != "" {
		if err := v.printObject(d); err != nil {
			return err
		}
	} else {
		v.printDiagnosis(d, passed)
	}
	if n := len(d.Findings); n > 0 {
		return fmt.Errorf("%d found", n)
	}
	if n := len(d.Unchecked); n > 0 {
		return coded{fmt.Errorf("%d of %d checks could not be made", n, len(examinations)), exitUnchecked}
	}
	return nil
}

func (v *invocation) printDiagnosis(d diagnosis, passed []string) {
	list := func(all []finding, prefix string) {
		for _, f := range all {
			fmt.Fprintf(&v.out, "%s%s: %s\n", prefix, f.Check, plain(f.What))
			if f.Fix != "" {
				fmt.Fprintf(&v.out, "  fix: %s\n", plain(f.Fix))
			}
		}
	}
	list(d.Findings, "")
	list(d.Notes, "note: ")
	for _, u := range d.Unchecked {
		fmt.Fprintf(&v.out, "not checked: %s\n", plain(u))
	}
	for _, p := range passed {
		fmt.Fprintf(&v.out, "ok: %s\n", p)
	}
	if len(d.Findings)+len(d.Unchecked) == 0 {
		fmt.Fprintln(&v.out, "Nothing wrong was found.")
	}
}
