package sqldb

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// groupRows is how many rows a group gathers. One call with more is a group of its own.
	groupRows = 256
	// queueRows bounds what waits for a writer. Beyond it calls are refused at once: they would only wait in vain.
	queueRows = 20_000
	// idleWait is how long a maintenance write lets others pass at most.
	idleWait = 2 * time.Second
)

// An Entry is one row of a group.
type Entry interface {
	// Fail tells the row's caller why this row alone was not committed.
	Fail(err error)
}

// A call is what one caller wants committed together.
type call struct {
	entries []Entry
	done    chan struct{}
	// err is for all rows of the call; it is set before done is closed.
	err error
	// taken is guarded by the writer's mutex: the call has left the queue.
	taken bool
}

// A single is a transaction that is not grouped: a change, or maintenance. Only SQLite sends those through its writer.
type single struct {
	run   func() error
	idle  bool
	since time.Time
	done  chan error
}

// A writer commits groups: one after the other, but that where it runs in more than one goroutine a group that is full does not wait
// for the one before it. What would not fill one waits, for it is committed at less cost with what gathers meanwhile.
type writer struct {
	db   *DB
	kind string
	wake chan struct{}

	mu    sync.Mutex
	calls []*call
	rows  int
	// under is how many groups are being committed.
	under   int
	singles []*single
	idle    []*single
	// credit is for how long maintenance may go first although groups wait: groups have had as much more than
	// it.
	credit time.Duration
	closed bool
}

// Commit hands the entries to the writer of their kind and waits until they are committed or refused. A caller whose context ends,
// or that has waited too long for its turn, is taken out of the queue; once its group runs, only its wait ends.
func (db *DB) Commit(ctx context.Context, kind string, entries []Entry) error {
	w := db.writers[kind]
	if len(entries) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c := &call{entries: entries, done: make(chan struct{})}
	w.mu.Lock()
	switch {
	case w.closed:
		w.mu.Unlock()
		return fmt.Errorf("%w: closed", store.ErrUnavailable)
	case w.rows+len(entries) > queueRows && w.rows > 0:
		w.mu.Unlock()
		return fmt.Errorf("%w: %d rows wait already", store.ErrUnavailable, w.rows)
	}
	w.calls = append(w.calls, c)
	w.rows += len(entries)
	w.mu.Unlock()
	w.signal()

	timeout := time.NewTimer(db.Limits.Queue)
	defer timeout.Stop()
	for {
		select {
		case <-c.done:
			return c.err
		case <-ctx.Done():
			w.leave(c)
			return ctx.Err()
		case <-timeout.C:
			if w.leave(c) {
				return fmt.Errorf("%w: waited %s for a turn", store.ErrUnavailable, db.Limits.Queue)
			}
		}
	}
}

// leave takes a call out of the queue and says whether it was still there.
func (w *writer) leave(c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.taken {
		return false
	}
	i := slices.Index(w.calls, c)
	w.calls = slices.Delete(w.calls, i, i+1)
	w.rows -= len(c.entries)
	c.taken = true
	return true
}

// do runs a transaction of its own between groups and waits for it. With idle it lets groups and changes pass
// first: until none waits, or groups have had more time than such transactions, or idleWait is over.
func (w *writer) do(ctx context.Context, idle bool, run func() error) error {
	s := &single{run: run, idle: idle, since: time.Now(), done: make(chan error, 1)}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return fmt.Errorf("%w: closed", store.ErrUnavailable)
	}
	if idle {
		w.idle = append(w.idle, s)
	} else {
		w.singles = append(w.singles, s)
	}
	w.mu.Unlock()
	w.signal()
	select {
	case err := <-s.done:
		return err
	case <-ctx.Done():
		if w.leaveSingle(s) {
			return ctx.Err()
		}
		return <-s.done // It runs, and it writes to what its caller reads.
	}
}

// leaveSingle takes a single transaction out of the queue and says whether it was still there.
func (w *writer) leaveSingle(s *single) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, queue := range []*[]*single{&w.singles, &w.idle} {
		if i := slices.Index(*queue, s); i >= 0 {
			*queue = slices.Delete(*queue, i, i+1)
			return true
		}
	}
	return false
}

func (w *writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// close lets what waits be committed and ends run.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.signal()
}

// run commits until the writer is closed and nothing waits.
func (w *writer) run() {
	for {
		group, one, end := w.next()
		switch {
		case len(group) > 0:
			began := time.Now()
			w.commitGroup(group)
			w.committed(time.Since(began))
			runtime.Gosched() // the next group is larger if callers that were just answered run before it
		case end:
			w.signal() // whoever else runs it ends, too
			return
		case one == nil:
			<-w.wake
		}
		if one != nil {
			began := time.Now()
			one.done <- one.run()
			if one.idle {
				w.spend(time.Since(began))
			}
		}
	}
}

