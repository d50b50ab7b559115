package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/seed-ff5a32d8/dispatcher/migrations"
)

// A dialect is all in which the two databases differ once they are open.
type dialect struct {
	// name is migrations.SQLite or migrations.Postgres.
	name string
	// input writes multi-row input as a table named i with the given columns, its parameters numbered from first on, and
	// says which number is free next.
	input func(first int, columns []column) (fragment string, next int)
	// args turns the columns' values into the parameters that input announced.
	args func(columns []column) ([]any, error)
	// forUpdate locks the rows of a SELECT; forShare keeps others from changing them, not from doing the same; skipLocked leaves out
	// those that others have locked.
	forUpdate, forShare, skipLocked string
	// planned are arguments before all others, of a statement that is to be planned for those it is given each time.
	planned []any
	// position is the name of the function that finds its second argument in its first, 1 for the beginning, 0 for not.
	position string
	// snapshot is the isolation level at which two reads of one transaction see the same state.
	snapshot sql.IsolationLevel
	// maintenanceBatch is the most rows of one maintenance transaction.
	maintenanceBatch int
	// purgeBatch is the same for one that only removes rows, and purgeTime how long such a one is to take. On
	// SQLite all others wait for it.
	purgeBatch int
	purgeTime  time.Duration
}

// A column is one column of multi-row input. Exactly one of the slices is set.
type column struct {
	name  string
	texts []string
	ints  []int64
	// nullable are numbers of which some are NULL.
	nullable []*int64
	reals    []float64
	bytes    [][]byte
}

func textColumn(name string, n int) column { return column{name: name, texts: make([]string, 0, n)} }
func intColumn(name string, n int) column  { return column{name: name, ints: make([]int64, 0, n)} }

// texts and ints make a column out of one value of each row.
func texts[R any](name string, rows []R, value func(R) string) column {
	c := textColumn(name, len(rows))
	for _, r := range rows {
		c.texts = append(c.texts, value(r))
	}
	return c
}

func ints[R any](name string, rows []R, value func(R) int64) column {
	c := intColumn(name, len(rows))
	for _, r := range rows {
		c.ints = append(c.ints, value(r))
	}
	return c
}

// kind names the column's type in PostgreSQL.
func (c *column) kind() string {
	switch {
	case c.texts != nil:
		return "text"
	case c.reals != nil:
		return "double precision"
	case c.bytes != nil:
		return "bytea"
	}
	return "bigint"
}

// value is the column's whole slice.
func (c *column) value() any {
	switch {
	case c.texts != nil:
		return c.texts
	case c.reals != nil:
		return c.reals
	case c.bytes != nil:
		return c.bytes
	case c.nullable != nil:
		return c.nullable
	}
	return c.ints
}

func postgresDialect() *dialect {
	return &dialect{
		name: migrations.Postgres,
		input: func(first int, columns []column) (string, int) {
			var params, names []string
			for i := range columns {
				params = append(params, fmt.Sprintf("$%d::%s[]", first+i, columns[i].kind()))
				names = append(names, columns[i].name)
			}
			return "unnest(" + strings.Join(params, ", ") + ") AS i (" + strings.Join(names, ", ") + ")", first + len(columns)
		},
		args: func(columns []column) ([]any, error) {
			args := make([]any, len(columns))
			for i := range columns {
				args[i] = columns[i].value()
			}
			return args, nil
		},
		forUpdate:        " FOR UPDATE",
		forShare:         " FOR SHARE",
		skipLocked:       " FOR UPDATE SKIP LOCKED",
		planned:          []any{pgx.QueryExecModeCacheDescribe},
		position:         "strpos",
		snapshot:         sql.LevelRepeatableRead,
		maintenanceBatch: 1000,
		purgeBatch:       5000,
		purgeTime:        400 * time.Millisecond,
	}
}

