package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
)

// A table is an outbox table in memory. Rows become visible at their commit, which may come long after their
// number was given.
type table struct {
	fence fence
	mu    sync.Mutex
	last  int64
	rows  map[source.Key]*tableRow
	// vanished are rows that left otherwise than by Remove and Refuse.
	refused map[source.Key]source.RefusedRow
	kept    []source.KeptRow
	// skew is the clock of the database minus the true one.
	skew time.Duration
	// epoch counts restarts: they end all connections.
	epoch int

	// call is called before and after each call of a connection. Its error is that of the call.
	call func(op string, after bool) error
	// removable is called for each row that Remove or Refuse takes away.
	removed func(key source.Key, refused bool)
	locked  func(key source.Key) bool

	connects, reads int
	// many is how many kept rows there seem to be; zero: as many as there are.
	many int
	// from are the positions of the reads.
	from []int64
}

type tableRow struct {
	source.Row
	inserted, committed time.Time
	request             string
}

func newTable() *table {
	return &table{
		rows: make(map[source.Key]*tableRow), refused: make(map[source.Key]source.RefusedRow),
		call:    func(string, bool) error { return nil },
		removed: func(source.Key, bool) {},
		locked:  func(source.Key) bool { return false },
	}
}

// insert gives a row the next number and commits it after a time.
func (tb *table) insert(id string, commitAfter time.Duration) source.Key {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.last++
	request := fmt.Sprintf(`{"url":"https://shop.example/%s"}`, id)
	row := &tableRow{inserted: time.Now(), committed: time.Now().Add(commitAfter), request: request}
	row.Row = source.Row{Key: source.Key{Seq: tb.last, ID: id}, Kind: "callback", BodyBytes: -1,
		Request: []byte(request), RequestBytes: len(request)}
	tb.rows[row.Key] = row
	return row.Key
}

// put changes a row.
func (tb *table) put(key source.Key, change func(row *tableRow)) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	change(tb.rows[key])
}

// visible returns the committed rows in order.
func (tb *table) visible() []*tableRow {
	var list []*tableRow
	for _, row := range tb.rows {
		if !row.committed.After(time.Now()) {
			list = append(list, row)
		}
	}
	slices.SortFunc(list, func(a, b *tableRow) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// count returns how many rows are committed.
func (tb *table) count() int {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	return len(tb.visible())
}

// connect opens a connection.
func (tb *table) connect(context.Context, SourceConfig) (Conn, error) {
	tb.fence.pass()
	if err := tb.call("connect", false); err != nil {
		return nil, err
	}
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.connects++
	return &tableConn{tb: tb, epoch: tb.epoch}, nil
}

type tableConn struct {
	tb    *table
	epoch int
}

var errBroken = fmt.Errorf("connection reset: %w", source.ErrBroken)

// do runs an operation of a connection.
func (c *tableConn) do(ctx context.Context, op string, f func() error) error {
	tb := c.tb
	tb.fence.pass()
	if err := tb.call(op, false); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	tb.mu.Lock()
	err := errBroken
	if c.epoch == tb.epoch {
		err = f()
	}
	tb.mu.Unlock()
	return cmp.Or(err, tb.call(op, true))
}

func (c *tableConn) Close() {}

func (c *tableConn) Read(ctx context.Context, after int64, limit int, _ bool) (rows []source.Row, more bool,
	err error) {
	err = c.do(ctx, "read", func() error {
		c.tb.reads++
		c.tb.from = append(c.tb.from, after)
		for _, row := range c.tb.visible() {
			if row.Seq > after && len(rows) < limit {
				r := row.Row
				r.Age += time.Since(row.inserted) + c.tb.skew
				rows = append(rows, r)
			}
		}
		return nil
	})
	return rows, len(rows) == limit, err
}

func (c *tableConn) Remove(ctx context.Context, keys []source.Key) (n int, err error) {
	err = c.do(ctx, "remove", func() error {
		if slices.ContainsFunc(keys, c.tb.locked) {
			return errors.New("lock timeout")
		}
		for _, key := range keys {
			if row := c.tb.rows[key]; row != nil && !row.committed.After(time.Now()) {
				c.tb.removed(key, false)
				c.tb.kept = append(c.tb.kept, source.KeptRow{Row: row.Row, DoneAt: time.Now()})
				delete(c.tb.rows, key)
				n++
			}
		}
		return nil
	})
	return n, err
}

func (c *tableConn) Refuse(ctx context.Context, list []source.Refusal) (n int, err error) {
	err = c.do(ctx, "refuse", func() error {
		for _, r := range list {
			if row := c.tb.rows[r.Key]; row != nil && !row.committed.After(time.Now()) {
				c.tb.removed(r.Key, true)
				c.tb.refused[r.Key] = source.RefusedRow{Refusal: r, Kind: row.Kind, RefusedAt: time.Now()}
				delete(c.tb.rows, r.Key)
				n++
			}
		}
		return nil
	})
	return n, err
}

func (c *tableConn) Waiting(ctx context.Context, after int64, limit int) (n int, err error) {
	err = c.do(ctx, "waiting", func() error {
		for _, row := range c.tb.visible() {
			if row.Seq > after && n < limit {
				n++
			}
		}
		return nil
	})
	return n, err
}

// matching returns the refused rows of a filter in the order of their key.
func (tb *table) matching(f source.Filter) []source.RefusedRow {
	var list []source.RefusedRow
	for _, row := range tb.refused {
		if (f.ID == "" || f.ID == row.ID) && (f.Code == "" || f.Code == row.Code) &&
			time.Since(row.RefusedAt) >= f.Before {
			list = append(list, row)
		}
	}
	slices.SortFunc(list, func(a, b source.RefusedRow) int { return compareKeys(a.Key, b.Key) })
	return list
}

func compareKeys(a, b source.Key) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Seq, b.Seq))
}

