// Package termination has the termination messages that kubelets read from the workers that tests play.
package termination

import "github.com/kube-node-ready/kube-node-ready/internal/result"

// Check is the name of the check that fails.
const Check = "played"

// outcomes are those of a report, by the exit code that goes with each.
var outcomes = map[int]result.Outcome{
	result.ExitPassed: result.Passed, result.ExitFailed: result.Failed, result.ExitInconclusive: result.Inconclusive,
	result.ExitConfig: result.ConfigError, result.ExitClient: result.ClientError, result.ExitInternal: result.InternalError}

// Message is the report that a worker on the node leaves if it ends with the exit code. It is empty for a code that no
// worker chooses.
func Message(node string, code int) string {
	outcome, ours := outcomes[code]
	if !ours {
		return ""
	}
	r := result.Report{Version: result.Version, Node: node, Outcome: outcome}
	if outcome == result.Failed {
		r.Checks = []result.Check{{Name: Check, Type: "exec", Severity: "required", Outcome: result.Failed,
			Message: "played by a test"}}
	}
	return string(r.Encode())
}
