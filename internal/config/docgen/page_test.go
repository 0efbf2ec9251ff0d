package main

import (
	"strings"
	"testing"
)

// TestPage: every key has a comment, and no comment states another default than the real one,
// or page fails. A few keys stand for the rest.
func TestPage(t *testing.T) {
	page, err := page("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| `worker.timeoutSeconds` | integer, between 1 and 3600 | `120` |",
		"| `worker.scheduling` | string, one of `direct`, `scheduler` | `direct` |",
		"| `reconciliation.exhaustedRetrySeconds` | integer, between 1 and 31536000, or -1 for never | `600` |",
		"| `protocols` | list of string, each one of `udp`, `tcp` | `udp` |",
		"| `profiles[].name` | string, a DNS label, required |  |",
		"| `nodeManagement.taints` | list of mapping | `node-ready/unverified=true:NoSchedule` |",
		"| `nodeManagement.remediation.window` | duration | `1h` |",
		"| `nodeManagement.remediation.maxUnhealthy` | number or percentage | `20%` |",
		"\n### worker.checks[].dns\n",
		"| `profiles[].checks` | list of mapping |  | Replaces `worker.checks`; absent keeps them, and an empty list means none. " +
			"Its keys are those of `worker.checks[]`. |",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestStatedDefault(t *testing.T) {
	for _, test := range []struct {
		comment, want string
		prose         bool
	}{
		{"Caps the wait. Default 30.", "30", false},
		{"Bounds pods. Default 0: no limit.", "0", false},
		{"How long. Default 600; 0 keeps none.", "600", false},
		{"Whose. Default registry.example.com/a/b.", "registry.example.com/a/b", false},
		{"Guards. Default true. More.", "true", false},
		{"Where. Default: the node's own, else none. More.", "the node's own, else none", true},
		{"How many. Default 1 with NOERROR, otherwise 0.", "1 with NOERROR, otherwise 0", true},
		{"Who is asked: pod (default, each of them) or service.", "pod", false},
		{"Says nothing of it.", "", false},
	} {
		if got, prose := statedDefault(test.comment); got != test.want || prose != test.prose {
			t.Errorf("%q: got %q, %v; want %q, %v", test.comment, got, prose, test.want, test.prose)
		}
	}
}
