package worker_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// recipe is the YAML of a section of docs/reference/checks.md, its blocks separated by "---".
func recipe(t *testing.T, section string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/checks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "\n### Recipe: "+section+"\n")
	if !found {
		t.Fatalf("docs/reference/checks.md has no recipe %q", section)
	}
	text, _, _ = strings.Cut(text, "\n##")
	blocks := strings.Split(text, "```yaml\n")
	if len(blocks) < 2 {
		t.Fatalf("recipe %q has no YAML", section)
	}
	for i := range blocks {
		blocks[i], _, _ = strings.Cut(blocks[i], "```")
	}
	return strings.Join(blocks[1:], "---\n")
}

// runRecipe runs a recipe in which texts are replaced by others, with at most two seconds for a check.
func runRecipe(t *testing.T, yaml string, env map[string]string, replaced ...string) result.Report {
	t.Helper()
	for i := 0; i < len(replaced); i += 2 {
		if !strings.Contains(yaml, replaced[i]) {
			t.Fatalf("no %q in\n%s", replaced[i], yaml)
		}
	}
	c, err := worker.Load([]byte(strings.NewReplacer(replaced...).Replace(yaml)), "recipe")
	if err != nil {
		t.Fatal(err)
	}
	c.CheckTimeoutSeconds, c.TimeoutSeconds = 2, 5
	return worker.Run(t.Context(), worker.Options{Config: c, Getenv: func(name string) string { return env[name] }})
}

func expect(t *testing.T, what string, r result.Report, reason, says string) {
	t.Helper()
	want := result.Passed
	if reason != "" {
		want = result.Failed
	}
	if c := r.Checks[0]; r.Outcome != want || c.Reason != reason || !strings.Contains(c.Message, says) {
		t.Errorf("%s: got %+v, want %q with %q", what, r, reason, says)
	}
}

// Every recipe of docs/reference/checks.md passes on a node that has what it asks for, and fails on one that has not.
func TestRecipesRun(t *testing.T) {
	t.Run("metadata", func(t *testing.T) { t.Parallel(); testMetadata(t) })
	t.Run("NodeLocal DNSCache", func(t *testing.T) { t.Parallel(); testNodeLocalDNS(t) })
	t.Run("registry", func(t *testing.T) { t.Parallel(); testRegistry(t) })
	t.Run("second family", func(t *testing.T) { t.Parallel(); testSecondFamily(t) })
	t.Run("kernel", func(t *testing.T) { t.Parallel(); testKernel(t) })
	t.Run("GPU", func(t *testing.T) { t.Parallel(); testGPU(t) })
}

// The hop limit is played: what it does is that the answer to PUT, and nothing else, never arrives.
func testMetadata(t *testing.T) {
	serve := func(token string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method != http.MethodPut || r.URL.Path != "/latest/api/token" || r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") == "":
				w.WriteHeader(http.StatusBadRequest)
			case token == "":
				<-r.Context().Done()
			default:
				_, _ = fmt.Fprint(w, token)
			}
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	yaml := recipe(t, "cloud metadata with a token")
	expect(t, "a token", runRecipe(t, yaml, nil, "http://169.254.169.254", serve("AQAEAJ1_token-==")), "", "answered status 200")
	expect(t, "a hop limit of 1", runRecipe(t, yaml, nil, "http://169.254.169.254", serve("")), "Timeout", "took the request, but did not answer")
}

func testNodeLocalDNS(t *testing.T) {
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver 192.0.2.1\nsearch default.svc.cluster.local svc.cluster.local\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{worker.EnvResolvConf: resolv}
	yaml := recipe(t, "NodeLocal DNSCache")
	zone := map[string][]string{"kubernetes.default.svc.cluster.local.": {"A 10.96.0.1"}}
	at := func(server netip.AddrPort) string { return fmt.Sprintf(`"[%s]:%d"`, server.Addr(), server.Port()) }
	expect(t, "a cache", runRecipe(t, yaml, env, "169.254.20.10", at(dnstest.Start(t, dnstest.Behaviour{Zone: zone}))), "", "10.96.0.1 from 1 server")
	expect(t, "no cache yet", runRecipe(t, yaml, env, "169.254.20.10", `"[127.0.0.1]:1"`), "ConnectionRefused", "refused")
}

