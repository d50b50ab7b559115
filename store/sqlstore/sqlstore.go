// Package sqlstore keeps callbacks, and everything that belongs to them, in SQL: one implementation and one
// text for SQLite (the default) and PostgreSQL 15 and later. What both have in common with other programs,
// and what differs between the two, stands in internal/sqldb.
//
// It guarantees that what was answered without an error is committed and synced to disk; that a result takes
// effect only with the fence of the last claim, and once; that every change made by a person is in the audit
// of the same transaction; that payloads come back byte by byte; and that every query a caller can reach is
// scoped by project.
//
// # Group commit
//
// Accepts, claim stamps and results are committed in groups (see internal/sqldb): on SQLite all three
// together, on PostgreSQL each kind by itself, where a full group of accepts does not wait for the one before
// it.
//
// # Attempting is derived
//
// A row whose state is scheduled and whose claim_until lies in the future is being attempted. Nothing has to
// be undone when a process dies, and a claim stamp changes no indexed column.
//
// # Settings are numbered
//
// Changes of projects and their presets, of endpoints and of lanes take numbers from one row, which each such
// transaction locks first: who follows the numbers misses none. See lockSettings.
//
// # What has ended is a feed
//
// Every transaction notes what it changes of the counters and what has ended by it in one row. Fold takes
// these notes away, one transaction after the other, adds them to the counters and numbers the feed of
// outcomes. See notes.go.
//
// It does not decide: tiers, due times, classes and reasons come from the caller. It holds no clock of its
// own for rows: every time is a parameter. It knows nothing of the index and encrypts nothing: secrets arrive
// as ciphertext.
package sqlstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// The kinds of group. PostgreSQL commits two groups of accepts at a time: while one waits for the log,
// another is taken apart.
const (
	accepts      = "accept"
	stamps       = "stamp"
	results      = "result"
	acceptGroups = 2
)

// Options say what to open.
type Options struct {
	// URL is "postgres://…", "postgresql://…" or "sqlite:PATH". A missing SQLite file, and its directory, are
	// made.
	URL string
	// MaxConns is the most connections to PostgreSQL; zero means 20, and it is never less than 7. SQLite
	// ignores it.
	MaxConns int
	// Logger gets what no caller can be told; nil: nothing is logged.
	Logger *slog.Logger
	// Registerer gets the metrics; nil: they are not exported.
	Registerer prometheus.Registerer
}

// A DB is an open database. Its methods are safe for concurrent use.
type DB struct {
	sql    *sqldb.DB
	logger *slog.Logger

	// window is how many rows one statement looks through for claims that are alive.
	claimWindow int
	// reconcileWindow is how many callbacks one statement counts.
	reconcileWindow int
	// looking is how much one page of a list may look at, counting how much one number.
	listBudget, countBudget pageBudget

	// places are how far purges have come.
	progress allProgress
	// folded is how far the notes are folded.
	folded foldMark

	accepted acceptedCache
	// lanes has the numbers of lanes. A lane's number never changes and lanes are never removed, so an entry
	// cannot be wrong.
	lanes     memo[laneKey, int64]
	policies  memo[string, store.Policy]
	successes memo[string, store.Success]
	written   written
	entropy   ulid.LockedMonotonicReader // of ids
	// born carries callbacks that a transaction has made beside what it was asked for.
	spawned chan store.OpenRow
}

// Open opens the database and starts its writers. It does not migrate: see [Migrate]. Opening PostgreSQL
// needs no server yet: until there is one, calls return store.ErrUnavailable. Close ends it.
func Open(ctx context.Context, o Options) (*DB, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	db := &DB{
		logger: o.Logger, claimWindow: claimWindow, reconcileWindow: reconcileWindow, listBudget: listBudget(),
		countBudget: countBudget(),
		spawned:     make(chan store.OpenRow, spawnedQueue),
	}
	db.lanes.max = 100_000
	db.accepted.max = cacheBytes
	db.entropy.MonotonicReader = ulid.Monotonic(rand.Reader, 0)
	var err error
	db.sql, err = sqldb.Open(ctx, sqldb.Options{
		URL: o.URL, MaxConns: o.MaxConns, Logger: o.Logger, Registerer: o.Registerer,
		Kinds: []sqldb.Kind{{Name: stamps, Parallel: 1}, {Name: results, Parallel: 1},
			{Name: accepts, Parallel: acceptGroups}},
		Apply:  db.applyGroup,
		Refuse: db.refuse,
	})
	if err != nil {
		return nil, err
	}
	return db, nil
}

