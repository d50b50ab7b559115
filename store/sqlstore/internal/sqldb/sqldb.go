// Package sqldb opens, writes and reads SQLite and PostgreSQL (15 and later) for package sqlstore. It knows
// no callbacks, endpoints or other types of the store.
//
// It guarantees:
//   - A transaction that returned no error is committed and synced to disk.
//   - A transaction with a transient error (deadlock, serialization, lost connection) is tried again.
//   - An error wraps store.ErrUnavailable if the database as a whole cannot commit.
//
// # Statements
//
// A statement has one text for both databases, in PostgreSQL's SQL. The dialect for SQLite removes FOR UPDATE
// and FOR SHARE, and replaces strpos with instr. Parameters are $1, $2 and so on. An argument of type [Input]
// is multi-row input: "FROM $i" in the text makes it a table named i.
//
// # Group commit
//
// A writer commits the entries of [DB.Commit] in groups. After each commit it takes all waiting entries, at
// most 256 rows a transaction. There is no timer. SQLite has one writer for all kinds. PostgreSQL has one or
// more for each kind. If a group has a permanent error, the writer halves it until the bad row is found. If a
// caller stops waiting, its entries may still be committed. See writer.go.
package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/migrations"
)

// Limits bound the time of calls of a DB.
type Limits struct {
	// Queue bounds the wait of a Commit until its group begins.
	Queue time.Duration
	// Read bounds every read. A list that takes longer fails, so that it does not starve other reads.
	Read time.Duration
	// Commit bounds one change, and one group together with rowLimit for each row, both including retries. So
	// a call ends even if the network to the database does not answer.
	Commit time.Duration
}

const (
	// defaultLimit is the default of each of the Limits.
	defaultLimit = 2 * time.Second
	rowLimit     = 5 * time.Millisecond
	// embeddedLimit replaces Limits.Commit on SQLite, where only a slow disk makes a large batch slow.
	embeddedLimit = 30 * time.Second
	// maintenanceLimit bounds one maintenance transaction.
	maintenanceLimit = 30 * time.Second
)

// A Kind is a kind of group. PostgreSQL commits the groups of one kind one after the other, except that up to
// Parallel full groups are committed at the same time. SQLite has one writer for all kinds.
type Kind struct {
	Name     string
	Parallel int
}

// Options are the options of Open.
type Options struct {
	// URL is "postgres://…", "postgresql://…" or "sqlite:PATH". Open creates a missing SQLite file and its
	// directory.
	URL string
	// MaxConns is the largest number of connections to PostgreSQL. Zero means 20. There are always enough for
	// the writers and three more. SQLite ignores it.
	MaxConns int
	// Logger gets messages that no caller's error contains. Nil: no logs.
	Logger *slog.Logger
	// Registerer gets the metrics. Nil: they are not exported.
	Registerer prometheus.Registerer
	// Kinds are the kinds of group.
	Kinds []Kind
	// Apply writes the entries of a group.
	Apply func(*Tx, []Entry) error
	// Refuse handles an entry whose own transaction failed with err. It must answer the entry's caller, and
	// may run a transaction with transact.
	Refuse func(e Entry, err error, transact func(func(*Tx) error) error)
}

// A DB is an open database. Its methods are safe for concurrent use.
type DB struct {
	Dialect *Dialect
	Limits  Limits
	// On PostgreSQL, Groups has the connections of the writers, which other calls cannot use up. Pool has the
	// connections of all other writes and of the reads, so Reads is Pool. On SQLite, Groups and Pool are nil,
	// lite writes, and Reads has the connections of the reads.
	Groups, Pool, Reads *sql.DB
	lite                lite

	logger  *slog.Logger
	metrics *metrics
	era     era
	apply   func(*Tx, []Entry) error
	refuse  func(Entry, error, func(func(*Tx) error) error)
	// migrate opens a separate handle for migrations.
	migrate func() (*sql.DB, error)
	// migrateLock is the path of the lock file for migrations of SQLite, empty on PostgreSQL.
	migrateLock string

	writers map[string]*writer
	running sync.WaitGroup
}

// Open opens the database and starts its writers. It does not migrate. It does not connect to PostgreSQL:
// calls return store.ErrUnavailable while the server is unreachable. The caller must call Close.
func Open(ctx context.Context, o Options) (*DB, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	db := &DB{
		Limits: Limits{Queue: defaultLimit, Read: defaultLimit, Commit: defaultLimit},
		logger: o.Logger, metrics: m, apply: o.Apply, refuse: o.Refuse, writers: make(map[string]*writer),
	}
	switch {
	case strings.HasPrefix(o.URL, "postgres://"), strings.HasPrefix(o.URL, "postgresql://"):
		err = db.openPostgres(o)
	case strings.HasPrefix(o.URL, "sqlite:"):
		err = db.openSQLite(ctx, strings.TrimPrefix(o.URL, "sqlite:"), o.Kinds)
	default:
		err = errors.New("database URL must be postgres://… or sqlite:PATH")
	}
	if err != nil {
		return nil, err
	}
	if err := db.exportPools(o.Registerer); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// addWriter creates a writer and the series of its kind, and runs it in that many goroutines.
func (db *DB) addWriter(kind string, goroutines int) *writer {
	db.metrics.rows.WithLabelValues(kind)
	db.metrics.seconds.WithLabelValues(kind)
	w := &writer{db: db, kind: kind, wake: make(chan struct{}, 1)}
	for range goroutines {
		db.running.Go(w.run)
	}
	return w
}

// Close commits all waiting calls, ends the writers and closes the database. Later writes return
// store.ErrUnavailable.
func (db *DB) Close() error {
	for _, w := range db.writers {
		w.close()
	}
	db.running.Wait()
	if db.Embedded() {
		return errors.Join(db.Reads.Close(), db.lite.close())
	}
	return errors.Join(db.Reads.Close(), db.Groups.Close())
}

// Embedded reports whether the database is SQLite, which one process owns.
func (db *DB) Embedded() bool { return db.Dialect.name == migrations.SQLite }

// Busy reports whether rows wait for a writer.
func (db *DB) Busy() bool {
	for _, w := range db.writers {
		if w.hasWaiting() {
			return true
		}
	}
	return false
}

// CountRefused counts a refused row in the metrics.
func (db *DB) CountRefused() { db.metrics.errors.Inc() }
