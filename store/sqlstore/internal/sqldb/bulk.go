package sqldb

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	// fromInput matches the clause with the multi-row input. A statement for a single row has no such clause.
	fromInput = regexp.MustCompile(`\b(FROM|USING)\s+\$i\b`)
	// inputRef matches a reference to a column of the input.
	inputRef = regexp.MustCompile(`\bi\.([a-z_]+)\b`)
)

// oneRow changes a statement for multi-row input into one for a single row: it removes the input's clause,
// and replaces references to its columns with parameters. It panics if the input lacks a column.
func (c Columns) oneRow(text string) string {
	names := c.names()
	return inputRef.ReplaceAllStringFunc(fromInput.ReplaceAllString(text, ""), func(ref string) string {
		n := slices.Index(names, strings.TrimPrefix(ref, "i."))
		if n < 0 {
			panic("sqldb: statement refers to " + ref + ", but the input has no such column")
		}
		return fmt.Sprint("$", n+1)
	})
}

// ExecRows runs a statement for all rows, and returns the number of rows that it changed. The text reads the
// rows with "FROM $i", or "USING $i" in a DELETE, and names their columns i.NAME. PostgreSQL gets all rows in
// one call. SQLite gets one call for each row, because its calls are cheap and decoding a set of rows is not
// (docs/adr/0011-sqlite-row-by-row.md).
func ExecRows[R any](t *Tx, text string, rows []R, columns func(*R) Columns) (changed int64, err error) {
	if len(rows) == 0 {
		return 0, nil
	}
	d := describe(columns)
	if t.lite == nil {
		return t.Exec(text, d.input(pointers(rows)))
	}
	s, err := t.lite.prepareAs(text, func() string { return d.columns.oneRow(text) })
	if err != nil {
		return 0, err
	}
	err = execEach(s, &d, pointers(rows), func(_ *R, n int64) error { changed += n; return nil })
	return changed, err
}

