package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/report"
)

func TestText(t *testing.T) {
	r := result.Report{Node: "node-a", Outcome: result.Failed, DurationMs: 2014, Checks: []result.Check{
		{Name: "dns", Type: "dns", Outcome: result.Failed, DurationMs: 2013, Reason: "Timeout", Message: "10.96.0.10:53 (kübe) did not answer"},
		{Name: "gpu", Type: "exec", Outcome: result.Warning, DurationMs: 3, Reason: "Unknown", Message: "could not tell"},
		{Name: "service-discovery", Type: "serviceDiscovery", Outcome: result.Skipped, Reason: "DependencyFailed", Message: "not tried"},
		{Name: "api", Type: "kubernetesAPI", Outcome: result.Passed, DurationMs: 12, Message: "fine"},
	}}
	var b bytes.Buffer
	if err := report.Text(&b, r, false); err != nil {
		t.Fatal(err)
	}
	want := `  CHECK               TYPE               OUTCOME   TIME     REASON             MESSAGE
✗ dns                 dns                failed    2.013s   Timeout            10.96.0.10:53 (kübe) did not answer
! gpu                 exec               warning   3ms      Unknown            could not tell
- service-discovery   serviceDiscovery   skipped   -        DependencyFailed   not tried
✓ api                 kubernetesAPI      passed    12ms     -                  fine
node-a: failed in 2.014s (1 failed, 1 warning, 1 skipped, 1 passed)
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	if err := report.Text(&b, r, true); err != nil || !strings.Contains(b.String(), "\n\x1b[31m✗\x1b[0m dns                 dns ") {
		t.Errorf("in colour: %v\n%q", err, b.String())
	}
}
