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

// A Column is a column of a noun and where its value is: what a statement reads is scanned into it, and what
// a statement writes is taken from it.
type Column struct {
	// Name is the column's name, or an expression where it is only read.
	Name string
	// At points to the value, or is one of the adapters of this package.
	At any
}

// Columns describe a noun.
type Columns []Column

// List names the columns as a statement does.
func (c Columns) List() string { return strings.Join(c.names(), ", ") }

func (c Columns) names() []string {
	names := make([]string, len(c))
	for i := range c {
		names[i] = c[i].Name
	}
	return names
}

// Overwrite is the SET clause of an ON CONFLICT that takes all columns but the named ones from the new row.
func (c Columns) Overwrite(but ...string) string {
	var set []string
	for _, name := range c.names() {
		if !slices.Contains(but, name) {
			set = append(set, name+` = excluded.`+name)
		}
	}
	return strings.Join(set, ", ")
}

// insertText is the statement that adds one row. It is made for each group of rows, so it allocates once.
func (c Columns) insertText(table, conflict string) string {
	const name, number = 24, 6 // about as long as a column's
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

// at are the places of the values.
func (c Columns) at() []any {
	at := make([]any, len(c))
	for i := range c {
		at[i] = c[i].At
	}
	return at
}

// Insert adds one row to a table. It returns how many were added or changed: none where conflict, an ON
// CONFLICT clause or nothing, says so.
func (c Columns) Insert(t *Tx, table, conflict string) (int64, error) {
	return t.Exec(c.insertText(table, conflict), c.at()...)
}

// Update writes the columns to the rows that where picks, whose parameters are numbered from 1. It returns
// how many those were.
func (c Columns) Update(t *Tx, table, where string, args ...any) (int64, error) {
	set := make([]string, len(c))
	for i := range c {
		set[i] = fmt.Sprintf("%s = $%d", c[i].Name, len(args)+i+1)
	}
	return t.Exec(`UPDATE `+table+` SET `+strings.Join(set, ", ")+` WHERE `+where,
		slices.Concat(args, c.at())...)
}

// A described is a row of which the columns are described. Each of many rows takes its place, so that they
// are described once. The columns must be parts of the row itself, or a [Calc].
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

// key is the first column.
func (d *described[R]) key() string { return *d.at[0].(*string) }

// scan puts what a statement returned in the place of the row.
func (d *described[R]) scan(r Row) error {
	*d.row = *new(R)
	return r.Scan(d.at...)
}

// An adapter is a value that is stored as a number or a text, S, which its Go type is not.
type adapter[S int64 | string] struct {
	load func(S) error
	take func() (S, error)
}

// Scan implements [database/sql.Scanner].
func (a *adapter[S]) Scan(value any) error {
	stored, ok := value.(S)
	if !ok {
		return fmt.Errorf("a %T is stored in the place of a %T", value, stored)
	}
	return a.load(stored)
}

// Value implements [driver.Valuer].
func (a *adapter[S]) Value() (driver.Value, error) { return a.take() }

// Calc is the adapter of a value that is calculated when its row is written, and is never read.
func Calc[S int64 | string](value func() S) any {
	return &adapter[S]{take: func() (S, error) { return value(), nil }}
}

// Bool is the adapter of a yes or no, which is stored as 1 or 0.
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

// Millis is the adapter of a duration, which is stored in milliseconds.
func Millis(d *time.Duration) any {
	return &adapter[int64]{
		func(n int64) error { *d = time.Duration(n) * time.Millisecond; return nil },
		func() (int64, error) { return d.Milliseconds(), nil },
	}
}

// JSON is the adapter of a value that is stored as JSON text. What is empty is stored as empty text, which
// leaves the value alone when it is read.
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

// Hex is the adapter of bytes that are stored as hexadecimal text.
func Hex(b *[]byte) any {
	return &adapter[string]{
		func(text string) (err error) { *b, err = hex.DecodeString(text); return err },
		func() (string, error) { return hex.EncodeToString(*b), nil },
	}
}
