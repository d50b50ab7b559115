package sqldb

import (
	"fmt"
	"reflect"
)

// A column is one column of multi-row input.
type column struct {
	// kind is the column's type in PostgreSQL.
	name, kind string
	values
}

// values are those of a column, of one type.
type values interface {
	// add appends what the described row has now.
	add() error
	// all is the slice of the values, at the value of one row.
	all() any
	at(row int) any
}

const (
	textKind  = "text"
	intKind   = "bigint"
	realKind  = "double precision"
	bytesKind = "bytea"
)

// A list takes what is at a place, or what next returns if that is not nil.
type list[V any] struct {
	values []V
	place  *V
	next   func() (V, error)
}

func (l *list[V]) add() (err error) {
	if l.next == nil {
		l.values = append(l.values, *l.place)
		return nil
	}
	v, err := l.next()
	l.values = append(l.values, v)
	return err
}

func (l *list[V]) all() any       { return l.values }
func (l *list[V]) at(row int) any { return l.values[row] }

// listAt will have so many values, which come to one place.
func listAt[V any](rows int, place *V) values {
	return &list[V]{values: make([]V, 0, rows), place: place}
}

// listOf will have so many values, each of which next returns when its row is described.
func listOf[V any](rows int, next func() (V, error)) values {
	return &list[V]{values: make([]V, 0, rows), next: next}
}

// newColumn is a column that will have so many values.
func newColumn(c Column, rows int) (column, error) {
	switch at := plain(c.At).(type) {
	case *string:
		return column{c.Name, textKind, listAt(rows, at)}, nil
	case *int64:
		return column{c.Name, intKind, listAt(rows, at)}, nil
	case *int:
		return column{c.Name, intKind, listOf(rows, func() (int64, error) { return int64(*at), nil })}, nil
	case **int64:
		return column{c.Name, intKind, listAt(rows, at)}, nil
	case *float64:
		return column{c.Name, realKind, listAt(rows, at)}, nil
	case *[]byte:
		return column{c.Name, bytesKind, listAt(rows, at)}, nil
	case *adapter[string]:
		return column{c.Name, textKind, listOf(rows, at.take)}, nil
	case *adapter[int64]:
		return column{c.Name, intKind, listOf(rows, at.take)}, nil
	}
	return column{}, fmt.Errorf("column %s: a value of type %T cannot be written", c.Name, c.At)
}

// plain is the place of a text of a type of its own as that of a string: what is of no type of its own is
// read and written without reflection.
func plain(at any) any {
	if v := reflect.ValueOf(at); v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.String {
		return v.Convert(reflect.TypeFor[*string]()).Interface()
	}
	return at
}

// An Input is multi-row input of a statement: an argument that stands for the table i.
type Input struct {
	columns []column
	rows    int
	err     error
}

// input takes rows apart, for a statement that gets them all at once.
func (d *described[R]) input(rows []*R) Input {
	in := Input{columns: make([]column, len(d.columns)), rows: len(rows)}
	for i, c := range d.columns {
		in.columns[i], in.err = newColumn(c, len(rows))
		if in.err != nil {
			return in
		}
	}
	for _, r := range rows {
		*d.row = *r
		for i := range in.columns {
			if err := in.columns[i].add(); err != nil {
				in.err = fmt.Errorf("column %s: %w", in.columns[i].name, err)
				return in
			}
		}
	}
	return in
}

// Rows is the input that has columns of some rows.
func Rows[R any](rows []R, columns func(*R) Columns) Input { return RowsAt(pointers(rows), columns) }

// RowsAt is [Rows] for rows that are elsewhere.
func RowsAt[R any](rows []*R, columns func(*R) Columns) Input {
	d := describe(columns)
	return d.input(rows)
}

func pointers[R any](rows []R) []*R {
	all := make([]*R, len(rows))
	for i := range rows {
		all[i] = &rows[i]
	}
	return all
}

// Texts is input of one column.
func Texts(name string, values []string) Input {
	return Input{columns: []column{{name, textKind, &list[string]{values: append([]string{}, values...)}}},
		rows: len(values)}
}

// Ints is input of one column.
func Ints(name string, values []int64) Input {
	return Input{columns: []column{{name, intKind, &list[int64]{values: append([]int64{}, values...)}}},
		rows: len(values)}
}
