package check

import (
	"os"
	"regexp"
)

// Reasons lists every reason: the literals of reasons.go.
func Reasons() (all []Reason, err error) {
	source, err := os.ReadFile("reasons.go")
	for _, m := range regexp.MustCompile(`= Reason\{"(\w+)"\}`).FindAllStringSubmatch(string(source), -1) {
		all = append(all, Reason{m[1]})
	}
	return all, err
}
