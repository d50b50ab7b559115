// Package sqldb is the plumbing of package sqlstore: one way to open, write and read SQLite and PostgreSQL 15
// and later. It knows no callback, no endpoint and no other noun.
//
// It guarantees that a transaction that was answered without an error is committed and synced to disk, that a
// transient error (deadlock, serialization, lost connection) is retried, and that an error that means that
// the database as a whole cannot commit wraps store.ErrUnavailable.
//
// # Statements
//
// A statement is one text for both databases, in the words of PostgreSQL: the dialect for SQLite leaves out
// FOR UPDATE and FOR SHARE, and writes instr for strpos. Parameters are $1, $2 and so on. An argument of type
// [Input] is multi-row input: "FROM $i" in the text makes it a table named i.
//
// # Group commit
//
// What callers hand to [DB.Commit] is committed in groups: a writer takes everything that waits as soon as
// its last commit is done, without a timer, up to 256 rows a transaction. SQLite has one writer for all
// kinds, PostgreSQL one or more for each. A group that is refused for good is halved until the bad row stands
// alone. A caller that gives up leaves its group alone: what it asked for may still be committed. See
// writer.go.
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

// Limits are how long calls of a DB may take.
type Limits struct {
	// Queue bounds how long a call waits for its group to begin.
	Queue time.Duration
	// Read bounds every read: a list that takes longer is refused rather than starving the others.
	Read time.Duration
	// Commit bounds one change, and, with rowLimit for each of its rows, one group, its retries included: a
	// database behind a network that does not answer is given up by then.
	Commit time.Duration
}

const (
	// defaultLimit is each of the limits.
	defaultLimit = 2 * time.Second
	rowLimit     = 5 * time.Millisecond
	// embeddedLimit bounds the same on SQLite, where slow means a slow disk under a large batch.
	embeddedLimit = 30 * time.Second
	// maintenanceLimit bounds one maintenance transaction.
	maintenanceLimit = 30 * time.Second
)

// A Kind is a kind of group. Groups of one kind are committed one after the other, except that up to Parallel
// full ones are committed at a time. SQLite has one writer for all kinds.
type Kind struct {
	Name     string
	Parallel int
}

// Options say what to open.
type Options struct {
	// URL is "postgres://…", "postgresql://…" or "sqlite:PATH". A missing SQLite file, and its directory, are
	// made.
	URL string
	// MaxConns is the most connections to PostgreSQL; zero means 20. It is never less than one for each
	// writer and three more. SQLite ignores it.
	MaxConns int
	// Logger gets what no caller can be told; nil: nothing is logged.
	Logger *slog.Logger
	// Registerer gets the metrics; nil: they are not exported.
	Registerer prometheus.Registerer
	// Kinds are the kinds of group.
	Kinds []Kind
	// Apply writes the entries of a group.
	Apply func(*Tx, []Entry) error
	// Refuse answers an entry that alone makes its transaction fail. It may use a transaction of its own.
	Refuse func(e Entry, err error, transact func(func(*Tx) error) error)
}

// A DB is an open database. Its methods are safe for concurrent use.
type DB struct {
	Dialect *Dialect
	Limits  Limits
	// On PostgreSQL Groups has the writers' connections, which no other call can use up, and Pool those of
	// all other writes; on SQLite both are nil, and lite writes. Reads has the connections of reads; on
	// PostgreSQL it is Pool.
	Groups, Pool, Reads *sql.DB
	lite                lite

	logger  *slog.Logger
	metrics *metrics
	era     era
	apply   func(*Tx, []Entry) error
	refuse  func(Entry, error, func(func(*Tx) error) error)
	// migrate opens a handle apart for migrations.
	migrate func() (*sql.DB, error)
	// migrateLock is a file that is locked while SQLite is migrated; empty on PostgreSQL.
	migrateLock string

	writers map[string]*writer
	running sync.WaitGroup
}

// Open opens the database and starts its writers. It does not migrate. Opening PostgreSQL needs no server
// yet: until there is one, calls return store.ErrUnavailable. Close ends it.
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
		err = errors.New("database URL must begin with postgres:// or be sqlite:PATH")
	}
	if err != nil {
		return nil, err
	}
	return db, nil
}

// addWriter makes a writer and runs it in so many goroutines.
func (db *DB) addWriter(kind string, goroutines int) *writer {
	w := &writer{db: db, kind: kind, wake: make(chan struct{}, 1)}
	for range goroutines {
		db.running.Go(w.run)
	}
	return w
}

// Close commits what waits, ends the writers and closes the database. Calls that come later get
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

// Embedded reports whether one process owns the database.
func (db *DB) Embedded() bool { return db.Dialect.name == migrations.SQLite }

// Busy reports whether rows wait for a writer.
func (db *DB) Busy() bool {
	for _, w := range db.writers {
		if w.waits() {
			return true
		}
	}
	return false
}

// CountRefused counts a row that alone was refused.
func (db *DB) CountRefused() { db.metrics.errors.Inc() }