// next takes a group, and one single transaction that is to run after it.
func (w *writer) next() (group []*call, one *single, end bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.under > 0 && w.rows < groupRows {
		return nil, nil, w.closed && w.rows == 0
	}
	if len(w.idle) > 0 && len(w.singles) == 0 && w.credit > 0 {
		one = w.idle[0]
		w.idle = slices.Delete(w.idle, 0, 1)
		return nil, one, false
	}
	rows, n := 0, 0
	for _, c := range w.calls {
		if n > 0 && rows+len(c.entries) > groupRows {
			break
		}
		c.taken = true
		rows += len(c.entries)
		n++
	}
	group = append(group, w.calls[:n]...)
	w.calls = slices.Delete(w.calls, 0, n)
	w.rows -= rows
	if n > 0 {
		w.under++
	}
	if w.rows >= groupRows {
		w.signal()
	}
	switch {
	case len(w.singles) > 0:
		one = w.singles[0]
		w.singles = slices.Delete(w.singles, 0, 1)
	case len(w.idle) > 0 && (n == 0 || time.Since(w.idle[0].since) >= idleWait):
		one = w.idle[0]
		w.idle = slices.Delete(w.idle, 0, 1)
	}
	return group, one, w.closed && n == 0 && one == nil
}

// mostCredit bounds for how long groups wait for maintenance that comes after a while without any.
const mostCredit = 50 * time.Millisecond

// committed says that a group has ended, which took so long: maintenance may have as much. Where groups wait
// all the time it has half of the writer's time if it needs that, and else no more than it needs.
func (w *writer) committed(took time.Duration) {
	w.mu.Lock()
	w.under--
	w.credit = min(w.credit+took, mostCredit)
	w.mu.Unlock()
}

// spend says that a maintenance write took so long.
func (w *writer) spend(took time.Duration) {
	w.mu.Lock()
	w.credit = max(w.credit-took, -mostCredit)
	w.mu.Unlock()
}

// waits says that rows wait for a group.
func (w *writer) waits() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.calls) > 0
}

// commitGroup commits the calls together and answers them.
func (w *writer) commitGroup(group []*call) {
	entries := group[0].entries
	if len(group) > 1 {
		entries = slices.Concat(entriesOf(group)...)
	}
	started := time.Now()
	err := w.commitEntries(entries)
	w.db.metrics.seconds.WithLabelValues(w.kind).Observe(time.Since(started).Seconds())
	w.db.metrics.rows.WithLabelValues(w.kind).Observe(float64(len(entries)))
	if err != nil {
		w.db.metrics.errors.Inc()
		group = append(group, w.drain()...)
	}
	for _, c := range group {
		c.err = err
		close(c.done)
	}
}

func entriesOf(group []*call) [][]Entry {
	all := make([][]Entry, len(group))
	for i, c := range group {
		all[i] = c.entries
	}
	return all
}

// drain takes everything that waits out of the queue, after a group that failed: whoever queued up meanwhile has waited for a database
// that cannot commit, and is told so now. If another group is being committed, that one will tell.
func (w *writer) drain() []*call {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.under > 1 {
		return nil
	}
	calls := w.calls
	for _, c := range calls {
		c.taken = true
	}
	w.calls, w.rows = nil, 0
	return calls
}

// commitEntries commits the entries in one transaction. If that is refused for good it commits each half by itself, down
// to the row that is to blame. The error it returns means that SQL is unavailable and none of the entries was committed;
// where that happens after a part has been committed, the rest is told row by row.
func (w *writer) commitEntries(entries []Entry) error {
	err := w.transact(len(entries), func(t *Tx) error { return w.db.apply(t, entries) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrUnavailable):
		return err
	case len(entries) == 1:
		w.db.metrics.errors.Inc()
		w.db.refuse(entries[0], err, func(fn func(*Tx) error) error { return w.transact(1, fn) })
		return nil
	}
	half := len(entries) / 2
	left := w.commitEntries(entries[:half])
	right := left
	if left == nil {
		right = w.commitEntries(entries[half:])
	}
	if left != nil {
		return left
	}
	if right != nil {
		for _, e := range entries[half:] {
			e.Fail(right)
		}
	}
	return nil
}

// transact runs a transaction over that many rows in the writer's own goroutine.
func (w *writer) transact(rows int, fn func(*Tx) error) error {
	return w.db.transact(context.Background(), w.db.Groups, w.db.groupLimit(rows), fn)
}
