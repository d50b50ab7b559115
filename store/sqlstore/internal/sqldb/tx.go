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

// maxTries is how often a transaction is tried in all while its error is transient.
const maxTries = 5

// A Tx is one write transaction.
type Tx struct {
	// Again says that an earlier try of the same transaction may have been committed although its reply was
	// lost.
	Again bool

	ctx context.Context
	db  *DB
	// One of them is set: group is a transaction on PostgreSQL, lite the connection on SQLite.
	group *groupTx
	lite  *lite
	// committed is called after the commit.
	committed []func()
}

// OnCommit has fn called after the commit, if that succeeds.
func (t *Tx) OnCommit(fn func()) { t.committed = append(t.committed, fn) }

// Exec runs a statement and returns how many rows it changed.
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

// Later runs a statement at the latest with the commit: its error may be that of a statement after it, or of
// the commit.
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

// each is Each; alone says that the changes of the statement may be committed though the transaction fails.
func (t *Tx) each(alone bool, scan func(Row) error, text string, args ...any) error {
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
	return t.group.each(t.ctx, alone, scan, statement{text, args})
}

// Change runs fn in a transaction of its own, on SQLite by way of the writer.
func (db *DB) Change(ctx context.Context, fn func(*Tx) error) error {
	return db.alone(ctx, false, db.groupLimit(0), fn)
}

// ChangeLong is Change for one that may take as long as maintenance.
func (db *DB) ChangeLong(ctx context.Context, fn func(*Tx) error) error {
	return db.alone(ctx, false, maintenanceLimit, fn)
}

// Maintain is Change for writes that can wait until nothing else does.
func (db *DB) Maintain(ctx context.Context, fn func(*Tx) error) error {
	return db.alone(ctx, true, maintenanceLimit, fn)
}

func (db *DB) alone(ctx context.Context, idle bool, limit time.Duration, fn func(*Tx) error) error {
	if !db.Embedded() {
		return db.transact(ctx, db.Pool, limit, fn)
	}
	return db.lite.writer.do(ctx, idle, func() error {
		if err := ctx.Err(); err != nil {
			return err // The caller has gone; nothing would read what fn finds.
		}
		return db.transact(context.WithoutCancel(ctx), db.Pool, limit, fn)
	})
}

// groupLimit is how long a transaction over that many rows may take.
func (db *DB) groupLimit(rows int) time.Duration {
	if db.Embedded() {
		return embeddedLimit
	}
	return db.Limits.Commit + time.Duration(rows)*rowLimit
}

// transact runs fn in a transaction, up to maxTries times while its error is transient. Errors that mean that
// nothing can be committed wrap store.ErrUnavailable. On SQLite only the writer may call it.
func (db *DB) transact(ctx context.Context, pool *sql.DB, limit time.Duration, fn func(*Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	again := false
	for try := 1; ; try++ {
		t := &Tx{ctx: ctx, db: db, Again: again}
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

// once runs fn in one transaction.
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
		t.group = &groupTx{conn: driverConn.(*stdlib.Conn).Conn()} // openPool knows no other driver
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
	// A connection that is broken is not taken back by the pool; how the transaction ended was said before.
	if cerr := conn.Close(); cerr != nil && err == nil && !errors.Is(cerr, driver.ErrBadConn) &&
		!errors.Is(cerr, sql.ErrConnDone) {
		err = fmt.Errorf("give back connection: %w", cerr)
	}
	return err
}
