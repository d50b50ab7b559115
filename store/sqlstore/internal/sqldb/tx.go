package sqldb

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

// maxTries is the number of tries of a transaction with transient errors.
const maxTries = 5

// A Tx is one try of a write transaction.
type Tx struct {
	// MayBeCommitted: an earlier try of the same transaction may have been committed, because the connection
	// was lost before the reply to its COMMIT. The transaction must not apply its changes twice.
	MayBeCommitted bool

	ctx context.Context
	db  *DB
	// One of them is set: group on PostgreSQL, lite on SQLite.
	group *groupTx
	lite  *lite
	// committed are the functions of OnCommit.
	committed []func()
}

// OnCommit adds a function that transact calls after a successful commit.
func (t *Tx) OnCommit(fn func()) { t.committed = append(t.committed, fn) }

// Exec runs a statement and returns the number of changed rows.
func (t *Tx) Exec(text string, args ...any) (int64, error) {
	text, args, err := t.db.Dialect.Statement(text, args)
	if err != nil {
		return 0, err
	}
	if t.lite != nil {
		s, err := t.lite.bound(text, args)
		if err != nil {
			return 0, err
		}
		return s.exec()
	}
	return t.group.exec(t.ctx, text, args)
}

// Later runs a statement whose result is not needed. On PostgreSQL it is sent with the next statement or with
// the commit, which saves a round trip. That call then returns its error.
func (t *Tx) Later(text string, args ...any) error {
	if t.group == nil {
		_, err := t.Exec(text, args...)
		return err
	}
	text, args, err := t.db.Dialect.Statement(text, args)
	if err == nil {
		t.group.waiting = append(t.group.waiting, statement{text, args})
	}
	return err
}

// Each implements [Querier].
func (t *Tx) Each(scan func(Row) error, text string, args ...any) error {
	return t.each(false, scan, text, args...)
}

// each is Each. With separate, PostgreSQL may commit the statement before the rest of the transaction (see
// BulkUpdate.Separate).
func (t *Tx) each(separate bool, scan func(Row) error, text string, args ...any) error {
	text, args, err := t.db.Dialect.Statement(text, args)
	if err != nil {
		return err
	}
	if t.lite != nil {
		s, err := t.lite.bound(text, args)
		if err != nil {
			return err
		}
		return s.each(scan)
	}
	return t.group.each(t.ctx, separate, scan, statement{text, args})
}

// Change runs fn in a transaction that is not part of a group. On SQLite the writer runs it between groups.
func (db *DB) Change(ctx context.Context, fn func(*Tx) error) error {
	return db.changeWithin(ctx, false, db.groupLimit(0), fn)
}

// ChangeLong is Change with the time limit of maintenance.
func (db *DB) ChangeLong(ctx context.Context, fn func(*Tx) error) error {
	return db.changeWithin(ctx, false, maintenanceLimit, fn)
}

// Maintain is ChangeLong for maintenance: on SQLite, groups and changes go first (see writer.runSingle).
func (db *DB) Maintain(ctx context.Context, fn func(*Tx) error) error {
	return db.changeWithin(ctx, true, maintenanceLimit, fn)
}

// changeWithin runs fn in a transaction with a time limit. On SQLite a started transaction runs to its end
// even if ctx ends.
func (db *DB) changeWithin(
	ctx context.Context, maintenance bool, limit time.Duration, fn func(*Tx) error,
) error {
	if !db.Embedded() {
		return db.transact(ctx, db.Pool, limit, fn)
	}
	return db.lite.writer.runSingle(ctx, maintenance, func() error {
		if err := ctx.Err(); err != nil {
			return err // the caller does not wait any more
		}
		return db.transact(context.WithoutCancel(ctx), db.Pool, limit, fn)
	})
}

// groupLimit returns the time limit of a transaction over that many rows.
func (db *DB) groupLimit(rows int) time.Duration {
	if db.Embedded() {
		return embeddedLimit
	}
	return db.Limits.Commit + time.Duration(rows)*rowLimit
}

// transact runs fn in a transaction. After a transient error it tries again, up to maxTries times in all and
// within the limit. Its error wraps store.ErrUnavailable if the database cannot commit. On SQLite only the
// writer's goroutine may call it.
func (db *DB) transact(ctx context.Context, pool *sql.DB, limit time.Duration, fn func(*Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	mayBeCommitted := false
	for try := 1; ; try++ {
		t := &Tx{ctx: ctx, db: db, MayBeCommitted: mayBeCommitted}
		err := t.once(pool, func() error { return fn(t) })
		if err == nil {
			for _, committed := range t.committed {
				committed()
			}
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
		mayBeCommitted = mayBeCommitted || disconnected(err)
		db.metrics.retries.Inc()
		pause := time.NewTimer(time.Duration(try*try)*5*time.Millisecond + rand.N(5*time.Millisecond))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// once runs one try of a transaction.
func (t *Tx) once(pool *sql.DB, run func() error) error {
	if t.db.Embedded() {
		t.lite = &t.db.lite
		return t.lite.once(t.ctx, run)
	}
	conn, err := pool.Conn(t.ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	err = conn.Raw(func(driverConn any) error {
		t.group = &groupTx{conn: driverConn.(*stdlib.Conn).Conn()} // openPool uses no other driver
		err := run()
		if err == nil {
			err = t.group.commit(t.ctx)
			if err != nil {
				err = fmt.Errorf("commit: %w", err)
			}
		}
		if err == nil {
			return nil
		}
		if rerr := t.group.rollback(t.ctx); rerr != nil && !disconnected(rerr) && t.ctx.Err() == nil {
			err = errors.Join(err, fmt.Errorf("roll back: %w", rerr))
		}
		return err
	})
	cerr := conn.Close()
	// The pool refuses a broken connection with one of these errors. The result of the transaction is in err.
	refused := errors.Is(cerr, driver.ErrBadConn) || errors.Is(cerr, sql.ErrConnDone)
	if cerr != nil && !refused && err == nil {
		err = fmt.Errorf("return connection to the pool: %w", cerr)
	}
	return err
}
