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
	// Again says that an earlier try of the same transaction may have been committed although its reply was lost.
	Again bool

	ctx context.Context
	db  *DB
	// One of them is set: group is a writer's transaction on PostgreSQL, which goes without the conversions of
	// database/sql; sql any other there; lite is the connection on SQLite.
	group *groupTx
	sql   *sql.Tx
	lite  *lite
	// committed is called after the commit.
	committed []func()
}

// OnCommit has fn called after the commit, if that succeeds.
func (t *Tx) OnCommit(fn func()) { t.committed = append(t.committed, fn) }

// Grouped reports whether this is a transaction of a group on PostgreSQL, where a statement that need not be
// answered at once saves a round trip.
func (t *Tx) Grouped() bool { return t.group != nil }

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
	if t.group != nil {
		return t.group.exec(t.ctx, text, args)
	}
	r, err := t.sql.ExecContext(t.ctx, text, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// Later runs a statement at the latest with the commit: its error may be that of a statement after it, or of the
// commit.
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
	if t.group != nil {
		return t.group.send(t.ctx, statement{text, args}, scanAll(scan))
	}
	rows, err := t.sql.QueryContext(t.ctx, text, args...)
	if err != nil {
		return err
	}
	return eachRow(rows, scan)
}

// Change runs fn in a transaction of its own, on SQLite by way of the writer. rows is how many rows it writes about:
// a large change may take longer.
func (db *DB) Change(ctx context.Context, rows int, fn func(*Tx) error) error {
	return db.alone(ctx, false, db.groupLimit(rows), fn)
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

// transact runs fn in a transaction, up to maxTries times while its error is transient. Errors that mean that nothing
// can be committed wrap store.ErrUnavailable. On SQLite only the writer may call it.
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
	switch {
	case t.db.Embedded():
		t.lite = &t.db.lite
		return t.lite.once(t.ctx, run)
	case pool == t.db.Groups:
		return t.onGroups(run)
	}
	return t.onPool(pool, run)
}

// onGroups runs run in one transaction of a writer.
func (t *Tx) onGroups(run func() error) error {
	conn, err := t.db.Groups.Conn(t.ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	err = conn.Raw(func(driverConn any) error {
		t.group = &groupTx{conn: driverConn.(*stdlib.Conn).Conn()} // openPool knows no other driver
		err := run()
		if err == nil {
			if err = t.group.commit(t.ctx); err != nil {
				err = fmt.Errorf("commit: %w", err)
			}
		}
		if err != nil {
			err = t.rolledBack(err, t.group.rollback(t.ctx))
		}
		return err
	})
	// A connection that is broken is not taken back by the pool; how the transaction ended was said before.
	if cerr := conn.Close(); cerr != nil && err == nil && !errors.Is(cerr, driver.ErrBadConn) && !errors.Is(cerr, sql.ErrConnDone) {
		err = fmt.Errorf("give back connection: %w", cerr)
	}
	return err
}

// onPool runs run in one transaction of PostgreSQL.
func (t *Tx) onPool(pool *sql.DB, run func() error) error {
	var err error
	if t.sql, err = pool.BeginTx(t.ctx, nil); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := run(); err != nil {
		return t.rolledBack(err, t.sql.Rollback())
	}
	if err := t.sql.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// rolledBack is the error of a transaction with that of its rollback, unless the latter follows from the former.
func (t *Tx) rolledBack(err, rollback error) error {
	if rollback == nil || errors.Is(rollback, sql.ErrTxDone) || disconnected(rollback) || t.ctx.Err() != nil {
		return err
	}
	return errors.Join(err, fmt.Errorf("roll back: %w", rollback))
}
