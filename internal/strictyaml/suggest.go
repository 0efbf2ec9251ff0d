package strictyaml

import (
	"fmt"
	"strings"
)

// maxListed is how many keys a message lists when none of them is close to the one found.
const maxListed = 15

// maxSuggested is the longest key, in bytes, that is compared with the known ones.
const maxSuggested = 64

// suggest is the end of an unknown key's message: the known key that was probably meant,
// else all that there are.
func suggest(key string, known []string) string {
	if len(key) > maxSuggested {
		return ""
	}
	best, least := "", 1+len(key)/3
	for _, name := range known {
		if distance := editDistance(strings.ToLower(key), strings.ToLower(name)); distance <= least && (best == "" || distance < least) {
			best, least = name, distance
		}
	}
	switch {
	case best != "":
		return fmt.Sprintf("; did you mean %q?", best)
	case len(known) <= maxListed:
		return "; known here: " + strings.Join(known, ", ")
	}
	return ""
}

// editDistance is the number of characters to insert, delete or replace to make b of a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
