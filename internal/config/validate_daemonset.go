package config

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateDaemonSet faults what a process on each node cannot do: what needs a view of the cluster, or one leader. The
// sections of a controller's own process, leaderElection and kubernetes, are not read.
func (c *Config) validateDaemonSet() field.ErrorList {
	const controller = ", or use deploymentMode controller"
	var faults field.ErrorList
	refuse := func(is bool, p *field.Path, value any, why string) {
		if is {
			faults = append(faults, field.Invalid(p, value, why))
		}
	}
	n, node := &c.NodeManagement, field.NewPath("nodeManagement")
	refuse(n.DeleteFailedNodes, node.Child("deleteFailedNodes"), true,
		"in DaemonSet mode, no controller decides about deletions: remove it"+controller)
	refuse(n.Reverify.Interval.Duration > 0, node.Child("reverify", "interval"), n.Reverify.Interval.Duration.String(),
		"in DaemonSet mode, no pod runs on a verified node. To verify a node again, remove its verified label: remove "+
			"this key"+controller)
	const unwatched = "in DaemonSet mode, no pod runs on a verified node to watch its conditions: remove it" + controller
	refuse(len(n.Reverify.OnConditions) > 0, node.Child("reverify", "onConditions"), "(not shown)", unwatched)
	faults = append(faults, n.Prerequisites.ValidateDaemonSet(node.Child("prerequisites"))...)
	faults = append(faults, presetsInDaemonSet(node.Child("presets"), n.Presets)...)
	for i := range c.Profiles {
		profile, p := &c.Profiles[i], field.NewPath("profiles").Index(i)
		if profile.Prerequisites != nil {
			faults = append(faults, profile.Prerequisites.ValidateDaemonSet(p.Child("prerequisites"))...)
		}
		faults = append(faults, presetsInDaemonSet(p.Child("presets"), profile.Presets)...)
		const one = "all pods of a DaemonSet are alike: remove it here and set it under worker, for all nodes" + controller
		for _, part := range profile.parts() {
			refuse(part.set, p.Child(part.key), "(not shown)", one)
		}
		refuse(profile.Reverify != nil && len(profile.Reverify.OnConditions) > 0, p.Child("reverify", "onConditions"),
			"(not shown)", unwatched)
	}
	most := c.Reconciliation.MaxConcurrentVerifications
	refuse(most > 0, field.NewPath("reconciliation", "maxConcurrentVerifications"), most,
		"in DaemonSet mode, each node verifies itself, so nothing limits their number: remove it"+controller)
	refuse(c.Worker.Namespace != "", field.NewPath("worker", "namespace"), c.Worker.Namespace,
		"in DaemonSet mode, there are no worker pods: remove it, and install the release into that namespace")
	refuse(c.Admission.Backfill, field.NewPath("admission", "backfill"), true,
		"in DaemonSet mode, no controller taints nodes that admission missed: set it to false, remove it"+controller)
	refuse(c.Admission.Mode == AdmissionWebhook, field.NewPath("admission", "mode"), c.Admission.Mode,
		"only a controller serves the webhook: set it to policy or off"+controller)
	refuse(c.Metrics.Secure, field.NewPath("metrics", "secure"), true,
		"the pods of the DaemonSet serve /metrics over HTTP only: set it to false, remove it"+controller)
	refuse(*c.Rules.Enabled, field.NewPath("rules", "enabled"), true,
		"NodeReadinessRules need a controller: set it to false, remove it"+controller)
	return faults
}

// presetsInDaemonSet faults presets: each waits for DaemonSets.
func presetsInDaemonSet(p *field.Path, presets []Preset) field.ErrorList {
	var faults field.ErrorList
	for i, name := range presets {
		faults = append(faults, field.Invalid(p.Index(i), name, "a preset waits for DaemonSets, which DaemonSet mode "+
			"cannot read. List its pods under prerequisites.pods and its checks under worker.checks "+
			"(docs/reference/presets.md), or use deploymentMode controller"))
	}
	return faults
}
