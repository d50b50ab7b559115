package source

import (
	"context"
	"time"
)

// Refuse moves rows to the refused table and returns how many there were. A row that is there already, after
// the sequence went back, is replaced. It moves all of them or, with an error, none.
func (c *Conn) Refuse(ctx context.Context, refusals []Refusal) (int, error) {
	twice := " ON CONFLICT (id, seq) DO UPDATE SET kind = excluded.kind, request = excluded.request, " +
		"body = excluded.body, created_at = excluded.created_at, code = excluded.code, " +
		"problem = excluded.problem, refused_at = excluded.refused_at"
	if c.d == MySQL {
		twice = " ON DUPLICATE KEY UPDATE kind = VALUES(kind), request = VALUES(request), " +
			"body = VALUES(body), created_at = VALUES(created_at), code = VALUES(code), " +
			"problem = VALUES(problem), refused_at = VALUES(refused_at)"
	}
	return chunks(ctx, c, "refuse rows", refusals, func(refusals []Refusal) []statement {
		var statements []statement
		var keys []Key
		for _, g := range grouped(refusals) {
			rows := c.d.with(" FROM", c.t.outbox, "seq", g.keys)
			statements = append(statements, c.d.compose("INSERT INTO ", c.t.refused, " (", copied,
				", code, problem, refused_at) SELECT ", copiedOf, ", ", c.d.string(g.code), ", ",
				c.d.string(g.problem), ", ", c.d.ago(0), rows, twice))
			keys = append(keys, g.keys...)
		}
		return append(statements, c.d.remove(c.t.outbox, "seq", keys))
	})
}

// string is a text argument where the database does not know its type.
func (d Dialect) string(s string) []any {
	if d == MySQL {
		return []any{value{s}}
	}
	return []any{value{s}, "::text"}
}

// A group are rows with the same problem.
type group struct {
	code, problem string
	keys          []Key
}

// grouped groups refusals in the order of the first of each group.
func grouped(refusals []Refusal) []group {
	type problem struct{ code, problem string }
	var groups []group
	at := map[problem]int{}
	for _, r := range refusals {
		p := problem{clean(r.Code, maxCode), clean(r.Problem, maxProblem)}
		i, seen := at[p]
		if !seen {
			i = len(groups)
			at[p] = i
			groups = append(groups, group{code: p.code, problem: p.problem})
		}
		groups[i].keys = append(groups[i].keys, r.Key)
	}
	return groups
}

// Refused returns the newest refused rows.
func (c *Conn) Refused(ctx context.Context, limit int) (rows []RefusedRow, err error) {
	s := c.d.compose("SELECT seq, id, kind, code, LEFT(problem, 1000), ", c.d.micros("refused_at"), " FROM ",
		c.t.refused, " ORDER BY refused_at DESC LIMIT ", value{int64(min(limit, maxRows))})
	err = c.do(ctx, "read refused rows", func(ctx context.Context) error {
		return c.db.read(ctx, s, func(v columns) {
			rows = append(rows, RefusedRow{
				Refusal{Key{v.int(0, 0), v.text(1)}, v.text(3), v.text(4)}, v.text(2),
				time.UnixMicro(v.int(5, 0)).UTC(),
			})
		})
	})
	return rows, err
}

// CountRefused counts refused rows, up to the limit.
func (c *Conn) CountRefused(ctx context.Context, f Filter, limit int) (int, error) {
	return c.count(ctx, "count refused rows", limit, " FROM ", c.t.refused, c.d.where(f))
}

// where is the condition of a filter.
func (d Dialect) where(f Filter) []any {
	parts := []any{" WHERE TRUE"}
	if f.ID != "" {
		parts = append(parts, " AND id = ", value{f.ID})
	}
	if f.Code != "" {
		parts = append(parts, " AND code = ", value{f.Code})
	}
	if f.Before != 0 {
		parts = append(parts, " AND refused_at <= ", d.ago(f.Before))
	}
	return parts
}

// ReadRefused returns refused rows with a higher key, in the order of their ids. The zero Key is before all.
// A page may have fewer rows than limit, as with Read; the last page is empty.
func (c *Conn) ReadRefused(ctx context.Context, f Filter, after Key, limit int) ([]Row, error) {
	where := []any{" FROM ", c.t.refused, c.d.byKey(), c.d.where(f)}
	if after != (Key{}) { // MySQL sorts some ids before the empty one
		where = append(where, " AND id >= ", value{after.ID}, " AND (id > ", value{after.ID}, " OR seq > ",
			value{after.Seq}, ")")
	}
	page, _, err := c.readPage(ctx, limit,
		query{"read refused rows", c.source.limits.call, "NULL", where, "id, seq"})
	rows := make([]Row, len(page))
	for i := range page {
		rows[i] = page[i].Row
	}
	return rows, err
}

// RemoveRefused is Remove for refused rows that were accepted after all.
func (c *Conn) RemoveRefused(ctx context.Context, keys []Key) (int, error) {
	return c.remove(ctx, "remove refused rows", c.t.refused, "id", keys)
}

// UpdateRefused replaces the code, the problem and the time of refused rows and returns how many there were.
func (c *Conn) UpdateRefused(ctx context.Context, refusals []Refusal) (int, error) {
	return chunks(ctx, c, "update refused rows", refusals, func(refusals []Refusal) []statement {
		var statements []statement
		for _, g := range grouped(refusals) {
			set := []any{" SET code = ", value{g.code}, ", problem = ", value{g.problem}, ", refused_at = ",
				c.d.ago(0)}
			update := c.d.compose(c.d.with("UPDATE", c.t.refused, "id", g.keys, set))
			statements = append(statements, update.count())
		}
		return statements
	})
}

// DropRefused deletes refused rows, up to the limit, and returns how many there were. It keeps no copy.
func (c *Conn) DropRefused(ctx context.Context, f Filter, limit int) (int, error) {
	return c.deleteFirst(ctx, "delete refused rows", c.t.refused, "id, seq", c.d.where(f), limit)
}

// deleteFirst deletes the first rows of a condition in the order of the table's key.
func (c *Conn) deleteFirst(ctx context.Context, op, table, key string, where []any, limit int,
) (n int, err error) {
	first := []any{where, " ORDER BY ", key, " LIMIT ", value{int64(min(limit, maxRows))}}
	if c.d == Postgres {
		first = []any{" WHERE (", key, ") IN (SELECT ", key, " FROM ", table, first, ")"}
	}
	err = c.do(ctx, op, func(ctx context.Context) error {
		n, err = c.db.change(ctx, c.d.compose("DELETE FROM ", table, first).count())
		return err
	})
	return n, err
}
