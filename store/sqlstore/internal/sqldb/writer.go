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
	// queueRows bounds what waits for a writer. Beyond it calls are refused at once: they would only wait in
	// vain.
	queueRows = 20_000
	// idleWait is how long a maintenance write lets others pass at most.
	idleWait = 2 * time.Second
)

// An Entry is one row of a group.
type Entry interface {
	// Fail tells the row's caller why this row alone was not committed.
	Fail(err error)
}

// A call is what one caller waits for: entries that are committed together, or a transaction that is not
// grouped, a change or maintenance. Only SQLite sends those through its writer.
type call struct {
	entries []Entry
	run     func() error
	since   time.Time
	// err is set before done is closed.
	err  error
	done chan struct{}
}

func (c *call) answer(err error) {
	c.err = err
	close(c.done)
}

// A queue has the calls that wait.
type queue []*call

func (q *queue) take() *call {
	c := (*q)[0]
	*q = (*q)[1:]
	return c
}

// A writer commits groups: one after the other, but that where it runs in more than one goroutine a group
// that is full does not wait for the one before it. What would not fill one waits, for it is committed at
// less cost with what gathers meanwhile.
type writer struct {
	db   *DB
	kind string
	wake chan struct{}

	mu    sync.Mutex
	calls queue
	rows  int // of calls
	// under is how many groups are being committed.
	under int
	// singles and idle are transactions of their own; those in idle let others pass.
	singles, idle queue
	// credit is for how long maintenance may go first although groups wait: groups have had as much more than
	// it.
	credit time.Duration
	closed bool
}

// enqueue has a call wait in one of the queues, or refuses it.
func (w *writer) enqueue(q *queue, c *call) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return fmt.Errorf("%w: closed", store.ErrUnavailable)
	case w.rows+len(c.entries) > queueRows && w.rows > 0 && len(c.entries) > 0:
		return fmt.Errorf("%w: %d rows wait already", store.ErrUnavailable, w.rows)
	}
	c.since, c.done = time.Now(), make(chan struct{})
	*q = append(*q, c)
	w.rows += len(c.entries)
	w.signal()
	return nil
}

// leave takes a call out of its queue and says whether it was still there.
func (w *writer) leave(q *queue, c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(*q, c)
	if i < 0 {
		return false
	}
	*q = slices.Delete(*q, i, i+1)
	w.rows -= len(c.entries)
	return true
}

// Commit hands the entries to the writer of their kind and waits until they are committed or refused. A
// caller whose context ends, or that has waited too long for its turn, is taken out of the queue; once its
// group runs, only its wait ends.
func (db *DB) Commit(ctx context.Context, kind string, entries []Entry) error {
	w := db.writers[kind]
	if len(entries) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c := &call{entries: entries}
	if err := w.enqueue(&w.calls, c); err != nil {
		return err
	}
	timeout := time.NewTimer(db.Limits.Queue)
	defer timeout.Stop()
	for {
		select {
		case <-c.done:
			return c.err
		case <-ctx.Done():
			w.leave(&w.calls, c)
			return ctx.Err()
		case <-timeout.C:
			if w.leave(&w.calls, c) {
				return fmt.Errorf("%w: waited %s for a turn", store.ErrUnavailable, db.Limits.Queue)
			}
		}
	}
}

// do runs a transaction of its own between groups and waits for it. With idle it lets groups and changes pass
// first: until none waits, or groups have had more time than such transactions, or idleWait is over.
func (w *writer) do(ctx context.Context, idle bool, run func() error) error {
	q, c := &w.singles, &call{run: run}
	if idle {
		q = &w.idle
	}
	if err := w.enqueue(q, c); err != nil {
		return err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if w.leave(q, c) {
			return ctx.Err()
		}
		<-c.done // It runs, and it writes to what its caller reads.
	}
	return c.err
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
		group, one, idle, end := w.next()
		switch {
		case len(group) > 0:
			began := time.Now()
			w.commitGroup(group)
			w.committed(time.Since(began))
			runtime.Gosched() // the next group is larger if callers that were just answered run before it
		case end:
			w.signal() // the next goroutine ends, too
			return
		case one == nil:
			<-w.wake
		}
		if one != nil {
			began := time.Now()
			one.answer(one.run())
			if idle {
				w.spend(time.Since(began))
			}
		}
	}
}

// next takes a group, and one transaction of its own that is to run after it, and says whether that is idle.
func (w *writer) next() (group queue, one *call, idle, end bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.under > 0 && w.rows < groupRows {
		return nil, nil, false, w.closed && w.rows == 0
	}
	if len(w.idle) > 0 && len(w.singles) == 0 && w.credit > 0 {
		return nil, w.idle.take(), true, false
	}
	rows := 0
	for len(w.calls) > 0 && (rows == 0 || rows+len(w.calls[0].entries) <= groupRows) {
		c := w.calls.take()
		rows += len(c.entries)
		group = append(group, c)
	}
	w.rows -= rows
	if rows > 0 {
		w.under++
	}
	if w.rows >= groupRows {
		w.signal()
	}
	switch {
	case len(w.singles) > 0:
		one = w.singles.take()
	case len(w.idle) > 0 && (rows == 0 || time.Since(w.idle[0].since) >= idleWait):
		one, idle = w.idle.take(), true
	}
	return group, one, idle, w.closed && rows == 0 && one == nil
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
func (w *writer) commitGroup(group queue) {
	var entries []Entry
	for _, c := range group {
		entries = append(entries, c.entries...)
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
		c.answer(err)
	}
}

// drain takes everything that waits out of the queue, after a group that failed: it has waited for a database
// that cannot commit, and is told so now. If another group is being committed, that one will tell.
func (w *writer) drain() (calls queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.under > 1 {
		return nil
	}
	calls, w.calls, w.rows = w.calls, nil, 0
	return calls
}

// commitEntries commits the entries in one transaction. If that is refused for good it commits each half by
// itself, down to the row that is to blame. The error it returns means that SQL is unavailable and none of
// the entries was committed; where that happens after a part has been committed, the rest is told row by row.
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
