package sqldb

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A column is one column of multi-row input. The slice of its kind is set.
type column struct {
	name string
	// rows is how many values are to come.
	rows int
	// kind is the column's type in PostgreSQL.
	kind     string
	texts    []string
	ints     []int64
	nullable []*int64
	reals    []float64
	bytes    [][]byte
}

const (
	textKind  = "text"
	intKind   = "bigint"
	realKind  = "double precision"
	bytesKind = "bytea"
)

// value is the column's whole slice.
func (c *column) value() any {
	switch {
	case c.kind == textKind:
		return c.texts
	case c.kind == realKind:
		return c.reals
	case c.kind == bytesKind:
		return c.bytes
	case c.nullable != nil:
		return c.nullable
	}
	return c.ints
}

func (c *column) len() int {
	return max(len(c.texts), len(c.ints), len(c.nullable), len(c.reals), len(c.bytes))
}

// at is the value of one row. SQLite gets bytes row by row only.
func (c *column) at(row int) any {
	switch {
	case c.kind == textKind:
		return c.texts[row]
	case c.kind == realKind:
		return c.reals[row]
	case c.nullable != nil:
		return c.nullable[row]
	}
	return c.ints[row]
}

// An Input is multi-row input of a statement: an argument that stands for the table i.
type Input struct{ columns []column }

// Rows is the input that has the fields of some rows.
func Rows[R any](rows []R, fields ...Field[R]) Input { return Input{Fields[R](fields).columns(rows)} }

// Texts is input of one column.
func Texts(name string, values []string) Input {
	return Input{[]column{{name: name, kind: textKind, texts: slices.Concat([]string{}, values)}}}
}

// Ints is input of one column.
func Ints(name string, values []int64) Input {
	return Input{[]column{{name: name, kind: intKind, ints: slices.Concat([]int64{}, values)}}}
}

// A Field is one column of rows. One of its functions is set: it takes the value out of a row.
type Field[R any] struct {
	name string
	text func(R) string
	int  func(R) int64
}

// Text is a field of text.
func Text[R any, S ~string](name string, value func(R) S) Field[R] {
	if plain, ok := any(value).(func(R) string); ok {
		return Field[R]{name: name, text: plain}
	}
	return Field[R]{name: name, text: func(r R) string { return string(value(r)) }}
}

// Int is a field of numbers.
func Int[R any, N ~int | ~int64](name string, value func(R) N) Field[R] {
	if plain, ok := any(value).(func(R) int64); ok {
		return Field[R]{name: name, int: plain}
	}
	return Field[R]{name: name, int: func(r R) int64 { return int64(value(r)) }}
}

// Flag is a field of yes (1) and no (0).
func Flag[R any](name string, value func(R) bool) Field[R] {
	return Field[R]{name: name, int: func(r R) int64 {
		if value(r) {
			return 1
		}
		return 0
	}}
}

// Fields are the columns of rows, the key first.
type Fields[R any] []Field[R]

func (fs Fields[R]) names() []string {
	names := make([]string, len(fs))
	for i := range fs {
		names[i] = fs[i].name
	}
	return names
}

// each is a slice with the value of each row.
func each[R, V any](rows []R, value func(R) V) []V {
	values := make([]V, len(rows))
	for i, r := range rows {
		values[i] = value(r)
	}
	return values
}

// columns takes the rows apart, for a statement that gets them all at once.
func (fs Fields[R]) columns(rows []R) []column {
	columns := make([]column, len(fs))
	for i := range fs {
		f, c := &fs[i], &columns[i]
		c.name, c.kind = f.name, intKind
		if f.text != nil {
			c.kind, c.texts = textKind, each(rows, f.text)
		} else {
			c.ints = each(rows, f.int)
		}
	}
	return columns
}

// bind sets the parameters of a statement that gets one row.
func (fs Fields[R]) bind(s *liteStmt, r R) {
	for i, n := range s.params {
		if f := &fs[n]; f.text != nil {
			s.stmt.BindText(i+1, f.text(r))
		} else {
			s.stmt.BindInt64(i+1, f.int(r))
		}
	}
}

// inputRef is how the text of a bulk statement names a field of its rows.
var inputRef = regexp.MustCompile(`\bi\.([a-z_]+)\b`)

// oneRow turns references to the input into parameters for one row.
func (fs Fields[R]) oneRow(text string) string {
	names := fs.names()
	return inputRef.ReplaceAllStringFunc(text, func(ref string) string {
		n := slices.Index(names, strings.TrimPrefix(ref, "i."))
		if n < 0 {
			panic("sqldb: a statement refers to " + ref + ", which its input does not have")
		}
		return fmt.Sprint("$", n+1)
	})
}
