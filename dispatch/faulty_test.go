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

var (
	// errBroken is the error of an index that cannot be reached, errDown that of a database.
	errBroken = errors.New("connection reset")
	errDown   = fmt.Errorf("connection refused: %w", store.ErrUnavailable)
)

// A way is what becomes of a call: do makes it, and its error is the caller's.
type way func(ctx context.Context, do func() error) error

// fail does not make the call.
func fail(err error) way {
	return func(context.Context, func() error) error { return err }
}

// slow makes the call after d.
func slow(d time.Duration) way {
	return func(_ context.Context, do func() error) error {
		time.Sleep(d)
		return do()
	}
}

// hang does not make the call, and returns when its caller gives up.
func hang(ctx context.Context, _ func() error) error {
	<-ctx.Done()
	return ctx.Err()
}

// loseReply makes the call, and the caller does not hear of it.
func loseReply(_ context.Context, do func() error) error {
	if err := do(); err != nil {
		return err
	}
	return errDown
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
func (f *faults) call(ctx context.Context, op string, do work) (got any, err error) {
	w := f.next(op)
	if w == nil {
		return do(ctx)
	}
	err = w(ctx, func() (err error) {
		got, err = do(ctx)
		return err
	})
	return got, err
}

// faultySQL puts faults before the store, faultyIndex before the index.
func faultySQL(f *faults) tweak {
	return func(o *dispatch.Options) { o.Store = &calledStore{o.Store, f} }
}

func faultyIndex(f *faults) tweak {
	return func(o *dispatch.Options) { o.Schedule = &calledIndex{o.Schedule, f} }
}
