package sqldb

import "regexp"

// fromInput is where a statement names its multi-row input, which has no place in one that gets a single row.
var fromInput = regexp.MustCompile(`\b(FROM|USING)\s+\$i\b`)

// ExecRows runs a statement for rows and returns how many it changed. Its text takes them from "FROM $i", or in a
// DELETE "USING $i", and names the fields i.NAME. PostgreSQL gets all rows at once; SQLite, for which a call costs
// next to nothing and taking a set apart much, one by one (docs/adr/0011-sqlite-row-by-row.md).
func ExecRows[R any](t *Tx, text string, rows []R, fields ...Field[R]) (changed int64, err error) {
	if len(rows) == 0 {
		return 0, nil
	}
	if t.lite == nil {
		return t.Exec(text, Rows(rows, fields...))
	}
	s, err := t.lite.prepareAs(text, func() string {
		return Fields[R](fields).oneRow(fromInput.ReplaceAllString(text, ""))
	})
	if err != nil {
		return 0, err
	}
	for _, r := range rows {
		Fields[R](fields).bind(s, r)
		n, err := s.exec()
		if err != nil {
			return changed, err
		}
		changed += n
	}
	return changed, nil
}

// A BulkUpdate is a prepared update of a table whose key is id. Each row of its input, whose first field is the id,
// changes one row, which it reads as it is then.
type BulkUpdate[R any] struct {
	Table  string
	Fields Fields[R]
	// Set and Where name fields of the input i.NAME.
	Set, Where string
	// Returning is what is read of the changed rows.
	Returning string
	// From is the table with what it is joined to, where Returning names columns of more than the table; else empty.
	From string
	// Alone says that the changes may be committed though the transaction fails, since a later try finds them done.
	Alone bool

	postgres, lite, liteRead string
	// postgresRead reads what the update returns of other tables, by the ids of the changed rows. Empty: it returns
	// nothing of them. An update that has waited for the row's lock sees the new row of the table, but those of others
	// as they were before it waited; a statement of its own sees all as they are.
	postgresRead string
}

// Prepare writes the texts of the update.
func (u BulkUpdate[R]) Prepare() *BulkUpdate[R] {
	id := u.Table + `.id`
	where := id + ` = i.` + u.Fields[0].name + ` AND ` + u.Where
	u.lite = u.Fields.oneRow(`UPDATE ` + u.Table + ` SET ` + u.Set + ` WHERE ` + where)
	returning := u.Returning
	u.liteRead = `SELECT ` + returning + ` FROM ` + u.Table + ` WHERE ` + id + ` = $1`
	if u.From != "" {
		u.liteRead = `SELECT ` + returning + ` FROM ` + u.From + ` WHERE ` + id + ` = $1`
		u.postgresRead = `SELECT ` + returning + ` FROM ` + u.From + ` WHERE ` + id + ` IN (SELECT i.id FROM $i)`
		returning = id
	}
	u.postgres = `UPDATE ` + u.Table + ` SET ` + u.Set + ` FROM ` + u.Fields.postgresInput() + ` WHERE ` + where +
		` RETURNING ` + returning
	return &u
}

// postgresInput is the multi-row input of all fields as a table i.
func (fs Fields[R]) postgresInput() string { return postgresInput(1, fs.columns(nil)) }

// Texts are the statements of the update, for tests of their plans: on PostgreSQL the update and what reads after it
// (empty: nothing does), on SQLite the update.
func (u *BulkUpdate[R]) Texts() (postgres, postgresRead, lite string) {
	return u.postgres, u.postgresRead, u.lite
}

// Run changes the rows, no two of which may have the same id, and calls scan for each that was changed.
func (u *BulkUpdate[R]) Run(t *Tx, rows []R, scan func(Row) error) error {
	if len(rows) == 0 {
		return nil
	}
	if t.lite == nil {
		return u.runPostgres(t, rows, scan)
	}
	change, err := t.lite.prepare(u.lite)
	if err != nil {
		return err
	}
	read, err := t.lite.prepare(u.liteRead)
	if err != nil {
		return err
	}
	for _, r := range rows {
		u.Fields.bind(change, r)
		n, err := change.exec()
		if err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		read.stmt.BindText(1, u.Fields[0].text(r))
		if err := read.each(scan); err != nil {
			return err
		}
	}
	return nil
}

func (u *BulkUpdate[R]) runPostgres(t *Tx, rows []R, scan func(Row) error) error {
	args, err := t.db.Dialect.args(u.Fields.columns(rows))
	if err != nil {
		return err
	}
	if u.postgresRead == "" {
		if u.Alone && t.group != nil {
			return t.group.alone(t.ctx, scan, u.postgres, args)
		}
		return t.Each(scan, u.postgres, args...)
	}
	ids, err := Values[string](t, u.postgres, args...)
	if err != nil || len(ids) == 0 {
		return err
	}
	return t.Each(scan, u.postgresRead, Texts("id", ids))
}

// Take changes the rows, no two of which may have the same id, where the update returns nothing but the id. It calls
// taken for each that was changed and returns the others.
func (u *BulkUpdate[R]) Take(t *Tx, rows []R, taken func(R)) (rest []R, err error) {
	if len(rows) == 0 {
		return nil, nil
	}
	if t.lite != nil {
		change, err := t.lite.prepare(u.lite)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			u.Fields.bind(change, r)
			n, err := change.exec()
			switch {
			case err != nil:
				return nil, err
			case n > 0:
				taken(r)
			default:
				rest = append(rest, r)
			}
		}
		return rest, nil
	}
	changed := make(map[string]bool, len(rows))
	if err := u.runPostgres(t, rows, func(r Row) error {
		var id string
		err := r.Scan(&id)
		changed[id] = true
		return err
	}); err != nil {
		return nil, err
	}
	for _, r := range rows {
		if changed[u.Fields[0].text(r)] {
			taken(r)
		} else {
			rest = append(rest, r)
		}
	}
	return rest, nil
}
