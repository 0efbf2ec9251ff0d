package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/kubectlplugin"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// TestKubectlFindsIt runs the binary of make build through kubectl, which finds plugins by
// their names in PATH.
func TestKubectlFindsIt(t *testing.T) {
	plugin, err := install.Binary("kubectl-node_ready")
	if err != nil {
		t.Fatal(err)
	}
	kubectl, err := cluster.Tool("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), kubectl, "node-ready", "version")
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(plugin))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "kubectl-node_ready ") {
		t.Errorf("kubectl node-ready version: %v: %s", err, out)
	}
	complete := exec.CommandContext(t.Context(), kubectl, "__complete", "node-ready", "statu")
	complete.Env = cmd.Env
	if out, err := complete.Output(); err != nil || !strings.HasPrefix(string(out), "status\t") {
		t.Errorf("completion: %v: %s", err, out)
	}
}

// Of a release's archive each file is there, and what completes is beside the plugin, and can be run.
func TestArchiveHasTheCompletion(t *testing.T) {
	content, err := os.ReadFile("../../.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var release struct {
		Archives []struct {
			Files []struct {
				Src         string
				StripParent bool `json:"strip_parent"`
				Info        struct{ Mode os.FileMode }
			}
		}
	}
	if err := yaml.Unmarshal(content, &release); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, f := range release.Archives[0].Files {
		info, err := os.Stat(filepath.Join("../..", f.Src))
		if err != nil {
			t.Fatal(err)
		}
		found = found || filepath.Base(f.Src) == "kubectl_complete-node_ready" && f.StripParent && f.Info.Mode == 0o755 && info.Mode()&0o111 != 0
	}
	if !found {
		t.Errorf("no kubectl_complete-node_ready in %+v", release.Archives)
	}
}

const clusterConfiguration = `
worker: {image: {repository: ghcr.io/kube-node-ready/kube-node-ready, tag: local}, checkTimeoutSeconds: 2, timeoutSeconds: 20}
reconciliation: {maxRetries: 2, initialBackoffSeconds: 1, maxBackoffSeconds: 1, exhaustedRetrySeconds: -1}
`