// Close commits what waits, ends the writers and closes the database. Calls that come later get
// store.ErrUnavailable.
func (db *DB) Close() error { return db.sql.Close() }

// ErrOtherSchema says that a migration was applied to the database from other statements than this program
// has.
var ErrOtherSchema = sqldb.ErrOtherSchema

// A Migration is one step of the schema.
type Migration = sqldb.Migration

// Migrate brings the schema up to date, and does nothing where it is. Several processes may call it at once:
// one migrates, the others wait, up to a minute. It returns [ErrOtherSchema] for a database that it cannot
// bring up to date.
func Migrate(ctx context.Context, db *DB) error { return db.sql.Migrate(ctx) }

// MigrationStatus lists all migrations that this program knows, and which of them the database has. It
// returns [ErrOtherSchema] for a database that has one of them with other statements.
func MigrationStatus(ctx context.Context, db *DB) ([]Migration, error) {
	return db.sql.MigrationStatus(ctx)
}

// AppliedMigrations returns the hashes of the applied migrations by their versions; nil: the database was
// never migrated. The hash is empty where the program that applied the migration kept none.
var AppliedMigrations = sqldb.AppliedMigrations

// CheckSchema returns [ErrOtherSchema] if an applied migration has another hash than that of the known ones.
// Versions that are not known are those of a newer program, beside which this one can run.
var CheckSchema = sqldb.CheckSchema

// A tx is one write transaction: statements, and what must happen with them (counters, outcomes) or after
// them (lane ids).
type tx struct {
	*sqldb.Tx
	db *DB
	// deltas and endings are noted before the commit.
	deltas  counterChanges
	endings endedByProject
	lanes   []foundLane
	// settings is the number of the last change of settings, once it is locked; settled is what it was then.
	settings       *int64
	settingsBefore int64
	// endedPolls are told before the commit; born are callbacks that this transaction has made and nobody
	// asked for.
	endedPolls []endedPoll
	spawned    []store.OpenRow
	// telling: the results of polls that have ended are being accepted, which no quota refuses.
	quotaExempt bool
	// resolving is the poll that this transaction resolves.
	resolving string
}

// within runs fn as a transaction of this package, with all that belongs to its end.
func (db *DB) within(s *sqldb.Tx, fn func(*tx) error) error {
	t := &tx{Tx: s, db: db}
	if err := fn(t); err != nil {
		return err
	}
	if err := t.acceptPollResults(); err != nil {
		return err
	}
	if err := t.writeVersion(); err != nil {
		return err
	}
	if err := t.writeNote(); err != nil {
		return err
	}
	t.OnCommit(func() {
		for _, l := range t.lanes {
			db.lanes.put(l.laneKey, l.id)
		}
		db.publishSpawned(t.spawned)
	})
	return nil
}

// change runs fn in a transaction of its own. Its error has the operation's name.
func (db *DB) change(ctx context.Context, operation string, fn func(*tx) error) error {
	return named(operation, db.sql.Change(ctx, func(s *sqldb.Tx) error { return db.within(s, fn) }))
}

// changeLong is change for a transaction that writes about many rows, each of which may be a round trip to a
// server far away.
func (db *DB) changeLong(ctx context.Context, operation string, fn func(*tx) error) error {
	return named(operation, db.sql.ChangeLong(ctx, func(s *sqldb.Tx) error { return db.within(s, fn) }))
}

// maintain is change for writes that can wait until nothing else does.
func (db *DB) maintain(ctx context.Context, operation string, fn func(*tx) error) error {
	return named(operation, db.sql.Maintain(ctx, func(s *sqldb.Tx) error { return db.within(s, fn) }))
}

