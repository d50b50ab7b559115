// Package sqlstore keeps callbacks, and everything that belongs to them, in SQL. One implementation and one
// SQL text serve SQLite (the default) and PostgreSQL 15 and later. Package internal/sqldb holds the
// differences between the two databases and everything that is not about callbacks.
//
// The package guarantees:
//   - A call that returned without an error is committed and synced to disk.
//   - A result takes effect once, and only with the fence of the last claim.
//   - Each change by a person is in the audit of the same transaction.
//   - Payloads come back byte by byte.
//   - Every query that a caller can reach is scoped by project.
//
// # Group commit
//
// Accepts, claim stamps and results are committed in groups (see internal/sqldb). SQLite commits all three
// kinds together. PostgreSQL commits each kind alone, and a full group of accepts does not wait for the group
// before it.
//
// # Attempting is derived
//
// A row is being attempted while its state is scheduled and its claim_until lies in the future. So a process
// that dies leaves nothing to undo, and a claim stamp changes no indexed column.
//
// # Settings are numbered
//
// Changes of projects, presets, endpoints and lanes take their versions from one row. Each such transaction
// locks that row first, so a reader that follows the versions misses none. See lockSettings.
//
// # Counters and the feed are folded
//
// Every transaction appends one note: how it changes the counters, and which callbacks it ended. Fold deletes
// the notes, adds them to the counters and numbers the feed of outcomes. See commit_notes.go.
//
// # What the caller decides
//
// Tiers, due times, classes and reasons come from the caller. The package has no clock for rows: every time
// is a parameter. It does not know the index, and it encrypts nothing: secrets arrive as ciphertext.
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

// The kinds of group. On PostgreSQL two groups of accepts run at a time: one is prepared while the other
// waits for the disk.
const (
	accepts      = "accept"
	stamps       = "stamp"
	results      = "result"
	acceptGroups = 2
)

// Options are the arguments of [Open].
type Options struct {
	// URL is "postgres://…", "postgresql://…" or "sqlite:PATH". Open creates a missing SQLite file and its
	// directory.
	URL string
	// MaxConns is the maximum number of connections to PostgreSQL. Zero means 20; the minimum is 7. SQLite
	// ignores it.
	MaxConns int
	// Logger gets the failures that no caller receives. Nil disables logging.
	Logger *slog.Logger
	// Registerer gets the metrics. Nil exports none.
	Registerer prometheus.Registerer
}

// A DB is an open database. Its methods are safe for concurrent use.
type DB struct {
	sql    *sqldb.DB
	logger *slog.Logger

	// claimWindow is how many rows one statement of Claimed scans.
	claimWindow int
	// overdueBudget bounds the scan for one call of OverdueLanes.
	overdueBudget pageBudget
	// reconcileWindow is how many callbacks one statement of Reconcile or Compare reads.
	reconcileWindow int
	// listBudget bounds the scan for one page of a list, countBudget the scan for one count.
	listBudget, countBudget pageBudget

	// progress is how far each purge has come.
	progress allProgress
	// folded keeps the number of the note after which the next fold starts.
	folded foldMark

	// accepted caches rows that this process accepted, until their first stamp.
	accepted acceptedCache
	// lanes caches the ids of lanes. A lane keeps its id and is never deleted, so no entry can be stale.
	lanes     memo[laneKey, int64]
	policies  memo[string, store.Policy]
	successes memo[string, store.Success]
	written   written
	// entropy makes the ids of this process ascend.
	entropy ulid.LockedMonotonicReader
	// spawned is the channel that Spawned returns.
	spawned chan store.OpenRow
}

