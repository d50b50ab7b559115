package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// maxTries is how often a transaction is tried in all while its error is transient.
const maxTries = 5

// A tx is one write transaction: statements, and what must happen with them (counters, outcomes) or after them (lane ids).
type tx struct {
	ctx context.Context
	db  *DB
	// One of them is set: group is a writer's transaction on PostgreSQL, which goes without the conversions of database/sql; sql any
	// other there; lite is the connection on SQLite.
	group  *groupTx
	sql    *sql.Tx
	lite   *lite
	deltas counting
	// notes are what has ended, by project.
	notes map[string]*projectNotes
	// many is about how many rows will end, where that is known.
	many int
	// unattempted are rows of the present round that ended by a result without an attempt.
	unattempted []ending
	lanes       []laneKeyID
	// settings is the number of the last change of settings, once it is locked; settled is what it was then.
	settings *int64
	settled  int64
	// strict are the results of the present round that ended strict rows, by project and lock key.
	strict map[laneKey][]*resultEntry
	// endedPolls are told before the commit; born are callbacks that this transaction has made and nobody asked for.
	endedPolls []endedPoll
	born       []store.OpenRow
	// telling: the results of polls that have ended are being accepted, which no quota refuses.
	telling bool
	// resolving is the poll that this transaction resolves.
	resolving string
	// again says that an earlier try of the same transaction may have been committed although its reply was lost.
	again bool
}

// exec runs a statement and returns how many rows it changed.
func (t *tx) exec(query string, args ...any) (int64, error) {
	if t.lite != nil {
		s, err := t.bound(query, args)
		if err != nil {
			return 0, err
		}
		return s.exec()
	}
	if t.group != nil {
		return t.group.exec(t.ctx, query, args)
	}
	r, err := t.sql.ExecContext(t.ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// later runs a statement at the latest with the commit: its error may be that of a statement after it, or of the commit.
func (t *tx) later(query string, args ...any) error {
	if t.group != nil {
		t.group.later(query, args)
		return nil
	}
	_, err := t.exec(query, args...)
	return err
}

// each runs a statement and calls scan for every row it returns.
func (t *tx) each(scan func(scanner) error, query string, args ...any) error {
	if t.lite != nil {
		s, err := t.bound(query, args)
		if err != nil {
			return err
		}
		return s.each(scan)
	}
	if t.group != nil {
		return t.group.each(t.ctx, scan, query, args)
	}
	rows, err := t.sql.QueryContext(t.ctx, query, args...)
	if err != nil {
		return err
	}
	return eachRow(rows, scan)
}

// bound returns the compiled statement with its parameters set.
func (t *tx) bound(query string, args []any) (*liteStmt, error) {
	s, err := t.lite.prepare(query)
	if err != nil {
		return nil, err
	}
	return s, s.bind(args)
}

// eachRow calls scan for every row, and closes the rows.
func eachRow(rows *sql.Rows, scan func(scanner) error) error {
	for rows.Next() {
		if err := scan(rows); err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	if err := rows.Err(); err != nil {
		return errors.Join(err, rows.Close())
	}
	return rows.Close()
}

// input is multi-row input as a table i, with its arguments; its parameters are numbered from 1, and next is free.
func (t *tx) input(columns []column) (fragment string, args []any, next int, err error) {
	fragment, next = t.db.dialect.input(1, columns)
	args, err = t.db.dialect.args(columns)
	return fragment, args, next, err
}

// transact runs fn in a transaction, up to maxTries times while its error is transient. Errors that mean that nothing
// can be committed wrap store.ErrUnavailable. On SQLite only the writer may call it.
func (db *DB) transact(ctx context.Context, pool *sql.DB, limit time.Duration, fn func(*tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	again := false
	for try := 1; ; try++ {
		err := db.once(ctx, pool, again, fn)
		if err == nil {
			return nil
		}
		if readOnly(err) {
			db.era.end()
		}
		if try == maxTries || ctx.Err() != nil || !transient(err) {
			if unavailable(err) || ctx.Err() != nil {
				return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
			}
			return err
		}
		again = again || disconnected(err)
		db.metrics.retries.Inc()
		pause := time.NewTimer(time.Duration(try*try)*5*time.Millisecond + rand.N(5*time.Millisecond))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// once runs fn in one transaction and writes its note.
func (db *DB) once(ctx context.Context, pool *sql.DB, again bool, fn func(*tx) error) error {
	t := &tx{ctx: ctx, db: db, again: again}
	run := func() error {
		if err := fn(t); err != nil {
			return err
		}
		if err := t.tellPolls(); err != nil {
			return err
		}
		if err := t.writeVersion(); err != nil {
			return err
		}
		return t.writeNote()
	}
	var err error
	if db.embedded() {
		t.lite = &db.lite
		err = t.lite.once(ctx, run)
	} else if pool == db.groups {
		err = t.onGroups(run)
	} else {
		err = t.onPool(pool, run)
	}
	if err == nil {
		db.lanes.add(t.lanes)
		db.announce(t.born)
	}
	return err
}

// onGroups runs run in one transaction of a writer.
func (t *tx) onGroups(run func() error) error {
	conn, err := t.db.groups.Conn(t.ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	err = conn.Raw(func(driverConn any) error {
		c := driverConn.(*stdlib.Conn).Conn() // openPool knows no other driver
		t.group = &groupTx{conn: c}
		if err := run(); err != nil {
			if rerr := t.group.rollback(t.ctx); rerr != nil && !disconnected(rerr) && t.ctx.Err() == nil {
				err = errors.Join(err, fmt.Errorf("roll back: %w", rerr))
			}
			return err
		}
		if err := t.group.commit(t.ctx); err != nil {
			err = fmt.Errorf("commit: %w", err)
			if rerr := t.group.rollback(t.ctx); rerr != nil && !disconnected(rerr) && t.ctx.Err() == nil {
				err = errors.Join(err, fmt.Errorf("roll back: %w", rerr))
			}
			return err
		}
		return nil
	})
	// A connection that is broken is not taken back by the pool; how the transaction ended was said before.
	if cerr := conn.Close(); cerr != nil && err == nil && !errors.Is(cerr, driver.ErrBadConn) && !errors.Is(cerr, sql.ErrConnDone) {
		err = fmt.Errorf("give back connection: %w", cerr)
	}
	return err
}

// onPool runs run in one transaction of PostgreSQL.
func (t *tx) onPool(pool *sql.DB, run func() error) error {
	var err error
	if t.sql, err = pool.BeginTx(t.ctx, nil); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := run(); err != nil {
		if rerr := t.sql.Rollback(); rerr != nil && !errors.Is(rerr, sql.ErrTxDone) && !disconnected(rerr) && t.ctx.Err() == nil {
			err = errors.Join(err, fmt.Errorf("roll back: %w", rerr))
		}
		return err
	}
	if err := t.sql.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}
