package chaos

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

// weather is what a proxy does to requests; the zero value lets them through.
type weather struct {
	// latency is the most that a request is delayed.
	latency time.Duration
	// refused, lost and answered are percentages of requests. For refused, the connection is cut before the request is
	// carried out. For lost, it is cut after that. For answered, an error replaces the answer.
	refused, lost, answered int
	// parted: nothing gets through.
	parted bool
	// hidden is a part of the paths that are answered with an error.
	hidden string
	// late is a part of the paths whose watches lag: each event comes later by lag at most.
	late string
	lag  time.Duration
}

// answers are the errors in place of an answer. Those of 429 and above ask, half of the time, to be tried again later.
var answers = []int{http.StatusConflict, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusGatewayTimeout}

// proxy stands between one replica of the controller and the API server.
type proxy struct {
	url   string
	shown shownVersions

	mu      sync.Mutex
	weather weather
	rng     *rand.Rand
	tally   *tally
	cut     context.CancelFunc // ends what is under way, watches too
	ctx     context.Context
	writes  int // that came, but for leases
}

func newProxy(ctx context.Context, c *cluster.Cluster) (*proxy, error) {
	p := &proxy{}
	p.begin(rand.New(rand.NewPCG(0, 0)), &tally{}) //nolint:gosec // no secret
	server, err := c.Relay("127.0.0.1:0", func(forward *httputil.ReverseProxy) http.Handler {
		forward.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, forward) })
	})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	p.url = "https://" + server.Addr
	return p, nil
}

// begin clears the weather, for another seed.
func (p *proxy) begin(rng *rand.Rand, t *tally) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rng, p.tally, p.weather = rng, t, weather{}
	p.shown.forget()
	p.ctx, p.cut = context.WithCancel(context.Background())
}

// set changes the weather. Where nothing gets through any more, what is under way ends too.
func (p *proxy) set(w weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.weather = w
	if w.parted {
		p.disconnect()
	}
}

// written is how many writes came so far.
func (p *proxy) written() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writes
}

// drop ends what is under way.
func (p *proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disconnect()
}

func (p *proxy) disconnect() {
	p.cut()
	p.ctx, p.cut = context.WithCancel(context.Background())
}

// lot is what becomes of one request.
type lot struct {
	ctx     context.Context // ends when connections are cut
	delay   time.Duration
	refused bool
	lost    bool
	code    int  // in place of the answer; 0: the answer
	later   bool // it asks to be tried again later
	done    bool // it is carried out all the same
}

func (p *proxy) draw(r *http.Request) lot {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, w, writes := lot{ctx: p.ctx}, p.weather, r.Method != http.MethodGet
	if writes && !strings.Contains(r.URL.Path, "/leases") {
		p.writes++
	}
	if w.hidden != "" && strings.Contains(r.URL.Path, w.hidden) {
		p.tally.add("answers 500 for "+w.hidden, 1)
		l.code = http.StatusInternalServerError
		return l
	}
	if w.latency > 0 {
		l.delay = time.Duration(p.rng.Int64N(int64(w.latency)))
	}
	d := p.rng.IntN(100)
	switch {
	case w.parted, d < w.refused:
		l.refused = true
		p.tally.add("requests refused", 1)
	case d < w.refused+w.lost:
		l.lost = true
		p.tally.add("answers lost", 1)
	case d < w.refused+w.lost+w.answered:
		l.code, l.later, l.done = answers[p.rng.IntN(len(answers))], p.rng.IntN(2) == 0, p.rng.IntN(3) > 0
		p.tally.add(fmt.Sprintf("answers %d, write done %t", l.code, writes && l.done), 1)
	}
	return l
}

func (p *proxy) serve(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	l := p.draw(r)
	select {
	case <-time.After(l.delay):
	case <-r.Context().Done():
		return // nobody waits for it: it must not be carried out by the time that another leads
	case <-l.ctx.Done():
		panic(http.ErrAbortHandler)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	r = r.WithContext(ctx)
	if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/leases") {
		p.shown.electing(r)
	}
	switch {
	case l.refused:
		panic(http.ErrAbortHandler)
	case l.lost && r.Method != http.MethodGet:
		forward.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case l.lost:
		panic(http.ErrAbortHandler)
	case l.code != 0:
		if l.done && r.Method != http.MethodGet {
			forward.ServeHTTP(httptest.NewRecorder(), r)
		}
		refuse(w, l.code, l.later)
	default:
		if r.URL.Query().Get("watch") != "" {
			lags := &lagging{ResponseWriter: w, proxy: p, request: r}
			defer lags.close()
			w = lags
		}
		forward.ServeHTTP(w, r)
	}
	if l.ctx.Err() != nil {
		panic(http.ErrAbortHandler)
	}
}

// lagging delays the events of a watch, and those after them. Of nodes it notes what it passes on.
type lagging struct {
	http.ResponseWriter
	proxy   *proxy
	request *http.Request
	shows   io.WriteCloser // nil before the first event, and of other objects
}

func (l *lagging) close() {
	if l.shows != nil {
		_ = l.shows.Close()
	}
}

// Unwrap lets the events be flushed.
func (l *lagging) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func (l *lagging) Write(b []byte) (int, error) {
	p := l.proxy
	p.mu.Lock()
	d := time.Duration(0)
	if w := p.weather; w.late != "" && strings.Contains(l.request.URL.Path, w.late) {
		d = time.Duration(p.rng.Int64N(int64(w.lag)))
		p.tally.add("events late", 1)
	}
	p.mu.Unlock()
	pause(l.request.Context(), d)
	n, err := l.ResponseWriter.Write(b)
	if err != nil || l.request.Context().Err() != nil || l.request.URL.Path != nodesPath {
		return n, err
	}
	if l.shows == nil {
		l.shows = p.shown.follow(l.Header().Get("Content-Type"))
	}
	_, err = l.shows.Write(b)
	return n, err
}

// refuse answers as an API server does.
func refuse(w http.ResponseWriter, code int, later bool) {
	reasons := map[int]string{http.StatusConflict: "Conflict", http.StatusTooManyRequests: "TooManyRequests", http.StatusInternalServerError: "InternalError", http.StatusGatewayTimeout: "Timeout"}
	if later && code != http.StatusConflict {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = io.Copy(w, strings.NewReader(fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"injected","reason":%q,"code":%d}`, reasons[code], code)))
}
