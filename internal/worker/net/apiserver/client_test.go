package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/apitest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// account is a service account's directory; empty contents leave the file out.
func account(t *testing.T, token, ca string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"token": token, "ca.crt": ca} {
		if content == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestNewSaysWhatIsMissing(t *testing.T) {
	ca := tlstest.NewAuthority(t).PEM()
	for _, c := range []struct{ name, host, token, ca, says string }{
		{"outside a pod", "", "t", ca, "KUBERNETES_SERVICE_HOST"},
		{"no CA", "h", "t", "", "the cluster's CA cannot be read"},
		{"a CA that is none", "h", "t", "nonsense", "holds no PEM certificate"},
		{"no token", "h", "", ca, "token cannot be read"},
		{"an empty token", "h", "\n", ca, "is empty"},
		{"all there", "h", "t", ca, ""},
	} {
		_, err := apiserver.New(c.host, "443", account(t, c.token, c.ca), &resolver.Resolver{})
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.says)
		}
	}
	if _, err := apiserver.New("", "", "", nil); !errors.Is(err, apiserver.ErrNoCluster) {
		t.Errorf("got %v", err)
	}
}

func TestIPv6(t *testing.T) {
	dir := account(t, "t", tlstest.NewAuthority(t).PEM())
	for _, host := range []string{"fd00::1", "[fd00::1]"} {
		c, err := apiserver.New(host, "443", dir, &resolver.Resolver{})
		if err != nil {
			t.Fatal(err)
		}
		if c.Address() != "[fd00::1]:443" || c.URL(c.Host, "/readyz") != "https://[fd00::1]:443/readyz" {
			t.Errorf("%s: got %s, %s", host, c.Address(), c.URL(c.Host, "/readyz"))
		}
	}
}

// TestTheTokenIsReadForEachRequest: the kubelet replaces bound tokens before they expire.
func TestTheTokenIsReadForEachRequest(t *testing.T) {
	var seen []string
	authority := tlstest.NewAuthority(t)
	server := tlstest.Serve(t, authority.Issue(t, tlstest.Certificate{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		_, _ = fmt.Fprint(w, "{}")
	}))
	host, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	dir := account(t, "first\n", authority.PEM())
	c, err := apiserver.New(host, port, dir, &resolver.Resolver{})
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"first", "second"} {
		if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Service(context.Background(), "default", "kubernetes"); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Join(seen, ", ") != "Bearer first, Bearer second" {
		t.Errorf("got %v", seen)
	}
}

// paged serves a list of so many objects of so many bytes each, in the pages that are asked for.
func paged(count, bytes int, most *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		to := min(from+limit, count)
		next := ""
		if to < count {
			next = strconv.Itoa(to)
		}
		_, _ = fmt.Fprintf(w, `{"metadata":{"continue":%q},"items":[`, next)
		for i := from; i < to; i++ {
			if i > from {
				_, _ = fmt.Fprint(w, ",")
			}
			_, _ = fmt.Fprintf(w, `{"metadata":{"name":"n%d","labels":{"topology.kubernetes.io/zone":"z"},"annotations":{"a":%q}},"spec":{"nodeName":"n"}}`, i, strings.Repeat("x", bytes))
		}
		_, _ = fmt.Fprint(w, `]}`)
		most.Store(max(most.Load(), int64(to-from)))
	}
}

func allPods(api *apiserver.Client) (all []apiserver.Pod, err error) {
	err = api.PodPages(context.Background(), "default", "app=web", 250, func(page []apiserver.Pod) bool {
		all = append(all, page...)
		return true
	})
	return all, err
}

// A list is read no further than it is wanted, and never from the watch cache, which ignores limits at resourceVersion
// 0.
func TestPagesAreReadUntilThereIsEnough(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	var most, requests atomic.Int64
	list := paged(5000, 10, &most)
	api := apitest.Client(t, authority, authority.Issue(t, tlstest.Certificate{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1); r.URL.Query().Has("resourceVersion") {
			t.Errorf("asked for %s", r.URL.RawQuery)
		}
		list(w, r)
	}))
	read := 0
	err := api.PodPages(context.Background(), "default", "app=web", 10, func(page []apiserver.Pod) bool {
		read += len(page)
		return read < 15
	})
	if err != nil || read != 20 || requests.Load() != 2 || most.Load() != 10 {
		t.Errorf("read %d in %d pages of %d: %v", read, requests.Load(), most.Load(), err)
	}
}

// Pods with long annotations and environments have tens of kilobytes each.
func TestListsOfLargeObjects(t *testing.T) {
	t.Parallel()
	authority := tlstest.NewAuthority(t)
	certificate := authority.Issue(t, tlstest.Certificate{})
	for _, size := range []int{100, 30_000, 1_400_000} {
		count := min(400, 12_000_000/size)
		var most atomic.Int64
		api := apitest.Client(t, authority, certificate, paged(count, size, &most))
		pods, err := allPods(api)
		if err != nil || len(pods) != count || pods[count-1].Metadata.Name != fmt.Sprintf("n%d", count-1) {
			t.Errorf("%d pods of %d bytes: got %d, %v", count, size, len(pods), err)
		}
		if slices, err := api.EndpointSlices(context.Background(), "default", "web"); err != nil || len(slices) != count {
			t.Errorf("%d slices of %d bytes: got %d, %v", count, size, len(slices), err)
		}
	}
	var most atomic.Int64
	_, err := allPods(apitest.Client(t, authority, certificate, paged(2, 5<<20, &most)))
	if reason, phrase := neterror.Of(err); reason != check.ReasonUnexpectedBody || !strings.Contains(phrase, "more than 4 MiB") {
		t.Errorf("got %s: %s", reason, phrase)
	}
	endless := func(w http.ResponseWriter, _ *http.Request) {
		for line := []byte(strings.Repeat(" ", 1<<20)); ; {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}
	if _, err := apitest.Client(t, authority, certificate, http.HandlerFunc(endless)).Service(context.Background(), "a", "b"); err == nil {
		t.Error("an endless body is read")
	}
}

// A load balancer may accept connections and say nothing, for as long as no API server answers. The DaemonSet's process
// asks again and again.
func TestNoConnectionOutlivesARequest(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	ended := make(chan error, 2)
	for range cap(ended) { // a large ClientHello, and then a small one
		go func() {
			conn, err := listener.Accept()
			if err == nil {
				_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
				_, err = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}
			ended <- err
		}()
	}
	authority := tlstest.NewAuthority(t)
	api := apitest.Client(t, authority, authority.Issue(t, tlstest.Certificate{}), http.NotFoundHandler())
	_, api.Port, _ = net.SplitHostPort(listener.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer cancel()
	if _, err := api.Send(ctx, apiserver.Request{Method: http.MethodGet, Path: "/version"}); err == nil {
		t.Error("no error")
	}
	for range cap(ended) {
		if err := <-ended; err != nil {
			t.Errorf("a connection is still open: %v", err)
		}
	}
}
