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
	// groupRows is the largest number of rows of a group. A single call with more rows is a group too.
	groupRows = 256
	// queueRows bounds the rows that wait for a writer. Further calls are refused at once, because they would
	// reach the limit of their wait anyway.
	queueRows = 20_000
	// maintenanceWait is the longest time for which groups and changes go before a maintenance transaction.
	maintenanceWait = 2 * time.Second
)

// An Entry is one row of a group.
type Entry interface {
	// Fail records the error of this row, for its caller. The other rows of the call may be committed.
	Fail(err error)
}

// A call is one caller's request: entries for a group, or a single transaction (a change or maintenance).
// Only SQLite runs single transactions in the writer.
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

// A queue is a list of waiting calls.
type queue []*call

func (q *queue) take() *call {
	c := (*q)[0]
	*q = (*q)[1:]
	return c
}

// A writer commits groups. While a group is being committed, the next one starts only if it is full and
// another goroutine of the writer is free. A smaller group waits: more rows may arrive, and one larger commit
// costs less than two.
type writer struct {
	db   *DB
	kind string
	wake chan struct{}

	mu    sync.Mutex
	calls queue
	rows  int // in calls
	// committing is the number of groups that are being committed.
	committing int
	// singles and maintenance are single transactions. Groups and singles go before maintenance.
	singles, maintenance queue
	// maintenanceBudget is the time for which maintenance may go before waiting groups. It is the time of
	// groups minus the time of maintenance, within ± maxMaintenanceBudget.
	maintenanceBudget time.Duration
	closed            bool
}

// enqueue adds a call to a queue of the writer, or refuses it if the writer is closed or the queue is full.
func (w *writer) enqueue(q *queue, c *call) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return fmt.Errorf("%w: closed", store.ErrUnavailable)
	case w.rows+len(c.entries) > queueRows && w.rows > 0 && len(c.entries) > 0:
		return fmt.Errorf("%w: the queue is full with %d rows", store.ErrUnavailable, w.rows)
	}
	c.since, c.done = time.Now(), make(chan struct{})
	*q = append(*q, c)
	w.rows += len(c.entries)
	w.signal()
	return nil
}

// leave removes a call from its queue. It returns false if the call is not in the queue any more, because the
// writer has taken it.
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

// Commit passes the entries to the writer of their kind, and waits until they are committed or refused. If
// ctx ends, or the wait for a group reaches Limits.Queue, the call leaves the queue. If ctx ends after the
// group has begun, Commit returns, but the entries may still be committed.
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
				return fmt.Errorf("%w: waited %s in the queue", store.ErrUnavailable, db.Limits.Queue)
			}
		}
	}
}

// runSingle runs a single transaction between groups and waits for it. A maintenance transaction lets groups
// and changes go first, until none waits, or maintenanceWait is over, or the maintenanceBudget is positive.
func (w *writer) runSingle(ctx context.Context, maintenance bool, run func() error) error {
	q, c := &w.singles, &call{run: run}
	if maintenance {
		q = &w.maintenance
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
		<-c.done // the transaction is running, and writes to variables of its caller
	}
	return c.err
}

// signal wakes one goroutine of the writer.
func (w *writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// close ends the writer's goroutines after all waiting calls are committed.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.signal()
}

// run is the writer's goroutine. It ends when the writer is closed and no call waits.
func (w *writer) run() {
	for {
		group, single, maintenance, end := w.next()
		switch {
		case len(group) > 0:
			began := time.Now()
			w.commitGroup(group)
			w.committed(time.Since(began))
			runtime.Gosched() // the answered callers run first and may add rows to the next group
		case end:
			w.signal() // so that the writer's next goroutine ends too
			return
		case single == nil:
			<-w.wake
		}
		if single != nil {
			began := time.Now()
			single.answer(single.run())
			if maintenance {
				w.spend(time.Since(began))
			}
		}
	}
}

// next removes the next work from the queues: a group, and a single transaction to run after it. Either may
// be missing. maintenance is the kind of the single transaction. end means that the writer is closed and no
// call waits.
func (w *writer) next() (group queue, single *call, maintenance, end bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.committing > 0 && w.rows < groupRows {
		return nil, nil, false, w.closed && w.rows == 0
	}
	if len(w.maintenance) > 0 && len(w.singles) == 0 && w.maintenanceBudget > 0 {
		return nil, w.maintenance.take(), true, false
	}
	rows := 0
	for len(w.calls) > 0 && (rows == 0 || rows+len(w.calls[0].entries) <= groupRows) {
		c := w.calls.take()
		rows += len(c.entries)
		group = append(group, c)
	}
	w.rows -= rows
	if rows > 0 {
		w.committing++
	}
	if w.rows >= groupRows {
		w.signal()
	}
	switch {
	case len(w.singles) > 0:
		single = w.singles.take()
	case len(w.maintenance) > 0 && (rows == 0 || time.Since(w.maintenance[0].since) >= maintenanceWait):
		single, maintenance = w.maintenance.take(), true
	}
	return group, single, maintenance, w.closed && rows == 0 && single == nil
}

// maxMaintenanceBudget bounds the time for which groups wait for maintenance after a pause without it.
const maxMaintenanceBudget = 50 * time.Millisecond

// committed records the end of a group and adds its duration to the maintenanceBudget. So under constant load
// maintenance gets up to half of the writer's time.
func (w *writer) committed(took time.Duration) {
	w.mu.Lock()
	w.committing--
	w.maintenanceBudget = min(w.maintenanceBudget+took, maxMaintenanceBudget)
	w.mu.Unlock()
}

// spend subtracts the duration of a maintenance transaction from the maintenanceBudget.
func (w *writer) spend(took time.Duration) {
	w.mu.Lock()
	w.maintenanceBudget = max(w.maintenanceBudget-took, -maxMaintenanceBudget)
	w.mu.Unlock()
}

// hasWaiting reports whether calls wait for a group.
func (w *writer) hasWaiting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.calls) > 0
}

// commitGroup commits the calls together and answers them. If the database is unavailable, it answers the
// waiting calls too (drain).
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

// drain removes all waiting calls after a group failed, so that they fail at once: they would only wait for a
// database that cannot commit. While another group is being committed, drain returns nil: the result of that
// group decides.
func (w *writer) drain() (calls queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.committing > 1 {
		return nil
	}
	calls, w.calls, w.rows = w.calls, nil, 0
	return calls
}

// commitEntries commits the entries in one transaction. After a permanent error it commits each half in its
// own transaction, down to the single bad row, which it passes to Options.Refuse. An error means that the
// database is unavailable and that no entry is known to be committed. If the database becomes unavailable
// after a part was committed, commitEntries calls Fail for each remaining entry and returns nil.
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
	if err := w.commitEntries(entries[:half]); err != nil {
		return err
	}
	if err := w.commitEntries(entries[half:]); err != nil {
		for _, e := range entries[half:] {
			e.Fail(err)
		}
	}
	return nil
}

// transact runs a transaction over that many rows on the writers' connections. Only a goroutine of the writer
// calls it.
func (w *writer) transact(rows int, fn func(*Tx) error) error {
	return w.db.transact(context.Background(), w.db.Groups, w.db.groupLimit(rows), fn)
}