// changed runs a transaction that returns a value, by way of change, changeLong or maintain. Where it fails
// the value is zero.
func changed[V any](
	ctx context.Context, run func(context.Context, string, func(*tx) error) error, operation string,
	fn func(*tx) (V, error),
) (V, error) {
	var value, zero V
	err := run(ctx, operation, func(t *tx) error {
		var err error
		value, err = fn(t)
		return err
	})
	if err != nil {
		return zero, err
	}
	return value, nil
}

// changeBy is change by one statement.
func (db *DB) changeBy(ctx context.Context, operation, text string, args ...any) error {
	return db.change(ctx, operation, func(t *tx) error {
		_, err := t.Exec(text, args...)
		return err
	})
}

// mustExist returns store.ErrNotFound where the statement finds nothing.
func (t *tx) mustExist(text string, args ...any) error {
	found, err := sqldb.Exists(t, text, args...)
	if err == nil && !found {
		err = store.ErrNotFound
	}
	return err
}

// col is a column of a noun.
func col(name string, at any) sqldb.Column { return sqldb.Column{Name: name, At: at} }

// calc is a column that is only written, with what value returns then.
func calc[S int64 | string](name string, value func() S) sqldb.Column {
	return col(name, sqldb.Calc(value))
}

// theID is the column of rows that are ids.
func theID(id *string) sqldb.Columns { return sqldb.Columns{col("id", id)} }

// invalid refuses a field of what a caller wants.
func invalid(field, message string) error {
	return &store.InvalidError{Fields: []store.FieldError{{Field: field, Message: message}}}
}

// named wraps an error with the operation's name, if there is one.
func named(operation string, err error) error {
	if err == nil || operation == "" {
		return err
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// read is how an operation reads outside of a transaction that writes.
func (db *DB) read(ctx context.Context, operation string) sqldb.Read {
	return db.sql.Read(ctx, operation)
}

// applyGroup writes the entries of a group: results first, so that what they free can be claimed by the same
// group's stamps.
func (db *DB) applyGroup(s *sqldb.Tx, entries []sqldb.Entry) error {
	return db.within(s, func(t *tx) error {
		if err := t.applyResults(entriesOf[*resultEntry](entries)); err != nil {
			return named("commit results", err)
		}
		drafts := entriesOf[*acceptEntry](entries)
		if len(drafts) > 0 {
			// A poll that has just ended is not the open one any more that a draft would become.
			if err := t.acceptPollResults(); err != nil {
				return named("tell results of polls", err)
			}
		}
		if err := t.applyDrafts(drafts); err != nil {
			return named("accept", err)
		}
		if err := t.applyStamps(entriesOf[*stampEntry](entries)); err != nil {
			return named("stamp", err)
		}
		return nil
	})
}

// entriesOf picks the entries of one kind.
func entriesOf[E sqldb.Entry](entries []sqldb.Entry) []E {
	var picked []E
	for _, e := range entries {
		if e, ok := e.(E); ok {
			if picked == nil {
				picked = make([]E, 0, len(entries))
			}
			picked = append(picked, e)
		}
	}
	return picked
}

// refuse answers the row that alone makes its transaction fail. A claim of it is refused and the row set
// aside, so that the index does not hand it out for ever.
func (db *DB) refuse(e sqldb.Entry, err error, transact func(func(*sqldb.Tx) error) error) {
	claim, ok := e.(*stampEntry)
	if !ok {
		e.Fail(err)
		return
	}
	db.logger.Error("a row cannot be claimed and is set aside", "callback_id", claim.ID, "error", err)
	serr := transact(func(s *sqldb.Tx) error {
		return db.within(s, func(t *tx) error { return t.setAside([]string{claim.ID}, claim.stamp.Now) })
	})
	if serr != nil {
		e.Fail(errors.Join(err, serr))
		return
	}
	claim.refuse(store.Refusal{ID: claim.ID, Terminal: true, Corrupt: true})
}
