package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"time"

	_ "modernc.org/sqlite" // The driver "sqlite".
	sqlite3 "modernc.org/sqlite/lib"
	"zombiezen.com/go/sqlite"
)

const (
	// liteBusyWait is how long a statement waits for another process that holds SQLite's lock: a backup, a
	// migration.
	liteBusyWait = 5 * time.Second
	// liteCheckpointPages is with how many pages in the log they are copied to the file: 32 MiB. Rows are
	// written three times within seconds (accept, stamp, result), so a page that waits is copied once for all
	// of them.
	liteCheckpointPages = 8000
	// litePageCache is how much of the file the writer keeps in memory, in KiB. A commit that has split a
	// page walks through all of the cache, so that more is not better: what is not in it, the system has.
	litePageCache = 4 << 10
	// sqliteReaders is how many connections read.
	sqliteReaders = 4
)

// A lite is SQLite's one writing connection. It is driven without database/sql, whose locks, copies and
// conversions cost more for a row than SQLite itself. Only the writer's goroutine may use it, but for close,
// after that has ended.
type lite struct {
	path   string
	conn   *sqlite.Conn
	stmts  map[string]*liteStmt
	writer *writer
}

// openSQLite makes the file if it is missing, and opens one connection that writes and some that read.
func (db *DB) openSQLite(ctx context.Context, path string, kinds []Kind) error {
	if path == "" || path == ":memory:" {
		return errors.New("database URL sqlite: needs the path of a file")
	}
	if err := createPrivate(path); err != nil {
		return err
	}
	db.Dialect = sqliteDialect()
	dsn := func(pragmas ...string) string {
		return sqliteDSN(path, append([]string{"busy_timeout(5000)", "journal_mode(WAL)",
			"synchronous(FULL)"}, pragmas...)...)
	}
	// The writer turns the file to WAL, before any reader could find it otherwise.
	db.lite.path = path
	if err := db.lite.open(ctx); err != nil {
		return err
	}
	var err error
	db.Reads, err = sql.Open("sqlite", dsn("query_only(1)"))
	if err != nil {
		return errors.Join(fmt.Errorf("open %s: %w", path, err), db.lite.close())
	}
	db.Reads.SetMaxOpenConns(sqliteReaders)
	db.Reads.SetMaxIdleConns(sqliteReaders)
	db.migrate = func() (*sql.DB, error) { return sql.Open("sqlite", dsn()+"&_txlock=immediate") }
	db.migrateLock = path + "-migrate"
	db.lite.writer = db.addWriter("all", 1)
	db.writers["all"] = db.lite.writer
	for _, k := range kinds {
		db.writers[k.Name] = db.lite.writer
	}
	return nil
}

// sqliteDSN names a file and what every connection to it begins with.
func sqliteDSN(path string, pragmas ...string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + url.Values{"_pragma": pragmas}.Encode()
}

// createPrivate makes the file, readable by its owner only, if it is missing. SQLite gives the files beside
// it the same mode.
func createPrivate(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make database directory: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("make database file: %w", err)
	}
	return f.Close()
}

