package sqlstore

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A field is one column of the rows that a bulk statement is given. Exactly one of the functions is set: it takes the
// value out of a row.
type field[R any] struct {
	name   string
	text   func(R) string
	number func(R) int64
	// maybe is a number or NULL.
	maybe func(R) *int64
	real  func(R) float64
	bytes func(R) []byte
}

// fields are the columns of rows, the key first.
type fields[R any] []field[R]

func textField[R any](name string, value func(R) string) field[R] {
	return field[R]{name: name, text: value}
}

func numberField[R any](name string, value func(R) int64) field[R] {
	return field[R]{name: name, number: value}
}

func (fs fields[R]) names() []string {
	names := make([]string, len(fs))
	for i := range fs {
		names[i] = fs[i].name
	}
	return names
}

// columns takes the rows apart, for a statement that gets them all at once.
func (fs fields[R]) columns(rows []R) []column {
	columns := make([]column, len(fs))
	for i := range fs {
		switch f, c := &fs[i], &columns[i]; {
		case f.text != nil:
			*c = texts(f.name, rows, f.text)
		case f.maybe != nil:
			c.name, c.nullable = f.name, make([]*int64, len(rows))
			for n, r := range rows {
				c.nullable[n] = f.maybe(r)
			}
		case f.real != nil:
			c.name, c.reals = f.name, make([]float64, len(rows))
			for n, r := range rows {
				c.reals[n] = f.real(r)
			}
		case f.bytes != nil:
			c.name, c.bytes = f.name, make([][]byte, len(rows))
			for n, r := range rows {
				c.bytes[n] = f.bytes(r)
			}
		default:
			*c = ints(f.name, rows, f.number)
		}
	}
	return columns
}

// bind sets the parameters of a statement that gets one row.
func (fs fields[R]) bind(s *liteStmt, r R) {
	for i, n := range s.params {
		switch f := &fs[n]; {
		case f.text != nil:
			s.stmt.BindText(i+1, f.text(r))
		case f.maybe != nil:
			if v := f.maybe(r); v != nil {
				s.stmt.BindInt64(i+1, *v)
			} else {
				s.stmt.BindNull(i + 1)
			}
		case f.real != nil:
			s.stmt.BindFloat(i+1, f.real(r))
		case f.bytes != nil:
			if b := f.bytes(r); b != nil {
				s.stmt.BindBytes(i+1, b)
			} else {
				s.stmt.BindNull(i + 1)
			}
		default:
			s.stmt.BindInt64(i+1, f.number(r))
		}
	}
}

// postgresInput is the multi-row input of all fields as a table i.
func (fs fields[R]) postgresInput() string {
	var none []R
	columns := fs.columns(none)
	input, _ := postgresDialect().input(1, columns)
	return input
}

// inputRef is how the text of a bulk statement names a field of its rows.
var inputRef = regexp.MustCompile(`\bi\.([a-z_]+)\b`)

// oneRow turns references to the input into parameters for one row.
func (fs fields[R]) oneRow(text string) string {
	names := fs.names()
	return inputRef.ReplaceAllStringFunc(text, func(ref string) string {
		n := slices.Index(names, strings.TrimPrefix(ref, "i."))
		if n < 0 {
			panic("sqlstore: a statement refers to " + ref + ", which its input does not have")
		}
		return fmt.Sprint("$", n+1)
	})
}

// A bulkUpdate changes callbacks, each by one row of its input, whose first field is the id, and reads them as they are
// then. The text is one for both databases; PostgreSQL gets all rows at once, SQLite, for which a call costs next to
// nothing and taking a set apart much, one by one.
type bulkUpdate[R any] struct {
	fields fields[R]
	// alone: the changes may be committed though the transaction fails, for whoever tries it again finds them done.
	alone          bool
	postgres       string
	lite, liteRead string
	// postgresRead reads what the update returns of requests, by the ids of the changed rows ("%s" is the input).
	// Empty: it returns nothing of requests. An update that has waited for the row's lock sees the new row of
	// callbacks, but that of requests as it was before it waited; a statement of its own sees both as they are.
	postgresRead string
}

// newBulkUpdate makes one of its parts: in set and where, i.NAME is a field of the input. What it returns may
// be columns of requests, too.
func newBulkUpdate[R any](fs fields[R], set, where, returning string) *bulkUpdate[R] {
	where = `callbacks.id = i.` + fs[0].name + ` AND ` + where
	u := &bulkUpdate[R]{
		fields:   fs,
		lite:     fs.oneRow(`UPDATE callbacks SET ` + set + ` WHERE ` + where),
		liteRead: `SELECT ` + returning + ` FROM callbacks WHERE callbacks.id = $1`,
	}
	if strings.Contains(returning, `requests.`) {
		u.liteRead = `SELECT ` + returning + ` FROM ` + fromCallbacks + ` WHERE callbacks.id = $1`
		u.postgresRead = `SELECT ` + returning + ` FROM ` + fromCallbacks + ` WHERE callbacks.id IN (SELECT i.id FROM %s)`
		returning = `callbacks.id`
	}
	u.postgres = `UPDATE callbacks SET ` + set + ` FROM ` + fs.postgresInput() + ` WHERE ` + where + ` RETURNING ` + returning
	return u
}

