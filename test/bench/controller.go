//go:build bench

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// controller is a running controller, and where its turn began in the audit log.
type controller struct {
	*install.Controller
	bed           *bed
	name          string
	mark          int64
	read, written uint64        // when the mark was set
	profile       string        // the address of its profiles; empty where it serves none
	ready         time.Duration // how long it took from its start until it was ready
}

// settle is how long a controller has from being elected to being measured.
const settle = time.Second

// start starts a controller with the chart's rights and waits until one leads. kubeconfig overrides the service account's.
func (b *bed) start(ctx context.Context, name string, settings map[string]any, kubeconfig string) (_ *controller, err error) {
	_ = os.Remove(b.cluster.LogFile(name)) // an earlier turn's
	profile := ""
	if b.profiles != "" {
		ports, err := cluster.FreePorts("127.0.0.1", 1)
		if err != nil {
			return nil, err
		}
		profile = fmt.Sprintf("127.0.0.1:%d", ports[0])
		if settings = maps.Clone(settings); settings == nil {
			settings = map[string]any{}
		}
		settings["health"] = map[string]any{"pprofBindAddress": profile}
	}
	var args []string
	if kubeconfig != "" {
		args = []string{"--kubeconfig", kubeconfig}
	}
	c := &controller{bed: b, name: name, profile: profile}
	go c.saveStart(ctx)
	began := time.Now()
	if c.Controller, err = install.StartController(ctx, b.cluster, name, settings, args...); err != nil {
		return nil, err
	}
	c.ready = time.Since(began)
	return c, nil
}

// lead waits until the controller leads, and begins to count its requests.
func (c *controller) lead(ctx context.Context) error {
	for {
		page, _, err := c.scrape(ctx)
		if err != nil {
			return err
		}
		if bytes.Contains(page, []byte("\nkube_node_ready_leader 1\n")) {
			break
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.Join(pause(ctx, settle), c.begin())
}

// begin begins to account for what it asks for.
func (c *controller) begin() (err error) {
	c.mark = c.bed.audit.mark()
	c.read, c.written, err = traffic(c.Pid())
	return err
}

// save writes a profile into the bed's folder; the kind is its path below /debug/pprof. Without a folder it does nothing.
func (c *controller) save(ctx context.Context, kind string) error {
	if c.profile == "" {
		return nil
	}
	page, _, err := get(ctx, "http://"+c.profile+"/debug/pprof/"+kind)
	if err != nil {
		return err
	}
	kind, _, _ = strings.Cut(kind, "?")
	return os.WriteFile(filepath.Join(c.bed.profiles, fmt.Sprintf("%s-%d", kind, time.Now().Unix())), page, 0o600)
}

// saveStart profiles its first ten seconds, from when it serves profiles.
func (c *controller) saveStart(ctx context.Context) {
	for c.profile != "" && ctx.Err() == nil {
		if c.save(ctx, "profile?seconds=10") == nil {
			return
		}
		_ = pause(ctx, settle/100)
	}
}

// scrape reads its metrics, and says how long that took.
func (c *controller) scrape(ctx context.Context) ([]byte, time.Duration, error) {
	return get(ctx, c.MetricsURL)
}

func get(ctx context.Context, url string) ([]byte, time.Duration, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = response.Body.Close() }()
	page, err := io.ReadAll(response.Body)
	return page, time.Since(began), err
}

// usage is what a process has used so far: CPU in seconds, and the most memory that it ever held, in MiB. The peak is the
// address space's own (VmHWM): what wait reports for a child also covers the parent that it was forked from.
func usage(pid int) (cpu, rss float64, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, err
	}
	stat, err := p.Stat()
	if err != nil {
		return 0, 0, err
	}
	status, err := p.NewStatus()
	if err != nil {
		return 0, 0, err
	}
	return stat.CPUTime(), float64(status.VmHWM) / (1 << 20), nil
}

// anonymous is the memory of a process that the kernel cannot take back, in MiB.
func anonymous(pid int) (float64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	status, err := p.NewStatus()
	return float64(status.RssAnon) / (1 << 20), err
}

// traffic is what a process has read and written so far, in bytes: what it received and sent, with TLS, and its log.
func traffic(pid int) (read, written uint64, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, err
	}
	used, err := p.IO()
	return used.RChar, used.WChar, err
}

// account enters what the controller used and asked for since it leads, by node of the turn.
func (c *controller) account(r *result) error {
	cpu, rss, err := usage(c.Pid())
	if err != nil {
		return err
	}
	counts, writes, reads, events, err := c.bed.audit.requests(c.mark)
	if err != nil {
		return err
	}
	r.Requests = counts
	r.Values[metricCPU], r.Values[metricRSS] = cpu, rss
	per := func(n int) float64 { return float64(n) / float64(r.Nodes) }
	r.Values[metricWrites], r.Values[metricReads], r.Values[metricEvents] = per(writes), per(reads), per(events)
	read, written, err := traffic(c.Pid())
	r.Values[metricReceived], r.Values[metricSent] = per(int(read-c.read))/1024, per(int(written-c.written))/1024
	return err
}

// end stops the controller. Errors in its log until then are a fault of the run.
func (c *controller) end() error {
	log, err := os.ReadFile(c.LogFile)
	c.Terminate(10 * time.Second)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, `"level":"error"`) {
			return fmt.Errorf("%s logged %s", c.name, line)
		}
	}
	return nil
}

// during runs f beside a leading controller, accounts for it and ends it.
func (b *bed) during(ctx context.Context, r *result, settings map[string]any, kubeconfig string, f func(*controller) error) error {
	c, err := b.start(ctx, "controller", settings, kubeconfig)
	if err != nil {
		return err
	}
	if err = c.lead(ctx); err == nil {
		err = f(c)
	}
	if err == nil {
		err = errors.Join(c.account(r), c.save(ctx, "heap"))
	}
	return errors.Join(err, c.end())
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
