package reporter

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
)

// oneNode is an API server with one Node, and counts its requests.
type oneNode struct {
	uid        string
	conditions []corev1.NodeCondition
	requests   int
}

func (o *oneNode) Send(_ context.Context, r apiserver.Request) (apiserver.Response, error) {
	o.requests++
	var patch struct {
		Metadata struct{ UID string }
		Status   struct{ Conditions []corev1.NodeCondition }
	}
	if err := json.Unmarshal(r.Body, &patch); err != nil {
		return apiserver.Response{}, err
	}
	if patch.Metadata.UID != "" && patch.Metadata.UID != o.uid {
		return apiserver.Response{Status: http.StatusConflict}, nil
	}
	if len(patch.Status.Conditions) > 0 {
		o.conditions = patch.Status.Conditions
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.uid}, "status": map[string]any{"conditions": o.conditions}})
	return apiserver.Response{Status: http.StatusOK, Body: body}, err
}

// A Node that was deleted and registered anew has the condition within a minute, however long the heartbeat's period
// is. Nothing is asked in between.
func TestTheNodeIsReadEachMinute(t *testing.T) {
	api, began := &oneNode{uid: "first"}, time.Now()
	l := &loop{config: Config{ConditionType: "example.com/Ready", Heartbeat: time.Hour}, connect: func() (API, error) { return api, nil },
		log: zap.NewNop(), metrics: NewMetrics("test", time.Minute)}
	at := func(after time.Duration) int {
		t.Helper()
		before := api.requests
		if err := l.sync(t.Context(), observation{corev1.ConditionTrue, reasonOK, "fine"}, began.Add(after)); err != nil {
			t.Fatal(err)
		}
		return api.requests - before
	}
	if n := at(0); n != 2 || len(api.conditions) != 1 {
		t.Errorf("%d requests, conditions %v", n, api.conditions)
	}
	if n := at(59 * time.Second); n != 0 {
		t.Errorf("within a minute of the write %d requests", n)
	}
	api.uid, api.conditions = "second", nil
	if n := at(61 * time.Second); n != 2 || len(api.conditions) != 1 {
		t.Errorf("the new Node: %d requests, conditions %v", n, api.conditions)
	}
	if n := at(100 * time.Second); n != 0 {
		t.Errorf("after that %d requests", n)
	}
	if n := at(122 * time.Second); n != 1 {
		t.Errorf("a minute later %d requests, want one", n)
	}
}
