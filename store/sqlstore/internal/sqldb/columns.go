package sqldb

import (
	"database/sql/driver"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Column connects a column with a value in Go. Reads scan the column into the value, and writes take it
// from there.
type Column struct {
	// Name is the column's name. For reads it may be an expression.
	Name string
	// At points to the value, or is an adapter of this package.
	At any
}

// Columns are the columns of one row of a table.
type Columns []Column

// List returns the names, separated by commas.
func (c Columns) List() string { return strings.Join(c.names(), ", ") }

func (c Columns) names() []string {
	names := make([]string, len(c))
	for i := range c {
		names[i] = c[i].Name
	}
	return names
}

// Overwrite returns the SET clause of an ON CONFLICT that takes all columns from the new row except those in
// but.
func (c Columns) Overwrite(but ...string) string {
	var set []string
	for _, name := range c.names() {
		if !slices.Contains(but, name) {
			set = append(set, name+` = excluded.`+name)
		}
	}
	return strings.Join(set, ", ")
}

// insertText returns the statement that inserts one row. It runs for each group of rows, so it allocates the
// text once.
func (c Columns) insertText(table, conflict string) string {
	const name, number = 24, 6 // estimated lengths of a column's name and parameter
	text := make([]byte, 0, len(table)+len(conflict)+len(c)*(name+number)+40)
	text = append(append(append(text, "INSERT INTO "...), table...), " ("...)
	for i := range c {
		text = append(append(text, c[i].Name...), ", "...)
	}
	text = append(text[:len(text)-2], ") VALUES ("...)
	for i := range c {
		text = append(strconv.AppendInt(append(text, '$'), int64(i+1), 10), ", "...)
	}
	return string(append(append(text[:len(text)-2], ") "...), conflict...))
}

// at returns the At of each column.
func (c Columns) at() []any {
	at := make([]any, len(c))
	for i := range c {
		at[i] = c[i].At
	}
	return at
}

// Insert inserts one row into a table. conflict is an ON CONFLICT clause or empty. Insert returns the number
// of inserted or changed rows, which is 0 after a conflict with DO NOTHING.
func (c Columns) Insert(t *Tx, table, conflict string) (int64, error) {
	return t.Exec(c.insertText(table, conflict), c.at()...)
}

// Update sets the columns in the rows that match where, and returns their number. args are the parameters of
// where, numbered from $1.
func (c Columns) Update(t *Tx, table, where string, args ...any) (int64, error) {
	set := make([]string, len(c))
	for i := range c {
		set[i] = fmt.Sprintf("%s = $%d", c[i].Name, len(args)+i+1)
	}
	return t.Exec(`UPDATE `+table+` SET `+strings.Join(set, ", ")+` WHERE `+where,
		slices.Concat(args, c.at())...)
}

// A described is a row with its columns. Many rows are copied into it one after the other, so the columns are
// built only once. The columns must point into the row itself, or be a [Calc].
type described[R any] struct {
	row     *R
	columns Columns
	at      []any
}

func describe[R any](columns func(*R) Columns) described[R] {
	row := new(R)
	c := columns(row)
	return described[R]{row, c, c.at()}
}

// key returns the value of the first column.
func (d *described[R]) key() string { return *d.at[0].(*string) }

// scan replaces the row with a row that a statement returned.
func (d *described[R]) scan(r Row) error {
	*d.row = *new(R)
	return r.Scan(d.at...)
}

// An adapter stores a value of another Go type as S, a number or a text.
type adapter[S int64 | string] struct {
	load func(S) error
	take func() (S, error)
}

// Scan implements [database/sql.Scanner].
func (a *adapter[S]) Scan(value any) error {
	stored, ok := value.(S)
	if !ok {
		return fmt.Errorf("the database has a %T, want a %T", value, stored)
	}
	return a.load(stored)
}

// Value implements [driver.Valuer].
func (a *adapter[S]) Value() (driver.Value, error) { return a.take() }

// Calc is an adapter for a value that is calculated at each write. It cannot be read.
func Calc[S int64 | string](value func() S) any {
	return &adapter[S]{take: func() (S, error) { return value(), nil }}
}

// Bool is an adapter for a bool, stored as 1 or 0.
func Bool(b *bool) any {
	return &adapter[int64]{
		func(n int64) error { *b = n != 0; return nil },
		func() (int64, error) {
			if *b {
				return 1, nil
			}
			return 0, nil
		},
	}
}

// Millis is an adapter for a duration, stored in milliseconds.
func Millis(d *time.Duration) any {
	return &adapter[int64]{
		func(n int64) error { *d = time.Duration(n) * time.Millisecond; return nil },
		func() (int64, error) { return d.Milliseconds(), nil },
	}
}

// JSON is an adapter for a value that is stored as JSON. A zero value, an empty slice and an empty map are
// stored as the empty text. A read of the empty text does not change the value.
func JSON(to any) any {
	return &adapter[string]{
		func(text string) error {
			if text == "" {
				return nil
			}
			return json.Unmarshal([]byte(text), to)
		},
		func() (string, error) {
			v := reflect.ValueOf(to).Elem()
			if v.IsZero() || (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0 {
				return "", nil
			}
			text, err := json.Marshal(to)
			return string(text), err
		},
	}
}

// Hex is an adapter for bytes, stored as hexadecimal text.
func Hex(b *[]byte) any {
	return &adapter[string]{
		func(text string) (err error) { *b, err = hex.DecodeString(text); return err },
		func() (string, error) { return hex.EncodeToString(*b), nil },
	}
}
