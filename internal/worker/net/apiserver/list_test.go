package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apitest"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/cause"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/tlstest"
)

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

// Pods with long annotations and environments have tens of kilobytes each.
func TestListsOfLargeObjects(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	certificate := authority.Issue(t, tlstest.Certificate{})
	for _, size := range []int{100, 30_000, 1_400_000} {
		count := min(400, 12_000_000/size)
		var most atomic.Int64
		api := apitest.Client(t, authority, certificate, paged(count, size, &most))
		pods, err := api.Pods(context.Background(), "default", "app=web")
		if err != nil || len(pods) != count || pods[count-1].Metadata.Name != fmt.Sprintf("n%d", count-1) {
			t.Errorf("%d pods of %d bytes: got %d, %v", count, size, len(pods), err)
		}
		if zones, err := api.Zones(context.Background()); err != nil || len(zones) != count {
			t.Errorf("%d nodes of %d bytes: got %d, %v", count, size, len(zones), err)
		}
	}
	var most atomic.Int64
	_, err := apitest.Client(t, authority, certificate, paged(2, 5<<20, &most)).Pods(context.Background(), "default", "app=web")
	if reason, phrase := cause.Of(err); reason != check.ReasonUnexpectedBody || !strings.Contains(phrase, "more than 4 MiB") {
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
