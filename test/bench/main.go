//go:build bench

// Command bench measures the built controller on a real API server and etcd. It compares it with a floor: a bare loop
// in this process that makes the same API server do the fewest writes that can do the job. Floor and controller run in
// turns on one control plane. Only their ratio is meaningful, because absolute times differ between machines.
//
//	go run ./test/bench [-turns 5] [-nodes N] [-out FOLDER] [CASE...]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// measurement is what is written of a case: where it was measured, and every turn.
type measurement struct {
	Case    string    `json:"case"`
	What    string    `json:"what"`
	Nodes   int       `json:"nodes"`
	Began   time.Time `json:"began"`
	Cores   int       `json:"cores"`
	Go      string    `json:"go"`
	Turns   []result  `json:"turns"`
	Summary []row     `json:"summary"`
}

func run(ctx context.Context, args []string) error {
	klog.SetLogger(logr.Discard()) // watches that end with a turn
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	turns := flags.Int("turns", 5, "how often each side has its turn")
	nodes := flags.Int("nodes", 0, "nodes, in place of the case's own number")
	out := flags.String("out", "", "`folder` for one JSON file a case, which plot reads")
	profiles := flags.String("profiles", "", "`folder` for the controllers' heap profiles, and a CPU profile of an idle one")
	duration := flags.Duration("duration", 30*time.Minute, "how long a soak lasts")
	only := flags.String("informer", "", "only watch the nodes of this `kubeconfig`, as the floor of the idle case does")
	list := flags.Bool("list", false, "list the cases")
	flags.Usage = func() {
		_, _ = fmt.Fprintln(flags.Output(), "bench [flags] [CASE...]")
		flags.PrintDefaults()
		printCases(flags.Output())
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list {
		printCases(os.Stdout)
		return nil
	}
	if *only != "" {
		return inform(ctx, *only)
	}
	chosen, err := choose(flags.Args())
	if err != nil {
		return err
	}
	for _, folder := range []string{*out, *profiles} { // else a case finds out after minutes
		if folder == "" {
			continue
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	for _, c := range chosen {
		if *nodes > 0 {
			c.nodes = *nodes
		}
		m, err := measure(ctx, c, *turns, *profiles, *duration, os.Stderr)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Printf("\n%s: %s (%d nodes, %d turns)\n\n", c.name, c.what, c.nodes, *turns)
		printTable(os.Stdout, m.Summary)
		if *out != "" {
			if err := m.write(*out); err != nil {
				return err
			}
		}
	}
	return nil
}

// choose finds the cases of these names; all that make bench runs if there are none.
func choose(names []string) ([]benchCase, error) {
	all := cases()
	if len(names) == 0 {
		return slices.DeleteFunc(all, func(c benchCase) bool { return c.long }), nil
	}
	var chosen []benchCase
	for _, name := range names {
		i := slices.IndexFunc(all, func(c benchCase) bool { return c.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no case %q: -list names them", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func printCases(w io.Writer) {
	for _, c := range cases() {
		_, _ = fmt.Fprintf(w, "  %-16s %s\n", c.name, c.what)
	}
}

// measure lets the sides of a case take turns. Every second turn is in the opposite order, so that neither always finds the
// larger etcd.
func measure(ctx context.Context, c benchCase, turns int, profiles string, duration time.Duration, progress io.Writer) (measurement, error) {
	m := measurement{Case: c.name, What: c.what, Nodes: c.nodes, Began: time.Now().UTC().Truncate(time.Second), Cores: runtime.NumCPU(), Go: runtime.Version()}
	b, err := newBed(ctx, c.plane, c.gogc)
	if err != nil {
		return m, err
	}
	defer b.stop()
	b.profiles, b.duration = profiles, duration
	if c.prepare != nil {
		if err := c.prepare(ctx, b, c.nodes); err != nil {
			return m, fmt.Errorf("prepare: %w", err)
		}
	}
	for t := range turns {
		sides := slices.Clone(c.sides)
		if t%2 == 1 {
			slices.Reverse(sides)
		}
		for _, s := range sides {
			r := result{Side: s.name, Turn: t + 1, Nodes: c.nodes, Values: map[string]float64{}}
			if err := s.turn(ctx, b, &r); err != nil {
				return m, fmt.Errorf("%s, turn %d: %w", s.name, t+1, err)
			}
			m.Turns = append(m.Turns, r)
			_, _ = fmt.Fprintf(progress, "%s %s %d/%d: %s\n", c.name, s.name, t+1, turns, r.line())
		}
	}
	m.Summary = summarize(m.Turns, c.sides)
	return m, nil
}

func (m measurement) write(folder string) error {
	content, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, m.Case+".json"), append(content, '\n'), 0o644)
}
