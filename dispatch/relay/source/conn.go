package source

import (
	"context"
	"math"
	"slices"
	"time"
)

const (
	// maxRows bounds the rows of a page.
	maxRows = 1000
	// firstPage is the limit of the first page. It doubles while pages are small in bytes.
	firstPage = 16
	// maxCode and maxProblem are in characters.
	maxCode    = 64
	maxProblem = 1000
)

// A Conn is a connection to a source. It must not be used by two goroutines at a time. After an error that
// wraps ErrBroken it is of no use. Each call ends after 30 s, and waits at most 2 s for a lock. Only a
// patient Read may take 10 minutes, if the server can be reached.
type Conn struct {
	source *Source
	db     session
	d      Dialect
	t      tables
	keep   bool
	// page is the most rows of the next page. Its contents should fit into MaxPage.
	page int
}

func newConn(s *Source, db session) *Conn {
	return &Conn{source: s, db: db, d: s.dialect, t: s.tables, keep: s.keep, page: firstPage}
}

// Writable repeats the checks of the server. If one finds an error, for example that the server has become a
// replica, Writable fails with a CheckError that wraps ErrBroken.
func (c *Conn) Writable(ctx context.Context) error {
	k := c.source.checker(c.db)
	err := c.do(ctx, "check", func(ctx context.Context) error { return k.server(k, ctx) })
	if err == nil && failed(k.findings) {
		return &opError{"check", ErrBroken, &CheckError{k.findings}}
	}
	return err
}

// Close closes the connection. It may be broken.
func (c *Conn) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	c.db.close(ctx)
}

// Read returns the rows with a higher sequence number in their order. A page may have fewer rows than limit,
// because its contents are at most MaxPage bytes (one row may always be read). more reports whether the page
// was full: then the next rows may exist. patient is for a page on the way to rows behind many dead ones.
func (c *Conn) Read(ctx context.Context, after int64, limit int, patient bool) (rows []Row, more bool,
	err error) {
	where := []any{" FROM ", c.t.outbox, c.d.byKey(), " WHERE seq > ", value{after}}
	within := c.source.limits.call
	if patient {
		within = c.source.limits.patient
	}
	page, more, err := c.readPage(ctx, limit, query{"read rows", within, "NULL", where, "seq"})
	rows = make([]Row, len(page))
	for i := range page {
		rows[i] = page[i].Row
	}
	return rows, more, err
}

// A query reads a page of one of the three tables, in the order of its key. at is when the row was removed.
type query struct {
	op     string
	within time.Duration
	at     string
	where  []any
	order  string
}

func (c *Conn) readPage(ctx context.Context, limit int, q query) (rows []KeptRow, more bool, err error) {
	limit = min(limit, c.page, maxRows)
	held, full := 0, false
	s := c.d.compose("SELECT ", c.d.contents(), ", ", q.at, q.where, " ORDER BY ", q.order, " LIMIT ",
		value{int64(limit)})
	err = c.within(ctx, q.within, q.op, func(ctx context.Context) error {
		return c.db.read(ctx, s, func(v columns) {
			size := 0
			for _, column := range v.values {
				size += len(column)
			}
			full = full || held+size > MaxPage && held > 0
			if full {
				return
			}
			held += size
			rows = append(rows, rowOf(v))
		})
	})
	if err != nil {
		return nil, false, err
	}
	more = full || len(rows) == limit
	switch {
	case full:
		c.page = len(rows)
	case held < MaxPage/2:
		c.page = min(2*c.page, maxRows)
	}
	return rows, more, nil
}

// contents are the columns of rowOf except the last one.
func (d Dialect) contents() string {
	length := "octet_length"
	age := "CASE WHEN isfinite(created_at) THEN " +
		"(date_part('epoch', clock_timestamp() - created_at) * 1000)::bigint END"
	number := "::bigint"
	if d == MySQL {
		length, number = "LENGTH", ""
		age = "TIMESTAMPDIFF(MICROSECOND, created_at, SYSDATE(6)) DIV 1000"
	}
	return "seq, id, kind, " + age + ", " + length + "(request)" + number + ", " + length + "(body)" +
		number + ", CASE WHEN " + length + "(request) <= 524288 THEN request END" +
		", CASE WHEN " + length + "(body) <= 262144 THEN body END"
}

