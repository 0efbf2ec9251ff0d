// Package table prints tables as kubectl does.
package table

import (
	"io"
	"strings"
	"unicode/utf8"
)

// gap is how far columns are apart, as in the printers of k8s.io/cli-runtime.
const gap = 3

// Write prints rows, with columns of equal width; the last one is not padded. paint, when not nil, adds
// colour to a cell's text: text/tabwriter, which the rest could be left to, would count the colour's
// characters.
func Write(w io.Writer, rows [][]string, paint func(row, column int, text string) string) error {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			text := cell
			if paint != nil {
				text = paint(n, i, cell)
			}
			line.WriteString(text)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+gap))
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
