package exec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

const (
	// maxCodeLine limits the first line of a result file: an exit code and its line break.
	maxCodeLine = 16
	// maxDocument limits a JSON document.
	maxDocument = 1 << 20
	// maxShown limits how much of a severity is repeated in a message.
	maxShown = 64
)

// readResult reads what an init container has written. Init containers end before the worker starts, so a file that is
// missing or invalid stays so.
func (s *Settings) readResult() check.Finding {
	code, output, err := parseResultFile(s.ResultFile, s.maxResult())
	if err != nil {
		return s.unknown("the result file %s of an init container %v", s.ResultFile, err)
	}
	return s.evaluate("the init container that wrote "+s.ResultFile, code, output, &capped{})
}

func parseResultFile(path string, most int) (code int, output *capped, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, nil, fmt.Errorf("cannot be read: %w", errors.Unwrap(err))
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, int64(most)+maxCodeLine+1))
	if err != nil {
		return 0, nil, fmt.Errorf("cannot be read: %w", err)
	}
	return parseResult(data, most)
}

// parseResult splits the exit code on the first line from the output after it.
func parseResult(data []byte, most int) (code int, output *capped, err error) {
	first, rest, _ := strings.Cut(string(data), "\n")
	first = strings.TrimSpace(first)
	code, err = strconv.Atoi(first)
	if err != nil || code < 0 || code > 255 || len(first) > maxCodeLine {
		return 0, nil, errors.New("must begin with a line that holds an exit code from 0 to 255")
	}
	output = &capped{most: most}
	_, _ = output.Write([]byte(rest))
	return code, output, nil
}

// evaluate returns the finding of a command that has ended.
func (s *Settings) evaluate(name string, code int, output, errorOutput *capped) check.Finding {
	what := fmt.Sprintf("%s exited with %d", name, code)
	switch {
	case s.Verdict == VerdictJSON:
		return s.evaluateDocument(what, code, output, errorOutput.said())
	case code == exitPass:
		return check.Pass("%s%s", what, output.said())
	case code == exitFail:
		return check.Fail(check.ReasonCommandFailed, "%s%s", what, output.said())
	}
	return s.unknown("%s, which is inconclusive%s", what, output.said())
}

// evaluateDocument returns the finding of the worst severity in a JSON document. A document that passes counts only
// with exit code 0: a command that failed may not have checked everything.
func (s *Settings) evaluateDocument(what string, code int, document *capped, said string) check.Finding {
	severities, err := s.readSeverities(document)
	if err != nil {
		return s.unknown("%s, and its JSON %v%s", what, err, said)
	}
	var worst check.Finding
	for i, severity := range severities {
		f, err := s.evaluateSeverity(severity)
		if err != nil {
			return s.unknown("%s, and its JSON %v%s", what, err, said)
		}
		if i == 0 || f.Outcome > worst.Outcome {
			worst = f
		}
	}
	if worst.Passed() && code != exitPass {
		return s.unknown("%s, although its JSON has %s%s", what, worst.Message, said)
	}
	worst.Message = fmt.Sprintf("%s, and its JSON has %s%s", what, worst.Message, said)
	return worst
}

func (s *Settings) evaluateSeverity(severity string) (check.Finding, error) {
	shown := fmt.Sprintf("%s %.*s", s.SeverityField, maxShown, severity)
	switch s.Severities[severity] {
	case OutcomePassed:
		return check.Pass("%s", shown), nil
	case OutcomeWarning:
		return check.Warn(check.ReasonCommandWarned, "%s", shown), nil
	case OutcomeInconclusive:
		return check.Fail(check.ReasonUnknown, "%s", shown), nil
	case OutcomeFailed:
		return check.Fail(check.ReasonCommandFailed, "%s", shown), nil
	}
	return check.Finding{}, fmt.Errorf("has %s, which is not in severities", shown)
}

// readSeverities returns the severities in a document, each once.
func (s *Settings) readSeverities(document *capped) ([]string, error) {
	if document.more {
		return nil, fmt.Errorf("has more than %d bytes", maxDocument)
	}
	var root any
	decoder := json.NewDecoder(bytes.NewReader(document.kept))
	decoder.UseNumber()
	if err := decoder.Decode(&root); errors.Is(err, io.EOF) {
		return nil, errors.New("is missing")
	} else if err != nil {
		return nil, fmt.Errorf("is invalid: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("is followed by something else")
	}
	severities, err := lookUp(root, strings.Split(s.SeverityField, "."))
	if err == nil && len(severities) == 0 {
		err = errors.New("is an empty list")
	}
	if err != nil {
		return nil, fmt.Errorf("has no severity: %s %w", s.SeverityField, err)
	}
	slices.Sort(severities)
	return slices.Compact(severities), nil
}

// lookUp returns the values at a path of keys, in every entry of the lists on the way.
func lookUp(value any, path []string) ([]string, error) {
	switch v := value.(type) {
	case []any:
		var all []string
		for _, entry := range v {
			found, err := lookUp(entry, path)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
		return all, nil
	case map[string]any:
		if len(path) == 0 {
			return nil, errors.New("is a mapping")
		}
		entry, ok := v[path[0]]
		if !ok {
			return nil, fmt.Errorf("is not there: no key %q", path[0])
		}
		return lookUp(entry, path[1:])
	case nil:
		return nil, errors.New("is null")
	}
	if len(path) > 0 {
		return nil, fmt.Errorf("is not there: no mapping with the key %q", path[0])
	}
	return []string{fmt.Sprint(value)}, nil
}
