package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
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

// Faults say what becomes of the calls of a store or an index. Its zero value lets all of them pass.
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

// through makes a call the way that is set for it.
func through[T any](ctx context.Context, f *faults, op string, do func() (T, error)) (got T, err error) {
	w := f.next(op)
	if w == nil {
		return do()
	}
	err = w(ctx, func() (err error) {
		got, err = do()
		return err
	})
	return got, err
}

// faultySQL puts faults before the store, faultyIndex before the index.
func faultySQL(f *faults) tweak {
	return func(o *dispatch.Options) { o.Store = &faultyStore{o.Store, f} }
}

func faultyIndex(f *faults) tweak {
	return func(o *dispatch.Options) { o.Schedule = &faultySchedule{o.Schedule, f} }
}

// A faultyStore is a store with faults. Operations that no test makes fail are not wrapped.
type faultyStore struct {
	dispatch.Store
	faults *faults
}

func (s *faultyStore) Accept(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error) {
	return through(ctx, s.faults, "Accept", func() ([]store.Accepted,
		error) {
		return s.Store.Accept(ctx, drafts)
	})
}

func (s *faultyStore) Stamp(ctx context.Context, st store.Stamp) (stamped []*store.Stamped,
	refused []store.Refusal, err error) {
	stamped, err = through(ctx, s.faults, "Stamp", func() (list []*store.Stamped, err error) {
		list, refused, err = s.Store.Stamp(ctx, st)
		return list, err
	})
	return stamped, refused, err
}

func (s *faultyStore) Commit(ctx context.Context, r []store.Result, now int64) ([]store.Committed,
	error) {
	return through(ctx, s.faults, "Commit", func() ([]store.Committed,
		error) {
		return s.Store.Commit(ctx, r, now)
	})
}

func (s *faultyStore) Ping(ctx context.Context) error {
	_, err := through(ctx, s.faults, "Ping", func() (int, error) { return 0, s.Store.Ping(ctx) })
	return err
}

func (s *faultyStore) TryLease(ctx context.Context, name, holder string, now int64,
	ttl time.Duration) (bool, error) {
	return through(ctx, s.faults, "TryLease", func() (bool,
		error) {
		return s.Store.TryLease(ctx, name, holder, now, ttl)
	})
}

func (s *faultyStore) Open(ctx context.Context, after store.Cursor, limit int) ([]store.OpenRow, error) {
	return through(ctx, s.faults, "Open", func() ([]store.OpenRow,
		error) {
		return s.Store.Open(ctx, after, limit)
	})
}

func (s *faultyStore) OpenUntil(ctx context.Context, after store.Cursor, until int64,
	limit int) ([]store.OpenRow, error) {
	return through(ctx, s.faults, "OpenUntil", func() ([]store.OpenRow, error) {
		return s.Store.OpenUntil(ctx, after, until, limit)
	})
}

func (s *faultyStore) Overdue(ctx context.Context, after store.Cursor, dueBefore, claimedBefore int64,
	limit int) ([]store.OpenRow, error) {
	return through(ctx, s.faults, "Overdue", func() ([]store.OpenRow, error) {
		return s.Store.Overdue(ctx, after, dueBefore, claimedBefore, limit)
	})
}

func (s *faultyStore) Lanes(ctx context.Context, since int64, limit int) ([]store.Lane, error) {
	return through(ctx, s.faults, "Lanes", func() ([]store.Lane,
		error) {
		return s.Store.Lanes(ctx, since, limit)
	})
}

func (s *faultyStore) OwnedSecrets(ctx context.Context, project, owner string, now int64) ([]store.Secret,
	error) {
	return through(ctx, s.faults, "OwnedSecrets", func() ([]store.Secret, error) {
		return s.Store.OwnedSecrets(ctx, project, owner, now)
	})
}

func (s *faultyStore) KeyByHash(ctx context.Context, hash []byte) (store.Key, error) {
	return through(ctx, s.faults, "KeyByHash", func() (store.Key,
		error) {
		return s.Store.KeyByHash(ctx, hash)
	})
}

// A faultySchedule is an index with faults. Operations that no test makes fail are not wrapped.
type faultySchedule struct {
	dispatch.Schedule
	faults *faults
}

func (s *faultySchedule) Generation(ctx context.Context, shard int) (int64, error) {
	return through(ctx, s.faults, "Generation", func() (int64,
		error) {
		return s.Schedule.Generation(ctx, shard)
	})
}

func (s *faultySchedule) Ensure(ctx context.Context, items []schedule.Item) ([]schedule.Position, error) {
	return through(ctx, s.faults, "Ensure", func() ([]schedule.Position,
		error) {
		return s.Schedule.Ensure(ctx, items)
	})
}

func (s *faultySchedule) Claim(ctx context.Context, shard int, r schedule.ClaimRequest) (schedule.Claimed,
	error) {
	return through(ctx, s.faults, "Claim", func() (schedule.Claimed,
		error) {
		return s.Schedule.Claim(ctx, shard, r)
	})
}

func (s *faultySchedule) Settle(ctx context.Context, list []schedule.Settlement) ([]schedule.Settled,
	error) {
	return through(ctx, s.faults, "Settle", func() ([]schedule.Settled,
		error) {
		return s.Schedule.Settle(ctx, list)
	})
}

func (s *faultySchedule) Release(ctx context.Context, u []schedule.Unlock) ([]schedule.Waiter, error) {
	return through(ctx, s.faults, "Release", func() ([]schedule.Waiter,
		error) {
		return s.Schedule.Release(ctx, u)
	})
}

func (s *faultySchedule) Stats(ctx context.Context, shard int) (schedule.Stats, error) {
	return through(ctx, s.faults, "Stats", func() (schedule.Stats,
		error) {
		return s.Schedule.Stats(ctx, shard)
	})
}

func (s *faultySchedule) MoveWatermark(ctx context.Context, shard int,
	a schedule.Advance) (schedule.Watermark, error) {
	return through(ctx, s.faults, "MoveWatermark", func() (schedule.Watermark, error) {
		return s.Schedule.MoveWatermark(ctx, shard, a)
	})
}

func (s *faultySchedule) Loaded(ctx context.Context, shard int, token string,
	until int64) (schedule.Watermark, error) {
	return through(ctx, s.faults, "Loaded", func() (schedule.Watermark,
		error) {
		return s.Schedule.Loaded(ctx, shard, token, until)
	})
}
