package check_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/check"
)

func ptr[T any](v T) *T { return &v }

func spec(name string, t check.Type, dependsOn ...string) check.Spec {
	return check.Spec{Name: name, Type: t, DependsOn: dependsOn}
}

func with(s check.Spec, change func(*check.Spec)) check.Spec {
	change(&s)
	return s
}

func TestValidateAccepts(t *testing.T) {
	for _, s := range []check.Spec{
		spec("bare-dns", "dns"), spec("bare-api", "kubernetesAPI"), spec("bare-tcp", "tcp"), spec("bare-discovery", "serviceDiscovery"),
		spec("bare-mtu", "mtu"), spec("bare-clock", "clock"),
		{Name: "dns", Type: "dns", DNS: &check.DNS{Name: "_https._tcp.example.com.", RecordType: "SRV", Resolver: "[fd00::10]:5353",
			Protocols: []string{"udp", "tcp"}, MinAnswers: ptr(int32(0))}},
		{Name: "endpoints", Type: "dns", DNS: &check.DNS{Resolver: "endpoints", Service: "kube-system/rke2-coredns", ExpectCIDRs: []string{"10.0.0.0/8", "fd00::/8"}}},
		{Name: "nx", Type: "dns", DNS: &check.DNS{Name: "no.example", ExpectRcode: "NXDOMAIN"}},
		{Name: "api", Type: "kubernetesAPI", KubernetesAPI: &check.KubernetesAPI{Path: "/version", Via: []string{"dns"}}},
		{Name: "tcp", Type: "tcp", TCP: &check.TCP{Addresses: []string{"10.0.0.1:1", "[::1]:65535", "db.example:5432"}, Expect: "closed", IPFamilies: []check.IPFamily{"IPv6"}}},
		{Name: "http", Type: "http", HTTP: &check.HTTP{URL: "https://h:8443/x?y", Method: "HEAD", Headers: map[string]string{"X-A": "b c"}, ExpectStatus: []int32{200, 301}}},
		{Name: "sd", Type: "serviceDiscovery", ServiceDiscovery: &check.ServiceDiscovery{Namespace: "a", Service: "b", SRV: []string{"web"}, ClusterDomain: "corp.local"}},
		{Name: "peers", Type: "peers", Peers: &check.Peers{Selector: "app in (a, b),!x,tier!=c,slots>1", Port: 80}},
		{Name: "mtu", Type: "mtu", MTU: &check.MTU{Address: "10.0.0.1:80", PayloadBytes: 8948, Protocol: "echo"}},
		{Name: "file", Type: "file", File: &check.File{Path: "/dev/nvidia0", Kind: "device"}},
		{Name: "disk", Type: "disk", Disk: &check.Disk{Path: "/data/", MinFreePercent: 10}},
		{Name: "exec", Type: "exec", Exec: &check.Exec{Command: []string{"nvidia-smi", "-L"}}},
		{Name: "result", Type: "exec", Exec: &check.Exec{ResultFile: "/results/gpu"}},
	} {
		if faults := check.Validate([]check.Spec{s}, field.NewPath("checks")); len(faults) > 0 {
			t.Errorf("%s: %v", s.Name, faults)
		}
	}
}

