package reporter

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// Each set of rights with which the reporter works, and the requests that it then makes to write twice.
func TestRights(t *testing.T) {
	nodeAPI := "authentication.k8s.io"
	for _, c := range []struct {
		name     string
		env      []string
		rules    []rbacv1.PolicyRule
		requests []string
	}{
		{"patch", nil, []rbacv1.PolicyRule{patchStatus}, []string{"PATCH status", "PATCH status", "PATCH status"}},
		{"of the guides", nil, []rbacv1.PolicyRule{rule("", "nodes", "get"), rule("", "nodes/status", "patch", "update")},
			[]string{"PATCH status", "PATCH status", "PATCH status"}},
		{"get and update", nil, []rbacv1.PolicyRule{rule("", "nodes", "get"), rule("", "nodes/status", "update")},
			[]string{"PATCH status", "GET", "GET", "PUT status", "GET", "PUT status"}},
		{"get and update of the status", nil, []rbacv1.PolicyRule{rule("", "nodes/status", "get", "update")},
			[]string{"PATCH status", "GET", "GET status", "GET", "GET status", "PUT status", "GET", "GET status", "PUT status"}},
		{"impersonation and patch", []string{"IMPERSONATE_NODE=true"}, []rbacv1.PolicyRule{rule(nodeAPI, "nodes", "impersonate:associated-node"),
			rule("", "nodes/status", "impersonate-on:associated-node:patch")}, []string{"PATCH status", "PATCH status", "PATCH status"}},
		{"impersonation as in the guide", []string{"IMPERSONATE_NODE=true"}, []rbacv1.PolicyRule{rule(nodeAPI, "nodes", "impersonate:associated-node"),
			rule("", "nodes", "impersonate-on:associated-node:get"), rule("", "nodes/status", "impersonate-on:associated-node:update")},
			[]string{"PATCH status", "GET", "GET", "PUT status", "GET", "PUT status"}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			s := begin(t, c.rules...)
			p := s.through()
			foreign := corev1.NodeCondition{Type: "Ready", Status: "True", Reason: "KubeletReady"}
			n, _ := s.node()
			n.Status.Conditions, n.Status.Capacity = []corev1.NodeCondition{foreign}, corev1.ResourceList{"cpu": resource.MustParse("4")}
			s.must(k8s.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}))

			s.report(c.env...)
			healthy := s.becomes("True", "EndpointOK")
			if want := "Endpoint reports ready at " + s.agent.URL + "/healthz"; healthy.Message != want {
				t.Errorf("the message is %q, want %q", healthy.Message, want)
			}
			time.Sleep(time.Until(healthy.LastTransitionTime.Add(1100 * time.Millisecond))) // times are whole seconds
			s.agent.status.Store(http.StatusServiceUnavailable)
			failed := s.becomes("False", "EndpointNotReady")
			if want := "Endpoint returned non-2xx status code 503 at " + s.agent.URL + "/healthz: the agent says 503"; failed.Message != want {
				t.Errorf("the message is %q, want %q", failed.Message, want)
			}
			if !failed.LastTransitionTime.After(healthy.LastTransitionTime.Time) || failed.LastHeartbeatTime.Before(&failed.LastTransitionTime) {
				t.Errorf("times: %+v after %+v", failed, healthy)
			}
			if got := p.kinds(); !slices.Equal(got, c.requests) {
				t.Errorf("the requests are %q, want %q", got, c.requests)
			}
			n, _ = s.node()
			if len(n.Status.Conditions) != 2 || !slices.Contains(n.Status.Conditions, foreign) || n.Status.Capacity.Cpu().Value() != 4 {
				t.Errorf("others' fields have changed: %+v", n.Status)
			}
		})
	}
}

// Without rights it logs what it needs, and works once it has that.
func TestForbidden(t *testing.T) {
	s := begin(t, rule("", "nodes", "get"))
	p := s.report()
	s.eventually("the missing right is logged", func() string {
		if log := s.log(); !strings.Contains(log, "the reporter needs patch of nodes/status") {
			return log
		}
		return ""
	})
	s.grant(patchStatus)
	s.becomes("True", "EndpointOK")
	select {
	case <-p.Done():
		t.Errorf("it ended with %d", p.ExitCode())
	default:
	}
}

// With constrained impersonation a token is good for the node of its pod alone.
func TestImpersonationOfAnotherNode(t *testing.T) {
	s := begin(t, rule("authentication.k8s.io", "nodes", "impersonate:associated-node"), rule("", "nodes/status", "impersonate-on:associated-node:patch"))
	other := s.name + "-other"
	s.must(k8s.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{}))
	s.report("IMPERSONATE_NODE=true", "NODE_NAME="+other)
	s.eventually("it is refused", func() string {
		if log := s.log(); !strings.Contains(log, "answered 403 Forbidden") {
			return log
		}
		return ""
	})
	if n, err := k8s.CoreV1().Nodes().Get(t.Context(), other, metav1.GetOptions{}); err != nil || len(n.Status.Conditions) > 0 {
		t.Errorf("another node's condition was written: %+v, %v", n.Status.Conditions, err)
	}
}

