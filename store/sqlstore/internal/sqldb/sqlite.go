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
	// liteBusyWait bounds the wait for another process that holds SQLite's lock, such as a backup or a
	// migration.
	liteBusyWait = 5 * time.Second
	// liteCheckpointPages is the number of pages in the log (32 MiB) at which they are copied to the file. A
	// row is written three times within seconds (accept, stamp, result). So a large log copies its page once
	// instead of three times.
	liteCheckpointPages = 8000
	// litePageCache is the size of the writer's page cache in KiB. It is small because a commit that splits a
	// page scans the whole cache. The operating system caches the other pages.
	litePageCache = 4 << 10
	// sqliteReaders is the number of connections for reads.
	sqliteReaders = 4
)

// A lite is the only writing connection to SQLite. It does not use database/sql, whose locks, copies and
// conversions cost more for a row than SQLite itself. Only the writer's goroutine may use it. After that
// goroutine has ended, DB.Close calls close.
type lite struct {
	path   string
	conn   *sqlite.Conn
	stmts  map[string]*liteStmt
	writer *writer
}

// openSQLite creates the file if it is missing, and opens the connections. They all use the WAL.
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
	// The writer must connect first: it switches the file to WAL before a reader opens it.
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

// sqliteDSN returns the data source name of a file. The pragmas run at the start of each connection.
func sqliteDSN(path string, pragmas ...string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + url.Values{"_pragma": pragmas}.Encode()
}

// createPrivate creates the file, readable only by its owner, if it is missing. SQLite uses the same mode for
// its other files, such as the WAL.
func createPrivate(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("create database directory: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("create database file: %w", err)
	}
	return f.Close()
}

// open connects unless the connection is open. It retries, because two processes may connect at the same
// time: SQLite's busy timeout does not apply to the lock for the switch to WAL.
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
		// The statement journal has only a few rows. In memory it needs no file descriptor, of which none may
		// be left.
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

// close closes the connection. A later open connects again.
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

// once runs fn in one transaction. The end of ctx interrupts it. After an error it rolls back. If the
// connection may be broken, once closes it, and the next call opens a new one.
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
	if mustReconnect(err) || !l.conn.AutocommitEnabled() {
		err = errors.Join(err, l.close())
	}
	return err
}

// mustReconnect reports whether the error may mean that the file is missing, replaced or damaged. A new
// connection opens the file again.
func mustReconnect(err error) bool {
	if e, ok := errors.AsType[*liteError](err); ok {
		switch e.code & 0xff {
		case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN,
			sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_MISUSE:
			return true
		}
	}
	return false
}

// run executes a statement without parameters and ignores its rows.
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

// prepare returns the compiled statement. It compiles each text once and keeps it: the program has a few
// dozen texts, none of which contains data.
func (l *lite) prepare(query string) (*liteStmt, error) {
	return l.prepareAs(query, func() string { return query })
}

// prepareAs is prepare with a name as the key. It calls text only to compile the statement.
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
		// SQLite numbers parameters by first appearance. The N of $N is the number of the argument.
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
	// params has the index of the argument for each of SQLite's parameters.
	params []int
}

// bind sets all parameters.
func (s *liteStmt) bind(args []any) error {
	for i, n := range s.params {
		if n >= len(args) {
			return fmt.Errorf("parameter $%d has no argument", n+1)
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

// exec runs the bound statement and returns the number of changed rows.
func (s *liteStmt) exec() (int64, error) {
	err := s.each(nil)
	if err != nil {
		return 0, err
	}
	return int64(s.conn.Changes()), nil
}

// each runs the bound statement, and calls scan, unless nil, for every row that it returns.
func (s *liteStmt) each(scan func(Row) error) error {
	for {
		row, err := s.stmt.Step()
		if err != nil {
			// Reset returns the error of Step again.
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

// A liteRow is the current row of a statement.
type liteRow struct{ stmt *sqlite.Stmt }

// Scan copies the columns as database/sql does, for the types that this package uses.
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

// A liteError is an error of SQLite with its result code.
type liteError struct {
	code int
	err  error
}

// Error returns the text of SQLite's error.
func (e *liteError) Error() string { return e.err.Error() }

// Unwrap returns SQLite's error.
func (e *liteError) Unwrap() error { return e.err }

// liteErr adds the result code to an error of SQLite. It returns nil for nil.
func liteErr(err error) error {
	if err == nil {
		return nil
	}
	return &liteError{int(sqlite.ErrCode(err)), err}
}
