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

// values are the values of a column for all rows.
type values interface {
	// add appends the column's value in the described row.
	add() error
	// all returns the slice of all values. at returns the value of one row.
	all() any
	at(row int) any
}

const (
	textKind  = "text"
	intKind   = "bigint"
	realKind  = "double precision"
	bytesKind = "bytea"
)

// A list is values of type V. add takes the result of next, or *place if next is nil.
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

// listAt returns a list for that many rows with values from place.
func listAt[V any](rows int, place *V) values {
	return &list[V]{values: make([]V, 0, rows), place: place}
}

// listOf returns a list for that many rows with values from next.
func listOf[V any](rows int, next func() (V, error)) values {
	return &list[V]{values: make([]V, 0, rows), next: next}
}

// newColumn returns an empty column for that many rows.
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

// plain turns a pointer to a named string type into a *string, so the drivers need no reflection for it. It
// returns other values unchanged.
func plain(at any) any {
	if v := reflect.ValueOf(at); v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.String {
		return v.Convert(reflect.TypeFor[*string]()).Interface()
	}
	return at
}

// An Input is multi-row input of a statement, passed as an argument. The statement reads it as the table i.
type Input struct {
	columns []column
	rows    int
	err     error
}

// input returns the multi-row input for rows, split into columns.
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

// Rows returns multi-row input with the columns of rows.
func Rows[R any](rows []R, columns func(*R) Columns) Input { return RowsAt(pointers(rows), columns) }

// RowsAt is [Rows] for rows given by pointers.
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

// Texts returns multi-row input with one text column.
func Texts(name string, values []string) Input {
	return Input{columns: []column{{name, textKind, &list[string]{values: append([]string{}, values...)}}},
		rows: len(values)}
}

// Ints returns multi-row input with one integer column.
func Ints(name string, values []int64) Input {
	return Input{columns: []column{{name, intKind, &list[int64]{values: append([]int64{}, values...)}}},
		rows: len(values)}
}