// What does not change is written at heartbeats alone, and its transition time stays.
func TestHeartbeat(t *testing.T) {
	s := begin(t, patchStatus)
	p := s.through()
	s.report("HEARTBEAT_PERIOD=2s")
	first := s.becomes("True", "EndpointOK")
	s.eventually("it is written anew", func() string {
		if _, c := s.node(); c.LastHeartbeatTime.Sub(first.LastHeartbeatTime.Time) < 5*time.Second {
			return c.LastHeartbeatTime.String()
		}
		return ""
	})
	if _, c := s.node(); !c.LastTransitionTime.Equal(&first.LastTransitionTime) {
		t.Errorf("the transition time moved from %v to %v", first.LastTransitionTime, c.LastTransitionTime)
	}
	requests := p.seen()
	// After the first patch, which is empty, and the first write. A machine that is busy may have held that one up.
	for i := 2; i < len(requests); i++ {
		if d := requests[i].at.Sub(requests[1].at); d < time.Duration(i-1)*2*time.Second-time.Second {
			t.Errorf("%d more writes %v after the first", i-1, d)
		}
	}
}

// A successor finds the condition as it would write it, and writes nothing.
func TestRestart(t *testing.T) {
	s := begin(t, patchStatus)
	first := s.report()
	s.becomes("True", "EndpointOK")
	first.Terminate(5 * time.Second)
	p := s.through()
	before, _ := s.node()
	s.report()
	s.checks(20)
	after, _ := s.node()
	if got := p.kinds(); !slices.Equal(got, []string{"PATCH status"}) || before.ResourceVersion != after.ResourceVersion {
		t.Errorf("the requests are %q, the resourceVersions %s and %s", got, before.ResourceVersion, after.ResourceVersion)
	}
}

// On SIGTERM nothing is written.
func TestShutdown(t *testing.T) {
	s := begin(t, patchStatus)
	p := s.report()
	s.becomes("True", "EndpointOK")
	before, _ := s.node()
	s.agent.Close() // the agent is told to stop as well
	p.Terminate(5 * time.Second)
	if after, _ := s.node(); p.ExitCode() != 0 || before.ResourceVersion != after.ResourceVersion {
		t.Errorf("exit code %d, the resourceVersions %s and %s", p.ExitCode(), before.ResourceVersion, after.ResourceVersion)
	}
}

func TestUnknownOnShutdown(t *testing.T) {
	s := begin(t, patchStatus)
	p := s.report("REPORT_UNKNOWN_ON_SHUTDOWN=true")
	s.becomes("True", "EndpointOK")
	p.Terminate(5 * time.Second)
	if _, c := s.node(); p.ExitCode() != 0 || c.Status != "Unknown" || c.Reason != "ReporterStopped" {
		t.Errorf("exit code %d, %+v", p.ExitCode(), c)
	}
}

// An agent's rollout ends its reporter and starts another one before it is healthy again. With a grace nothing is written.
func TestRollout(t *testing.T) {
	s := begin(t, patchStatus)
	s.report("FAILURE_GRACE=1h")
	s.becomes("True", "EndpointOK")
	before, _ := s.node()
	s.agent.status.Store(http.StatusServiceUnavailable)
	s.report("FAILURE_GRACE=1h")
	s.checks(20)
	if after, c := s.node(); before.ResourceVersion != after.ResourceVersion {
		t.Errorf("within the grace the condition became %+v", c)
	}
	s.report("FAILURE_GRACE=0s")
	s.becomes("False", "EndpointNotReady")
}

// A node that is not there yet is waited for; one that was replaced under its name has a condition of its own.
func TestMissingNode(t *testing.T) {
	s := begin(t, patchStatus)
	s.must(nil, k8s.CoreV1().Nodes().Delete(t.Context(), s.name, metav1.DeleteOptions{}))
	s.report("HEARTBEAT_PERIOD=1s")
	s.eventually("the missing node is logged", func() string {
		if log := s.log(); !strings.Contains(log, "node "+s.name+" does not exist yet") {
			return log
		}
		return ""
	})
	s.createNode()
	s.becomes("True", "EndpointOK")
	s.must(nil, k8s.CoreV1().Nodes().Delete(t.Context(), s.name, metav1.DeleteOptions{}))
	s.createNode()
	n, _ := s.node()
	if c := s.becomes("True", "EndpointOK"); c.LastTransitionTime.Before(&n.CreationTimestamp) {
		t.Errorf("the replacement, of %v, has the transition time of its predecessor: %v", n.CreationTimestamp, c.LastTransitionTime)
	}
}