func (c *tableConn) Refused(ctx context.Context, limit int) (list []source.RefusedRow, err error) {
	err = c.do(ctx, "refused", func() error {
		list = c.tb.matching(source.Filter{})
		slices.SortFunc(list, func(a, b source.RefusedRow) int { return b.RefusedAt.Compare(a.RefusedAt) })
		list = list[:min(limit, len(list))]
		return nil
	})
	return list, err
}

func (c *tableConn) CountRefused(ctx context.Context, f source.Filter, limit int) (n int, err error) {
	err = c.do(ctx, "count refused", func() error {
		n = min(len(c.tb.matching(f)), limit)
		return nil
	})
	return n, err
}

func (c *tableConn) ReadRefused(ctx context.Context, f source.Filter, after source.Key, limit int) (
	rows []source.Row, err error) {
	err = c.do(ctx, "read refused", func() error {
		for _, r := range c.tb.matching(f) {
			if compareKeys(r.Key, after) > 0 && len(rows) < limit {
				rows = append(rows, refusedRow(&r))
			}
		}
		return nil
	})
	return rows, err
}

// refusedRow is a month old.
func refusedRow(r *source.RefusedRow) source.Row {
	request := fmt.Sprintf(`{"url":"https://shop.example/%s"}`, r.ID)
	return source.Row{Key: r.Key, Kind: r.Kind, Age: 30 * 24 * time.Hour, BodyBytes: -1,
		Request: []byte(request), RequestBytes: len(request)}
}

func (c *tableConn) RemoveRefused(ctx context.Context, keys []source.Key) (n int, err error) {
	err = c.do(ctx, "remove refused", func() error {
		for _, key := range keys {
			if r, found := c.tb.refused[key]; found {
				c.tb.kept = append(c.tb.kept, source.KeptRow{Row: refusedRow(&r), DoneAt: time.Now()})
				delete(c.tb.refused, key)
			}
		}
		return nil
	})
	return len(keys), err
}

func (c *tableConn) DropRefused(ctx context.Context, f source.Filter, limit int) (n int, err error) {
	err = c.do(ctx, "drop refused", func() error {
		for _, r := range c.tb.matching(f) {
			if n < limit {
				delete(c.tb.refused, r.Key)
				n++
			}
		}
		return nil
	})
	return n, err
}

func (c *tableConn) UpdateRefused(ctx context.Context, list []source.Refusal) (n int, err error) {
	err = c.do(ctx, "update refused", func() error {
		for _, r := range list {
			if row, found := c.tb.refused[r.Key]; found {
				row.Refusal = r
				c.tb.refused[r.Key] = row
				n++
			}
		}
		return nil
	})
	return n, err
}

func (c *tableConn) ReadKept(ctx context.Context, since, until time.Time, after source.Kept, limit int) (
	rows []source.KeptRow, err error) {
	err = c.do(ctx, "read kept", func() error {
		for _, row := range c.tb.kept { // they are in the order of removal
			place := row.Kept()
			behind := cmp.Or(place.DoneAt.Compare(after.DoneAt), cmp.Compare(place.Seq, after.Seq)) > 0
			in := !row.DoneAt.Before(since) && (until.IsZero() || !row.DoneAt.After(until))
			if in && behind && len(rows) < limit {
				rows = append(rows, row)
			}
		}
		return nil
	})
	return rows, err
}

func (c *tableConn) CountKept(ctx context.Context, since, until time.Time, limit int) (n int, err error) {
	rows, err := c.ReadKept(ctx, since, until, source.Kept{}, limit)
	return min(max(len(rows), c.tb.many), limit), err
}

func (c *tableConn) Writable(ctx context.Context) error {
	return c.do(ctx, "check", func() error { return nil })
}

func (c *tableConn) PruneKept(ctx context.Context, keep time.Duration, limit int) (n int, err error) {
	err = c.do(ctx, "prune", func() error {
		before := len(c.tb.kept)
		c.tb.kept = slices.DeleteFunc(c.tb.kept, func(row source.KeptRow) bool {
			if time.Since(row.DoneAt) <= keep || n == limit {
				return false
			}
			n++
			return true
		})
		n = before - len(c.tb.kept)
		return nil
	})
	return n, err
}