// TestOnCluster runs a real control plane, a controller and four nodes. One node passes, and one has broken DNS until
// its retries are exhausted. One opts out, and one was there before the installation.
func TestOnCluster(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	e := start(ctx, t)

	// Until there is a ConfigMap, the defaults are assumed, and that is said.
	if got := e.run(ctx, "status"); got.code != 0 || !strings.Contains(got.err, "its defaults are used") || !strings.Contains(got.out, "No nodes found.") {
		t.Errorf("without a ConfigMap: %+v", got)
	}
	if got := e.run(ctx, "doctor"); got.code != 1 || !strings.Contains(got.out, "installation: no ConfigMap of a controller is in any namespace") ||
		strings.Contains(got.out, "No problems") {
		t.Errorf("doctor without an installation: %+v", got)
	}
	e.createConfigMap(ctx, "kube-node-ready", "controller", clusterConfiguration)

	taint := []corev1.Taint{{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	e.add(ctx, nodeagent.NodeSpec{Name: "good", Taints: taint, Labels: map[string]string{"pool": "a"}})
	bad := e.add(ctx, nodeagent.NodeSpec{Name: "bad", Taints: taint, DNS: nodeagent.DNSRefuses})
	e.add(ctx, nodeagent.NodeSpec{Name: "skipped", Taints: taint, Annotations: map[string]string{"node-ready/skip": "true"}})
	e.add(ctx, nodeagent.NodeSpec{Name: "old"})
	says := func(n summary, reason string) bool { return n.Condition != nil && n.Condition.Reason == reason }
	e.await(ctx, "good", func(n summary) bool { return n.Status == "verified" && says(n, marks.ReasonChecksPassed) })
	e.await(ctx, "bad", func(n summary) bool { return n.Status == "failed" && says(n, marks.ReasonRetriesExhausted) })

	t.Run("status", func(t *testing.T) {
		got := e.run(ctx, "status")
		head := []string{`^Controller +\S+ leads for \d+s, version \S+$`, `^Remediations +off`, `^Nodes +1 verified, 1 exhausted, 1 excluded, 1 unmanaged$`, `^$`}
		want := []string{
			`^NODE +STATE +SINCE +RETRIES +NEXT +WHY$`,
			`^bad +exhausted +\d+s +2/2 +- +2 of 2 attempts failed, last: check dns: .+…$`,
			`^good +verified +\d+s +0/2 +- +All required checks passed in .+, attempt 1$`,
			`^old +unmanaged +- +- +-$`,
			`^skipped +excluded +- +- +-$`,
		}
		matchLines(t, got, append(head, want...))
		matchLines(t, e.run(ctx, "status", "-o", "name", "--unverified"), []string{`^node/bad$`})
		var object struct {
			Controller struct{ Leader struct{ Name string } }
			Totals     map[string]int
			Nodes      []summary
		}
		if got := e.run(ctx, "status", "-o", "yaml"); yaml.Unmarshal([]byte(got.out), &object) != nil || object.Controller.Leader.Name == "" || object.Totals["exhausted"] != 1 || len(object.Nodes) != 4 {
			t.Errorf("yaml: %+v", got)
		}
		if strings.Contains(got.out, "\x1b") {
			t.Error("there are colours, and the output is no terminal")
		}
		if got := e.onTerminal(ctx, "status"); !strings.Contains(got.out, "\x1b[32mverified\x1b[0m") {
			t.Errorf("on a terminal: no colours in %q", got.out)
		}
		matchLines(t, e.run(ctx, "status", "--unverified", "--no-headers"), want[1:2])
		matchLines(t, e.run(ctx, "status", "-l", "pool=a", "--no-headers"), want[2:3])
		if got := e.run(ctx, "status", "-o", "wide", "bad"); !strings.Contains(got.out, "PROFILE") || !strings.Contains(got.out, "no further attempt follows; to start again, run kubectl node-ready reverify bad") {
			t.Errorf("wide: %+v", got)
		}
		if got := e.run(ctx, "status", "good", "none"); got.code != 1 || !strings.Contains(got.out, "verified") || !strings.Contains(got.err, `nodes "none" not found`) {
			t.Errorf("a node that is not there: %+v", got)
		}
	})

	t.Run("explain", func(t *testing.T) {
		e.emit(ctx, "bad", "other", "OfAnother")
		got := e.run(ctx, "explain", "bad")
		for deadline := time.Now().Add(10 * time.Second); !regexp.MustCompile(`Warning +RetriesExhausted`).MatchString(got.out) && time.Now().Before(deadline); {
			time.Sleep(100 * time.Millisecond) // events are queued
			got = e.run(ctx, "explain", "bad")
		}
		for _, want := range []string{
			`(?m)^State +exhausted$`, `(?m)^Since +\d+s ago \(2`, `(?m)^Why +2 of 2 attempts failed, last: check dns: `,
			`(?m)^Retries +2 of 2 spent, 0 attempts inconclusive$`, `(?m)^Last +attempt 2, failed after .+; \d+s ago \(.+; check dns: `,
			`(?m)^Gating taints +node-ready/unverified=true:NoSchedule$`, `(?m)^Verified label +no node-ready/verified=true$`,
			`(?m)^Condition +node-ready/Verified=False RetriesExhausted$`,
			`(?m)^  failed +dns +dns `, `(?m)^  passed +api +kubernetesAPI `,
			`(?ms)^  \d+s +Warning +VerificationFailed +check dns: .+, attempt 1\)$.+^  \d+s +Warning +RetriesExhausted +All 2 attempts failed`,
		} {
			if !regexp.MustCompile(want).MatchString(got.out) {
				t.Errorf("no %s in\n%s%s", want, got.out, got.err)
			}
		}
		if strings.Contains(got.out, "OfAnother") || strings.Contains(got.out, "Next ") {
			t.Errorf("another's event, or a time that is not known, in\n%s", got.out)
		}
		var parsed struct {
			summary
			Report *struct{ Outcome string }
		}
		if err := json.Unmarshal([]byte(e.run(ctx, "explain", "bad", "-o", "json").out), &parsed); err != nil || parsed.Report == nil || parsed.Report.Outcome != "failed" || parsed.Last.Check != "dns" {
			t.Errorf("json: %+v, %v", parsed, err)
		}
	})

	t.Run("logs", func(t *testing.T) {
		if got := e.run(ctx, "logs", "bad"); got.code != 0 || !strings.Contains(got.out, `"check":"dns"`) {
			t.Errorf("logs of the kept worker: %+v", got)
		}
		if got := e.run(ctx, "logs", "good"); got.code != 1 || !strings.Contains(got.err, "node good has no worker pod; its state is verified. The worker of attempt 1 (passed) is gone") {
			t.Errorf("logs of a node without a worker: %+v", got)
		}
	})

	t.Run("reverify", func(t *testing.T) {
		if got := e.run(ctx, "reverify", "skipped"); got.code != 1 || !strings.Contains(got.err, "it is excluded from verification") {
			t.Errorf("skipped: %+v", got)
		}
		if err := bad.SetDNS(nodeagent.DNSWorks); err != nil {
			t.Fatal(err)
		}
		matchLines(t, e.run(ctx, "reverify", "good"), []string{`^node/good: attempt 2 is due now$`})
		var list struct {
			Objects []struct{ Name, Result string }
		}
		if got := e.run(ctx, "reverify", "bad", "-o", "json"); json.Unmarshal([]byte(got.out), &list) != nil || len(list.Objects) != 1 ||
			list.Objects[0].Name != "node/bad" || list.Objects[0].Result != "attempt 3 is due now" {
			t.Errorf("json: %+v", got)
		}
		e.await(ctx, "good", func(n summary) bool { return n.Status == "verified" && n.Last != nil && n.Last.Number == 2 })
		e.await(ctx, "bad", func(n summary) bool {
			return n.Status == "verified" && n.Last != nil && n.Last.Number == 3 && len(n.Taints) == 0
		})
	})

	t.Run("reverify --wait", func(t *testing.T) {
		before := e.node(ctx, "good")
		matchLines(t, e.run(ctx, "reverify", "good", "--wait", "--timeout", "2m"), []string{`^node/good: passed$`})
		n := e.node(ctx, "good")
		if n.Labels["node-ready/verified"] != "true" || n.Annotations[marks.AnnotationVerifyCompleted] == "" ||
			n.Annotations[marks.AnnotationRecord] == before.Annotations[marks.AnnotationRecord] {
			t.Errorf("labels %v, annotations %v", n.Labels, n.Annotations)
		}
		if got := e.run(ctx, "explain", "good"); !regexp.MustCompile(`(?m)^Request +reverify-\w+: passed$`).MatchString(got.out) {
			t.Errorf("explain: %+v", got)
		}
		if err := bad.SetDNS(nodeagent.DNSRefuses); err != nil {
			t.Fatal(err)
		}
		// No verified node shares the failure, so it counts against the node. It is the first, and closes no gate.
		if got := e.run(ctx, "reverify", "bad", "--wait", "--timeout", "2m"); got.code != 5 || got.out != "node/bad: failed\n" || !strings.Contains(got.err, "node bad: failed: check dns: ") {
			t.Errorf("a node that fails: %+v", got)
		}
		if err := bad.SetDNS(nodeagent.DNSWorks); err != nil {
			t.Fatal(err)
		}
		if got := e.run(ctx, "reverify", "bad", "--wait", "--timeout", "300ms"); got.code != 3 || !strings.Contains(got.err, "no result after 300ms:\nnode bad: ") {
			t.Errorf("in too little time: %+v", got)
		}
		withdrawn := []byte(`{"metadata":{"annotations":{"node-ready/verify-requested":null}}}`) // else it is answered in a minute
		if _, err := e.client.CoreV1().Nodes().Patch(ctx, "bad", types.MergePatchType, withdrawn, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := e.run(ctx, "reverify", "skipped", "--wait"); got.code != 1 || !strings.Contains(got.err, "node skipped: it is excluded") {
			t.Errorf("skipped: %+v", got)
		}
		e.await(ctx, "bad", func(n summary) bool { return n.Status == "verified" })
	})

	t.Run("remediations", func(t *testing.T) {
		matchLines(t, e.run(ctx, "remediations"), []string{`^Remediations: 0 of at most 10 in the last hour$`, `^No action was taken\.$`})
		matchLines(t, e.run(ctx, "pause", "DNS", "outage,", "ticket 7"), []string{`^configmap/kube-node-ready-remediations in kube-node-ready: no action is taken on a node until 'kubectl node-ready resume'$`})
		cm, err := e.client.CoreV1().ConfigMaps("kube-node-ready").Get(ctx, ledger.Name, metav1.GetOptions{})
		if err != nil || cm.Annotations["node-ready/paused"] != "DNS outage, ticket 7" {
			t.Fatalf("the ledger: %v, %v", cm, err)
		}
		gone := ledger.Contents{CompleteSince: time.Now().Add(-48 * time.Hour)}
		for name, age := range map[string]time.Duration{"lately": time.Minute, "long-ago": 30 * time.Hour} {
			gone.Entries = append(gone.Entries, ledger.Entry{Time: metav1.NewTime(time.Now().Add(-age)), Node: name, UID: name, Pool: "a", Kind: "NodeClaim", Name: "c-" + name, Reason: "5 attempts failed, last: check dns: Timeout"})
		}
		gone.Entries = append(gone.Entries, ledger.Entry{Time: metav1.NewTime(time.Now().Add(-time.Hour)), Node: "good", UID: string(e.node(ctx, "good").UID),
			Kind: marks.KindCondition, Name: "node-ready/RemediationRequired", Reason: "5 attempts failed, last: check dns: Timeout"})
		if err := gone.Prune(time.Now(), time.Hour).Write(cm); err != nil {
			t.Fatal(err)
		}
		if _, err := e.client.CoreV1().ConfigMaps("kube-node-ready").Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		matchLines(t, e.run(ctx, "remediations"), []string{
			`^Remediations: 1 of at most 10 in the last hour; paused: DNS outage, ticket 7$`, `^Counted since: 2d ago \(`,
			`^AGE +NODE +ACTION +OBJECT +STATE +POOL +ZONE +REASON$`,
			`^\d+s +lately +delete +NodeClaim/c-lately +gone +a +- +5 attempts failed, last: check dns: Timeout$`,
			`^60m +good +condition +node-ready/RemediationRequired +recovered +- +- +5 attempts failed, last: check dns: Timeout$`,
			`^30h +long-ago +delete +NodeClaim/c-long-ago +gone +a +- +5 attempts failed, last: check dns: Timeout$`,
		})
		matchLines(t, e.run(ctx, "resume"), []string{`: remediation continues as configured$`})
		var view struct {
			Paused       string
			LastHour     int
			Remediations []struct {
				ledger.Entry
				Action, State string
			}
		}
		got := e.run(ctx, "remediations", "-o", "yaml")
		if yaml.Unmarshal([]byte(got.out), &view) != nil || view.Paused != "" || view.LastHour != 1 || len(view.Remediations) != 3 ||
			view.Remediations[1].Action != "condition" || view.Remediations[1].State != "recovered" {
			t.Errorf("after resume: %+v", got)
		}
	})

	t.Run("wait", func(t *testing.T) {
		matchLines(t, e.run(ctx, "wait", "good", "bad"), []string{`^node/(good|bad) is verified$`, `^node/(good|bad) is verified$`})
		matchLines(t, e.run(ctx, "wait", "-l", "pool=a", "-o", "name"), []string{`^node/good$`})
		for _, tc := range []struct {
			args []string
			code int
			err  string
		}{
			{[]string{"wait", "skipped"}, 4, "node skipped is excluded: it will not be verified"},
			{[]string{"wait", "none", "--timeout", "300ms"}, 3, "not verified after 300ms:\nnode none: it does not exist"},
			{[]string{"wait", "-l", "pool=b"}, 1, "no node matches pool=b"},
			{[]string{"wait"}, 2, "wait needs the names of nodes, or --selector"},
		} {
			if got := e.run(ctx, tc.args...); got.code != tc.code || !strings.Contains(got.err, tc.err) {
				t.Errorf("%v: %+v", tc.args, got)
			}
		}
		// A node that joins while it is waited for, and is watched.
		watching, stop := context.WithCancel(ctx)
		var waited, watched ran
		var both sync.WaitGroup
		both.Go(func() { waited = e.run(ctx, "wait", "joins") })
		both.Go(func() { watched = e.run(watching, "status", "--watch", "--no-headers") })
		time.Sleep(time.Second)
		e.add(ctx, nodeagent.NodeSpec{Name: "joins", Taints: taint})
		e.await(ctx, "joins", func(n summary) bool { return n.Status == "verified" && says(n, marks.ReasonChecksPassed) })
		time.Sleep(time.Second)
		stop()
		both.Wait()
		if waited.code != 0 || waited.out != "node/joins is verified\n" {
			t.Errorf("wait: %+v", waited)
		}
		if watched.code != 0 || !regexp.MustCompile(`(?s)old +unmanaged.+\njoins +(waiting|verifying) .+\njoins +verified `).MatchString(watched.out) {
			t.Errorf("watch: %+v", watched)
		}
	})

	t.Run("check", func(t *testing.T) {
		before := e.node(ctx, "good")
		got := e.run(ctx, "check", "good")
		if got.code != 0 || !regexp.MustCompile(`(?s)^node/good: passed after .+\n  passed +dns +dns `).MatchString(got.out) {
			t.Errorf("good: %+v", got)
		}
		if err := bad.SetDNS(nodeagent.DNSRefuses); err != nil {
			t.Fatal(err)
		}
		if got := e.run(ctx, "check", "bad"); got.code != 5 || !regexp.MustCompile(`(?s)^node/bad: failed after .+\n  failed +dns +dns `).MatchString(got.out) || !strings.Contains(got.err, "the checks did not pass") {
			t.Errorf("bad: %+v", got)
		}
		var failed struct {
			Node, Outcome, Reason string
			Report                struct {
				Checks []struct{ Name, Outcome string }
			}
		}
		got = e.run(ctx, "check", "bad", "-o", "json")
		if err := json.Unmarshal([]byte(got.out), &failed); err != nil || got.code != 5 || failed.Node != "bad" || failed.Outcome != "failed" || len(failed.Report.Checks) == 0 {
			t.Errorf("json: %+v, %v", got, err)
		}
		after := e.node(ctx, "good")
		if after.Labels["node-ready/verified"] != "true" || after.Annotations["node-ready/record"] != before.Annotations["node-ready/record"] || len(after.Spec.Taints) != len(before.Spec.Taints) {
			t.Errorf("the node is another one: %+v, %+v", before.ObjectMeta, after.ObjectMeta)
		}
		e.await(ctx, "bad", func(n summary) bool { return n.Status == "verified" })
		pods, err := e.client.CoreV1().Pods("kube-node-ready").List(ctx, metav1.ListOptions{LabelSelector: "node-ready/purpose=check"})
		for _, p := range pods.Items {
			if p.DeletionTimestamp == nil {
				t.Errorf("left behind: %s, %v", p.Name, err)
			}
		}
	})

	t.Run("skip", func(t *testing.T) {
		matchLines(t, e.run(ctx, "skip", "bad"), []string{`^node/bad: neither verified nor remediated$`})
		matchLines(t, e.run(ctx, "status", "bad", "--no-headers"), []string{`^bad +excluded `})
		matchLines(t, e.run(ctx, "unskip", "bad", "-o", "name"), []string{`^node/bad$`})
		matchLines(t, e.run(ctx, "status", "bad", "--no-headers"), []string{`^bad +verified `})
		matchLines(t, e.run(ctx, "skip", "skipped"), []string{`^node/skipped: neither verified nor remediated; it keeps node-ready/unverified=true:NoSchedule$`})
	})

	t.Run("completion", func(t *testing.T) {
		var out bytes.Buffer
		kubectlplugin.Run(ctx, []string{"__complete", "--kubeconfig", e.cluster.Kubeconfig(), "explain", "sk"}, &out, io.Discard, false)
		if out.String() != "skipped\n:4\n" {
			t.Errorf("nodes: %q", out.String())
		}
	})

	// What programs read is an object in every command, and -o name prints names only.
	t.Run("formats", func(t *testing.T) {
		for _, c := range []struct{ command, name string }{
			{"status good", `^node/good$`}, {"explain good", `^node/good$`}, {"wait good", `^node/good$`},
			{"check good", `^node/good$`}, {"remediations", `^nodeclaim/c-lately$`}, {"doctor -n kube-node-ready", `^versions$|^$`},
			{"pause", `^configmap/kube-node-ready-remediations$`}, {"resume", `^configmap/kube-node-ready-remediations$`},
			{"reverify skipped", `^$`}, {"skip skipped", `^node/skipped$`}, {"remove-marks skipped --dry-run", `^node/skipped$`},
		} {
			args := strings.Fields(c.command)
			for _, format := range []string{"json", "yaml"} {
				var object map[string]any
				got := e.run(ctx, append(args, "-o", format)...)
				if err := yaml.Unmarshal([]byte(got.out), &object); err != nil || len(object) == 0 ||
					(format == "json") != strings.HasPrefix(got.out, "{") {
					t.Errorf("%s -o %s: %+v, %v", c.command, format, got, err)
				}
			}
			first, _, _ := strings.Cut(e.run(ctx, append(args, "-o", "name")...).out, "\n")
			if !regexp.MustCompile(c.name).MatchString(first) {
				t.Errorf("%s -o name: %q", c.command, first)
			}
		}
		wide := e.run(ctx, "remediations", "-o", "wide")
		if !strings.Contains(wide.out, "NODE-UID") {
			t.Errorf("remediations -o wide: %+v", wide)
		}
	})

	t.Run("rules", func(t *testing.T) { e.rules(ctx, t) })

	t.Run("doctor", func(t *testing.T) { e.doctor(ctx, t) })

	t.Run("no leader", func(t *testing.T) {
		e.controller.Kill()
		e.add(ctx, nodeagent.NodeSpec{Name: "late", Taints: taint, Labels: map[string]string{"karpenter.sh/nodepool": "a"}, ProviderID: "test://late"})
		e.claim(ctx, "late")
		var got ran
		for deadline := time.Now().Add(30 * time.Second); !strings.Contains(got.out, "no leader") && time.Now().Before(deadline); time.Sleep(time.Second) {
			got = e.run(ctx, "status", "late")
		}
		matchLines(t, got, []string{`^Controller +no leader: \S+ last renewed its Lease \d+s ago; nothing is verified$`, `^Replicas +0 of 1 ready: `, `^Remediations`, `^Nodes +1 waiting$`, `^$`,
			`^NODE`, `^late +waiting +- +- +- +Karpenter: StartupTaintsExist$`})
		if got := e.run(ctx, "explain", "late"); !strings.HasPrefix(got.out, "no leader: ") || !strings.Contains(got.out, `Karpenter        StartupTaintsExist: StartupTaint`) {
			t.Errorf("explain: %+v", got)
		}
		if got := e.run(ctx, "doctor"); got.code != 1 || !strings.Contains(got.out, "leader: no leader: ") {
			t.Errorf("doctor: %+v", got)
		}
		if got := e.run(ctx, "wait", "late", "--timeout", "300ms"); got.code != 3 || !strings.Contains(got.out, "no leader: ") || !strings.Contains(got.err, "node late: waiting") {
			t.Errorf("wait: %+v", got)
		}
	})

	t.Run("many nodes", func(t *testing.T) {
		for i := range 60 {
			if _, err := e.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many-%d", i)}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		got := e.run(ctx, "status")
		if n := strings.Count(got.out, "\n"); n > 10 || !strings.Contains(got.out, "\nlate ") || !regexp.MustCompile(`\n\d+ nodes are not shown: --all shows every node`).MatchString(got.out) {
			t.Errorf("%d lines: %+v", n, got)
		}
		if got := e.run(ctx, "status", "--all"); strings.Count(got.out, "\nmany-") != 60 {
			t.Errorf("--all: %+v", got)
		}
	})

	t.Run("remove-marks", func(t *testing.T) {
		// The one that doctor's checks needed.
		if got := e.run(ctx, "remove-marks"); got.code != 1 || !strings.Contains(got.err, "a controller still runs and would write the marks again (DaemonSet each-node/daemonset)") {
			t.Errorf("beside a DaemonSet: %+v", got)
		}
		if err := e.client.AppsV1().DaemonSets("each-node").Delete(ctx, "daemonset", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		asked := []byte(`{"status":{"conditions":[{"type":"node-ready/RemediationRequired","status":"True","reason":"NodeReadyVerificationFailed"},{"type":"Keep","status":"True"}]}}`)
		if _, err := e.client.CoreV1().Nodes().Patch(ctx, "good", types.StrategicMergePatchType, asked, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		got := e.run(ctx, "remove-marks")
		for _, want := range []string{
			`(?m)^node/good: removed label node-ready/verified, annotation node-ready/record, .*condition node-ready/RemediationRequired, condition node-ready/Verified$`,
			`(?m)^node/late: removed taint node-ready/unverified:NoSchedule$`, `(?m)^node/skipped: removed taint node-ready/unverified:NoSchedule$`,
		} {
			if got.code != 0 || !regexp.MustCompile(want).MatchString(got.out) {
				t.Errorf("no %s in %+v", want, got)
			}
		}
		good, skipped := e.node(ctx, "good"), e.node(ctx, "skipped")
		all, err := json.Marshal([]any{good.Labels, good.Annotations, good.Spec.Taints, good.Status.Conditions})
		if err != nil || strings.Contains(string(all), "node-ready/") || good.Labels["pool"] != "a" || !strings.Contains(string(all), `"type":"Keep"`) {
			t.Errorf("left on the node: %s, %v", all, err)
		}
		if len(skipped.Spec.Taints) > 0 || skipped.Annotations["node-ready/skip"] != "true" {
			t.Errorf("skipped: %v, %v", skipped.Spec.Taints, skipped.Annotations)
		}
		matchLines(t, e.run(ctx, "remove-marks"), []string{`^No marks found\.$`})
	})

	t.Run("two controllers", func(t *testing.T) {
		e.createConfigMap(ctx, "default", "other", clusterConfiguration)
		if got := e.run(ctx, "status"); got.code != 1 || !strings.Contains(got.err, "default/other, kube-node-ready/controller") {
			t.Errorf("%+v", got)
		}
		if got := e.run(ctx, "status", "-n", "kube-node-ready"); got.code != 0 {
			t.Errorf("with --namespace: %+v", got)
		}
	})
}
