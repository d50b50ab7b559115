package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// ErrOvertaken means that another transaction inserted the same key after this transaction had read. The
// error is transient: the next try of the transaction finds that row.
var ErrOvertaken = errors.New("another transaction was first")

// Overtaken wraps the error of an insert. If a unique index refused the insert, the error wraps ErrOvertaken
// too. SQLite has one writer, so this cannot happen there.
func Overtaken(operation string, err error) error {
	if err == nil {
		return nil
	}
	if code(err) == "23505" {
		return fmt.Errorf("%s: %w: %w", operation, ErrOvertaken, err)
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// code returns the SQLSTATE of an error of PostgreSQL, or "" for another error.
func code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// readOnly reports whether PostgreSQL refused a write because the session is read-only.
func readOnly(err error) bool { return code(err) == "25006" }

// transient reports whether the transaction may succeed if it is tried again.
func transient(err error) bool {
	if errors.Is(err, ErrOvertaken) {
		return true
	}
	switch code(err) {
	case "40P01", "40001", "0A000":
		// 40P01: deadlock. 40001: serialization failure. 0A000: a migration made a cached plan stale, and the
		// driver drops the plan after the error.
		return true
	}
	if c, ok := liteCode(err); ok {
		return c == sqlite3.SQLITE_BUSY || c == sqlite3.SQLITE_LOCKED
	}
	return disconnected(err)
}

// liteCode returns SQLite's primary result code. The writing connection and the readers use different
// drivers, with different error types.
func liteCode(err error) (int, bool) {
	if e, ok := errors.AsType[*liteError](err); ok {
		return e.code & 0xff, true
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff, true
	}
	return 0, false
}

// disconnected reports whether the connection was lost or refused. After a lost connection it is unknown
// whether the transaction was committed.
func disconnected(err error) bool {
	if c := code(err); c != "" {
		// Class 08: connection exception. 57P: the server shuts down or starts. 53300: too many connections.
		// 25P03: idle_in_transaction_session_timeout ended the session.
		return c == "25P03" || strings.HasPrefix(c, "08") || strings.HasPrefix(c, "57P") || c == "53300"
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	for _, lost := range []error{
		driver.ErrBadConn, sql.ErrConnDone, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
	} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return pgconn.SafeToRetry(err)
}

// unavailable reports whether the database as a whole cannot commit, so a part of a group could not be
// committed either. An unknown code of PostgreSQL counts as unavailable. The other answer blames a row, and
// the store ends a blamed callback as dead: a fault of the database must not end every callback that is due.
func unavailable(err error) bool {
	if transient(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	if c := code(err); c != "" {
		// A single row can cause these. Class 22: invalid data. 23: a constraint. 54: a row that is too
		// large. P0: an error from a trigger. XX: an internal error, such as a damaged page.
		return !slices.Contains([]string{"22", "23", "54", "P0", "XX"}, c[:2])
	}
	if c, ok := liteCode(err); ok {
		switch c {
		case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE:
			return false
		case sqlite3.SQLITE_ERROR:
			// A missing table or column means an older or newer schema.
			return strings.Contains(err.Error(), "no such ")
		}
		return true
	}
	return false
}
