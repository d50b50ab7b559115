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

// ErrOvertaken is for a transaction whose row was taken by another one since it looked: it is tried again,
// and finds that one.
var ErrOvertaken = errors.New("another transaction was first")

// Overtaken wraps the error of a write that may have been refused because another transaction was first: by a
// unique index. SQLite has one writer, where that cannot happen.
func Overtaken(operation string, err error) error {
	if err == nil {
		return nil
	}
	if code(err) == "23505" {
		return fmt.Errorf("%s: %w: %w", operation, ErrOvertaken, err)
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// code is PostgreSQL's code of an error, or empty.
func code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// readOnly reports whether PostgreSQL refused to write because the session may only read.
func readOnly(err error) bool { return code(err) == "25006" }

// transient reports whether a transaction was rolled back for a reason that passes: the same one may succeed
// now.
func transient(err error) bool {
	if errors.Is(err, ErrOvertaken) {
		return true
	}
	switch code(err) {
	case "40P01", "40001", "0A000":
		// 0A000: a plan that a migration made stale; the driver forgets it with the error.
		return true
	}
	if c, ok := liteCode(err); ok {
		return c == sqlite3.SQLITE_BUSY || c == sqlite3.SQLITE_LOCKED
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

// disconnected reports whether the connection is gone, or was refused: whether the transaction was committed
// is unknown.
func disconnected(err error) bool {
	if c := code(err); c != "" {
		// Class 08: connection exception. 57P: the server shuts down, or starts up. 53300: no connection is
		// free. 25P03: it ended the session because we were away within a transaction.
		return c == "25P03" || strings.HasPrefix(c, "08") || strings.HasPrefix(c, "57P") || c == "53300"
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	for _, gone := range []error{driver.ErrBadConn, sql.ErrConnDone, io.EOF, io.ErrUnexpectedEOF,
		net.ErrClosed} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return pgconn.SafeToRetry(err)
}

// unavailable reports whether the database as a whole cannot commit, so that no part of a group could either.
// Where that is not certain it is assumed: a row that is blamed is set aside as dead, and so would be every
// row that is due.
func unavailable(err error) bool {
	if transient(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	if c := code(err); c != "" {
		// What a single row can cause. Class 22: what the row says. 23: a constraint. 54: a row that is too
		// large. P0: a trigger. XX: among others a damaged page.
		return !slices.Contains([]string{"22", "23", "54", "P0", "XX"}, c[:2])
	}
	if c, ok := liteCode(err); ok {
		switch c {
		case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE:
			return false
		case sqlite3.SQLITE_ERROR:
			// A table or a column: an older or a newer schema.
			return strings.Contains(err.Error(), "no such ")
		}
		return true
	}
	return false
}