// open connects, if that is not done, and tries again while another process does the same: the lock that
// turns a file to WAL does not wait for its holder as all others do.
func (l *lite) open(ctx context.Context) error {
	if l.conn != nil {
		return nil
	}
	const tries, pause = 100, 20 * time.Millisecond
	for try := 1; ; try++ {
		err := l.connect()
		if err == nil || !transient(err) || try == tries {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

func (l *lite) connect() error {
	conn, err := sqlite.OpenConn(l.path, sqlite.OpenReadWrite, sqlite.OpenCreate, sqlite.OpenWAL)
	if err != nil {
		return liteErr(fmt.Errorf("open %s: %w", l.path, err))
	}
	l.conn, l.stmts = conn, make(map[string]*liteStmt)
	conn.SetBusyTimeout(liteBusyWait)
	for _, pragma := range []string{
		"synchronous = FULL",
		// What a statement sets aside to undo itself is a few rows, and must not need a file: there may be no
		// descriptor left.
		"temp_store = MEMORY",
		"wal_autocheckpoint = " + strconv.Itoa(liteCheckpointPages),
		"cache_size = -" + strconv.Itoa(litePageCache),
	} {
		if err := l.run("PRAGMA " + pragma); err != nil {
			return errors.Join(fmt.Errorf("open %s: %w", l.path, err), l.close())
		}
	}
	return nil
}

// close ends the connection; a later open makes another.
func (l *lite) close() error {
	if l.conn == nil {
		return nil
	}
	var err error
	for _, s := range l.stmts {
		err = errors.Join(err, s.stmt.Finalize())
	}
	err = errors.Join(err, l.conn.Close())
	l.conn, l.stmts = nil, nil
	return err
}

// once runs fn in one transaction that ends with ctx.
func (l *lite) once(ctx context.Context, fn func() error) error {
	if err := l.open(ctx); err != nil {
		return err
	}
	l.conn.SetInterrupt(ctx.Done())
	err := l.run("BEGIN IMMEDIATE")
	if err != nil {
		err = fmt.Errorf("begin: %w", err)
	} else {
		err = fn()
		if err == nil {
			err = l.run("COMMIT")
			if err != nil {
				err = fmt.Errorf("commit: %w", err)
			}
		}
	}
	l.conn.SetInterrupt(nil)
	if err == nil {
		return nil
	}
	if !l.conn.AutocommitEnabled() {
		if rerr := l.run("ROLLBACK"); rerr != nil {
			err = errors.Join(err, fmt.Errorf("roll back: %w", rerr))
		}
	}
	if spoilt(err) || !l.conn.AutocommitEnabled() {
		err = errors.Join(err, l.close())
	}
	return err
}

// spoilt says that a connection may have met a file that is gone, replaced or damaged: another connection can
// find out.
func spoilt(err error) bool {
	if e, ok := errors.AsType[*liteError](err); ok {
		switch e.code & 0xff {
		case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN,
			sqlite3.SQLITE_READONLY,
			sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_MISUSE:
			return true
		}
	}
	return false
}

// run executes a statement without parameters and drops what it returns.
func (l *lite) run(query string) error {
	s, err := l.prepare(query)
	if err != nil {
		return err
	}
	_, err = s.exec()
	return err
}

// bound returns the compiled statement with its parameters set.
func (l *lite) bound(query string, args []any) (*liteStmt, error) {
	s, err := l.prepare(query)
	if err != nil {
		return nil, err
	}
	return s, s.bind(args)
}

// prepare returns the statement, compiled at its first use. There are a few dozen texts; callers make none of
// their own.
func (l *lite) prepare(query string) (*liteStmt, error) {
	return l.prepareAs(query, func() string { return query })
}

// prepareAs is prepare for a text that is made at the first use of its name.
func (l *lite) prepareAs(name string, text func() string) (*liteStmt, error) {
	if s := l.stmts[name]; s != nil {
		return s, nil
	}
	stmt, trailing, err := l.conn.PrepareTransient(text())
	if err == nil && trailing > 0 {
		err = errors.Join(errors.New("more than one statement"), stmt.Finalize())
	}
	if err != nil {
		return nil, liteErr(err)
	}
	s := &liteStmt{conn: l.conn, stmt: stmt, params: make([]int, stmt.BindParamCount())}
	for i := range s.params {
		// SQLite numbers $N by where it first stands; N is what the arguments go by.
		param := stmt.BindParamName(i + 1)
		n, err := strconv.Atoi(param[min(1, len(param)):])
		if err != nil || n < 1 {
			return nil, errors.Join(fmt.Errorf("parameter %q is not $1, $2 …", param), stmt.Finalize())
		}
		s.params[i] = n - 1
	}
	l.stmts[name] = s
	return s, nil
}

// A liteStmt is a compiled statement.
type liteStmt struct {
	conn *sqlite.Conn
	stmt *sqlite.Stmt
	// params says for each of SQLite's parameters which argument it is, from 0.
	params []int
}

// bind sets all parameters.
func (s *liteStmt) bind(args []any) error {
	for i, n := range s.params {
		if n >= len(args) {
			return fmt.Errorf("no argument for parameter $%d", n+1)
		}
		if err := s.bindOne(i+1, args[n]); err != nil {
			return err
		}
	}
	return nil
}

func (s *liteStmt) bindBytes(param int, b []byte) {
	if b == nil {
		s.stmt.BindNull(param)
	} else {
		s.stmt.BindBytes(param, b)
	}
}

func (s *liteStmt) bindOne(param int, arg any) error {
	switch a := arg.(type) {
	case int64:
		s.stmt.BindInt64(param, a)
	case int:
		s.stmt.BindInt64(param, int64(a))
	case string:
		s.stmt.BindText(param, a)
	case float64:
		s.stmt.BindFloat(param, a)
	case []byte:
		s.bindBytes(param, a)
	case nil:
		s.stmt.BindNull(param)
	case *string:
		s.stmt.BindText(param, *a)
	case *int64:
		s.stmt.BindInt64(param, *a)
	case *[]byte:
		s.bindBytes(param, *a)
	case **int64:
		if *a == nil {
			s.stmt.BindNull(param)
		} else {
			s.stmt.BindInt64(param, **a)
		}
	case *adapter[string]:
		text, err := a.take()
		s.stmt.BindText(param, text)
		return err
	case *adapter[int64]:
		n, err := a.take()
		s.stmt.BindInt64(param, n)
		return err
	default:
		switch v := reflect.Indirect(reflect.ValueOf(arg)); v.Kind() {
		case reflect.String:
			s.stmt.BindText(param, v.String())
		case reflect.Int, reflect.Int64:
			s.stmt.BindInt64(param, v.Int())
		case reflect.Float64:
			s.stmt.BindFloat(param, v.Float())
		default:
			return fmt.Errorf("an argument of type %T cannot be bound", arg)
		}
	}
	return nil
}

// exec runs the statement as it was bound, and returns how many rows it changed.
func (s *liteStmt) exec() (int64, error) {
	err := s.each(nil)
	if err != nil {
		return 0, err
	}
	return int64(s.conn.Changes()), nil
}

// each runs the statement as it was bound and calls scan, if it is not nil, for every row it returns.
func (s *liteStmt) each(scan func(Row) error) error {
	for {
		row, err := s.stmt.Step()
		if err != nil {
			// The step has said what is wrong; the reset repeats it.
			_ = s.stmt.Reset()
			return liteErr(err)
		}
		if !row {
			return liteErr(s.stmt.Reset())
		}
		if scan == nil {
			continue
		}
		if err := scan(liteRow{s.stmt}); err != nil {
			return errors.Join(err, liteErr(s.stmt.Reset()))
		}
	}
}

// A liteRow is the row that a statement stands on.
type liteRow struct{ stmt *sqlite.Stmt }

// Scan copies the columns, as database/sql would, for the types that are used here.
func (r liteRow) Scan(dest ...any) error {
	if n := r.stmt.ColumnCount(); n != len(dest) {
		return fmt.Errorf("%d columns for %d destinations", n, len(dest))
	}
	for i, d := range dest {
		if err := r.column(i, d); err != nil {
			return fmt.Errorf("column %s: %w", r.stmt.ColumnName(i), err)
		}
	}
	return nil
}

func (r liteRow) column(i int, dest any) error {
	kind := r.stmt.ColumnType(i)
	null := kind == sqlite.TypeNull
	switch d := dest.(type) {
	case *string:
		*d = r.stmt.ColumnText(i)
	case *int64:
		*d = r.stmt.ColumnInt64(i)
	case *int:
		*d = int(r.stmt.ColumnInt64(i))
	case *float64:
		*d = r.stmt.ColumnFloat(i)
	case **int64:
		*d = nil
		if !null {
			*d = new(r.stmt.ColumnInt64(i))
		}
		return nil
	case *[]byte:
		*d = nil
		if !null {
			*d = make([]byte, r.stmt.ColumnLen(i))
			r.stmt.ColumnBytes(i, *d)
		}
		return nil
	case sql.Scanner:
		if kind == sqlite.TypeInteger {
			return d.Scan(r.stmt.ColumnInt64(i))
		}
		if !null {
			return d.Scan(r.stmt.ColumnText(i))
		}
	default:
		v := reflect.ValueOf(dest)
		if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.String {
			return fmt.Errorf("cannot be scanned into %T", dest)
		}
		v.Elem().SetString(r.stmt.ColumnText(i))
	}
	if null {
		return errors.New("is NULL")
	}
	return nil
}

// A liteError is what SQLite said, with its code.
type liteError struct {
	code int
	err  error
}

// Error returns the text.
func (e *liteError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *liteError) Unwrap() error { return e.err }

// liteErr gives an error of SQLite's its code; nil stays nil.
func liteErr(err error) error {
	if err == nil {
		return nil
	}
	return &liteError{int(sqlite.ErrCode(err)), err}
}