// byItself marks an update that may be committed by itself.
func (u *bulkUpdate[R]) byItself() *bulkUpdate[R] {
	u.alone = true
	return u
}

// run changes the rows, no two of which may have the same id, and calls scan for each that was changed.
func (u *bulkUpdate[R]) run(t *tx, rows []R, scan func(scanner) error) error {
	if len(rows) == 0 {
		return nil
	}
	if t.lite == nil {
		args, err := t.db.dialect.args(u.fields.columns(rows))
		if err != nil {
			return err
		}
		switch {
		case u.postgresRead != "":
			return u.runAndRead(t, args, scan)
		case u.alone && t.group != nil:
			return t.group.alone(t.ctx, scan, u.postgres, args)
		}
		return t.each(scan, u.postgres, args...)
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
		u.fields.bind(change, r)
		n, err := change.exec()
		if err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		read.stmt.BindText(1, u.fields[0].text(r))
		if err := read.each(scan); err != nil {
			return err
		}
	}
	return nil
}

// runAndRead is run on PostgreSQL where something of requests is returned.
func (u *bulkUpdate[R]) runAndRead(t *tx, args []any, scan func(scanner) error) error {
	var ids []string
	if err := t.each(func(r scanner) error {
		var id string
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	}, u.postgres, args...); err != nil || len(ids) == 0 {
		return err
	}
	input, args, _, err := t.input([]column{{name: "id", texts: ids}})
	if err != nil {
		return err
	}
	return t.each(scan, fmt.Sprintf(u.postgresRead, input), args...)
}

// take changes the rows, no two of which may have the same id, where the update returns nothing but the id. It calls taken for
// each that was changed and returns the others.
func (u *bulkUpdate[R]) take(t *tx, rows []R, taken func(R)) (rest []R, err error) {
	if len(rows) == 0 {
		return nil, nil
	}
	if t.lite != nil {
		change, err := t.lite.prepare(u.lite)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			u.fields.bind(change, r)
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
	if err := u.run(t, rows, func(r scanner) error {
		var id string
		err := r.Scan(&id)
		changed[id] = true
		return err
	}); err != nil {
		return nil, err
	}
	for _, r := range rows {
		if changed[u.fields[0].text(r)] {
			taken(r)
		} else {
			rest = append(rest, r)
		}
	}
	return rest, nil
}

// A bulkInsert adds rows to a table.
type bulkInsert[R any] struct {
	fields         fields[R]
	postgres, lite string
	// bare is postgres without anything for rows that are there already: they are an error.
	bare string
}

// newBulkInsert makes one whose fields are named as the table's columns. conflict is what to do with rows that are there
// already: an ON CONFLICT clause, or nothing.
func newBulkInsert[R any](table string, fs fields[R], conflict string) *bulkInsert[R] {
	names := strings.Join(fs.names(), ", ")
	values := make([]string, len(fs))
	for i := range values {
		values[i] = fmt.Sprint("$", i+1)
	}
	into := `INSERT INTO ` + table + ` (` + names + `)`
	bare := into + ` SELECT ` + names + ` FROM ` + fs.postgresInput()
	return &bulkInsert[R]{
		fields:   fs,
		bare:     bare,
		postgres: bare + ` WHERE 1 = 1 ` + conflict + ` RETURNING ` + fs[0].name,
		lite:     into + ` VALUES (` + strings.Join(values, ", ") + `) ` + conflict,
	}
}

// later adds rows that are not there yet with the statements that follow, on PostgreSQL.
func (b *bulkInsert[R]) later(t *tx, rows []R) error {
	if len(rows) == 0 {
		return nil
	}
	args, err := t.db.dialect.args(b.fields.columns(rows))
	if err != nil {
		return err
	}
	return t.later(b.bare, args...)
}

// run adds the rows and calls inserted, if it is not nil, with the key of each that was added or changed. If it is nil the rows may be
// added only with the statements that follow.
func (b *bulkInsert[R]) run(t *tx, rows []R, inserted func(key string)) error {
	if len(rows) == 0 {
		return nil
	}
	if t.lite == nil {
		args, err := t.db.dialect.args(b.fields.columns(rows))
		if err != nil {
			return err
		}
		if inserted == nil {
			return t.later(strings.TrimSuffix(b.postgres, ` RETURNING `+b.fields[0].name), args...)
		}
		return t.each(func(r scanner) error {
			var key string
			err := r.Scan(&key)
			inserted(key)
			return err
		}, b.postgres, args...)
	}
	insert, err := t.lite.prepare(b.lite)
	if err != nil {
		return err
	}
	for _, r := range rows {
		b.fields.bind(insert, r)
		n, err := insert.exec()
		if err != nil {
			return err
		}
		if n > 0 && inserted != nil {
			inserted(b.fields[0].text(r))
		}
	}
	return nil
}
