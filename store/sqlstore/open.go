package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/prometheus/client_golang/prometheus"
	_ "modernc.org/sqlite" // The driver "sqlite".

	"github.com/seed-ff5a32d8/dispatcher/migrations"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// limits are how long calls of a DB may take.
type limits struct {
	// queue bounds how long a call waits for its group to begin.
	queue time.Duration
	// read bounds every read: a list that takes longer is refused rather than starving the others.
	read time.Duration
	// commit bounds one change, and, with rowLimit for each of its rows, one group, its retries included: a database
	// behind a network that does not answer is given up by then.
	commit time.Duration
}

const (
	// defaultLimit is each of the limits.
	defaultLimit = 2 * time.Second
	rowLimit     = 5 * time.Millisecond
	// embeddedLimit bounds the same on SQLite, where slow means a slow disk under a large batch, and giving up helps nobody.
	embeddedLimit = 30 * time.Second
	// connectLimit bounds making a connection.
	connectLimit = 2 * time.Second
	// maintenanceLimit bounds one maintenance transaction.
	maintenanceLimit = 30 * time.Second

	defaultMaxConns = 20
	// acceptGroups is how many groups of accepts PostgreSQL commits at a time: while one waits for the log, another is taken apart.
	acceptGroups    = 2
	postgresWriters = acceptGroups + 2
	// minMaxConns leaves three connections beside the writers'.
	minMaxConns   = postgresWriters + 3
	sqliteReaders = 4
)

// Options say what to open.
type Options struct {
	// URL is "postgres://…", "postgresql://…" or "sqlite:PATH". A missing SQLite file, and its directory, are made.
	URL string
	// MaxConns is the most connections to PostgreSQL; zero means 20, and it is never less than 7. SQLite ignores it.
	MaxConns int
	// Logger gets what no caller can be told; nil: nothing is logged.
	Logger *slog.Logger
	// Registerer gets the metrics; nil: they are not exported.
	Registerer prometheus.Registerer
}

// A DB is an open database. Its methods are safe for concurrent use.
type DB struct {
	dialect *dialect
	logger  *slog.Logger
	metrics *metrics
	// On PostgreSQL groups has the writers' connections, which nobody else can use up, and pool those of all other writes; on
	// SQLite, where both are nil, lite writes. read has the connections of reads; on PostgreSQL it is pool.
	groups, pool, read *sql.DB
	lite               lite
	// migrate opens a handle apart for migrations.
	migrate func() (*sql.DB, error)
	// migrateLock is a file that is locked while SQLite is migrated; empty on PostgreSQL.
	migrateLock string

	limits limits

	accepts, stamps, results *writer
	writers                  []*writer
	running                  sync.WaitGroup

	// window is how many rows one statement looks through for claims that are alive.
	window int
	// booksWindow is how many callbacks one statement counts.
	booksWindow int
	// looking is how much one page of a list may look at, counting how much one number.
	looking, counting looking

	// places are how far purges have come.
	places places
	// folded is how far the notes are folded.
	folded foldMark

	fresh     fresh
	era       era
	lanes     laneCache
	policies  decoded[store.Policy]
	successes decoded[store.Success]
	written   written
	ids       idSource
	// born carries callbacks that a transaction has made beside what it was asked for.
	born chan store.OpenRow
}

// Open opens the database and starts its writers. It does not migrate: see [Migrate]. Opening PostgreSQL needs no
// server yet: until there is one, calls return store.ErrUnavailable. Close ends it.
func Open(ctx context.Context, o Options) (*DB, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	db := &DB{logger: o.Logger, metrics: m, limits: limits{queue: defaultLimit, read: defaultLimit, commit: defaultLimit}, window: claimWindow, booksWindow: booksWindow, looking: lookAt(), counting: countAt(), born: make(chan store.OpenRow, bornQueue)}
	db.lanes.max = 100_000
	db.fresh.max = freshBytes
	switch {
	case strings.HasPrefix(o.URL, "postgres://"), strings.HasPrefix(o.URL, "postgresql://"):
		err = db.openPostgres(o)
	case strings.HasPrefix(o.URL, "sqlite:"):
		err = db.openSQLite(ctx, strings.TrimPrefix(o.URL, "sqlite:"))
	default:
		err = errors.New("database URL must begin with postgres:// or be sqlite:PATH")
	}
	if err != nil {
		return nil, err
	}
	for _, w := range db.writers {
		db.running.Go(w.run)
	}
	return db, nil
}

