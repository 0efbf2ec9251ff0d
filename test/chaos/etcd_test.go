package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// registry is where the API server keeps its objects.
const registry = "/registry/"

// observed are the keys below registry that are decoded.
var observed = []string{"minions/", "pods/", "configmaps/" + namespace + "/", "leases/" + namespace + "/",
	"karpenter.sh/nodeclaims/", "readiness.node.x-k8s.io/nodereadinessrules/"}

// change is one change of an object as etcd carried it out: before is nil where it was created, after where it is gone.
type change struct {
	revision      int64
	key           string // below registry
	before, after runtime.Object
	at            time.Time // when it was seen
}

// observer sees every change, in order, whether the API server is up or not: it watches etcd itself, through the gateway that
// serves etcd's API as JSON (https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway).
type observer struct {
	url string
	see func(change)

	mu       sync.Mutex
	revision int64 // the last that was seen
	have     map[string]runtime.Object
	fault    error
}

// watchAnswer is a part of the answer to a watch.
type watchAnswer struct {
	Result struct {
		Canceled     bool   `json:"canceled"`
		CancelReason string `json:"cancel_reason"`
		Events       []struct {
			Type string `json:"type"` // empty for PUT
			KV   struct {
				Key      []byte `json:"key"`
				Value    []byte `json:"value"`
				Revision int64  `json:"mod_revision,string"`
			} `json:"kv"`
		} `json:"events"`
	} `json:"result"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// run observes until ctx ends. Where etcd is down, it goes on from where it was.
func (o *observer) run(ctx context.Context) {
	o.have = map[string]runtime.Object{}
	for ctx.Err() == nil {
		_ = o.watch(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (o *observer) watch(ctx context.Context) error {
	resp, err := o.post(ctx, "/v3/watch", map[string]any{"create_request": map[string]any{
		"key": []byte{0}, "range_end": []byte{0}, "start_revision": fmt.Sprint(o.seen() + 1)}}) // every key
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	for answers := json.NewDecoder(resp.Body); ; {
		var a watchAnswer
		if err := answers.Decode(&a); err != nil {
			return err
		}
		if a.Error != nil || a.Result.Canceled {
			return fmt.Errorf("the watch ended: %+v", a)
		}
		for _, e := range a.Result.Events {
			o.take(strings.TrimPrefix(string(e.KV.Key), registry), e.KV.Value, e.Type == "DELETE", e.KV.Revision)
		}
	}
}

func (o *observer) take(key string, value []byte, deleted bool, revision int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.revision = max(o.revision, revision)
	if !hasPrefix(key, observed) {
		return
	}
	c := change{revision: revision, key: key, before: o.have[key], at: time.Now()}
	delete(o.have, key)
	if !deleted {
		var err error
		if c.after, _, err = scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil); err != nil {
			o.fault = fmt.Errorf("decode %s: %w", key, err)
			return
		}
		o.have[key] = c.after
	}
	o.see(c)
}

func hasPrefix(key string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	return false
}

func (o *observer) seen() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.revision
}

// current is etcd's own revision. A write that is answered before it is asked for is not later than that.
func (o *observer) current(ctx context.Context) (int64, error) {
	resp, err := o.post(ctx, "/v3/kv/range", map[string]any{"key": []byte(registry), "limit": "1"})
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	var a struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	return a.Header.Revision, json.NewDecoder(resp.Body).Decode(&a)
}

// catchUp waits until everything up to now was seen.
func (o *observer) catchUp(ctx context.Context) error {
	now, err := o.current(ctx)
	for err == nil && o.seen() < now {
		select {
		case <-ctx.Done():
			err = fmt.Errorf("revision %d was not seen, the last was %d", now, o.seen())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return err
}

func (o *observer) post(ctx context.Context, path string, body any) (*http.Response, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url+path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		err = fmt.Errorf("etcd answers %s", resp.Status)
	}
	return resp, err
}
