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

// This file is what stands between an engine and its store and index: every call goes through a caller, which
// may make it, fail it, or have something else befall it. The methods that do so are made from the interfaces
// (calls_made_test.go), so that no call escapes.

// A caller makes the calls of an engine to SQL and to the index, or has something else befall them. It may
// make a call later, twice or never.
type caller interface {
	call(ctx context.Context, op string, args []any, do work) (any, error)
}

// work is a call, which the caller makes.
type work = func(context.Context) (any, error)

// call0, call1 and call2 make calls that return so many values beside an error.
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

// two is what a call brought that returns two values.
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

// A calledStore is SQL as an engine calls it, a calledIndex the index.
type calledStore struct {
	dispatch.Store
	caller
}

type calledIndex struct {
	dispatch.Schedule
	caller
}

// Clock is what an index may have besides.
func (s *calledIndex) Clock(ctx context.Context) (int64, error) {
	return call1(ctx, s, "Clock", s.Schedule.(interface {
		Clock(ctx context.Context) (int64, error)
	}).Clock)
}

var (
	// errBroken is the error of an index that cannot be reached, errDown that of a database.
	errBroken = errors.New("connection reset")
	errDown   = fmt.Errorf("connection refused: %w", store.ErrUnavailable)
)

// A call is one call whose way is set: what it was called with beside the context, and what it brought.
type call struct {
	args []any
	got  any
	do   func() error
}

// A way is what becomes of a call: do makes it, and the way's error is its caller's.
type way func(ctx context.Context, c *call) error

// fail does not make the call.
func fail(err error) way {
	return func(context.Context, *call) error { return err }
}

// slow makes the call after d.
func slow(d time.Duration) way {
	return func(_ context.Context, c *call) error {
		time.Sleep(d)
		return c.do()
	}
}

// hang does not make the call, and returns when its caller gives up.
func hang(ctx context.Context, _ *call) error {
	<-ctx.Done()
	return ctx.Err()
}

// loseReply makes the call, and the caller does not hear of it.
func loseReply(_ context.Context, c *call) error {
	if err := c.do(); err != nil {
		return err
	}
	return errDown
}

// before has f happen before the call is made.
func before(f func()) way {
	return func(_ context.Context, c *call) error {
		f()
		return c.do()
	}
}

// faults say what becomes of the calls of a store or an index. Its zero value lets all of them pass.
type faults struct {
	mu    sync.Mutex
	ways  map[string]way
	left  map[string]int // calls that the way is for; less than zero: all
	calls map[string]int
}

// set has the calls of these operations go that way from now on; nil: they work again.
func (f *faults) set(w way, ops ...string) { f.times(-1, w, ops...) }

// times has the next n calls of each of these operations go that way.
func (f *faults) times(n int, w way, ops ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ways == nil {
		f.ways, f.left = map[string]way{}, map[string]int{}
	}
	for _, op := range ops {
		f.ways[op], f.left[op] = w, n
	}
}

// count is how many calls of an operation there were.
func (f *faults) count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// next counts a call, and returns its way; nil: it works.
func (f *faults) next(op string) way {
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
	return f.ways[op]
}

// call makes a call the way that is set for it.
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
