package peers_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/around"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/peers"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apitest"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/tlstest"
)

func pod(name, node string, ready bool) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"uid":%q,"labels":{"topology.kubernetes.io/zone":"z"}},"spec":{"nodeName":%q},
		"status":{"podIP":"127.0.0.1","conditions":[{"type":"Ready","status":"%s"}]}}`, name, name, node, map[bool]string{true: "True", false: "False"}[ready])
}

func TestWithoutPeers(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	certificate := authority.Issue(t, tlstest.Certificate{})
	for _, c := range []struct {
		name, node string
		pods       []string
		outcome    check.Outcome
		reason     check.Reason
		says       string
	}{
		{"the first node of a cluster", "me", []string{pod("a", "me", true)}, check.Passed, "", "so there was none to connect to"},
		{"a selector that matches nothing", "me", nil, check.Warned, check.ReasonTooFewPeers, "no running pod in namespace default matches app=web"},
		{"peers that are not ready", "me", []string{pod("a", "me", true), pod("b", "other", false)}, check.Warned, check.ReasonTooFewPeers, "none of the 2 running pods"},
		{"a node that does not know its name", "", []string{pod("a", "me", true)}, check.Failed, check.ReasonConfiguration, "NODE_NAME is not set"},
	} {
		t.Run(c.name, func(t *testing.T) {
			api := apitest.Client(t, authority, certificate, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintf(w, `{"items":[%s]}`, strings.Join(c.pods, ","))
			}))
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			f := (&peers.Settings{Selector: "app=web", Port: 1}).New(around.Pod{API: api, Node: c.node})(ctx)
			if f.Outcome != c.outcome || f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
				t.Errorf("got %+v", f)
			}
		})
	}
}