func sqliteDialect() *dialect {
	return &dialect{
		name: migrations.SQLite,
		input: func(first int, columns []column) (string, int) {
			// The limit keeps SQLite from folding the inner query into the outer one, where it would write each row as text
			// again for every column that is read from it.
			var names []string
			for i := range columns {
				names = append(names, fmt.Sprintf("v ->> %d AS %s", i, columns[i].name))
			}
			return fmt.Sprintf("(SELECT %s FROM (SELECT value AS v FROM json_each($%d) LIMIT -1)) AS i", strings.Join(names, ", "), first), first + 1
		},
		args: func(columns []column) ([]any, error) {
			text, err := jsonRows(columns)
			return []any{text}, err
		},
		position:         "instr",
		snapshot:         sql.LevelDefault,
		maintenanceBatch: 200,
		purgeBatch:       200,
		purgeTime:        40 * time.Millisecond,
	}
}

// jsonRows writes the columns as a JSON array with one array for each row.
func jsonRows(columns []column) (string, error) {
	n := 0
	for i := range columns {
		n = max(n, len(columns[i].texts), len(columns[i].ints), len(columns[i].nullable), len(columns[i].reals))
	}
	rows := make([][]any, n)
	for r := range rows {
		row := make([]any, len(columns))
		for i := range columns {
			switch c := &columns[i]; {
			case c.texts != nil:
				row[i] = c.texts[r]
			case c.reals != nil:
				row[i] = c.reals[r]
			case c.nullable != nil:
				row[i] = c.nullable[r]
			default:
				row[i] = c.ints[r]
			}
		}
		rows[r] = row
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return "", fmt.Errorf("encode rows: %w", err)
	}
	return string(text), nil
}

// transient says that a transaction was rolled back for a reason that passes: the same one may succeed now.
func transient(err error) bool {
	if errors.Is(err, errOvertaken) {
		return true
	}
	// 0A000: a plan that a migration made stale; the driver forgets it with the error.
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && (pg.Code == "40P01" || pg.Code == "40001" || pg.Code == "0A000") {
		return true
	}
	if code, ok := liteCode(err); ok {
		return code == sqlite3.SQLITE_BUSY || code == sqlite3.SQLITE_LOCKED
	}
	return disconnected(err)
}

// liteCode is SQLite's primary result code, from the connection that writes or from one that reads.
func liteCode(err error) (int, bool) {
	if e, ok := errors.AsType[*liteError](err); ok {
		return e.code & 0xff, true
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff, true
	}
	return 0, false
}

// taken says that a row was refused because of a unique index that another transaction was first with. SQLite has one writer: who looks
// first is not overtaken.
func taken(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "23505"
}

// errOvertaken is for a transaction whose row was taken by another one since it looked: at its next try it finds that one.
var errOvertaken = errors.New("another transaction was first")

// overtaken wraps the error of a write that may have been refused because another transaction was first.
func overtaken(operation string, err error) error {
	if taken(err) {
		return fmt.Errorf("%s: %w: %w", operation, errOvertaken, err)
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// disconnected says that the connection is gone, or was refused: whether the transaction was committed is unknown.
func disconnected(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		// Class 08: connection exception. 57P: the server shuts down, or starts up. 53300: no connection is free. 25P03: it ended
		// the session because we were away within a transaction.
		return pg.Code == "25P03" || strings.HasPrefix(pg.Code, "08") || strings.HasPrefix(pg.Code, "57P") || pg.Code == "53300"
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err)
}

// unavailable says that the database as a whole cannot commit, so that no part of a group could either. In doubt it does: a
// row that is blamed is set aside as dead, and so would be every row that is due.
func unavailable(err error) bool {
	if transient(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return !ofARow(pg.Code)
	}
	if code, ok := liteCode(err); ok {
		switch code {
		case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE:
			return false
		case sqlite3.SQLITE_ERROR:
			return strings.Contains(err.Error(), "no such ") // A table or a column: an older or a newer schema.
		}
		return true
	}
	return false
}

// ofARow says whether an error of PostgreSQL is one that a single row can cause. Class 22: what the row says. 23: a constraint.
// 54: a row that is too large. P0: a trigger. XX: among others a damaged page.
func ofARow(code string) bool {
	for _, class := range [...]string{"22", "23", "54", "P0", "XX"} {
		if strings.HasPrefix(code, class) {
			return true
		}
	}
	return false
}
