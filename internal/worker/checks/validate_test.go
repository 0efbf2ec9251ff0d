package checks_test

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/limits"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/clock"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/disk"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/exec"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/file"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/http"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/kubernetesapi"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/mtu"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/peers"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/servicediscovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/tcp"
)

func spec(name string, t checks.Type, dependsOn ...string) checks.Spec {
	return checks.Spec{Name: name, Type: t, DependsOn: dependsOn}
}

func with(s checks.Spec, change func(*checks.Spec)) checks.Spec {
	change(&s)
	return s
}

// of is a check with the settings in the table, of their type.
func of(table checks.Table) checks.Spec {
	for i, v := 0, reflect.ValueOf(table); ; i++ {
		if !v.Field(i).IsNil() {
			return checks.Spec{Name: "a", Type: checks.Type(checks.Type("").Values()[i]), Table: table}
		}
	}
}

func TestValidateAccepts(t *testing.T) {
	for _, s := range []checks.Spec{
		spec("bare-dns", "dns"), spec("bare-api", "kubernetesAPI"), spec("bare-tcp", "tcp"), spec("bare-discovery", "serviceDiscovery"),
		spec("bare-mtu", "mtu"), spec("bare-clock", "clock"),
		{Name: "dns", Type: "dns", Table: checks.Table{DNS: &dns.Settings{Name: "_https._tcp.example.com.", RecordType: "SRV", Resolver: "[fd00::10]:5353",
			Protocols: []string{"udp", "tcp"}, MinAnswers: new(int32(0))}}},
		{Name: "endpoints", Type: "dns", Table: checks.Table{DNS: &dns.Settings{Resolver: "endpoints", Service: "kube-system/rke2-coredns", ExpectCIDRs: []string{"10.0.0.0/8", "fd00::/8"}}}},
		{Name: "nx", Type: "dns", Table: checks.Table{DNS: &dns.Settings{Name: "no.example", ExpectRcode: "NXDOMAIN"}}},
		{Name: "api", Type: "kubernetesAPI", Table: checks.Table{KubernetesAPI: &kubernetesapi.Settings{Path: "/version", Via: []string{"dns"}}}},
		{Name: "tcp", Type: "tcp", Table: checks.Table{TCP: &tcp.Settings{Addresses: []string{"10.0.0.1:1", "[::1]:65535", "db.example:5432"}, Expect: "closed", IPFamilies: []string{"IPv6"}}}},
		{Name: "http", Type: "http", Table: checks.Table{HTTP: &http.Settings{URL: "https://h:8443/x?y", Proxy: "http://proxy.example:3128", Method: "HEAD", Headers: map[string]string{"X-A": "b c"}, ExpectStatus: []int32{200, 301}}}},
		{Name: "sd", Type: "serviceDiscovery", Table: checks.Table{ServiceDiscovery: &servicediscovery.Settings{Namespace: "a", Service: "b", SRV: []string{"web"}, ClusterDomain: "corp.local"}}},
		{Name: "peers-service", Type: "peers", Table: checks.Table{Peers: &peers.Settings{Namespace: "kube-system", Service: "kube-dns", Port: 53}}},
		{Name: "peers", Type: "peers", Table: checks.Table{Peers: &peers.Settings{Selector: "app in (a, b),!x,tier!=c,slots>1", Port: 80}}},
		{Name: "mtu", Type: "mtu", Table: checks.Table{MTU: &mtu.Settings{Address: "10.0.0.1:80", PayloadBytes: new(int32(8948)), Protocol: "echo"}}},
		{Name: "file", Type: "file", Table: checks.Table{File: &file.Settings{Path: "/dev/nvidia0", Kind: "device"}}},
		{Name: "disk", Type: "disk", Table: checks.Table{Disk: &disk.Settings{Path: "/data/", MinFreePercent: 10}}},
		{Name: "exec", Type: "exec", Table: checks.Table{Exec: &exec.Settings{Command: []string{"nvidia-smi", "-L"}}}},
		{Name: "result", Type: "exec", Table: checks.Table{Exec: &exec.Settings{ResultFile: "/results/gpu"}}},
		{Name: "verdict", Type: "exec", Table: checks.Table{Exec: &exec.Settings{ResultFile: "/results/gpu", Verdict: exec.VerdictJSON,
			SeverityField: "a.b", Severities: map[string]string{"OK": exec.OutcomePassed, "BAD": exec.OutcomeFailed}}}},
	} {
		if faults := validate(s); len(faults) > 0 {
			t.Errorf("%s: %v", s.Name, faults)
		}
	}
}