// Open opens the database and starts its writers. It applies no migration: see [Migrate]. PostgreSQL need not
// be reachable yet; until it is, calls return store.ErrUnavailable. Close releases the database.
func Open(ctx context.Context, o Options) (*DB, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	db := &DB{
		logger:          o.Logger,
		claimWindow:     claimWindow,
		overdueBudget:   overdueBudget(),
		reconcileWindow: reconcileWindow,
		listBudget:      listBudget(),
		countBudget:     countBudget(),
		spawned:         make(chan store.OpenRow, spawnedQueue),
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

// Close commits the queued calls, stops the writers and closes the database. Later calls return
// store.ErrUnavailable.
func (db *DB) Close() error { return db.sql.Close() }

// ErrOtherSchema means that a migration in the database has other statements than the same version in this
// program.
var ErrOtherSchema = sqldb.ErrOtherSchema

// A Migration is one step of the schema.
type Migration = sqldb.Migration

// Migrate applies the missing migrations. Several processes may call it at once: one migrates while the
// others wait, up to a minute. It returns [ErrOtherSchema] for a database that it cannot bring up to date.
func Migrate(ctx context.Context, db *DB) error { return MigrateEach(ctx, db, nil) }

// MigrateEach is Migrate that calls each, from the same goroutine, when a migration is about to be committed.
func MigrateEach(ctx context.Context, db *DB, each func(version int64)) error {
	return db.sql.Migrate(ctx, each)
}

// MigrationStatus lists the migrations of this program, and whether each is applied. It returns
// [ErrOtherSchema] if the database has one of them with other statements.
func MigrationStatus(ctx context.Context, db *DB) ([]Migration, error) {
	return db.sql.MigrationStatus(ctx)
}

// AppliedMigrations returns the hash of each applied migration by its version. Nil means that the database
// was never migrated. A hash is empty if the program that applied the migration stored none.
var AppliedMigrations = sqldb.AppliedMigrations

// CheckSchema returns [ErrOtherSchema] if an applied migration has another hash than the known one. Unknown
// versions come from a newer program, which may run at the same time.
var CheckSchema = sqldb.CheckSchema

// A tx is one write transaction of this package. It collects what within writes before the commit (results of
// polls, the version of settings, the note) and does after it (cache lane ids, publish spawned callbacks).
type tx struct {
	*sqldb.Tx
	db *DB
	// deltas and endings become the transaction's note: see writeNote.
	deltas  counterChanges
	endings endedByProject
	// lanes are the lanes that the transaction looked up or made. They are cached after the commit only,
	// because a rollback takes new lanes back.
	lanes []foundLane
	// settings is the last version of settings that this transaction gave away, nil before lockSettings.
	// settingsBefore is the value that it found.
	settings       *int64
	settingsBefore int64
	// endedPolls are polls that have ended, and for which acceptPollResults has not run yet. spawned are the
	// result callbacks that it accepted.
	endedPolls []endedPoll
	spawned    []store.OpenRow
	// quotaExempt: result callbacks of polls are being accepted. No lane quota refuses those, because the
	// end of a poll must not fail for want of a lane.
	quotaExempt bool
	// resolving is the id of the poll that ResolvePoll ends in this transaction, or empty.
	resolving string
}

// within runs fn, and then writes what fn collected in the tx, all in the transaction s. It runs again with a
// new tx if sqldb repeats the transaction.
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

// change runs fn in one transaction and puts the operation's name before its error. On a transient error (a
// deadlock, a lost connection) sqldb runs fn again, up to five times in all. So fn must not keep state from
// an earlier try, and it finds MayBeCommitted set if the earlier try may be committed.
func (db *DB) change(ctx context.Context, operation string, fn func(*tx) error) error {
	return named(operation, db.sql.Change(ctx, func(s *sqldb.Tx) error { return db.within(s, fn) }))
}

// changeLong is change with the time limit of maintenance, for a transaction over many rows. Each row may
// cost a round trip to a distant server.
func (db *DB) changeLong(ctx context.Context, operation string, fn func(*tx) error) error {
	return named(operation, db.sql.ChangeLong(ctx, func(s *sqldb.Tx) error { return db.within(s, fn) }))
}

// maintain is changeLong for a write that may wait. On SQLite queued groups and changes go first, for at most
// two seconds. Under constant load maintenance gets up to half of the writer's time.
func (db *DB) maintain(ctx context.Context, operation string, fn func(*tx) error) error {
	return named(operation, db.sql.Maintain(ctx, func(s *sqldb.Tx) error { return db.within(s, fn) }))
}

// changed runs fn by way of run (change, changeLong or maintain) and returns its value, zero if the
// transaction fails.
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

// changeBy is change with one statement.
func (db *DB) changeBy(ctx context.Context, operation, text string, args ...any) error {
	return db.change(ctx, operation, func(t *tx) error {
		_, err := t.Exec(text, args...)
		return err
	})
}

// mustExist returns store.ErrNotFound if the statement finds no row.
func (t *tx) mustExist(text string, args ...any) error {
	found, err := sqldb.Exists(t, text, args...)
	if err == nil && !found {
		err = store.ErrNotFound
	}
	return err
}

// col describes a column that is stored at the pointer or adapter at.
func col(name string, at any) sqldb.Column { return sqldb.Column{Name: name, At: at} }

// calc describes a column that is only written. Its value is computed when the row is written.
func calc[S int64 | string](name string, value func() S) sqldb.Column {
	return col(name, sqldb.Calc(value))
}

// theID describes the one column of input rows that are ids.
func theID(id *string) sqldb.Columns { return sqldb.Columns{col("id", id)} }

// invalid returns the error for one invalid field of a request.
func invalid(field, message string) error {
	return &store.InvalidError{Fields: []store.FieldError{{Field: field, Message: message}}}
}

// named puts the operation's name before an error. An empty name leaves the error as it is.
func named(operation string, err error) error {
	if err == nil || operation == "" {
		return err
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// read returns a reader outside of a write transaction. Each statement has the limit for reads.
func (db *DB) read(ctx context.Context, operation string) sqldb.Read {
	return db.sql.Read(ctx, operation)
}

// applyGroup writes the entries of one group. The writers of sqldb call it, and halve the group if it fails
// for good. Results come first: they clear claims and end rows and polls, so the stamps and drafts of the
// same group find these free.
func (db *DB) applyGroup(s *sqldb.Tx, entries []sqldb.Entry) error {
	return db.within(s, func(t *tx) error {
		if err := t.applyResults(entriesOf[*resultEntry](entries)); err != nil {
			return named("commit results", err)
		}
		drafts := entriesOf[*acceptEntry](entries)
		if len(drafts) > 0 {
			// A poll that ended in this group is not open any more: a draft of the same key must not join it.
			if err := t.acceptPollResults(); err != nil {
				return named("accept results of polls", err)
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

// entriesOf returns the entries of one kind, in order.
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

// refuse answers the one entry that makes its transaction fail even when it is alone. A draft or a result
// gets the error. A row that cannot be claimed ends as Dead, Invalid in a transaction of its own: otherwise
// the index would claim it forever.
func (db *DB) refuse(e sqldb.Entry, err error, transact func(func(*sqldb.Tx) error) error) {
	claim, ok := e.(*stampEntry)
	if !ok {
		e.Fail(err)
		return
	}
	db.logger.Error("callback cannot be claimed: it ends as dead, invalid", "callback_id", claim.ID,
		"error", err)
	serr := transact(func(s *sqldb.Tx) error {
		return db.within(s, func(t *tx) error { return t.setAside([]string{claim.ID}, claim.stamp.Now) })
	})
	if serr != nil {
		e.Fail(errors.Join(err, serr))
		return
	}
	claim.refuse(store.Refusal{ID: claim.ID, Terminal: true, Corrupt: true})
}
