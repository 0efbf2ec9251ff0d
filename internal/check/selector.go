package check

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// setRequirement is "key in (a,b)" or "key notin (a,b)".
var setRequirement = regexp.MustCompile(`^(\S+)\s+(in|notin)\s*\(([^()]*)\)$`)

// ValidateSelector checks the form of a label selector: requirements separated by commas, each
// key, !key, key=value, key==value, key!=value, key in (a,b) or key notin (a,b). The API
// server interprets it; this finds mistakes before a worker does. It does without
// apimachinery's parser, which would bring the whole of its type machinery into the worker.
func ValidateSelector(s string) error {
	for _, r := range splitRequirements(s) {
		if err := validateRequirement(strings.TrimSpace(r)); err != nil {
			return err
		}
	}
	return nil
}

// splitRequirements splits at the commas outside parentheses.
func splitRequirements(s string) []string {
	var parts []string
	depth, start := 0, 0
	for i, c := range s {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}

func validateRequirement(r string) error {
	if r == "" {
		return errors.New("has an empty requirement; separate requirements by single commas")
	}
	if m := setRequirement.FindStringSubmatch(r); m != nil {
		values := strings.Split(m[3], ",")
		for i := range values {
			values[i] = strings.TrimSpace(values[i])
		}
		return validateLabel(m[1], values...)
	}
	for _, operator := range []string{"!=", "==", "="} {
		if key, value, found := strings.Cut(r, operator); found {
			return validateLabel(strings.TrimSpace(key), strings.TrimSpace(value))
		}
	}
	return validateLabel(strings.TrimSpace(strings.TrimPrefix(r, "!")))
}

func validateLabel(key string, values ...string) error {
	if msgs := validation.IsQualifiedName(key); len(msgs) > 0 {
		return fmt.Errorf("%q is not a label key: %s", key, msgs[0])
	}
	for _, v := range values {
		if msgs := validation.IsValidLabelValue(v); len(msgs) > 0 {
			return fmt.Errorf("%q is not a label value: %s", v, msgs[0])
		}
	}
	return nil
}