// validate reports everything that is wrong with a list of checks.
func validate(specs ...checks.Spec) field.ErrorList {
	p := field.NewPath("checks")
	return append(limits.Validate(p, specs), checks.Validate(specs, p)...)
}

func TestValidateRefuses(t *testing.T) {
	long := strings.Repeat("x", 64)
	const url = "https://h/"

	ok := map[string]string{"OK": exec.OutcomePassed}
	for _, c := range []struct {
		spec checks.Spec
		path string // of the one fault
		says string
	}{
		{spec("", "dns"), "name", "unique"},
		{spec(long, "dns"), "name", "at most 63"},
		{spec("a b", "dns"), "name", "letters"},
		{spec("a", ""), "type", "one of dns, kubernetesAPI, tcp, http, serviceDiscovery, peers, mtu, clock, file, disk, exec"},
		{spec("a", "DNS"), "type", "supported values"},
		{with(spec("a", "dns"), func(s *checks.Spec) { s.Severity = "error" }), "severity", `"required", "warning"`},
		{with(spec("a", "dns"), func(s *checks.Spec) { s.TimeoutSeconds = new(int32(-1)) }), "timeoutSeconds", "between 1 and 3600; remove it to use the default"},
		{with(spec("a", "dns"), func(s *checks.Spec) { s.Attempts = new(int32(101)) }), "attempts", "between 1 and 100"},
		{with(spec("a", "dns"), func(s *checks.Spec) { s.IntervalSeconds = new(int32(-1)) }), "intervalSeconds", "between"},
		{with(spec("a", "dns"), func(s *checks.Spec) { s.TCP = &tcp.Settings{} }), "tcp", `this check's type is "dns"`},
		{spec("a", "dns", "b"), "dependsOn[0]", "no check of this name"},
		{spec("a", "dns", "a"), "dependsOn", "circle"},

		{of(checks.Table{DNS: &dns.Settings{Name: "a..b"}}), "dns.name", "empty label"},
		{of(checks.Table{DNS: &dns.Settings{Name: "a." + long}}), "dns.name", "63"},
		{of(checks.Table{DNS: &dns.Settings{Name: strings.Repeat("abcdefg.", 40)}}), "dns.name", "253"},
		{of(checks.Table{DNS: &dns.Settings{Name: "a b"}}), "dns.name", "letters"},
		{of(checks.Table{DNS: &dns.Settings{Name: "."}}), "dns.name", "empty"},
		{of(checks.Table{DNS: &dns.Settings{RecordType: "a"}}), "dns.recordType", `"AAAA"`},
		{of(checks.Table{DNS: &dns.Settings{ExpectRcode: "OK"}}), "dns.expectRcode", "NXDOMAIN"},
		{of(checks.Table{DNS: &dns.Settings{Resolver: "dns.example"}}), "dns.resolver", "IP address"},
		{of(checks.Table{DNS: &dns.Settings{Resolver: "10.0.0.1:0"}}), "dns.resolver", "IP address"},
		{of(checks.Table{DNS: &dns.Settings{Service: "kube-system/kube-dns"}}), "dns.service", "only used with"},
		{of(checks.Table{DNS: &dns.Settings{Service: "kube-dns", Resolver: "service"}}), "dns.service", "namespace/name"},
		{of(checks.Table{DNS: &dns.Settings{Protocols: []string{"udp", "udp"}}}), "dns.protocols[1]", "Duplicate"},
		{of(checks.Table{DNS: &dns.Settings{Protocols: []string{"dot"}}}), "dns.protocols[0]", "supported values"},
		{of(checks.Table{DNS: &dns.Settings{ExpectCIDRs: []string{"10.0.0.1"}}}), "dns.expectCIDRs[0]", "CIDR"},
		{of(checks.Table{DNS: &dns.Settings{ExpectCIDRs: []string{"10.0.0.0/8"}, RecordType: "TXT"}}), "dns.expectCIDRs", "recordType"},
		{of(checks.Table{DNS: &dns.Settings{MinAnswers: new(int32(-1))}}), "dns.minAnswers", "between"},
		{of(checks.Table{DNS: &dns.Settings{MinAnswers: new(int32(1)), ExpectRcode: "NXDOMAIN"}}), "dns.minAnswers", "no records"},

		{of(checks.Table{KubernetesAPI: &kubernetesapi.Settings{Path: "/api"}}), "kubernetesAPI.path", "/readyz"},
		{of(checks.Table{KubernetesAPI: &kubernetesapi.Settings{Via: []string{"proxy"}}}), "kubernetesAPI.via[0]", `"dns"`},

		{of(checks.Table{TCP: &tcp.Settings{Addresses: []string{"10.0.0.1"}}}), "tcp.addresses[0]", "host:port"},
		{of(checks.Table{TCP: &tcp.Settings{Addresses: []string{"::1:80"}}}), "tcp.addresses[0]", "brackets"},
		{of(checks.Table{TCP: &tcp.Settings{Addresses: []string{"h:http"}}}), "tcp.addresses[0]", "number"},
		{of(checks.Table{TCP: &tcp.Settings{Addresses: []string{"h_/x:80"}}}), "tcp.addresses[0]", "the host label"},
		{of(checks.Table{TCP: &tcp.Settings{KubernetesService: new(false)}}), "tcp.addresses", "nothing to connect to"},
		{of(checks.Table{TCP: &tcp.Settings{Expect: "shut"}}), "tcp.expect", `"closed"`},
		{of(checks.Table{TCP: &tcp.Settings{IPFamilies: []string{"ipv4"}}}), "tcp.ipFamilies[0]", `"IPv4"`},

		{spec("a", "http"), "http.url", "what to request"},
		{of(checks.Table{HTTP: &http.Settings{URL: "ftp://h/"}}), "http.url", "http or https"},
		{of(checks.Table{HTTP: &http.Settings{URL: "https://"}}), "http.url", "with a host"},
		{of(checks.Table{HTTP: &http.Settings{URL: "https://u:secret@h/"}}), "http.url", "user or password"},
		{of(checks.Table{HTTP: &http.Settings{URL: url, Proxy: "proxy:3128"}}), "http.proxy", "http://host:port"},
		{of(checks.Table{HTTP: &http.Settings{URL: url, Proxy: "https://proxy:3128"}}), "http.proxy", "http://host:port"},
		{of(checks.Table{HTTP: &http.Settings{URL: url, Proxy: "http://u:secret@proxy:3128"}}), "http.proxy", "without a user"},
		{of(checks.Table{HTTP: &http.Settings{URL: url, Method: "get"}}), "http.method", `"GET"`},
		{of(checks.Table{HTTP: &http.Settings{URL: url, Headers: map[string]string{"a b": "c"}}}), "http.headers[a b]", "name of a header"},
		{of(checks.Table{HTTP: &http.Settings{URL: url, Headers: map[string]string{"A": "b\r\nC: d"}}}), "http.headers[A]", "one line"},
		{of(checks.Table{HTTP: &http.Settings{URL: url, ExpectStatus: []int32{200, 99}}}), "http.expectStatus[1]", "between 100 and 599"},
		{of(checks.Table{HTTP: &http.Settings{URL: url, ExpectBody: "("}}), "http.expectBody", "regular expression"},
		{of(checks.Table{HTTP: &http.Settings{URL: url, ExpectBody: "x", Method: "HEAD"}}), "http.expectBody", "no body"},
		{of(checks.Table{HTTP: &http.Settings{URL: url, MaxRedirects: 11}}), "http.maxRedirects", "between"},
		{of(checks.Table{HTTP: &http.Settings{URL: url, CA: "x"}}), "http.ca", "PEM"},
		{of(checks.Table{HTTP: &http.Settings{URL: url, CAFile: "ca.crt"}}), "http.caFile", "absolute"},
		{of(checks.Table{HTTP: &http.Settings{URL: url, ServerName: "a..b"}}), "http.serverName", "empty label"},
		{of(checks.Table{HTTP: &http.Settings{URL: url, MinCertificateValidityHours: -1}}), "http.minCertificateValidityHours", "between"},
		{of(checks.Table{HTTP: &http.Settings{URL: "http://h/", ServerName: "h"}}), "http.serverName", "no meaning with an http URL"},

		{of(checks.Table{ServiceDiscovery: &servicediscovery.Settings{Namespace: "A", Service: "b"}}), "serviceDiscovery.namespace", "lower case"},
		{of(checks.Table{ServiceDiscovery: &servicediscovery.Settings{Service: "b."}}), "serviceDiscovery.service", "DNS-1035"},
		{of(checks.Table{ServiceDiscovery: &servicediscovery.Settings{Namespace: "a"}}), "serviceDiscovery.service", "name the Service in namespace a"},
		{of(checks.Table{ServiceDiscovery: &servicediscovery.Settings{MinReadyEndpoints: new(int32(-1))}}), "serviceDiscovery.minReadyEndpoints", "at least 0"},
		{of(checks.Table{ServiceDiscovery: &servicediscovery.Settings{ClusterDomain: "."}}), "serviceDiscovery.clusterDomain", "empty"},
		{of(checks.Table{ServiceDiscovery: &servicediscovery.Settings{SRV: []string{"_web"}}}), "serviceDiscovery.srv[0]", "port"},

		{of(checks.Table{Peers: &peers.Settings{Port: 80}}), "peers.service", "app=web"},
		{of(checks.Table{Peers: &peers.Settings{Port: 80, Selector: "app=web,"}}), "peers.selector", "expected: identifier after ','"},
		{of(checks.Table{Peers: &peers.Settings{Port: 80, Selector: "app in (a"}}), "peers.selector", "unable to parse requirement"},
		{of(checks.Table{Peers: &peers.Settings{Port: 80, Selector: "app=a b"}}), "peers.selector", "found 'b', expected"},
		{of(checks.Table{Peers: &peers.Settings{Service: "kube-system/kube-dns", Port: 80}}), "peers.service", "DNS-1035"},
		{of(checks.Table{Peers: &peers.Settings{Selector: "a=b"}}), "peers.port", "TCP port"},
		{of(checks.Table{Peers: &peers.Settings{Selector: "a=b", Port: 65536}}), "peers.port", "65535"},
		{of(checks.Table{Peers: &peers.Settings{Selector: "a=b", Port: 80, FailPercent: new(int32(101))}}), "peers.failPercent", "between 1 and 100"},
		{of(checks.Table{Peers: &peers.Settings{Selector: "a=b", Port: 80, Sample: new(int32(-1))}}), "peers.sample", "between"},
		{of(checks.Table{Peers: &peers.Settings{Selector: "a=b", Port: 80, MinPeers: -1}}), "peers.minPeers", "between"},
		{of(checks.Table{Peers: &peers.Settings{Selector: "a=b", Port: 80, Namespace: "A"}}), "peers.namespace", "lower case"},

		{of(checks.Table{MTU: &mtu.Settings{Address: "h"}}), "mtu.address", "host:port"},
		{of(checks.Table{MTU: &mtu.Settings{Protocol: "raw"}}), "mtu.protocol", "set an address"},
		{of(checks.Table{MTU: &mtu.Settings{Protocol: "quic", Address: "h:1"}}), "mtu.protocol", "echo"},
		{of(checks.Table{MTU: &mtu.Settings{PayloadBytes: new(int32(100))}}), "mtu.payloadBytes", "at least 600"},
		{of(checks.Table{MTU: &mtu.Settings{PayloadBytes: new(int32(20_000)), Address: "h:1"}}), "mtu.payloadBytes", "16000"},

		{of(checks.Table{Clock: &clock.Settings{MaxSkewSeconds: new(int32(-1))}}), "clock.maxSkewSeconds", "between"},
		{spec("a", "file"), "file.path", "path"},
		{of(checks.Table{File: &file.Settings{Path: "etc"}}), "file.path", "absolute"},
		{of(checks.Table{File: &file.Settings{Path: "/a/../b"}}), "file.path", "/b"},
		{of(checks.Table{File: &file.Settings{Path: "/a\x00"}}), "file.path", "zero byte"},
		{of(checks.Table{File: &file.Settings{Path: "/a", Kind: "pipe"}}), "file.kind", "socket"},
		{of(checks.Table{File: &file.Settings{Path: "/a", Kind: "socket", Writable: true}}), "file.writable", "files and directories"},
		{spec("a", "disk"), "disk.path", "directory"},
		{of(checks.Table{Disk: &disk.Settings{Path: "/"}}), "disk", "nothing would be checked"},
		{of(checks.Table{Disk: &disk.Settings{Path: "/", MinFreePercent: 101}}), "disk.minFreePercent", "between"},
		{of(checks.Table{Disk: &disk.Settings{Path: "/", MinFreeBytes: -1}}), "disk.minFreeBytes", "at least 0"},
		{of(checks.Table{Disk: &disk.Settings{Path: "/", MinFreeInodesPercent: -1}}), "disk.minFreeInodesPercent", "between"},
		{of(checks.Table{Disk: &disk.Settings{Path: "/", MaxWriteLatencyMs: -1}}), "disk.maxWriteLatencyMs", "between"},
		{spec("a", "exec"), "exec.command", "resultFile"},
		{of(checks.Table{Exec: &exec.Settings{Command: []string{""}}}), "exec.command[0]", "program"},
		{of(checks.Table{Exec: &exec.Settings{Command: []string{"a", "b\x00"}}}), "exec.command[1]", "zero byte"},
		{of(checks.Table{Exec: &exec.Settings{Command: []string{"a"}, ResultFile: "/r"}}), "exec.resultFile", "either"},
		{of(checks.Table{Exec: &exec.Settings{ResultFile: "r"}}), "exec.resultFile", "absolute"},
		{of(checks.Table{Exec: &exec.Settings{ResultFile: "/r", Verdict: "yaml"}}), "exec.verdict", "exitCode"},
		{of(checks.Table{Exec: &exec.Settings{ResultFile: "/r", SeverityField: "a"}}), "exec.severityField", "only used with verdict: json"},
		{of(checks.Table{Exec: &exec.Settings{ResultFile: "/r", Severities: ok}}), "exec.severities", "only used with verdict: json"},
		{of(checks.Table{Exec: &exec.Settings{ResultFile: "/r", Verdict: "json", Severities: ok}}), "exec.severityField", "as in overall_severity"},
		{of(checks.Table{Exec: &exec.Settings{ResultFile: "/r", Verdict: "json", SeverityField: "a..b", Severities: ok}}), "exec.severityField", "single dots"},
		{of(checks.Table{Exec: &exec.Settings{ResultFile: "/r", Verdict: "json", SeverityField: "a"}}), "exec.severities", "no node can pass"},
		{of(checks.Table{Exec: &exec.Settings{ResultFile: "/r", Verdict: "json", SeverityField: "a",
			Severities: map[string]string{"OK": "passed", "BAD": "fail"}}}), "exec.severities[BAD]", `"passed", "warning", "inconclusive", "failed"`},
		{of(checks.Table{Exec: &exec.Settings{Command: []string{"a"}, MaxOutputBytes: new(int32(5000))}}), "exec.maxOutputBytes", "between"},
	} {
		faults := validate(c.spec)
		if len(faults) != 1 || faults[0].Field != "checks[0]."+c.path || !strings.Contains(faults[0].Error(), c.says) {
			t.Errorf("%s: got %v, want one fault that says %q", c.path, faults, c.says)
		}
	}
}