// An API server that is gone costs log lines, at a bounded rate; the newest state is written once it is back.
func TestAPIServerGone(t *testing.T) {
	s := begin(t, patchStatus)
	p := s.through()
	s.report("HEARTBEAT_PERIOD=1s")
	first := s.becomes("True", "EndpointOK")
	p.close()
	time.Sleep(2 * time.Second) // it fails several times
	s.agent.status.Store(http.StatusServiceUnavailable)
	time.Sleep(2 * time.Second)
	if n := strings.Count(s.log(), "cannot write the condition"); n != 1 {
		t.Errorf("%d lines were logged in four seconds", n)
	}
	s.agent.status.Store(http.StatusOK)
	s.checks(2)
	p.open()
	back := time.Now().Truncate(time.Second)
	s.eventually("it is written again", func() string {
		if _, c := s.node(); c.LastHeartbeatTime.Time.Before(back) {
			return c.LastHeartbeatTime.String()
		}
		return ""
	})
	if _, c := s.node(); c.Status != "True" || !c.LastTransitionTime.Equal(&first.LastTransitionTime) {
		t.Errorf("what was over before it could be written was written: %+v", c)
	}
}

// A server that sheds load is left alone for as long as it asks.
func TestRetryAfter(t *testing.T) {
	s := begin(t, patchStatus)
	p := s.through()
	p.respond(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "4")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	s.report()
	s.eventually("it has asked", func() string {
		if len(p.seen()) == 0 {
			return "it has not"
		}
		return ""
	})
	p.respond(nil)
	s.becomes("True", "EndpointOK")
	if r := p.seen(); r[1].at.Sub(r[0].at) < 4*time.Second {
		t.Errorf("asked again after %v", r[1].at.Sub(r[0].at))
	}
}

// An update that others come before is tried again: nobody's condition is lost.
func TestUpdateAmongOtherWriters(t *testing.T) {
	s := begin(t, rule("", "nodes", "get"), rule("", "nodes/status", "update"))
	p := s.through()
	conflicts := 0
	p.respond(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && conflicts < 3 {
			conflicts++
			s.must(k8s.CoreV1().Nodes().Patch(t.Context(), s.name, types.StrategicMergePatchType,
				fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Other%d","status":"True"}]}}`, conflicts), metav1.PatchOptions{}, "status"))
		}
		return false
	})
	s.report()
	s.becomes("True", "EndpointOK")
	if n, _ := s.node(); len(n.Status.Conditions) != 4 || conflicts != 3 {
		t.Errorf("%d conflicts, and the conditions %+v", conflicts, n.Status.Conditions)
	}
	if strings.Contains(s.log(), "cannot write the condition") {
		t.Error("a conflict was logged as a failure")
	}
}

// Two agents' reporters on the host's network share its ports: the second one has no metrics and reports all the same.
func TestTwoReportersOfOneNode(t *testing.T) {
	s := begin(t, patchStatus)
	address := freePort(t)
	s.report("METRICS_BIND_ADDRESS=" + address)
	s.becomes("True", "EndpointOK")
	s.report("METRICS_BIND_ADDRESS="+address, "CONDITION_TYPE=example.com/OtherReady")
	s.eventually("both have reported", func() string {
		if n, _ := s.node(); len(n.Status.Conditions) != 2 {
			return fmt.Sprintf("%+v", n.Status.Conditions)
		}
		return ""
	})
	if !strings.Contains(s.log(), "cannot serve metrics: set METRICS_BIND_ADDRESS") {
		t.Error("the taken port is not logged")
	}
	for path, says := range map[string]string{"/healthz": "ok", "/metrics": `node_readiness_reporter_condition_writes_total{result="success"} 1`} {
		response, err := http.Get("http://" + address + path)
		s.must(response, err)
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if !strings.Contains(string(body), says) {
			t.Errorf("%s lacks %q: %s", path, says, body)
		}
	}
}

// The image without arguments is the reporter; a hostile endpoint's answer fits the Node.
func TestTheImagesEntryPoint(t *testing.T) {
	s := begin(t, patchStatus)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(listener, err)
	hostile := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte("\x1b[31m\x00\xff" + strings.Repeat("x", 1<<16)))
		}
	})}
	go func() { _ = hostile.Serve(listener) }()
	t.Cleanup(func() { _ = hostile.Close() })
	controller, err := install.Binary("kube-node-ready-controller")
	s.must(controller, err)
	worker, err := install.Binary("kube-node-ready-worker") // it becomes the one beside it
	s.must(worker, err)
	s.start(controller, nil, "CHECK_ENDPOINT=http://"+listener.Addr().String()+"/")
	c := s.becomes("False", "EndpointNotReady")
	if len(c.Message) > 1024 || strings.ContainsAny(c.Message, "\x1b\x00") || !strings.Contains(c.Message, "status code 500") {
		t.Errorf("the message is %q", c.Message)
	}
}