func TestValidateRefuses(t *testing.T) {
	dns := func(d check.DNS) check.Spec { return check.Spec{Name: "a", Type: "dns", DNS: &d} }
	tcp := func(d check.TCP) check.Spec { return check.Spec{Name: "a", Type: "tcp", TCP: &d} }
	http := func(d check.HTTP) check.Spec { return check.Spec{Name: "a", Type: "http", HTTP: &d} }
	sd := func(d check.ServiceDiscovery) check.Spec {
		return check.Spec{Name: "a", Type: "serviceDiscovery", ServiceDiscovery: &d}
	}
	peers := func(d check.Peers) check.Spec { return check.Spec{Name: "a", Type: "peers", Peers: &d} }
	mtu := func(d check.MTU) check.Spec { return check.Spec{Name: "a", Type: "mtu", MTU: &d} }
	file := func(d check.File) check.Spec { return check.Spec{Name: "a", Type: "file", File: &d} }
	disk := func(d check.Disk) check.Spec { return check.Spec{Name: "a", Type: "disk", Disk: &d} }
	exec := func(d check.Exec) check.Spec { return check.Spec{Name: "a", Type: "exec", Exec: &d} }
	long := strings.Repeat("x", 64)
	const url = "https://h/"

	for _, c := range []struct {
		spec check.Spec
		path string // of the one fault
		says string
	}{
		{spec("", "dns"), "name", "unique"},
		{spec(long, "dns"), "name", "at most 63"},
		{spec("a b", "dns"), "name", "letters"},
		{spec("a", ""), "type", "one of dns, kubernetesAPI, tcp, http, serviceDiscovery, peers, mtu, clock, file, disk, exec"},
		{spec("a", "DNS"), "type", "supported values"},
		{with(spec("a", "dns"), func(s *check.Spec) { s.Severity = "error" }), "severity", `"required", "warning"`},
		{with(spec("a", "dns"), func(s *check.Spec) { s.TimeoutSeconds = -1 }), "timeoutSeconds", "between 0 and 3600"},
		{with(spec("a", "dns"), func(s *check.Spec) { s.Attempts = 101 }), "attempts", "between 0 and 100"},
		{with(spec("a", "dns"), func(s *check.Spec) { s.IntervalSeconds = -1 }), "intervalSeconds", "between"},
		{with(spec("a", "dns"), func(s *check.Spec) { s.TCP = &check.TCP{} }), "tcp", `this check's type is "dns"`},
		{spec("a", "dns", "b"), "dependsOn[0]", "no check of this name"},
		{spec("a", "dns", "a"), "dependsOn", "circle"},

		{dns(check.DNS{Name: "a..b"}), "dns.name", "empty label"},
		{dns(check.DNS{Name: "a." + long}), "dns.name", "63"},
		{dns(check.DNS{Name: strings.Repeat("abcdefg.", 40)}), "dns.name", "253"},
		{dns(check.DNS{Name: "a b"}), "dns.name", "letters"},
		{dns(check.DNS{Name: "."}), "dns.name", "empty"},
		{dns(check.DNS{RecordType: "a"}), "dns.recordType", `"AAAA"`},
		{dns(check.DNS{ExpectRcode: "OK"}), "dns.expectRcode", "NXDOMAIN"},
		{dns(check.DNS{Resolver: "dns.example"}), "dns.resolver", "IP address"},
		{dns(check.DNS{Resolver: "10.0.0.1:0"}), "dns.resolver", "IP address"},
		{dns(check.DNS{Service: "kube-system/kube-dns"}), "dns.service", "only used with"},
		{dns(check.DNS{Service: "kube-dns", Resolver: "service"}), "dns.service", "namespace/name"},
		{dns(check.DNS{Protocols: []string{"udp", "udp"}}), "dns.protocols[1]", "Duplicate"},
		{dns(check.DNS{Protocols: []string{"dot"}}), "dns.protocols[0]", "supported values"},
		{dns(check.DNS{ExpectCIDRs: []string{"10.0.0.1"}}), "dns.expectCIDRs[0]", "CIDR"},
		{dns(check.DNS{ExpectCIDRs: []string{"10.0.0.0/8"}, RecordType: "TXT"}), "dns.expectCIDRs", "recordType"},
		{dns(check.DNS{MinAnswers: ptr(int32(-1))}), "dns.minAnswers", "between"},
		{dns(check.DNS{MinAnswers: ptr(int32(1)), ExpectRcode: "NXDOMAIN"}), "dns.minAnswers", "no records"},

		{check.Spec{Name: "a", Type: "kubernetesAPI", KubernetesAPI: &check.KubernetesAPI{Path: "/api"}}, "kubernetesAPI.path", "/readyz"},
		{check.Spec{Name: "a", Type: "kubernetesAPI", KubernetesAPI: &check.KubernetesAPI{Via: []string{"proxy"}}}, "kubernetesAPI.via[0]", `"dns"`},

		{tcp(check.TCP{Addresses: []string{"10.0.0.1"}}), "tcp.addresses[0]", "host:port"},
		{tcp(check.TCP{Addresses: []string{"::1:80"}}), "tcp.addresses[0]", "brackets"},
		{tcp(check.TCP{Addresses: []string{"h:http"}}), "tcp.addresses[0]", "number"},
		{tcp(check.TCP{Addresses: []string{"h_/x:80"}}), "tcp.addresses[0]", "the host label"},
		{tcp(check.TCP{KubernetesService: ptr(false)}), "tcp.addresses", "nothing to connect to"},
		{tcp(check.TCP{Expect: "shut"}), "tcp.expect", `"closed"`},
		{tcp(check.TCP{IPFamilies: []check.IPFamily{"ipv4"}}), "tcp.ipFamilies[0]", `"IPv4"`},

		{spec("a", "http"), "http.url", "what to request"},
		{http(check.HTTP{URL: "ftp://h/"}), "http.url", "http or https"},
		{http(check.HTTP{URL: "https://"}), "http.url", "with a host"},
		{http(check.HTTP{URL: "https://u:secret@h/"}), "http.url", "user or password"},
		{http(check.HTTP{URL: url, Method: "get"}), "http.method", `"GET"`},
		{http(check.HTTP{URL: url, Headers: map[string]string{"a b": "c"}}), "http.headers[a b]", "name of a header"},
		{http(check.HTTP{URL: url, Headers: map[string]string{"A": "b\r\nC: d"}}), "http.headers[A]", "one line"},
		{http(check.HTTP{URL: url, ExpectStatus: []int32{200, 99}}), "http.expectStatus[1]", "between 100 and 599"},
		{http(check.HTTP{URL: url, ExpectBody: "("}), "http.expectBody", "regular expression"},
		{http(check.HTTP{URL: url, ExpectBody: "x", Method: "HEAD"}), "http.expectBody", "no body"},
		{http(check.HTTP{URL: url, MaxRedirects: 11}), "http.maxRedirects", "between"},
		{http(check.HTTP{URL: url, CA: "x"}), "http.ca", "PEM"},
		{http(check.HTTP{URL: url, CAFile: "ca.crt"}), "http.caFile", "absolute"},
		{http(check.HTTP{URL: url, ServerName: "a..b"}), "http.serverName", "empty label"},
		{http(check.HTTP{URL: url, MinCertificateValidityHours: -1}), "http.minCertificateValidityHours", "between"},
		{http(check.HTTP{URL: "http://h/", ServerName: "h"}), "http.serverName", "no meaning with an http URL"},

		{sd(check.ServiceDiscovery{Namespace: "A", Service: "b"}), "serviceDiscovery.namespace", "lower case"},
		{sd(check.ServiceDiscovery{Service: "b."}), "serviceDiscovery.service", "DNS-1035"},
		{sd(check.ServiceDiscovery{Namespace: "a"}), "serviceDiscovery.service", "name the Service in namespace a"},
		{sd(check.ServiceDiscovery{MinReadyEndpoints: ptr(int32(-1))}), "serviceDiscovery.minReadyEndpoints", "at least 0"},
		{sd(check.ServiceDiscovery{ClusterDomain: "."}), "serviceDiscovery.clusterDomain", "empty"},
		{sd(check.ServiceDiscovery{SRV: []string{"_web"}}), "serviceDiscovery.srv[0]", "port"},

		{spec("a", "peers"), "peers", "selector and a port"},
		{peers(check.Peers{Port: 80}), "peers.selector", "app=web"},
		{peers(check.Peers{Port: 80, Selector: "app=web,"}), "peers.selector", "expected: identifier after ','"},
		{peers(check.Peers{Port: 80, Selector: "app in (a"}), "peers.selector", "unable to parse requirement"},
		{peers(check.Peers{Port: 80, Selector: "app=a b"}), "peers.selector", "found 'b', expected"},
		{peers(check.Peers{Selector: "a=b"}), "peers.port", "TCP port"},
		{peers(check.Peers{Selector: "a=b", Port: 65536}), "peers.port", "65535"},
		{peers(check.Peers{Selector: "a=b", Port: 80, FailPercent: 101}), "peers.failPercent", "between 0 and 100"},
		{peers(check.Peers{Selector: "a=b", Port: 80, Sample: -1}), "peers.sample", "between"},
		{peers(check.Peers{Selector: "a=b", Port: 80, MinPeers: -1}), "peers.minPeers", "between"},
		{peers(check.Peers{Selector: "a=b", Port: 80, Namespace: "A"}), "peers.namespace", "lower case"},

		{mtu(check.MTU{Address: "h"}), "mtu.address", "host:port"},
		{mtu(check.MTU{Protocol: "raw"}), "mtu.protocol", "give an address"},
		{mtu(check.MTU{Protocol: "quic", Address: "h:1"}), "mtu.protocol", "echo"},
		{mtu(check.MTU{PayloadBytes: 100}), "mtu.payloadBytes", "between 600"},
		{mtu(check.MTU{PayloadBytes: 20_000, Address: "h:1"}), "mtu.payloadBytes", "16000"},

		{check.Spec{Name: "a", Type: "clock", Clock: &check.Clock{MaxSkewSeconds: -1}}, "clock.maxSkewSeconds", "between"},
		{spec("a", "file"), "file.path", "path"},
		{file(check.File{Path: "etc"}), "file.path", "absolute"},
		{file(check.File{Path: "/a/../b"}), "file.path", "/b"},
		{file(check.File{Path: "/a\x00"}), "file.path", "zero byte"},
		{file(check.File{Path: "/a", Kind: "pipe"}), "file.kind", "socket"},
		{file(check.File{Path: "/a", Kind: "socket", Writable: true}), "file.writable", "files and directories"},
		{spec("a", "disk"), "disk.path", "directory"},
		{disk(check.Disk{Path: "/"}), "disk", "nothing would be checked"},
		{disk(check.Disk{Path: "/", MinFreePercent: 101}), "disk.minFreePercent", "between"},
		{disk(check.Disk{Path: "/", MinFreeBytes: -1}), "disk.minFreeBytes", "at least 0"},
		{disk(check.Disk{Path: "/", MinFreeInodesPercent: -1}), "disk.minFreeInodesPercent", "between"},
		{disk(check.Disk{Path: "/", MaxWriteLatencyMs: -1}), "disk.maxWriteLatencyMs", "between"},
		{spec("a", "exec"), "exec.command", "resultFile"},
		{exec(check.Exec{Command: []string{""}}), "exec.command[0]", "program"},
		{exec(check.Exec{Command: []string{"a", "b\x00"}}), "exec.command[1]", "zero byte"},
		{exec(check.Exec{Command: []string{"a"}, ResultFile: "/r"}), "exec.resultFile", "either"},
		{exec(check.Exec{ResultFile: "r"}), "exec.resultFile", "absolute"},
		{exec(check.Exec{Command: []string{"a"}, MaxOutputBytes: 5000}), "exec.maxOutputBytes", "between"},
	} {
		faults := check.Validate([]check.Spec{c.spec}, field.NewPath("checks"))
		if len(faults) != 1 || faults[0].Field != "checks[0]."+c.path || !strings.Contains(faults[0].Error(), c.says) {
			t.Errorf("%s: got %v, want one fault that says %q", c.path, faults, c.says)
		}
	}
}

