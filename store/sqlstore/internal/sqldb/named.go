package sqldb

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Named returns a function that connects columns with fields of T. names are column names, separated by white
// space. Each column finds its field by name: external_id is the field ExternalID, and rate_count the field
// Count of the field Rate. "lane=LaneID" names the field. A table before a column's name is ignored.
//
// The type of the field decides how it is stored: a bool as 1 or 0, a duration in milliseconds (the column
// may end with _ms), a text, number or bytes as it is, and all others as JSON. Named panics if T has no such
// field.
func Named[T any](names string) func(*T) Columns {
	columns := strings.Fields(names)
	paths := make([][]int, len(columns))
	for i, name := range columns {
		column, field, given := strings.Cut(name, "=")
		if !given {
			field = strings.ReplaceAll(column[strings.Index(column, ".")+1:], "_", "")
		}
		path, found := pathOf(reflect.TypeFor[T](), field)
		if !found {
			panic(fmt.Sprintf("sqldb: %s has no field for the column %s", reflect.TypeFor[T](), name))
		}
		columns[i], paths[i] = column, path
	}
	return func(row *T) Columns {
		v := reflect.ValueOf(row).Elem()
		all := make(Columns, len(columns), 2*len(columns))
		for i := range all {
			all[i] = Column{columns[i], stored(v.FieldByIndex(paths[i]))}
		}
		return all
	}
}

// pathOf returns the index path of a field of t, or of a field of a struct in t.
func pathOf(t reflect.Type, name string) (path []int, found bool) {
	f, found := t.FieldByNameFunc(func(field string) bool {
		return strings.EqualFold(field, name) || strings.EqualFold(field+"ms", name)
	})
	if found {
		return f.Index, true
	}
	for f := range t.Fields() {
		n := len(f.Name)
		if f.Type.Kind() != reflect.Struct || n > len(name) || !strings.EqualFold(f.Name, name[:n]) {
			continue
		}
		if path, found := pathOf(f.Type, name[n:]); found {
			return append(f.Index, path...), true
		}
	}
	return nil, false
}

// stored returns the At of a Column for a field, with the adapter for its type.
func stored(field reflect.Value) any {
	switch at := field.Addr().Interface().(type) {
	case *bool:
		return Bool(at)
	case *time.Duration:
		return Millis(at)
	case *[]byte, **int64:
		return at
	default:
		switch field.Kind() {
		case reflect.String:
			return plain(at)
		case reflect.Int, reflect.Int64, reflect.Float64:
			return at
		}
		return JSON(at)
	}
}
