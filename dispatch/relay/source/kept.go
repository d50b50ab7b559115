package source

import (
	"context"
	"time"
)

// replayMargin widens the time of a replay at both ends: clocks differ. Replays are harmless, a row that is
// left out is not.
const replayMargin = 5 * time.Minute

// keptOrder is the key of the table of removed rows.
const keptOrder = "done_at, seq, id"

// ReadKept returns rows that were removed in a span of time, in the order of their removal. Later pages begin
// after the last row of the page before. A page may have fewer rows than limit, as with Read; the last page
// is empty.
//
// since and until are by this machine's clock. That of the database may differ, so the span begins five
// minutes before since and ends five minutes after until. A zero until is no limit.
func (c *Conn) ReadKept(ctx context.Context, since, until time.Time, after Kept, limit int,
) ([]KeptRow, error) {
	rows, _, err := c.readPage(ctx, limit, query{"read kept rows", c.source.limits.call,
		c.d.micros("done_at"), c.keptIn(since, until, after), keptOrder})
	return rows, err
}

// CountKept counts the rows that ReadKept would return from the start, up to the limit.
func (c *Conn) CountKept(ctx context.Context, since, until time.Time, limit int) (int, error) {
	return c.count(ctx, "count kept rows", limit, c.keptIn(since, until, Kept{})...)
}

func (c *Conn) keptIn(since, until time.Time, after Kept) []any {
	from := []any{" FROM ", c.t.done, c.d.byKey(), " WHERE "}
	if !until.IsZero() {
		from = append(from, "done_at <= ", c.d.ago(time.Since(until)-replayMargin), " AND ")
	}
	from = append(from, "done_at >= ")
	if after == (Kept{}) {
		return append(from, c.d.ago(time.Since(since)+replayMargin))
	}
	at := c.d.fromMicros(after.DoneAt)
	return append(from, at, " AND (done_at > ", at, " OR seq > ", value{after.Seq}, " OR seq = ",
		value{after.Seq}, " AND id > ", value{after.ID}, ")")
}

// PruneKept deletes rows that were removed before the time keep, oldest first and up to the limit, and
// returns how many there were.
func (c *Conn) PruneKept(ctx context.Context, keep time.Duration, limit int) (int, error) {
	where := append([]any{" WHERE done_at < "}, c.d.ago(keep)...)
	return c.deleteFirst(ctx, "delete kept rows", c.t.done, keptOrder, where, limit)
}
