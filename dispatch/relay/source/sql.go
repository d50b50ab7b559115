package source

import (
	"context"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A session is one connection to a database.
type session interface {
	// read calls each with every row. The columns are valid until it returns. An error of each does not end
	// the query.
	read(ctx context.Context, s statement, each func(columns)) error
	// change runs statements in one transaction. It returns the number of rows that the counted ones changed.
	change(ctx context.Context, statements ...statement) (int, error)
	// kind returns ErrBroken, ErrLocked or nil.
	kind(err error) error
	close(ctx context.Context)
}

// columns are the values of a row. NULL is nil.
type columns struct {
	values [][]byte
	number func([]byte) int64
}

// int returns a number. NULL is missing.
func (c columns) int(i int, missing int64) int64 {
	if c.values[i] == nil {
		return missing
	}
	return c.number(c.values[i])
}

func (c columns) text(i int) string { return string(c.values[i]) }

// A statement is SQL with arguments: int64, string, []int64 or []string. MySQL has no slices.
type statement struct {
	sql     string
	args    []any
	counted bool
}

func (s statement) count() statement {
	s.counted = true
	return s
}

// value is an argument in the parts of a statement.
type value struct{ any }

// compose joins parts: SQL, values, and lists of parts.
func (d Dialect) compose(parts ...any) statement {
	var text strings.Builder
	var args []any
	var add func(parts []any)
	add = func(parts []any) {
		for _, p := range parts {
			switch p := p.(type) {
			case string:
				text.WriteString(p)
			case []any:
				add(p)
			case value:
				args = append(args, p.any)
				if d == MySQL {
					text.WriteByte('?')
				} else {
					text.WriteString("$" + strconv.Itoa(len(args)))
				}
			}
		}
	}
	add(parts)
	return statement{sql: text.String(), args: args}
}

// maxKeys bounds the keys of a statement. MariaDB makes a table of 1,000 values, and then scans.
const maxKeys = 500

// match returns the condition that a row has one of the keys. Its first part selects a range of the index
// that begins with the column first.
func (d Dialect) match(first string, keys []Key) []any {
	second := "id"
	if first == "id" {
		second = "seq"
	}
	if d == Postgres {
		seqs, ids := make([]int64, len(keys)), make([]string, len(keys))
		for i, k := range keys {
			seqs[i], ids[i] = k.Seq, k.ID
		}
		array := value{seqs}
		cast := "::bigint[])"
		if first == "id" {
			array, cast = value{ids}, "::text[])"
		}
		return []any{first, " = ANY(", array, cast, " AND (seq, id) IN (SELECT * FROM unnest(", value{seqs},
			"::bigint[], ", value{ids}, "::text[]))"}
	}
	part := func(k Key, column string) any {
		if column == "seq" {
			return strconv.FormatInt(k.Seq, 10)
		}
		return value{k.ID}
	}
	parts := []any{first, " IN ("}
	for i, k := range keys {
		parts = append(parts, comma(i), part(k, first))
	}
	parts = append(parts, ") AND (", first, ", ", second, ") IN (")
	for i, k := range keys {
		parts = append(parts, comma(i), "(", part(k, first), ",", part(k, second), ")")
	}
	return append(parts, ")")
}

func comma(i int) string {
	if i == 0 {
		return ""
	}
	return ","
}

// clean makes a text that both databases store: valid UTF-8 without NUL, of at most n characters.
func clean(s string, n int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "�"), "\x00", "�")
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n])
}