func testRegistry(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, []byte(authority.PEM()), 0o600); err != nil {
		t.Fatal(err)
	}
	serve := func(c tlstest.Certificate, status int) string {
		return tlstest.Serve(t, authority.Issue(t, c), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v2/" {
				status = http.StatusNotFound
			}
			w.WriteHeader(status)
		})).URL
	}
	yaml := recipe(t, "a registry")
	for what, c := range map[string]struct{ url, reason, says string }{
		"a login":                   {serve(tlstest.Certificate{NotAfter: time.Now().Add(48 * time.Hour)}, 401), "", "status 401"},
		"a certificate of an hour":  {serve(tlstest.Certificate{NotAfter: time.Now().Add(time.Hour)}, 200), "CertificateExpiring", "at least 24 hours"},
		"a captive portal's answer": {serve(tlstest.Certificate{NotAfter: time.Now().Add(48 * time.Hour)}, 511), "UnexpectedStatus", "511"},
	} {
		expect(t, what, runRecipe(t, yaml, nil, "https://registry.example.com", c.url, "/etc/registry/ca.crt", ca), c.reason, c.says)
	}
}

func testSecondFamily(t *testing.T) {
	both, four, port := sharedPort(t)
	defer func() { _, _ = both.Close(), four.Close() }()
	yaml := recipe(t, "the second family of a dual-stack cluster")
	run := func(records ...string) result.Report {
		server := dnstest.Start(t, dnstest.Behaviour{Zone: map[string][]string{"web.shop.svc.cluster.local.": records}})
		resolv := filepath.Join(t.TempDir(), "resolv.conf")
		if err := os.WriteFile(resolv, fmt.Appendf(nil, "nameserver [%s]:%d\noptions ndots:1\n", server.Addr(), server.Port()), 0o600); err != nil {
			t.Fatal(err)
		}
		return runRecipe(t, yaml, map[string]string{worker.EnvResolvConf: resolv}, "cluster.local:80", "cluster.local:"+port)
	}
	expect(t, "both families", run("A 127.0.0.1", "AAAA ::1"), "", "connects")
	expect(t, "one family", run("A 127.0.0.1"), "NoAddress", "IPv6")
	_ = both.Close()
	expect(t, "the second does not connect", run("A 127.0.0.1", "AAAA ::1"), "ConnectionRefused", "[::1]:"+port)
}

// sharedPort listens on one port of both loopback addresses.
func sharedPort(t *testing.T) (six, four net.Listener, port string) {
	t.Helper()
	var err error
	for range 10 { // the port may be taken on the other address
		if six, err = net.Listen("tcp", "[::1]:0"); err != nil {
			missing.Skip(t, fmt.Sprintf("IPv6 on the loopback interface: %v", err), "enable it")
		}
		port = strconv.Itoa(six.Addr().(*net.TCPAddr).Port)
		if four, err = net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			return six, four, port
		}
		_ = six.Close()
	}
	t.Fatal(err)
	return nil, nil, ""
}

func testKernel(t *testing.T) {
	modules, err := os.ReadDir("/sys/module")
	if err != nil || len(modules) == 0 {
		missing.Skip(t, "the kernel's modules in /sys/module", "run the test on a kernel that has modules")
	}
	checks, compared, _ := strings.Cut(recipe(t, "a kernel module and a sysctl"), "---\n")
	present := []string{"/sys/module/br_netfilter", "/sys/module/" + modules[0].Name(), "/proc/sys/net/netfilter/nf_conntrack_max", "/proc/sys/kernel/osrelease"}
	expect(t, "both are there", runRecipe(t, checks, nil, present...), "", "exists")
	present[1] = "/sys/module/no_such_module"
	expect(t, "no such module", runRecipe(t, checks, nil, present...), "NotFound", "/sys/module/no_such_module does not exist")

	c, err := config.Parse([]byte(compared), "recipe")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for least, reason := range map[string]string{"1": "", "999999999999": "CommandFailed"} {
		argv := c.Worker.InitContainers[0].Command
		script := strings.NewReplacer("/results/", dir+"/", "262144", least).Replace(argv[len(argv)-1])
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		out, err := exec.CommandContext(ctx, argv[0], append(argv[1:len(argv)-1:len(argv)-1], script)...).CombinedOutput()
		cancel()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		says := ""
		if reason != "" {
			says = "vm.max_map_count is "
		}
		expect(t, "at least "+least, runRecipe(t, compared, nil, "resultFile: /results/", "resultFile: "+dir+"/"), reason, says)
	}
}

