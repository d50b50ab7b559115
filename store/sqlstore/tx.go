package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// maxTries is how often a transaction is tried in all while its error is transient.
const maxTries = 5

// A tx is one write transaction: statements, and what must happen with them (counters) or after them (lane ids).
type tx struct {
	ctx    context.Context
	db     *DB
	sql    *sql.Tx
	deltas deltas
	lanes  []laneKeyID
	// again says that an earlier try of the same transaction may have been committed although its reply was lost.
	again bool
}

// exec runs a statement and returns how many rows it changed.
func (t *tx) exec(query string, args ...any) (int64, error) {
	stmt, err := t.prepared(query)
	if err != nil {
		return 0, err
	}
	var r sql.Result
	if stmt != nil {
		r, err = stmt.ExecContext(t.ctx, args...)
	} else {
		r, err = t.sql.ExecContext(t.ctx, query, args...)
	}
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// each runs a statement and calls scan for every row it returns.
func (t *tx) each(scan func(*sql.Rows) error, query string, args ...any) error {
	stmt, err := t.prepared(query)
	if err != nil {
		return err
	}
	var rows *sql.Rows
	if stmt != nil {
		rows, err = stmt.QueryContext(t.ctx, args...)
	} else {
		rows, err = t.sql.QueryContext(t.ctx, query, args...)
	}
	if err != nil {
		return err
	}
	return eachRow(rows, scan)
}

// eachRow calls scan for every row, and closes the rows.
func eachRow(rows *sql.Rows, scan func(*sql.Rows) error) error {
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

// prepared returns the statement, compiled once, on SQLite; nil on PostgreSQL, whose driver keeps compiled statements
// by itself.
func (t *tx) prepared(query string) (*sql.Stmt, error) {
	if !t.db.embedded() {
		return nil, nil
	}
	stmt := t.db.statements.get(query)
	if stmt == nil {
		var err error
		if stmt, err = t.sql.PrepareContext(t.ctx, query); err != nil {
			return nil, err
		}
		t.db.statements.want(query)
		return stmt, nil
	}
	return t.sql.StmtContext(t.ctx, stmt), nil
}

// A statementCache keeps compiled statements of SQLite's one writing connection by their text. There are a few dozen
// texts; callers make none of their own.
type statementCache struct {
	mu     sync.Mutex
	stmts  map[string]*sql.Stmt
	wanted []string
}

func (c *statementCache) get(query string) *sql.Stmt {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stmts[query]
}

// want remembers a text that is to be compiled when no transaction holds the connection.
func (c *statementCache) want(query string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = append(c.wanted, query)
}

// fill compiles what was wanted. A text that cannot be compiled is tried again at its next use.
func (c *statementCache) fill(ctx context.Context, db *sql.DB) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, query := range c.wanted {
		if c.stmts[query] != nil {
			continue
		}
		stmt, err := db.PrepareContext(ctx, query)
		if err != nil {
			continue // Its use reports the same error to somebody who can act on it.
		}
		if c.stmts == nil {
			c.stmts = make(map[string]*sql.Stmt)
		}
		c.stmts[query] = stmt
	}
	c.wanted = c.wanted[:0]
}

func (c *statementCache) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	for _, stmt := range c.stmts {
		err = errors.Join(err, stmt.Close())
	}
	c.stmts = nil
	return err
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

// once runs fn in one transaction and writes its counter deltas.
func (db *DB) once(ctx context.Context, pool *sql.DB, again bool, fn func(*tx) error) error {
	stx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	t := &tx{ctx: ctx, db: db, sql: stx, again: again}
	if err = fn(t); err == nil {
		err = t.writeDeltas()
	}
	if err != nil {
		if rerr := stx.Rollback(); rerr != nil && !errors.Is(rerr, sql.ErrTxDone) && !disconnected(rerr) && ctx.Err() == nil {
			err = errors.Join(err, fmt.Errorf("roll back: %w", rerr))
		}
		return err
	}
	if err := stx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	db.lanes.add(t.lanes)
	if db.embedded() {
		db.statements.fill(ctx, pool)
	}
	return nil
}
