// Package recovery starts the worker's goroutines. An unrecovered panic in any goroutine ends the process with exit
// code 2, which means a configuration error. So every goroutine starts here, and its panic goes to whoever waits for
// it.
package recovery

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

// Panic is a recovered panic.
type Panic struct {
	// Value is what panic was called with, and Place the file and line of it.
	Value any
	Place string
}

func (p *Panic) Error() string {
	return fmt.Sprintf("internal error of the worker: %v at %s", p.Value, p.Place)
}

// Reason is the check's reason for an internal error.
func (p *Panic) Reason() check.Reason { return check.ReasonInternal }

// Sentence marks Error as a sentence for package neterror.
func (p *Panic) Sentence() bool { return true }

// Catch calls f and returns its panic, if there was one.
func Catch(f func()) (caught *Panic) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case *Panic: // of a goroutine that f waited for: that is where it happened
			caught = v
		default:
			caught = &Panic{Value: v, Place: place(debug.Stack())}
		}
	}()
	f()
	return nil
}

// Try calls f and returns its panic as an error. It is for callbacks that libraries call in their own goroutines.
func Try(f func() error) error {
	var err error
	if p := Catch(func() { err = f() }); p != nil {
		return p
	}
	return err
}

// Go calls f in a goroutine, and caught if it panics.
func Go(f func(), caught func(*Panic)) {
	go func() {
		if p := Catch(f); p != nil {
			caught(p)
		}
	}()
}

// Each calls f with 0 to n-1 concurrently and waits. It repeats a panic in the caller.
func Each(n int, f func(i int)) {
	ended := make(chan *Panic, n)
	for i := range n {
		Go(func() { f(i); ended <- nil }, func(p *Panic) { ended <- p })
	}
	var caught *Panic
	for range n {
		if p := <-ended; p != nil {
			caught = p
		}
	}
	if caught != nil {
		panic(caught)
	}
}

// place finds the line of the code that panicked in a stack trace.
func place(stack []byte) string {
	lines := strings.Split(string(stack), "\n")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "panic(") })
	for i := at + 1; at >= 0 && i < len(lines); i++ {
		// Built with -trimpath, the runtime's files have no folder before theirs.
		if l := strings.TrimSpace(lines[i]); strings.Contains(l, ".go:") && !strings.Contains("/"+l, "/runtime/") {
			file, _, _ := strings.Cut(l[strings.LastIndex(l, "/")+1:], " ")
			return file
		}
	}
	return "an unknown place"
}
