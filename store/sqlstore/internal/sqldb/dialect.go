package sqldb

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/seed-ff5a32d8/dispatcher/migrations"
)

// A Dialect has the differences between the two databases after they are open.
type Dialect struct {
	// MaintenanceBatch is the largest number of rows of one maintenance transaction.
	MaintenanceBatch int
	// PurgeBatch is the same for a transaction that only removes rows. PurgeTime is the time that such a
	// transaction should take, without its commit. On SQLite all other writes wait for it.
	PurgeBatch int
	PurgeTime  time.Duration

	// name is migrations.SQLite or migrations.Postgres.
	name string
	// words changes the text of a statement from PostgreSQL's SQL to that of this database.
	words func(text string) string
	// input returns the text of the multi-row input as a table named i. Its parameters are numbered from
	// first.
	input func(first int, columns []column) string
	// args returns the arguments for the parameters of input.
	args func(Input) ([]any, error)
	// planned are the first arguments of a statement that must be planned for each execution.
	planned []any
	// snapshot is the isolation level at which all reads of one transaction see the same state.
	snapshot sql.IsolationLevel
}

func postgresDialect() *Dialect {
	return &Dialect{
		name:  migrations.Postgres,
		words: func(text string) string { return text },
		input: postgresInput,
		args: func(in Input) ([]any, error) {
			args := make([]any, len(in.columns))
			for i := range in.columns {
				args[i] = in.columns[i].all()
			}
			return args, nil
		},
		planned:          []any{pgx.QueryExecModeCacheDescribe},
		snapshot:         sql.LevelRepeatableRead,
		MaintenanceBatch: 1000,
		PurgeBatch:       5000,
		PurgeTime:        400 * time.Millisecond,
	}
}

func postgresInput(first int, columns []column) string {
	// This runs for each group of rows, so it builds the text in one buffer.
	text := append(make([]byte, 0, 40*len(columns)+16), "unnest("...)
	for i := range columns {
		text = strconv.AppendInt(append(text, '$'), int64(first+i), 10)
		text = append(append(append(text, "::"...), columns[i].kind...), "[], "...)
	}
	text = append(text[:len(text)-len(", ")], ") AS i ("...)
	for i := range columns {
		text = append(append(text, columns[i].name...), ", "...)
	}
	return string(append(text[:len(text)-len(", ")], ')'))
}

func sqliteDialect() *Dialect {
	return &Dialect{
		name:  migrations.SQLite,
		words: sqliteWords,
		input: func(first int, columns []column) string {
			// The LIMIT prevents SQLite from merging the inner query into the outer one. Merged, it would
			// turn each row into text again for every column that is read.
			names := make([]string, len(columns))
			for i := range columns {
				names[i] = fmt.Sprintf("v ->> %d AS %s", i, columns[i].name)
			}
			return fmt.Sprintf("(SELECT %s FROM (SELECT value AS v FROM json_each($%d) LIMIT -1)) AS i",
				strings.Join(names, ", "), first)
		},
		args:             jsonRows,
		snapshot:         sql.LevelDefault,
		MaintenanceBatch: 200,
		PurgeBatch:       500,
		PurgeTime:        40 * time.Millisecond,
	}
}

// sqliteWords puts a text into the words of SQLite: instr for strpos, and no row locks, because SQLite has
// one writer.
func sqliteWords(text string) string {
	for _, lock := range [...]string{" FOR UPDATE", " FOR SHARE", " FOR UPDATE SKIP LOCKED"} {
		text = strings.TrimSuffix(text, lock)
	}
	return strings.ReplaceAll(text, "strpos(", "instr(")
}

// jsonRows returns the rows as a JSON array of arrays.
func jsonRows(in Input) ([]any, error) {
	rows := make([][]any, in.rows)
	for r := range rows {
		rows[r] = make([]any, len(in.columns))
		for i := range in.columns {
			rows[r][i] = in.columns[i].at(r)
		}
	}
	text, err := json.Marshal(rows)
	return []any{string(text)}, err
}

// parameter returns the name of the parameter whose $ stands before the text: a number, "i" for the multi-row
// input, or "" if it is none, such as $id.
func parameter(after string) string {
	n := 0
	for n < len(after) && after[n] >= '0' && after[n] <= '9' {
		n++
	}
	if n == 0 && strings.HasPrefix(after, "i") && strings.IndexFunc(after[len("i"):], isInName) != 0 {
		n = 1 // an i that begins no longer name
	}
	return after[:n]
}

func isInName(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// Statement returns a text and its arguments in the form of this database. If an argument is an [Input], the
// parameters are renumbered in the order of their first appearance. One driver goes by the numbers, the other
// one by that order.
func (d *Dialect) Statement(text string, args []any) (string, []any, error) {
	text = d.words(text)
	place := slices.IndexFunc(args, func(arg any) bool { _, ok := arg.(Input); return ok })
	if place < 0 {
		return text, args, nil
	}
	in := args[place].(Input)
	if in.err != nil {
		return "", nil, in.err
	}
	values, err := d.args(in)
	if err != nil {
		return "", nil, fmt.Errorf("encode rows: %w", err)
	}
	given := slices.Delete(slices.Clone(args), place, place+1)
	ordered := make([]any, 0, len(given)+len(values))
	numbers := make([]int, len(given)+1) // new numbers by old ones; zero: not yet seen
	input := ""
	var out strings.Builder
	out.Grow(len(text) + 40*len(in.columns))
	for rest := text; ; {
		before, after, more := strings.Cut(rest, "$")
		out.WriteString(before)
		if !more {
			return out.String(), ordered, nil
		}
		name := parameter(after)
		rest = after[len(name):]
		if name == "i" {
			if input == "" {
				input, ordered = d.input(len(ordered)+1, in.columns), append(ordered, values...)
			}
			out.WriteString(input)
			continue
		}
		n, err := strconv.Atoi(name)
		if err != nil || n < 1 || n > len(given) {
			return "", nil, fmt.Errorf("parameter $%s has no argument", name)
		}
		if numbers[n] == 0 {
			ordered = append(ordered, given[n-1])
			numbers[n] = len(ordered)
		}
		out.WriteString("$" + strconv.Itoa(numbers[n]))
	}
}

// A Source is a pool, a connection or a transaction of database/sql.
type Source interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}
