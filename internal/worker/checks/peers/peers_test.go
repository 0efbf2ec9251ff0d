package peers_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/peers"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/test/servers/apitest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

func pod(name, node string, ready bool) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"uid":%q,"labels":{"topology.kubernetes.io/zone":"z"}},"spec":{"nodeName":%q},
		"status":{"podIP":"127.0.0.1","conditions":[{"type":"Ready","status":"%s"}]}}`, name, name, node, map[bool]string{true: "True", false: "False"}[ready])
}

func endpoint(name, node, ip string, ready bool) string {
	return fmt.Sprintf(`{"addresses":[%q],"conditions":{"ready":%t},"nodeName":%q,"zone":"zone-of-%s","targetRef":{"kind":"Pod","name":%q,"uid":%q}}`,
		ip, ready, node, node, name, name)
}

func slice(family string, endpoints ...string) string {
	return fmt.Sprintf(`{"addressType":%q,"endpoints":[%s]}`, family, strings.Join(endpoints, ","))
}

// lists is an API server with pods and EndpointSlices, which keeps what it is asked for.
type lists struct {
	pods, slices []string
	delay        time.Duration
	// endless says with each page that there is another.
	endless bool

	mu    sync.Mutex
	asked []*url.URL
}

func (l *lists) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	l.asked = append(l.asked, r.URL)
	l.mu.Unlock()
	time.Sleep(l.delay)
	switch {
	case strings.HasSuffix(r.URL.Path, "/pods"):
		next := ""
		if l.endless {
			next = "next"
		}
		_, _ = fmt.Fprintf(w, `{"metadata":{"continue":%q},"items":[%s]}`, next, strings.Join(l.pods, ","))
	case strings.HasSuffix(r.URL.Path, "/endpointslices"):
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		to, next := min(from+limit, len(l.slices)), ""
		if to < len(l.slices) {
			next = strconv.Itoa(to)
		}
		_, _ = fmt.Fprintf(w, `{"metadata":{"continue":%q},"items":[%s]}`, next, strings.Join(l.slices[from:to], ","))
	default:
		w.WriteHeader(http.StatusForbidden)
	}
}

func run(t *testing.T, l *lists, settings peers.Settings, pod environment.Pod, timeout time.Duration) check.Finding {
	t.Helper()
	authority := tlstest.NewAuthority(t)
	pod.API = apitest.Client(t, authority, authority.Issue(t, tlstest.Certificate{}), l)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return settings.New(pod)(ctx)
}

func TestWithoutPeers(t *testing.T) {
	for _, c := range []struct {
		name, node string
		lists      *lists
		settings   peers.Settings
		outcome    check.Outcome
		reason     check.Reason
		says       string
	}{
		{"the first node of a cluster", "me", &lists{pods: []string{pod("a", "me", true)}}, peers.Settings{}, check.Passed, check.NoReason, "so there was none to connect to"},
		{"a selector that matches nothing", "me", &lists{}, peers.Settings{}, check.Warned, check.ReasonTooFewPeers,
			"found no running pod (selector app=web in namespace default)"},
		{"peers that are not ready", "me", &lists{pods: []string{pod("a", "me", true), pod("b", "other", false)}}, peers.Settings{}, check.Warned,
			check.ReasonTooFewPeers, "none of the 2 pods (selector app=web in namespace default) is ready on another node"},
		{"fewer than there must be", "me", &lists{pods: []string{pod("b", "other", true)}}, peers.Settings{MinPeers: 2}, check.Inconclusive,
			check.ReasonTooFewPeers, "found 1 ready pod on other nodes (selector app=web in namespace default), expected at least 2"},
		{"none of a Service", "me", &lists{slices: []string{slice("IPv4")}}, peers.Settings{Service: "web", MinPeers: 1}, check.Inconclusive,
			check.ReasonTooFewPeers, "found 0 ready pods on other nodes (Service default/web), expected at least 1"},
		{"a Service whose pods are not ready", "me", &lists{slices: []string{slice("IPv4", endpoint("a", "other", "127.0.0.1", false))}}, peers.Settings{Service: "web"},
			check.Warned, check.ReasonTooFewPeers, "none of the 1 pod (Service default/web) is ready"},
		{"the first node of a cluster with a Service", "me", &lists{slices: []string{slice("IPv4", endpoint("a", "me", "127.0.0.1", true))}}, peers.Settings{Service: "web"},
			check.Passed, check.NoReason, "(Service default/web), so there was none"},
		{"a node that does not know its name", "", &lists{}, peers.Settings{}, check.Failed, check.ReasonConfiguration, "NODE_NAME is not set"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.settings.Port = 1
			if c.settings.Service == "" {
				c.settings.Selector = "app=web"
			}
			f := run(t, c.lists, c.settings, environment.Pod{Node: c.node}, 20*time.Second)
			if f.Outcome != c.outcome || f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
				t.Errorf("got %+v", f)
			}
		})
	}
	f := run(t, &lists{}, peers.Settings{Service: "web", Port: 1}, environment.Pod{Node: "me"}, 20*time.Second)
	if f.Outcome != check.Inconclusive || f.Reason != check.ReasonServiceNotFound {
		t.Errorf("a Service that does not exist, and no selector: got %+v", f)
	}
}

// A Service's EndpointSlices hold each pod's node and zone, so nothing else is read; a cluster without that Service has
// pods with the labels.
func TestWhatIsRead(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	port := int32(listener.Addr().(*net.TCPAddr).Port)
	pods := []string{pod("a", "one", true), pod("b", "two", true), pod("c", "me", true)}
	v4 := slice("IPv4", endpoint("a", "one", "127.0.0.1", true), endpoint("b", "two", "127.0.0.1", true), endpoint("c", "me", "127.0.0.9", true))
	v6 := slice("IPv6", endpoint("a", "one", "::2", true), endpoint("b", "two", "::2", true))
	var many []string
	for i := range 100 {
		many = append(many, endpoint(fmt.Sprint(i), fmt.Sprint("other-", i), "::2", true))
	}
	unreachable := slice("IPv6", many...)
	for name, c := range map[string]struct {
		lists    *lists
		settings peers.Settings
		host     string
		says     string
		asked    string
	}{
		"a Service":                 {&lists{slices: []string{v4}, pods: pods}, peers.Settings{Service: "web", Selector: "app=web"}, "10.0.0.1", "2 of 2 peers in 2 zones connect", "endpointslices"},
		"a Service of two families": {&lists{slices: []string{v6, v4}}, peers.Settings{Service: "web"}, "10.0.0.1", "2 of 2 peers in 2 zones connect", "endpointslices"},
		"two families in several pages": {&lists{slices: []string{unreachable, unreachable, v4}}, peers.Settings{Service: "web"}, "10.0.0.1",
			"2 of 2 peers in 2 zones connect", "endpointslices endpointslices"},
		"a Service of the other family alone": {&lists{slices: []string{v4}}, peers.Settings{Service: "web"}, "fd00::1", "2 of 2 peers in 2 zones connect", "endpointslices"},
		"no such Service":                     {&lists{pods: pods}, peers.Settings{Service: "web", Selector: "app=web"}, "10.0.0.1", "2 of 2 peers in 1 zone connect", "endpointslices pods"},
		"a selector":                          {&lists{pods: pods}, peers.Settings{Selector: "app=web"}, "10.0.0.1", "2 of 2 peers in 1 zone connect", "pods"},
	} {
		c.settings.Port = port
		f := run(t, c.lists, c.settings, environment.Pod{Node: "me", ServiceHost: c.host}, 20*time.Second)
		var asked []string
		for _, u := range c.lists.asked {
			asked = append(asked, u.Path[strings.LastIndex(u.Path, "/")+1:])
			limit := map[string]string{"pods": "10", "endpointslices": "2"}[asked[len(asked)-1]]
			if u.Query().Get("limit") != limit || u.Query().Has("resourceVersion") {
				t.Errorf("%s: asked for %s", name, u)
			}
		}
		if !f.Passed() || !strings.Contains(f.Message, c.says) || strings.Join(asked, " ") != c.asked {
			t.Errorf("%s: %q, asked for %v", name, f.Message, asked)
		}
	}
}

// Where no pod is ready, the whole list is not read for it.
func TestAListWithoutReadyPodsIsNotReadToItsEnd(t *testing.T) {
	var pods []string
	for i := range 10 {
		pods = append(pods, pod(fmt.Sprint(i), "other", false))
	}
	l := &lists{pods: pods, endless: true}
	f := run(t, l, peers.Settings{Selector: "app=web", Port: 1, Sample: new(int32(3))}, environment.Pod{Node: "me"}, 20*time.Second)
	if f.Reason != check.ReasonTooFewPeers || len(l.asked) != 6 {
		t.Errorf("asked %d times: %+v", len(l.asked), f)
	}
}

// The look-up has a quarter of the time, so an API server that refuses for all of that has not refused for the check's time.
func TestARefusedListIsNoFailureOfTheNode(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	api := apitest.Client(t, authority, authority.Issue(t, tlstest.Certificate{}), &lists{})
	api.Port = "1"
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	f := (&peers.Settings{Service: "web", Port: 1}).New(environment.Pod{Node: "me", API: api})(ctx)
	if f.Outcome != check.Inconclusive || f.Reason != check.ReasonConnectionRefused {
		t.Errorf("got %+v", f)
	}
}

// A list that takes long is not the fault of the peers, nor of the node.
func TestASlowListIsNotBlamedOnPeers(t *testing.T) {
	l := &lists{slices: []string{slice("IPv4", endpoint("a", "one", "127.0.0.1", true))}, delay: 600 * time.Millisecond}
	f := run(t, l, peers.Settings{Service: "web", Port: 1}, environment.Pod{Node: "me"}, time.Second)
	if f.Outcome != check.Inconclusive || f.Reason != check.ReasonTimeout ||
		!strings.Contains(f.Message, "listing pods to connect to (Service default/web): the API server at ") {
		t.Errorf("got %+v", f)
	}
}

// Peers that do not connect are told of in a warning, as long as they are too few to fail the check, and hold it up a
// second.
func TestSomePeersThatDoNotConnect(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var pods []string
	for i, ip := range []string{"127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.3", "127.0.0.3"} {
		name := fmt.Sprint("p", i)
		pods = append(pods, strings.Replace(pod(name, name, true), "127.0.0.1", ip, 1))
	}
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"items":[%s]}`, strings.Join(pods, ","))
	})
	api := apitest.Client(t, authority, authority.Issue(t, tlstest.Certificate{}), answer)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	began := time.Now()
	settings := &peers.Settings{Selector: "app=web", Port: int32(l.Addr().(*net.TCPAddr).Port)}
	f := settings.New(environment.Pod{API: api, Node: "me"})(ctx)
	if f.Outcome != check.Warned || f.Reason != check.ReasonPeersUnreachable ||
		!strings.Contains(f.Message, "3 of 5 peers") || !strings.Contains(f.Message, "refused the connection") {
		t.Errorf("got %+v", f)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %s", took)
	}
}
