package sqldb

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	// fromInput is where a statement names its multi-row input, which has no place in one that gets a single
	// row.
	fromInput = regexp.MustCompile(`\b(FROM|USING)\s+\$i\b`)
	// inputRef is how the text of a bulk statement names a column of its rows.
	inputRef = regexp.MustCompile(`\bi\.([a-z_]+)\b`)
)

// oneRow turns references to the input into parameters for one row.
func (c Columns) oneRow(text string) string {
	names := c.names()
	return inputRef.ReplaceAllStringFunc(fromInput.ReplaceAllString(text, ""), func(ref string) string {
		n := slices.Index(names, strings.TrimPrefix(ref, "i."))
		if n < 0 {
			panic("sqldb: a statement refers to " + ref + ", which its input does not have")
		}
		return fmt.Sprint("$", n+1)
	})
}

// ExecRows runs a statement for rows and returns how many it changed. Its text takes them from "FROM $i", or
// in a DELETE "USING $i", and names the columns i.NAME. PostgreSQL gets all rows at once; SQLite, for which a
// call costs next to nothing and taking a set apart much, one by one (docs/adr/0011-sqlite-row-by-row.md).
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

// execEach runs a statement for each row, and calls done with how many rows that changed.
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

// InsertRows adds rows to a table, at the latest with the commit. conflict is an ON CONFLICT clause, or
// nothing.
func InsertRows[R any](t *Tx, table string, columns func(*R) Columns, rows []R, conflict string) error {
	return InsertEach(t, table, columns, pointers(rows), conflict, nil)
}

// InsertEach is InsertRows which calls inserted, if it is not nil, with each row that was added or changed,
// by its key: the first column.
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
	text := `INSERT INTO ` + table + ` (` + names + `) SELECT ` + names + ` FROM $i WHERE 1 = 1 ` + conflict
	if inserted == nil {
		return t.Later(text, d.input(rows))
	}
	keys, err := Values[string](t, text+` RETURNING `+d.columns[0].Name, d.input(rows))
	for _, key := range keys {
		inserted(key)
	}
	return err
}

// A BulkUpdate is a prepared update of a table whose key is id. Each row of its input, R, changes one row,
// which it reads as it is then, and may return columns of, C.
type BulkUpdate[R, C any] struct {
	Table string
	// Columns are those of the input, the id first. Set and Where name them i.NAME.
	Columns    func(*R) Columns
	Set, Where string
	// Returning is what is read of the changed rows, the id first; nil: nothing.
	Returning func(*C) Columns
	// From is the table with what it is joined to, where Returning names columns of more than the table; else
	// empty.
	From string
	// Alone says that the changes may be committed though the transaction fails, since a later try finds them
	// done.
	Alone bool

	postgres, lite, liteRead string
	// postgresRead reads what the update returns of other tables, by the ids of the changed rows. Empty: it
	// returns nothing of them. An update that has waited for the row's lock sees the new row of the table,
	// but those of others as they were before it waited; a statement of its own sees all as they are.
	postgresRead string
}

// Prepare writes the texts of the update.
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

// Texts are the statements of the update, for tests of their plans: on PostgreSQL the update and what reads
// after it (empty: nothing does), on SQLite the update.
func (u *BulkUpdate[R, C]) Texts() (postgres, postgresRead, lite string) {
	return u.postgres, u.postgresRead, u.lite
}

// Run changes the rows, no two of which may have the same id, and calls changed for each that was, with what
// it returns, if anything. That is good until the next call.
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
		return t.each(u.Alone, answer, u.postgres, d.input(rows))
	}
	ids, err := Values[string](t, u.postgres, d.input(rows))
	if err != nil || len(ids) == 0 {
		return err
	}
	return t.Each(answer, u.postgresRead, Texts("id", ids))
}
