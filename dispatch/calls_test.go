package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Every call of an engine to its store and its index goes through a caller, which may make it, fail it or
// change it. The wrapper methods are generated from the interfaces (calls_made_test.go), so that no call
// escapes.

// A caller makes the calls of an engine to SQL and to the index, or injects a fault. It may make a call
// later, twice or never.
type caller interface {
	call(ctx context.Context, op string, args []any, do work) (any, error)
}

// work makes one call.
type work = func(context.Context) (any, error)

// call0, call1 and call2 make calls that return zero, one or two values and an error.
func call0(ctx context.Context, c caller, op string, do func(context.Context) error, args ...any) error {
	_, err := c.call(ctx, op, args, func(ctx context.Context) (any, error) { return nil, do(ctx) })
	return err
}

func call1[T any](
	ctx context.Context, c caller, op string, do func(context.Context) (T, error), args ...any,
) (T, error) {
	got, err := c.call(ctx, op, args, func(ctx context.Context) (any, error) { return do(ctx) })
	value, _ := got.(T)
	return value, err
}

// two is the result of a call with two values.
type two[T, U any] struct {
	one   T
	other U
}

func call2[T, U any](
	ctx context.Context, c caller, op string, do func(context.Context) (T, U, error), args ...any,
) (T, U, error) {
	got, err := call1(ctx, c, op, func(ctx context.Context) (v two[T, U], err error) {
		v.one, v.other, err = do(ctx)
		return v, err
	}, args...)
	return got.one, got.other, err
}

// A calledStore is SQL as an engine calls it; a calledIndex is the index.
type calledStore struct {
	dispatch.Store
	caller
}

type calledIndex struct {
	dispatch.Schedule
	caller
}

// Clock is an optional method of an index.
func (s *calledIndex) Clock(ctx context.Context) (int64, error) {
	return call1(ctx, s, "Clock", s.Schedule.(interface {
		Clock(ctx context.Context) (int64, error)
	}).Clock)
}

var (
	// errBroken is the error of an index that cannot be reached, errDown that of SQL.
	errBroken = errors.New("connection reset")
	errDown   = fmt.Errorf("connection refused: %w", store.ErrUnavailable)
)

// A call is a call with an effect: its arguments without the context, and its result.
type call struct {
	args []any
	got  any
	do   func() error
}

// An effect decides what happens to a call. c.do makes the call; the caller gets the effect's error.
type effect func(ctx context.Context, c *call) error

// fail returns the error without making the call.
func fail(err error) effect {
	return func(context.Context, *call) error { return err }
}

// slow makes the call after d.
func slow(d time.Duration) effect {
	return func(_ context.Context, c *call) error {
		time.Sleep(d)
		return c.do()
	}
}

// hang waits until the caller gives up, without making the call.
func hang(ctx context.Context, _ *call) error {
	<-ctx.Done()
	return ctx.Err()
}

// loseReply makes the call and returns an error instead of its result.
func loseReply(_ context.Context, c *call) error {
	if err := c.do(); err != nil {
		return err
	}
	return errDown
}

// before calls f and then makes the call.
func before(f func()) effect {
	return func(_ context.Context, c *call) error {
		f()
		return c.do()
	}
}

// faults inject effects into the calls of a store or an index. The zero value injects none.
type faults struct {
	mu      sync.Mutex
	effects map[string]effect
	left    map[string]int // remaining calls with the effect; negative: all
	calls   map[string]int
}

// set injects the effect into all further calls of these operations; nil ends that.
func (f *faults) set(w effect, ops ...string) { f.times(-1, w, ops...) }

// times injects the effect into the next n calls of each operation.
func (f *faults) times(n int, w effect, ops ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.effects == nil {
		f.effects, f.left = map[string]effect{}, map[string]int{}
	}
	for _, op := range ops {
		f.effects[op], f.left[op] = w, n
	}
}

// count returns how many calls of an operation were made.
func (f *faults) count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// next counts a call and returns its effect, or nil.
func (f *faults) next(op string) effect {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[op]++
	if f.left[op] == 0 {
		return nil
	}
	f.left[op]--
	return f.effects[op]
}

// call makes a call with its effect.
func (f *faults) call(ctx context.Context, op string, args []any, do work) (any, error) {
	w := f.next(op)
	if w == nil {
		return do(ctx)
	}
	c := &call{args: args}
	c.do = func() (err error) {
		c.got, err = do(ctx)
		return err
	}
	err := w(ctx, c)
	return c.got, err
}
