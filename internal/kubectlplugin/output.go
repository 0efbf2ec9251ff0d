package kubectlplugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// formats are the values of --output.
var formats = []string{"wide", "json", "yaml", "name"}

// structured reports whether the output is for programs.
func (v *invocation) structured() bool { return v.output == "json" || v.output == "yaml" }

// text reports whether the output is for people.
func (v *invocation) text() bool { return v.output == "" || v.output == "wide" }

// warn prints a warning. A failure cannot be reported anywhere else.
func (v *invocation) warn(format string, a ...any) {
	_, _ = fmt.Fprintf(v.warnings, "warning: "+format+"\n", a...)
}

// report reports what was done to an object, or what became of it.
func (v *invocation) report(name, result string) {
	switch {
	case v.structured():
		v.results = append(v.results, map[string]string{"name": name, "result": result})
	case v.output == "name":
		fmt.Fprintln(&v.out, name)
	default:
		fmt.Fprintf(&v.out, "%s: %s\n", name, result)
	}
}

// printObject prints x as --output says.
func (v *invocation) printObject(x any) error {
	if v.output == "yaml" {
		text, err := yaml.Marshal(x)
		v.out.Write(text)
		return err
	}
	e := json.NewEncoder(&v.out)
	e.SetIndent("", "  ")
	return e.Encode(x)
}

// print prints a table as kubectl does, each cell on a single line. Colours are added to the finished layout, because
// the printer would count their characters.
func (v *invocation) print(rows [][]string, paint func(row, column int, text string) string) {
	var layout bytes.Buffer
	w := printers.GetNewTabWriter(&layout)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = singleLine(cell)
		}
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush()
	for n, row := range rows {
		line, _ := layout.ReadString('\n')
		for i, cell := range row {
			before, after, _ := strings.Cut(line, cell)
			if v.colour && paint != nil {
				cell = paint(n, i, cell)
			}
			v.out.WriteString(before + cell)
			line = after
		}
		v.out.WriteByte('\n')
	}
}

// colours of the states, as ANSI attributes.
var colours = map[string]string{string(decide.StateVerified): "32", string(decide.StateVerifying): "36",
	string(decide.StateWaiting): "33", string(decide.StateBackingOff): "33", string(decide.StateExhausted): "31",
	string(decide.StateRemediating): "31", string(decide.StateHeld): "35",
	opened: "31", excluded: "2", unmanaged: "2", deleting: "2"}

func coloured(state string) string {
	if code := colours[state]; code != "" {
		return "\x1b[" + code + "m" + state + "\x1b[0m"
	}
	return state
}

func bold(text string) string { return "\x1b[1m" + text + "\x1b[0m" }

// truncate cuts text to a table's cell.
func truncate(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// singleLine makes one line of text that others wrote, a worker's report for example. It drops the characters that
// would control the terminal.
func singleLine(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError:
			return -1
		}
		return r
	}, text)
}

// joined joins the texts that are not empty.
func joined(separator string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), separator)
}

// age is how long before now t was; empty for none.
func age(t *time.Time, now time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(*t))
}

// until is how long after now t is.
func until(t, now time.Time) string {
	return "in " + duration.HumanDuration(t.Sub(now).Round(time.Second))
}

// timestamp is a time and how far it is from now; empty for none.
func (v *invocation) timestamp(t *time.Time) string {
	switch {
	case t == nil || t.IsZero():
		return ""
	case t.After(v.now):
		return fmt.Sprintf("%s (%s)", until(*t, v.now), t.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("%s ago (%s)", age(t, v.now), t.UTC().Format(time.RFC3339))
}
