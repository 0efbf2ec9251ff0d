package chaos

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"
)

// nodesPath is the path of the watch of nodes.
const nodesPath = "/api/v1/nodes"

// shownVersions is what the watches of nodes have shown a controller process, as its proxy let it through. A watch
// that lags shows a change late, and one that begins anew does not show what came and went meanwhile.
type shownVersions struct {
	mu    sync.Mutex
	shown map[types.UID][]version
	lease []byte // as the process wrote it last, with its identity
}

// version is a version of a node, and when it was shown.
type version struct {
	revision int64
	at       time.Time
}

// forget begins with a process that has seen nothing.
func (s *shownVersions) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown, s.lease = map[types.UID][]version{}, nil
}

// elects notes what the process writes in the Lease.
func (s *shownVersions) elects(lease []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = lease
}

// electing notes what a request of the process writes in the Lease.
func (s *shownVersions) electing(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		s.elects(body)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
}

// isOf reports whether the process has this identity.
func (s *shownVersions) isOf(holder string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return holder != "" && bytes.Contains(s.lease, []byte(holder))
}

// showed reports whether a watch showed a version of the node from one revision up to before another, within this time.
// A zero time is no limit.
func (s *shownVersions) showed(node types.UID, from, before int64, since, until time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.shown[node] {
		if v.revision >= from && v.revision < before && !v.at.Before(since) && (until.IsZero() || v.at.Before(until)) {
			return true
		}
	}
	return false
}

// follow returns a writer for the bytes of a watch's answer, after they are passed on. Close it where the answer ends.
func (s *shownVersions) follow(contentType string) io.WriteCloser {
	r, w := io.Pipe()
	go func() {
		s.read(contentType, r)
		_, _ = io.Copy(io.Discard, r) // what cannot be read shows nothing, and holds nothing up
	}()
	return w
}

func (s *shownVersions) read(contentType string, r io.ReadCloser) {
	mediaType, _, _ := mime.ParseMediaType(contentType)
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	if !ok || info.StreamSerializer == nil {
		return
	}
	frames := streaming.NewDecoder(info.StreamSerializer.NewFrameReader(io.NopCloser(r)), info.StreamSerializer.Serializer)
	for events := restwatch.NewDecoder(frames, scheme.Codecs.UniversalDeserializer()); ; {
		what, o, err := events.Decode()
		if err != nil {
			return
		}
		n, ok := o.(*corev1.Node)
		if !ok || what == watch.Bookmark {
			continue
		}
		revision, err := strconv.ParseInt(n.ResourceVersion, 10, 64)
		if err != nil {
			continue
		}
		s.mu.Lock()
		if s.shown != nil {
			s.shown[n.UID] = append(s.shown[n.UID], version{revision, time.Now()})
		}
		s.mu.Unlock()
	}
}

// showed reports whether a watch showed the process that leads a version of the node; see shownVersions. Where no process is known
// to lead, none did.
func (s *stage) showed(holder string, node types.UID, from, before int64, since, until time.Time) bool {
	for _, p := range s.proxies {
		if p.shown.isOf(holder) {
			return p.shown.showed(node, from, before, since, until)
		}
	}
	return false
}

// What a watch shows is read in both forms that a client may ask for, however its bytes come.
func TestShownVersions(t *testing.T) {
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		var s shownVersions
		s.forget()
		began := time.Now()
		w := s.follow(mediaType + ";stream=watch")
		for _, b := range nodesWatched(t, mediaType) {
			_, _ = w.Write([]byte{b})
		}
		_ = w.Close()
		for end := time.Now().Add(10 * time.Second); !s.showed("u", 7, 8, began, time.Time{}) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		for name, test := range map[string]struct {
			node         types.UID
			from, before int64
			since, until time.Time
			want         bool
		}{
			"the first":                 {"u", 5, 6, began, time.Time{}, true},
			"the last":                  {"u", 6, 100, began, time.Now(), true},
			"what came and went":        {"u", 6, 7, time.Time{}, time.Time{}, false},
			"what came later":           {"u", 8, 100, time.Time{}, time.Time{}, false},
			"of another node":           {"v", 5, 100, time.Time{}, time.Time{}, false},
			"before the process led":    {"u", 5, 100, time.Now(), time.Time{}, false},
			"after the decision":        {"u", 5, 100, time.Time{}, began, false},
			"a bookmark, which is none": {"", 9, 10, time.Time{}, time.Time{}, false},
		} {
			if got := s.showed(test.node, test.from, test.before, test.since, test.until); got != test.want {
				t.Errorf("%s, %s: %t", mediaType, name, got)
			}
		}
		if s.elects([]byte(`{"holderIdentity":"host_1"}`)); !s.isOf("host_1") || s.isOf("host_2") || s.isOf("") {
			t.Error("the identity of the process is not known")
		}
		if s.forget(); s.showed("u", 5, 6, time.Time{}, time.Time{}) || s.isOf("host_1") {
			t.Error("another process is taken for the one before")
		}
	}
}

// nodesWatched is the answer to a watch that shows a node at revisions 5 and 7, and is at revision 9.
func nodesWatched(t *testing.T, mediaType string) []byte {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	var b bytes.Buffer
	frames := info.StreamSerializer.NewFrameWriter(&b)
	into := scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion)
	for _, e := range []watch.Event{{Type: watch.Added, Object: nodeAt("u", "5")}, {Type: watch.Modified, Object: nodeAt("u", "7")}, {Type: watch.Bookmark, Object: nodeAt("", "9")}} {
		raw, err := runtime.Encode(into, e.Object)
		if err != nil {
			t.Fatal(err)
		}
		event := &metav1.WatchEvent{Type: string(e.Type), Object: runtime.RawExtension{Raw: raw}}
		if err := info.StreamSerializer.Encode(event, frames); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func nodeAt(uid types.UID, revision string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: uid, ResourceVersion: revision}}
}
