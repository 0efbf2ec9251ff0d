package config

import (
	"strings"
	"testing"
)

// remediate without deletion would have no effect.
func TestOnDeadlineNeedsDeletion(t *testing.T) {
	for text, want := range map[string]string{
		"reconciliation: {onDeadline: remediate, verificationDeadlineSeconds: 60}":                                            "deleteFailedNodes",
		"reconciliation: {onDeadline: remediate, verificationDeadlineSeconds: 60}\nnodeManagement: {deleteFailedNodes: true}": "",
		"reconciliation: {onDeadline: hold}":                                     "",
		"reconciliation: {onDeadline: release, verificationDeadlineSeconds: 60}": "",
		"reconciliation: {onDeadline: other}":                                    `reconciliation.onDeadline: Unsupported value: "other": supported values: "hold", "remediate", "release"`,
		"reconciliation: {onDeadline: Release}":                                  "reconciliation.onDeadline",
	} {
		_, err := Parse([]byte(text), "ns")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