func TestValidateLists(t *testing.T) {
	required, warning := spec("needs", "dns", "w"), spec("w", "dns")
	warning.Severity = check.Advisory
	many := make([]check.Spec, 65)
	for i := range many {
		many[i] = spec("c"+strings.Repeat("x", i%60)+string(rune('a'+i/60)), "dns")
	}
	for _, c := range []struct {
		name  string
		specs []check.Spec
		want  []string
	}{
		{"twice", []check.Spec{spec("a", "dns"), spec("a", "tcp")}, []string{`checks[1].name: Duplicate value: "a"`}},
		{"circle", []check.Spec{spec("a", "dns", "b"), spec("b", "dns", "c"), spec("c", "dns", "b")}, []string{"checks[1].dependsOn", "b -> c -> b"}},
		{"two circles", []check.Spec{spec("a", "dns", "a"), spec("b", "dns", "b")}, []string{"checks[0].dependsOn", "checks[1].dependsOn"}},
		{"a diamond is no circle", []check.Spec{spec("a", "dns", "b", "c"), spec("b", "dns", "d"), spec("c", "dns", "d"), spec("d", "dns")}, nil},
		{"dependency twice", []check.Spec{spec("a", "dns", "b", "b"), spec("b", "dns")}, []string{"checks[0].dependsOn[1]: Duplicate"}},
		{"required on warning", []check.Spec{required, warning}, []string{"checks[0].dependsOn[0]", "required checks only"}},
		{"too many", many, []string{"must have at most 64 items"}},
		{"every fault at once", []check.Spec{spec("", "x", "y"), {Name: "b", Type: "tcp", Attempts: -1}},
			[]string{"checks[0].name", "checks[0].type", "checks[0].dependsOn[0]", "checks[1].attempts"}},
	} {
		faults := check.Validate(c.specs, field.NewPath("checks"))
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
	s := check.Spec{Name: "a", Type: "http", HTTP: &check.HTTP{URL: "https://u:hunter2@h:0/?k=hunter2", Headers: map[string]string{"Authorization": "hunter2\n"}, CA: "hunter2"}}
	faults := check.Validate([]check.Spec{s}, field.NewPath("checks"))
	if len(faults) < 3 || strings.Contains(faults.ToAggregate().Error(), "hunter2") {
		t.Errorf("got %v", faults)
	}
}