// rowOf copies a row.
func rowOf(v columns) KeptRow {
	return KeptRow{Row: Row{
		Key: Key{v.int(0, 0), v.text(1)}, Kind: v.text(2),
		Age:          milliseconds(v.int(3, math.MinInt64)),
		RequestBytes: int(v.int(4, 0)), BodyBytes: int(v.int(5, -1)),
		Request: slices.Clone(v.values[6]), Body: slices.Clone(v.values[7]),
	}, DoneAt: time.UnixMicro(v.int(8, 0)).UTC()}
}

// milliseconds returns a duration, at most what a Duration can be. A row whose time is not a number is from
// the future.
func milliseconds(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(max(-most, min(n, most))) * time.Millisecond
}

// micros returns a time as Unix microseconds.
func (d Dialect) micros(column string) string {
	if d == MySQL {
		return "CAST(UNIX_TIMESTAMP(" + column + ") * 1000000 AS SIGNED)"
	}
	return "CASE WHEN isfinite(" + column + ") THEN (date_part('epoch', " + column +
		") * 1000000)::bigint END"
}

// fromMicros is the opposite of micros.
func (d Dialect) fromMicros(t time.Time) []any {
	if d == MySQL {
		return []any{"FROM_UNIXTIME(", value{t.UnixMicro()}, " / 1000000)"}
	}
	return []any{"timestamptz 'epoch' + ", value{t.UnixMicro()}, "::bigint * interval '1 microsecond'"}
}

// ago returns the time of the database's clock before a duration.
func (d Dialect) ago(before time.Duration) []any {
	if d == MySQL {
		return []any{"NOW(6) - INTERVAL ", value{before.Microseconds()}, " MICROSECOND"}
	}
	return []any{"now() - ", value{before.Microseconds()}, "::bigint * interval '1 microsecond'"}
}

// Remove deletes rows and returns how many there were. With keep, it copies them in the same transaction.
// It removes all of them or, with an error, none.
func (c *Conn) Remove(ctx context.Context, keys []Key) (int, error) {
	return c.remove(ctx, "remove rows", c.t.outbox, "seq", keys)
}

// remove deletes accepted rows of a table. first is the first column of its primary key.
func (c *Conn) remove(ctx context.Context, op, table, first string, keys []Key) (int, error) {
	return chunks(ctx, c, op, keys, func(keys []Key) []statement {
		remove := c.d.remove(table, first, keys)
		if !c.keep {
			return []statement{remove}
		}
		// If a second relay copies the same row in the same millisecond, this fails, and the row is gone at
		// the next try. INSERT IGNORE would cut values that are too long.
		keep := c.d.compose("INSERT INTO ", c.t.done, " (", copied, ") ",
			c.d.with("SELECT "+copiedOf+" FROM", table, first, keys))
		return []statement{keep, remove}
	})
}

// copied are the columns that all tables have, copiedOf those of a row.
const (
	copied   = "seq, id, kind, request, body, created_at"
	copiedOf = "o.seq, o.id, o.kind, o.request, o.body, o.created_at"
)

// Waiting counts the rows with a higher sequence number, up to the limit.
func (c *Conn) Waiting(ctx context.Context, after int64, limit int) (int, error) {
	return c.count(ctx, "count rows", limit, " FROM ", c.t.outbox, c.d.byKey(), " WHERE seq > ", value{after},
		" ORDER BY seq")
}

// count counts rows up to the limit.
func (c *Conn) count(ctx context.Context, op string, limit int, from ...any) (n int, err error) {
	s := c.d.compose("SELECT COUNT(*) FROM (SELECT 1", from, " LIMIT ", value{int64(limit)}, ") counted")
	err = c.do(ctx, op, func(ctx context.Context) error {
		return c.db.read(ctx, s, func(v columns) { n = int(v.int(0, 0)) })
	})
	return n, err
}

// chunks changes rows in one transaction, with statements for some of them each, and returns the number of
// rows that the counted statements changed.
func chunks[T any](ctx context.Context, c *Conn, op string, all []T, statements func([]T) []statement,
) (n int, err error) {
	var list []statement
	for some := range slices.Chunk(all, c.d.maxKeys()) {
		list = append(list, statements(some)...)
	}
	if len(list) == 0 {
		return 0, nil
	}
	err = c.do(ctx, op, func(ctx context.Context) error {
		n, err = c.db.change(ctx, list...)
		return err
	})
	return n, err
}

// do bounds the time of a call and adds the operation to its error.
func (c *Conn) do(ctx context.Context, op string, f func(context.Context) error) error {
	return c.within(ctx, c.source.limits.call, op, f)
}

func (c *Conn) within(ctx context.Context, limit time.Duration, op string, f func(context.Context) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := f(ctx); err != nil {
		return &opError{op, c.db.kind(err), err}
	}
	return nil
}
