package main

import (
	"encoding/xml"
	"fmt"
	"strings"
	"time"
)

// change is a node's state from some time on, counted from the nodes' registration.
type change struct {
	at    time.Duration
	state string
}

// The picture's measures, in its own units.
const (
	left, right = 150, 850 // where time begins and ends
	first, lane = 46, 34   // the first lane's top, and the distance to the next one
	bar         = 20       // a lane's height
)

// colours of the states, in the order of the legend.
var colours = []struct{ state, colour string }{
	{stateTainted, "#b6bcc6"},
	{stateVerifying, "#4c8dd6"},
	{stateRetry, "#e0a53a"},
	{stateVerified, "#4aa564"},
	{stateFailed, "#cc5247"},
}

// picture draws the run as an SVG: a lane for each node, coloured by the node's state over time.
func picture(nodes []scenario, history map[string][]change, until time.Duration) string {
	x := func(at time.Duration) float64 {
		return left + (right-left)*min(1, at.Seconds()/until.Seconds())
	}
	colour := map[string]string{}
	for _, c := range colours {
		colour[c.state] = c.colour
	}
	bottom := first + lane*len(nodes)
	var b strings.Builder
	text := func(x float64, y int, attributes, s string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d"%s>`, x, y, attributes)
		_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
		b.WriteString("</text>\n")
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1020 %d" font-family="sans-serif" font-size="13" fill="#24292f">`+"\n", bottom+56)
	fmt.Fprintf(&b, `<rect width="1020" height="%d" fill="#ffffff"/>`+"\n", bottom+56)
	text(20, 24, ` font-weight="bold"`, "make demo: five new nodes, from registration to result")
	for s := time.Duration(0); s <= until; s += time.Second {
		fmt.Fprintf(&b, `<line x1="%[1]f" x2="%[1]f" y1="%[2]d" y2="%[3]d" stroke="#e4e7eb"/>`+"\n", x(s), first-4, bottom)
		text(x(s), bottom+14, ` text-anchor="middle" font-size="11" fill="#57606a"`, fmt.Sprintf("%d s", int(s.Seconds())))
	}
	for i, n := range nodes {
		top := first + lane*i
		text(20, top+9, ` font-weight="bold"`, n.name)
		text(20, top+22, ` font-size="11" fill="#57606a"`, n.short)
		changes := history[n.name]
		for j, c := range changes {
			end := until
			if j+1 < len(changes) {
				end = changes[j+1].at
			}
			fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", x(c.at), top, max(1, x(end)-x(c.at)), bar, colour[c.state])
		}
		if len(changes) > 0 {
			last := changes[len(changes)-1]
			text(right+10, top+14, ` fill="`+colour[last.state]+`"`, fmt.Sprintf("%s, %.1f s", last.state, last.at.Seconds()))
		}
	}
	at := float64(left)
	for _, c := range colours {
		fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="12" height="12" fill="%s"/>`+"\n", at, bottom+30, c.colour)
		text(at+18, bottom+41, "", c.state)
		at += 40 + 8*float64(len(c.state))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