// openPostgres prepares one pool and a writer for each kind of group.
func (db *DB) openPostgres(o Options) error {
	config, err := pgx.ParseConfig(o.URL)
	if err != nil {
		// pgx masks the password in its own message.
		return fmt.Errorf("parse database URL: %w", err)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectLimit
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "dispatcher"
	}
	db.dialect = postgresDialect()
	conns := o.MaxConns
	if conns <= 0 {
		conns = defaultMaxConns
	}
	conns = max(conns, minMaxConns)
	db.groups = openPool(config, postgresWriters, db.era.options(byID)...)
	db.pool = openPool(config, conns-postgresWriters, db.era.options(letGo)...)
	db.read = db.pool
	db.migrate = func() (*sql.DB, error) { return stdlib.OpenDB(*config), nil }
	db.accepts = newWriter(db, "accept")
	db.stamps = newWriter(db, "stamp")
	db.results = newWriter(db, "result")
	db.writers = []*writer{db.stamps, db.results}
	for range acceptGroups {
		db.writers = append(db.writers, db.accepts)
	}
	return nil
}

// openPool makes a pool that keeps its connections while they are used now and then.
func openPool(config *pgx.ConnConfig, conns int, options ...stdlib.OptionOpenDB) *sql.DB {
	pool := stdlib.OpenDB(*config, options...)
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	return pool
}

// groupLimit is how long a transaction over that many rows may take.
func (db *DB) groupLimit(rows int) time.Duration {
	if db.embedded() {
		return embeddedLimit
	}
	return db.limits.commit + time.Duration(rows)*rowLimit
}

// letGo has the server end a session that does nothing within a transaction: a process that was stopped there, or its machine, would
// hold the locks of its rows for as long as it is away, and every group of the others that has one of them would wait in vain.
// Ours go on within milliseconds; 10 s are less than a claim lives, so the rows are free when they are claimed again.
func letGo(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "SET idle_in_transaction_session_timeout = '10s'"); err != nil {
		return fmt.Errorf("set idle_in_transaction_session_timeout: %w", err)
	}
	return nil
}

// byID has a connection of a group writer find rows by their ids. All that it runs does; but plans are made once, often while the
// tables are nearly empty, and a scan of the whole table that was cheapest then would be kept until statistics change.
func byID(ctx context.Context, conn *pgx.Conn) error {
	if err := letGo(ctx, conn); err != nil {
		return err
	}
	for _, path := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin"} {
		if _, err := conn.Exec(ctx, "SET "+path+" = off"); err != nil {
			return fmt.Errorf("set %s: %w", path, err)
		}
	}
	return nil
}

// openSQLite makes the file if it is missing, and opens one connection that writes and some that read.
func (db *DB) openSQLite(ctx context.Context, path string) error {
	if path == "" || path == ":memory:" {
		return errors.New("database URL sqlite: needs the path of a file")
	}
	if err := createPrivate(path); err != nil {
		return err
	}
	db.dialect = sqliteDialect()
	dsn := func(pragmas ...string) string {
		return sqliteDSN(path, append([]string{"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)"}, pragmas...)...)
	}
	// The writer turns the file to WAL, before any reader could find it otherwise.
	db.lite.path = path
	if err := db.lite.open(ctx); err != nil {
		return err
	}
	var err error
	if db.read, err = sql.Open("sqlite", dsn("query_only(1)")); err != nil {
		return errors.Join(fmt.Errorf("open %s: %w", path, err), db.lite.close())
	}
	db.read.SetMaxOpenConns(sqliteReaders)
	db.read.SetMaxIdleConns(sqliteReaders)
	db.migrate = func() (*sql.DB, error) { return sql.Open("sqlite", dsn()+"&_txlock=immediate") }
	db.migrateLock = path + "-migrate"
	w := newWriter(db, "all")
	db.accepts, db.stamps, db.results = w, w, w
	db.writers = []*writer{w}
	return nil
}

// sqliteDSN names a file and what every connection to it begins with.
func sqliteDSN(path string, pragmas ...string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + url.Values{"_pragma": pragmas}.Encode()
}

// createPrivate makes the file, readable by its owner only, if it is missing. SQLite gives the files beside it the
// same mode.
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

// Close commits what waits, ends the writers and closes the database. Calls that come later get store.ErrUnavailable.
func (db *DB) Close() error {
	for _, w := range db.writers {
		w.close()
	}
	db.running.Wait()
	if db.embedded() {
		return errors.Join(db.read.Close(), db.lite.close())
	}
	return errors.Join(db.read.Close(), db.groups.Close())
}

// embedded says that one process owns the database.
func (db *DB) embedded() bool { return db.dialect.name == migrations.SQLite }