// execEach runs a statement for each row, and calls done with the number of rows that this call changed.
func execEach[R any](s *liteStmt, d *described[R], rows []*R, done func(r *R, changed int64) error) error {
	for _, r := range rows {
		*d.row = *r
		if err := s.bind(d.at); err != nil {
			return err
		}
		n, err := s.exec()
		if err == nil {
			err = done(r, n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// InsertRows inserts rows into a table. On PostgreSQL the insert may wait until the commit, as Tx.Later does.
// conflict is an ON CONFLICT clause or empty.
func InsertRows[R any](t *Tx, table string, columns func(*R) Columns, rows []R, conflict string) error {
	return InsertEach(t, table, columns, pointers(rows), conflict, nil)
}

// InsertEach is InsertRows for rows given by pointers. If inserted is not nil, the insert runs at once on
// PostgreSQL too, and inserted is called with the key (the first column, a text) of each row that was
// inserted or changed. After an error those calls mean nothing: the transaction is rolled back.
func InsertEach[R any](
	t *Tx, table string, columns func(*R) Columns, rows []*R, conflict string, inserted func(key string),
) error {
	if len(rows) == 0 {
		return nil
	}
	d := describe(columns)
	if t.lite != nil {
		s, err := t.lite.prepare(d.columns.insertText(table, conflict))
		if err != nil {
			return err
		}
		return execEach(s, &d, rows, func(_ *R, n int64) error {
			if n > 0 && inserted != nil {
				inserted(d.key())
			}
			return nil
		})
	}
	names := d.columns.List()
	text := `INSERT INTO ` + table + ` (` + names + `) SELECT ` + names + ` FROM $i ` + conflict
	if inserted == nil {
		return t.Later(text, d.input(rows))
	}
	keys, err := Values[string](t, text+` RETURNING `+d.columns[0].Name, d.input(rows))
	for _, key := range keys {
		inserted(key)
	}
	return err
}

// A BulkUpdate is a prepared update of a table with the key id. Each row R of its input changes one row of
// the table. The update may return a C for each changed row.
type BulkUpdate[R, C any] struct {
	Table string
	// Columns are the columns of the input, the id first. Set and Where name them i.NAME.
	Columns    func(*R) Columns
	Set, Where string
	// Returning are the columns that are read from the changed rows, the id first. Nil: none.
	Returning func(*C) Columns
	// From is the table with its joins. It is needed if Returning has columns of other tables, else empty.
	From string
	// Separate permits PostgreSQL to commit the update before the rest of its transaction, which saves a
	// round trip. Then the update stays even if the transaction fails, so its repetition must find it done.
	Separate bool

	postgres, lite, liteRead string
	// postgresRead reads Returning after the update if it has columns of other tables, else it is empty. The
	// update itself cannot return these: after a wait for a row lock it sees the new row of its own table,
	// but the rows of other tables as of before the wait. A new statement sees the current rows.
	postgresRead string
}

// Prepare builds the statements of the update.
func (u BulkUpdate[R, C]) Prepare() *BulkUpdate[R, C] {
	columns := u.Columns(new(R))
	id := u.Table + `.id`
	update := `UPDATE ` + u.Table + ` SET ` + u.Set + ` FROM $i WHERE ` + id + ` = i.` + columns[0].Name +
		` AND ` + u.Where
	u.lite = columns.oneRow(update)
	returning := id
	if u.Returning != nil {
		read := `SELECT ` + u.Returning(new(C)).List() + ` FROM `
		if u.From == "" {
			returning = u.Returning(new(C)).List()
			u.liteRead = read + u.Table + ` WHERE ` + id + ` = $1`
		} else {
			u.liteRead = read + u.From + ` WHERE ` + id + ` = $1`
			u.postgresRead = read + u.From + ` WHERE ` + id + ` IN (SELECT i.id FROM $i)`
		}
	}
	u.postgres = update + ` RETURNING ` + returning
	return &u
}

// Texts returns the statements of the update for tests of their plans: for PostgreSQL the update and the read
// after it, which may be empty, and for SQLite the update.
func (u *BulkUpdate[R, C]) Texts() (postgres, postgresRead, lite string) {
	return u.postgres, u.postgresRead, u.lite
}

// Run runs the update for the rows, which must have different ids. For each row that changed, it calls
// changed with the input and the returned columns, or nil without Returning. Run reuses the returned C for
// the next call.
func (u *BulkUpdate[R, C]) Run(t *Tx, rows []*R, changed func(*R, *C) error) error {
	if len(rows) == 0 {
		return nil
	}
	d := describe(u.Columns)
	if t.lite == nil {
		return u.runPostgres(t, rows, &d, changed)
	}
	change, err := t.lite.prepare(u.lite)
	if err != nil {
		return err
	}
	answer := func(r *R) error { return changed(r, nil) }
	if u.Returning != nil {
		read, err := t.lite.prepare(u.liteRead)
		if err != nil {
			return err
		}
		returned := describe(u.Returning)
		answer = func(r *R) error {
			read.stmt.BindText(1, d.key())
			return read.each(func(row Row) error {
				if err := returned.scan(row); err != nil {
					return err
				}
				return changed(r, returned.row)
			})
		}
	}
	return execEach(change, &d, rows, func(r *R, n int64) error {
		if n == 0 {
			return nil
		}
		return answer(r)
	})
}

func (u *BulkUpdate[R, C]) runPostgres(t *Tx, rows []*R, d *described[R], changed func(*R, *C) error) error {
	byID := make(map[string]*R, len(rows))
	for _, r := range rows {
		*d.row = *r
		byID[d.key()] = r
	}
	answer := func(row Row) error {
		var id string
		if err := row.Scan(&id); err != nil {
			return err
		}
		return changed(byID[id], nil)
	}
	if u.Returning != nil {
		returned := describe(u.Returning)
		answer = func(row Row) error {
			if err := returned.scan(row); err != nil {
				return err
			}
			return changed(byID[returned.key()], returned.row)
		}
	}
	if u.postgresRead == "" {
		return t.each(u.Separate, answer, u.postgres, d.input(rows))
	}
	ids, err := Values[string](t, u.postgres, d.input(rows))
	if err != nil || len(ids) == 0 {
		return err
	}
	return t.Each(answer, u.postgresRead, Texts("id", ids))
}
