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
	// kind returns ErrBroken or nil.
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

// maxKeys bounds the keys of a statement. MySQL before 8.0.27 parses each part of a UNION on a deeper level
// of a stack that may have 256 KiB.
func (d Dialect) maxKeys() int {
	if d == MySQL {
		return 100
	}
	return 500
}

// byKey follows the name of a table that is read by its primary key. The planner of MySQL and MariaDB does
// not count rows that are deleted and not purged, and would scan them.
func (d Dialect) byKey() string {
	if d == MySQL {
		return " FORCE INDEX (PRIMARY)"
	}
	return ""
}

// with returns a statement about the rows of a table that have one of the keys. Its parts are the verb, the
// rows, and after, for example SET. The name of the table in it is o. first is the first column of the
// table's primary key.
//
// On MySQL the rows are found by a join. A DELETE with a list would scan a table with few rows, and wait for
// the locks of transactions that insert. That of MariaDB does so in spite of FORCE INDEX.
func (d Dialect) with(verb string, table, first string, keys []Key, after ...any) []any {
	if d == Postgres {
		seqs, ids := make([]int64, len(keys)), make([]string, len(keys))
		for i, k := range keys {
			seqs[i], ids[i] = k.Seq, k.ID
		}
		prefix := []any{value{seqs}, "::bigint[]"}
		if first == "id" {
			prefix = []any{value{ids}, "::text[]"}
		}
		return []any{verb, " ", table, " o", after, " WHERE o.", first, " = ANY(", prefix,
			") AND (o.seq, o.id) IN (SELECT * FROM unnest(", value{seqs}, "::bigint[], ", value{ids},
			"::text[]))"}
	}
	parts := []any{verb, " (SELECT NULL AS seq, NULL AS id"}
	for _, k := range keys {
		parts = append(parts, " UNION ALL SELECT ", strconv.FormatInt(k.Seq, 10), ", ", value{k.ID})
	}
	return append(parts, ") k STRAIGHT_JOIN ", table, " o", d.byKey(),
		" ON o.seq = k.seq AND o.id = k.id COLLATE utf8mb4_bin", after)
}

// remove returns the statement that deletes rows by their keys.
func (d Dialect) remove(table, first string, keys []Key) statement {
	verb := "DELETE FROM"
	if d == MySQL {
		verb = "DELETE o FROM"
	}
	return d.compose(d.with(verb, table, first, keys)).count()
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
