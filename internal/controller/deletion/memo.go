package deletion

import (
	"context"
	"sync"
	"time"
)

// readTimeout bounds one read. The client sets no timeout of its own, and those who wait for the same answer wait as long.
const readTimeout = 30 * time.Second

// memo keeps the last answer for a while, errors too, so that a hundred held nodes do not each ask the API server.
// The zero value is ready for use.
type memo[T any] struct {
	init sync.Once
	turn chan struct{} // a mutex whose wait ends with the context

	at    time.Time // by the monotonic clock; zero when nothing is kept
	value T
	err   error
}

// get returns an answer that is no older than age, and one read after the call if fresh is set.
func (m *memo[T]) get(ctx context.Context, age time.Duration, fresh bool, read func(context.Context) (T, error)) (T, error) {
	if err := m.lock(ctx); err != nil {
		var none T
		return none, err
	}
	defer m.unlock()
	if !fresh && !m.at.IsZero() && time.Since(m.at) < age {
		return m.value, m.err
	}
	limited, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	value, err := read(limited)
	m.forget()
	if ctx.Err() == nil { // or the error may be this caller's alone
		m.at, m.value, m.err = time.Now(), value, err
	}
	return value, err
}

// change runs what changes the answer. No read overlaps it, so none from before it is kept.
func (m *memo[T]) change(ctx context.Context, write func(context.Context) error) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	m.forget()
	return write(ctx)
}

func (m *memo[T]) forget() {
	var none T
	m.at, m.value, m.err = time.Time{}, none, nil
}

func (m *memo[T]) lock(ctx context.Context) error {
	m.init.Do(func() { m.turn = make(chan struct{}, 1) })
	select {
	case m.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *memo[T]) unlock() { <-m.turn }
