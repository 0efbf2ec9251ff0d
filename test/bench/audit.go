//go:build bench

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// auditLog is the file in which the API server accounts for the controller's requests.
type auditLog string

// mark is where the log ends now.
func (l auditLog) mark() int64 {
	if info, err := os.Stat(string(l)); err == nil {
		return info.Size()
	}
	return 0
}

// requests are the controller's since the mark, by verb, resource and answer, without what its lease costs. Watches are not
// counted; a read is a get or a list.
func (l auditLog) requests(since int64) (counts map[string]int, writes, reads, events int, err error) {
	f, err := os.Open(string(l))
	if os.IsNotExist(err) {
		return nil, 0, 0, 0, nil // it asked for nothing
	}
	if err != nil {
		return nil, 0, 0, 0, err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(since, io.SeekStart); err != nil {
		return nil, 0, 0, 0, err
	}
	counts = map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb           string
			ObjectRef      struct{ Resource, Subresource string }
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, 0, 0, 0, err
		}
		if e.ObjectRef.Resource == "leases" || e.ObjectRef.Resource == "" {
			continue
		}
		switch e.Verb {
		case "watch":
			continue
		case "get", "list":
			reads++
		default:
			if e.ObjectRef.Resource == "events" {
				events++
			} else {
				writes++
			}
		}
		what := e.Verb + " " + e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			what += "/" + e.ObjectRef.Subresource
		}
		counts[fmt.Sprintf("%s %d", what, e.ResponseStatus.Code)]++
	}
	return counts, writes, reads, events, lines.Err()
}
