package apiread

import (
	"context"
	"sync"
	"time"
)

// readTimeout bounds one read: the client sets no timeout of its own, and other readers wait for the same answer.
const readTimeout = 30 * time.Second

// Last keeps the last answer for a while, errors too, so that many readers cost one request. The zero value is ready
// for use.
type Last[T any] struct {
	init sync.Once
	lock chan struct{} // a mutex whose wait ends with the context

	at    time.Time // by the monotonic clock; zero when nothing is kept
	value T
	err   error
}

// Get returns an answer that is no older than age, and one read after the call if fresh is set. A read takes 30
// seconds at most.
func (m *Last[T]) Get(ctx context.Context, age time.Duration, fresh bool,
	read func(context.Context) (T, error)) (T, error) {
	if err := m.acquire(ctx); err != nil {
		var none T
		return none, err
	}
	defer m.release()
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

// Change runs a write that changes the answer. No read overlaps it, so no answer from before it is kept.
func (m *Last[T]) Change(ctx context.Context, write func(context.Context) error) error {
	if err := m.acquire(ctx); err != nil {
		return err
	}
	defer m.release()
	m.forget()
	return write(ctx)
}

func (m *Last[T]) forget() {
	var none T
	m.at, m.value, m.err = time.Time{}, none, nil
}

func (m *Last[T]) acquire(ctx context.Context) error {
	m.init.Do(func() { m.lock = make(chan struct{}, 1) })
	select {
	case m.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *Last[T]) release() { <-m.lock }
