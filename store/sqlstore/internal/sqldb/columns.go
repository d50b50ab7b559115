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

// A Column is a column of a noun and where its value is: what a statement reads is scanned into it, and what a
// statement writes is taken from it.
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

func (c Columns) at() []any {
	at := make([]any, len(c))
	for i := range c {
		at[i] = c[i].At
	}
	return at
}

// Scan returns what scans a row into the columns.
func (c Columns) Scan() func(Row) error {
	at := c.at()
	return func(r Row) error { return r.Scan(at...) }
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

// Insert adds one row to a table. It returns how many were added or changed: none where conflict, an ON CONFLICT
// clause or nothing, says so.
func (c Columns) Insert(t *Tx, table, conflict string) (int64, error) {
	return t.Exec(c.insertText(table, conflict), c.at()...)
}

// Update writes the columns to the rows that where picks, whose parameters are numbered from 1. It returns how many
// those were.
func (c Columns) Update(t *Tx, table, where string, args ...any) (int64, error) {
	set := make([]string, len(c))
	for i := range c {
		set[i] = fmt.Sprintf("%s = $%d", c[i].Name, len(args)+i+1)
	}
	return t.Exec(`UPDATE `+table+` SET `+strings.Join(set, ", ")+` WHERE `+where, slices.Concat(args, c.at())...)
}

// InsertRows adds rows to a table, at the latest with the commit. conflict is an ON CONFLICT clause, or nothing.
func InsertRows[T any](t *Tx, table string, columns func(*T) Columns, rows []T, conflict string) error {
	pointers := make([]*T, len(rows))
	for i := range rows {
		pointers[i] = &rows[i]
	}
	return InsertEach(t, table, columns, pointers, conflict, nil)
}

// InsertEach is InsertRows which calls inserted, if it is not nil, with each row that was added or changed, by its key:
// the first column. The columns must be parts of the row itself, and not of what it points to.
func InsertEach[T any](
	t *Tx, table string, columns func(*T) Columns, rows []*T, conflict string, inserted func(key string),
) error {
	if len(rows) == 0 {
		return nil
	}
	var row T // one for all, so that their columns are described once
	into := columns(&row)
	at := into.at()
	if t.lite != nil {
		s, err := t.lite.prepare(into.insertText(table, conflict))
		if err != nil {
			return err
		}
		for _, r := range rows {
			row = *r
			if err := s.bind(at); err != nil {
				return err
			}
			n, err := s.exec()
			if err != nil {
				return err
			}
			if n > 0 && inserted != nil {
				inserted(*at[0].(*string))
			}
		}
		return nil
	}
	input := make([]column, len(into))
	for i := range into {
		input[i].name, input[i].rows = into[i].Name, len(rows)
	}
	for _, r := range rows {
		row = *r
		for i := range input {
			if err := input[i].add(at[i]); err != nil {
				return fmt.Errorf("column %s: %w", input[i].name, err)
			}
		}
	}
	names := into.List()
	text := `INSERT INTO ` + table + ` (` + names + `) SELECT ` + names + ` FROM $i WHERE 1 = 1 ` + conflict
	if inserted == nil {
		return t.Later(text, Input{input})
	}
	keys, err := Values[string](t, text+` RETURNING `+into[0].Name, Input{input})
	for _, key := range keys {
		inserted(key)
	}
	return err
}

// add appends the value that is there.
func (c *column) add(at any) error {
	if v, ok := at.(driver.Valuer); ok {
		value, err := v.Value()
		if err != nil {
			return err
		}
		switch value := value.(type) {
		case string:
			c.kind, c.texts = textKind, grow(c.texts, value, c.rows)
			return nil
		case int64:
			c.kind, c.ints = intKind, grow(c.ints, value, c.rows)
			return nil
		}
		return fmt.Errorf("a value of type %T cannot be written", value)
	}
	switch at := at.(type) {
	case *string:
		c.kind, c.texts = textKind, grow(c.texts, *at, c.rows)
	case *int64:
		c.kind, c.ints = intKind, grow(c.ints, *at, c.rows)
	case **int64:
		c.kind, c.nullable = intKind, grow(c.nullable, *at, c.rows)
	case *float64:
		c.kind, c.reals = realKind, grow(c.reals, *at, c.rows)
	case *[]byte:
		c.kind, c.bytes = bytesKind, grow(c.bytes, *at, c.rows)
	default:
		switch v := reflect.ValueOf(at).Elem(); v.Kind() {
		case reflect.String:
			c.kind, c.texts = textKind, grow(c.texts, v.String(), c.rows)
		case reflect.Int, reflect.Int64:
			c.kind, c.ints = intKind, grow(c.ints, v.Int(), c.rows)
		default:
			return fmt.Errorf("a value of type %T cannot be written", at)
		}
	}
	return nil
}

// grow appends to a list that will have as many values as there are rows.
func grow[T any](list []T, value T, rows int) []T {
	if list == nil {
		list = make([]T, 0, rows)
	}
	return append(list, value)
}

// A flag is a yes or no, which is stored as 1 or 0.
type flag bool

// Bool is the adapter of a yes or no, which is stored as 1 or 0.
func Bool(b *bool) any { return (*flag)(b) }

// Scan implements [database/sql.Scanner].
func (f *flag) Scan(value any) error {
	n, ok := value.(int64)
	if !ok {
		return fmt.Errorf("a flag is a %T", value)
	}
	*f = n != 0
	return nil
}

// Value implements [driver.Valuer].
func (f *flag) Value() (driver.Value, error) {
	if *f {
		return int64(1), nil
	}
	return int64(0), nil
}

// A millis is a duration, which is stored in milliseconds.
type millis time.Duration

// Millis is the adapter of a duration, which is stored in milliseconds.
func Millis(d *time.Duration) any { return (*millis)(d) }

// Scan implements [database/sql.Scanner].
func (m *millis) Scan(value any) error {
	n, ok := value.(int64)
	if !ok {
		return fmt.Errorf("a duration is a %T", value)
	}
	*m = millis(time.Duration(n) * time.Millisecond)
	return nil
}

// Value implements [driver.Valuer].
func (m *millis) Value() (driver.Value, error) { return time.Duration(*m).Milliseconds(), nil }

// A jsonText is a value that is stored as JSON text.
type jsonText struct{ to any }

// JSON is the adapter of a value that is stored as JSON text. What is empty is stored as empty text, which leaves
// the value alone when it is read.
func JSON(to any) any { return &jsonText{to} }

// Scan implements [database/sql.Scanner].
func (j *jsonText) Scan(value any) error {
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf("JSON is a %T", value)
	}
	if text == "" {
		return nil
	}
	return json.Unmarshal([]byte(text), j.to)
}

// Value implements [driver.Valuer].
func (j *jsonText) Value() (driver.Value, error) {
	v := reflect.ValueOf(j.to).Elem()
	if v.IsZero() || (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0 {
		return "", nil
	}
	text, err := json.Marshal(j.to)
	return string(text), err
}

// A hexText is bytes that are stored as text.
type hexText []byte

// Hex is the adapter of bytes that are stored as hexadecimal text.
func Hex(b *[]byte) any { return (*hexText)(b) }

// Scan implements [database/sql.Scanner].
func (h *hexText) Scan(value any) (err error) {
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf("hexadecimal text is a %T", value)
	}
	*h, err = hex.DecodeString(text)
	return err
}

// Value implements [driver.Valuer].
func (h *hexText) Value() (driver.Value, error) { return hex.EncodeToString(*h), nil }
