package run

import (
	"context"
	"sync"
)

// curtailed is a context that can be ended as if its deadline had passed, for that is what it
// means to a check: what it waits for did not answer in the time that it had.
type curtailed struct {
	context.Context
	done chan struct{}

	mu  sync.Mutex
	err error
	cut bool
}

func curtail(parent context.Context) *curtailed {
	c := &curtailed{Context: parent, done: make(chan struct{})}
	context.AfterFunc(parent, func() { c.end(parent.Err(), false) })
	return c
}

// Cut ends the context.
func (c *curtailed) Cut() { c.end(context.DeadlineExceeded, true) }

func (c *curtailed) end(err error, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err, c.cut = err, cut
		close(c.done)
	}
}

func (c *curtailed) Done() <-chan struct{} { return c.done }

func (c *curtailed) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// wasCut reports whether the context was ended by Cut.
func wasCut(ctx context.Context) bool {
	c, ok := ctx.(*curtailed)
	if !ok {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut
}
