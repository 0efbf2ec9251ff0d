package manager

import (
	"errors"
	"net/http"
	"testing"
	"time"
)

// After a change of RBAC, a watch may be refused. The controller then keeps old data, while its other requests are
// answered.
func TestContact(t *testing.T) {
	const nodes = "https://server/api/v1/nodes?watch=true"
	get := func(c *contact, url string, status int) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.observe(roundTripper(func(*http.Request) (*http.Response, error) {
			if status == 0 {
				return nil, errors.New("connection refused")
			}
			return &http.Response{StatusCode: status, Body: http.NoBody}, nil
		})).RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
	}
	for name, tc := range map[string]struct {
		url              string
		status           int
		sound, recovered bool
	}{
		"the watch of nodes is refused":     {nodes, http.StatusForbidden, false, true},
		"the watch of nodes fails":          {nodes, http.StatusServiceUnavailable, false, true},
		"the server does not answer":        {nodes, 0, false, true},
		"another watch is refused":          {"https://server/apis/cilium.io/v2/ciliumnodes?watch=true", http.StatusForbidden, true, true},
		"a node is not found":               {"https://server/api/v1/nodes/node-1", http.StatusNotFound, true, true},
		"a request conflicts":               {"https://server/api/v1/nodes/node-1", http.StatusConflict, true, true},
		"the server does not answer others": {"https://server/api/v1/nodes/node-1", 0, false, true},
	} {
		c := newContact("/api/v1/nodes")
		get(c, nodes, http.StatusOK)
		get(c, tc.url, tc.status)
		if now := time.Now(); !c.recent(now) || c.recent(now.Add(contactWithin)) != tc.sound {
			t.Errorf("%s: healthy %v at once and %v later, want true and %v", name, c.recent(now), c.recent(now.Add(contactWithin)), tc.sound)
		}
		get(c, nodes, http.StatusOK)
		if c.recent(time.Now().Add(contactWithin)) != tc.recovered {
			t.Errorf("%s: recovered %v", name, !tc.recovered)
		}
	}
}