func TestValidateLists(t *testing.T) {
	required, warning := spec("needs", "dns", "w"), spec("w", "dns")
	warning.Severity = checks.Advisory
	many := make([]checks.Spec, 65)
	for i := range many {
		many[i] = spec("c"+strings.Repeat("x", i%60)+string(rune('a'+i/60)), "dns")
	}
	for _, c := range []struct {
		name  string
		specs []checks.Spec
		want  []string
	}{
		{"twice", []checks.Spec{spec("a", "dns"), spec("a", "tcp")}, []string{`checks[1].name: Duplicate value: "a"`}},
		{"circle", []checks.Spec{spec("a", "dns", "b"), spec("b", "dns", "c"), spec("c", "dns", "b")}, []string{"checks[1].dependsOn", "b -> c -> b"}},
		{"two circles", []checks.Spec{spec("a", "dns", "a"), spec("b", "dns", "b")}, []string{"checks[0].dependsOn", "checks[1].dependsOn"}},
		{"a diamond is no circle", []checks.Spec{spec("a", "dns", "b", "c"), spec("b", "dns", "d"), spec("c", "dns", "d"), spec("d", "dns")}, nil},
		{"dependency twice", []checks.Spec{spec("a", "dns", "b", "b"), spec("b", "dns")}, []string{"checks[0].dependsOn[1]: Duplicate"}},
		{"required on warning", []checks.Spec{required, warning}, []string{"checks[0].dependsOn[0]", "required checks only"}},
		{"too many", many, []string{"must have at most 64 items"}},
		{"no settings where some are needed", []checks.Spec{spec("a", "peers")}, []string{"checks[0].peers.port: Required", "checks[0].peers.service: Required"}},
		{"every fault at once", []checks.Spec{spec("", "x", "y"), {Name: "b", Type: "tcp", Attempts: new(int32(-1))}},
			[]string{"checks[0].name", "checks[0].type", "checks[0].dependsOn[0]", "checks[1].attempts"}},
	} {
		faults := validate(c.specs...)
		if (len(faults) == 0) != (len(c.want) == 0) {
			t.Errorf("%s: got %v", c.name, faults)
		}
		for _, w := range c.want {
			if !strings.Contains(faults.ToAggregate().Error(), w) {
				t.Errorf("%s: %v does not say %q", c.name, faults, w)
			}
		}
	}
}

func TestFaultsHideSecrets(t *testing.T) {
	s := checks.Spec{Name: "a", Type: "http", Table: checks.Table{HTTP: &http.Settings{URL: "https://u:hunter2@h:0/?k=hunter2", Headers: map[string]string{"Authorization": "hunter2\n"}, CA: "hunter2"}}}
	faults := validate(s)
	if len(faults) < 3 || strings.Contains(faults.ToAggregate().Error(), "hunter2") {
		t.Errorf("got %v", faults)
	}
}
