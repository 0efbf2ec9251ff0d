// Command benchplot draws what bench has measured: how long nodes were held, and how cost grows with their number.
//
//	benchplot FOLDER    with the JSON files of bench; the SVG files are written beside them
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// measurement is what bench writes of a case, as far as it is drawn.
type measurement struct {
	Case  string
	What  string
	Nodes int
	Turns []struct {
		Side      string
		Quantiles []float64
	}
	Summary []struct {
		Side    string
		Metrics map[string]struct{ Median float64 }
	}
}

// burst and fleet begin the names of the cases that show how cost grows.
const (
	burst = "burst-"
	fleet = "fleet-"
)

// curve is a metric of a side over the number of nodes.
type curve struct{ name, side, metric string }

const width, height = 13 * vg.Centimeter, 8 * vg.Centimeter

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "benchplot FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "benchplot:", err)
		os.Exit(1)
	}
}

func run(folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return err
	}
	var bursts, fleets []measurement
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var m measurement
		if err := json.Unmarshal(content, &m); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		p, err := held(m)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if p != nil {
			if err := save(strings.TrimSuffix(file, ".json")+".svg", [][]*plot.Plot{{p}}); err != nil {
				return err
			}
		}
		if strings.HasPrefix(m.Case, burst) {
			bursts = append(bursts, m)
		}
		if strings.HasPrefix(m.Case, fleet) {
			fleets = append(fleets, m)
		}
	}
	of := func(metric string) []curve {
		return []curve{{"controller", "controller", metric}, {"floor", "floor", metric}, {"same writes", "same writes", metric}}
	}
	if err := tiles(filepath.Join(folder, "growth.svg"), bursts, "nodes at once", []axis{
		{"p99 s", of("p99 s")}, {"CPU s", of("CPU s")}, {"RSS MiB", of("RSS MiB")}, {"writes a node", of("writes a node")},
	}); err != nil {
		return err
	}
	beside := func(metric, informers string) []curve {
		return []curve{{"controller", "at rest", metric}, {"informer that does nothing", "at rest", informers}}
	}
	return tiles(filepath.Join(folder, "fleet.svg"), fleets, "verified nodes", []axis{
		{"anonymous memory, MiB", []curve{{"controller", "at rest", "anonymous MiB"}}},
		{"% of a core at rest", beside("% of a core", "an empty informer's")},
		{"ready after s", beside("ready after s", "an empty informer after s")},
		{"scrape, ms", []curve{{"controller", "at rest", "scrape ms"}}},
	})
}

// axis is what a plot shows.
type axis struct {
	label  string
	curves []curve
}

// tiles draws four plots of measurements with different numbers of nodes; none where there is but one of these.
func tiles(file string, all []measurement, nodes string, axes []axis) error {
	if len(all) < 2 {
		return nil
	}
	slices.SortFunc(all, func(a, b measurement) int { return cmp.Compare(a.Nodes, b.Nodes) })
	var tiles [2][]*plot.Plot
	for i, a := range axes {
		p, err := growth(all, nodes, a)
		if err != nil {
			return err
		}
		tiles[i/2] = append(tiles[i/2], p)
	}
	return save(file, tiles[:])
}

// held draws which part of the nodes was released after what time, all turns of a side together; nil where it was not measured.
func held(m measurement) (*plot.Plot, error) {
	sides := map[string][]float64{}
	var names []string
	for _, t := range m.Turns {
		if len(t.Quantiles) > 0 && sides[t.Side] == nil {
			names = append(names, t.Side)
		}
		sides[t.Side] = append(sides[t.Side], t.Quantiles...)
	}
	if len(names) == 0 {
		return nil, nil
	}
	slices.Sort(names)
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = m.What, "held for, s", "% of nodes released"
	longest := 0.0
	var lines []any
	for _, name := range names {
		waits := sides[name]
		slices.Sort(waits)
		longest = max(longest, waits[len(waits)-1])
		points := make(plotter.XYs, len(waits))
		for i, w := range waits {
			points[i] = plotter.XY{X: w, Y: 100 * float64(i+1) / float64(len(waits))}
		}
		lines = append(lines, name, points)
	}
	err := plotutil.AddLines(p, lines...)
	fit(p, longest, 100)
	return p, err
}

// fit makes both axes begin at 0, and leaves room for the legend below the curves and for the labels at the ends.
func fit(p *plot.Plot, x, y float64) {
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1.1*x, 0, 1.05*y
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks{}, ticks{}
	p.Legend.Left, p.Legend.Padding, p.Legend.XOffs, p.Legend.YOffs = true, vg.Millimeter, width/2, 3*vg.Millimeter
}

// ticks are the default ones, labelled without zeros that say nothing.
type ticks struct{ plot.DefaultTicks }

// Ticks implements plot.Ticker.
func (t ticks) Ticks(least, most float64) []plot.Tick {
	all := t.DefaultTicks.Ticks(least, most)
	for i := range all {
		if all[i].Label != "" {
			all[i].Label = strconv.FormatFloat(all[i].Value, 'f', -1, 64)
		}
	}
	return all
}

// growth draws curves over the number of nodes.
func growth(all []measurement, nodes string, a axis) (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = nodes, a.label
	var lines []any
	most, highest := 0.0, 0.0
	for _, c := range a.curves {
		var points plotter.XYs
		for _, m := range all {
			for _, row := range m.Summary {
				if v, ok := row.Metrics[c.metric]; ok && row.Side == c.side {
					most, highest = max(most, float64(m.Nodes)), max(highest, v.Median)
					points = append(points, plotter.XY{X: float64(m.Nodes), Y: v.Median})
				}
			}
		}
		if len(points) > 0 {
			lines = append(lines, c.name, points)
		}
	}
	err := plotutil.AddLinePoints(p, lines...)
	fit(p, most, highest)
	return p, err
}

// save writes plots in rows and columns.
func save(file string, plots [][]*plot.Plot) error {
	rows, columns := len(plots), len(plots[0])
	canvas := vgsvg.New(vg.Length(columns)*width, vg.Length(rows)*height)
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: vg.Millimeter, PadY: vg.Millimeter}
	for i, row := range plot.Align(plots, tiles, draw.New(canvas)) {
		for j := range row {
			plots[i][j].Draw(row[j])
		}
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(out); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