// testGPU runs the init containers of recipes with a shell script in place of a tool, and then the checks.
func testGPU(t *testing.T) {
	port := func(state string) string { return "  Port 1:\n    State: " + state + "\n    Physical state: LinkUp" }
	dcgm := func(status string) string {
		return `{"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [{"name": "software",
			"results": [{"status": "Pass"}, {"status": "` + status + `"}], "test_summary": {"status": "` + status + `"}}]}]}}`
	}
	for _, c := range []struct {
		section, tool, output string
		code                  int
		outcome               result.Outcome
		says                  string
	}{
		{"NVIDIA Health Validation", "health-validation", `{"overall_severity": "PASS"}`, 0, result.Passed, "PASS"},
		{"NVIDIA Health Validation", "health-validation", `{"overall_severity": "WARNING"}`, 0, result.Passed, "WARNING"},
		{"NVIDIA Health Validation", "health-validation", `{"overall_severity": "CRITICAL"}`, 1, result.Failed, "CRITICAL"},
		{"NVIDIA Health Validation", "health-validation", `{"overall_severity": "UNKNOWN"}`, 1, result.Inconclusive, "UNKNOWN"},
		{"NVIDIA Health Validation", "health-validation", "", 2, result.Inconclusive, "is missing"},
		{"DCGM diagnostics", "dcgmi", dcgm("Pass"), 0, result.Passed, "status Pass"},
		{"DCGM diagnostics", "dcgmi", dcgm("Fail"), 226, result.Failed, "status Fail"},
		{"DCGM diagnostics", "dcgmi", dcgm("Skip"), 0, result.Inconclusive, "status Skip"},
		{"DCGM diagnostics", "dcgmi", "Error: unable to establish a connection", 255, result.Inconclusive, "is invalid"},
		{"NCCL and InfiniBand on one node", "all_reduce_perf", "# Avg bus bandwidth : 450 OK", 0, result.Passed, "450 OK"},
		{"NCCL and InfiniBand on one node", "all_reduce_perf", "# Avg bus bandwidth : 40 FAILED", 1, result.Failed, "40 FAILED"},
		{"NCCL and InfiniBand on one node", "ibstat", port("Active") + "\n" + port("Active"), 0, result.Passed, "2 of 2 ports are active"},
		{"NCCL and InfiniBand on one node", "ibstat", port("Active") + "\n" + port("Initializing"), 0, result.Failed, "1 of 2 ports"},
		{"NCCL and InfiniBand on one node", "ibstat", "", 0, result.Failed, "0 of 0 ports"},
		{"NCCL and InfiniBand on one node", "ibstat", "cannot open", 255, result.Inconclusive, "cannot open"},
	} {
		dir := t.TempDir()
		yaml := strings.ReplaceAll(recipe(t, c.section), "/results/", dir+"/")
		parsed, err := config.Parse([]byte(yaml), "recipe")
		if err != nil {
			t.Fatal(err)
		}
		tool := fmt.Sprintf("#!/bin/sh\ncat <<'EOF'\n%s\nEOF\nexit %d\n", c.output, c.code)
		if err := os.WriteFile(filepath.Join(dir, c.tool), []byte(tool), 0o700); err != nil {
			t.Fatal(err)
		}
		gpu := parsed.For(map[string]string{"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"})
		if plain := parsed.For(nil); len(plain.InitContainers) > 0 || len(gpu.InitContainers) == 0 || gpu.InitSeconds() <= gpu.StartTimeoutSeconds {
			t.Fatalf("%s: init containers %v and %v, for %d s", c.section, plain.InitContainers, gpu.InitContainers, gpu.InitSeconds())
		}
		for _, container := range gpu.InitContainers {
			if script := container.Command[len(container.Command)-1]; strings.Contains(script, c.tool+" ") {
				cmd := exec.CommandContext(t.Context(), container.Command[0], "-c", script)
				cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v: %s", c.tool, err, out)
				}
			}
		}
		only := map[string]string{"all_reduce_perf": "nccl", "ibstat": "infiniband", "dcgmi": "dcgm"}[c.tool]
		r := worker.Run(t.Context(), worker.Options{Config: worker.Config{Checks: gpu.Checks, CheckTimeoutSeconds: 10, TimeoutSeconds: gpu.TimeoutSeconds}, Getenv: func(string) string { return "" }, Only: strings.Fields(only)})
		if r.Outcome != c.outcome || !strings.Contains(fmt.Sprint(r.Checks), c.says) {
			t.Errorf("%s answers %q with %d: got %+v, want %s with %q", c.tool, c.output, c.code, r, c.outcome, c.says)
		}
	}
}
