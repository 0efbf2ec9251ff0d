// Package check holds what a check is: its specification and the envelope that all types share.
package check

// Spec is one entry of worker.checks.
type Spec struct {
	Name string `json:"name"`
	Type string `json:"type"`
}
