package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Row is one row that a statement returned.
type Row interface {
	// Scan copies the columns of the row into the values that dest points to.
	Scan(dest ...any) error
}

// A Querier runs statements that return rows: a [Read] or a [Tx].
type Querier interface {
	// Each runs a statement and calls scan for every row that it returns. An error of scan ends it.
	Each(scan func(Row) error, text string, args ...any) error
}

// A Read runs the reads of one operation outside of write transactions. Each statement has the time limit
// Limits.Read. Each error has the operation's name, and wraps store.ErrUnavailable if the database as a whole
// is unavailable.
type Read struct {
	ctx       context.Context
	db        *DB
	from      Source
	operation string
	planned   bool
}

// Read returns a Read for the operation.
func (db *DB) Read(ctx context.Context, operation string) Read {
	return Read{ctx: ctx, db: db, from: db.Reads, operation: operation}
}

// ReadFrom returns a Read for an operation without a DB. Its statements must be in the SQL of the database
// itself, and have no time limit.
func ReadFrom(ctx context.Context, from Source, operation string) Read {
	return Read{ctx: ctx, from: from, operation: operation}
}

// Planned makes PostgreSQL plan each statement for its arguments, instead of once for all executions.
func (r Read) Planned() Read {
	r.planned = true
	return r
}

// Each implements [Querier].
func (r Read) Each(scan func(Row) error, text string, args ...any) error {
	ctx, cancel := r.ctx, context.CancelFunc(func() {})
	var err error
	if r.db != nil {
		ctx, cancel = context.WithTimeout(ctx, r.db.Limits.Read)
		text, args, err = r.db.Dialect.Statement(text, args)
		if r.planned {
			args = slices.Concat(r.db.Dialect.planned, args)
		}
	}
	defer cancel()
	var rows *sql.Rows
	if err == nil {
		rows, err = r.from.QueryContext(ctx, text, args...)
	}
	if err == nil {
		err = eachRow(rows, scan)
	}
	return r.wrap(err)
}

func (r Read) wrap(err error) error {
	switch {
	case err == nil:
		return nil
	case unavailable(err):
		return fmt.Errorf("%s: %w: %w", r.operation, store.ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", r.operation, err)
}

// Snapshot runs fn with a Read whose statements all see the same state. Limits.Read bounds all of them
// together.
func (db *DB) Snapshot(ctx context.Context, operation string, fn func(Read) error) error {
	ctx, cancel := context.WithTimeout(ctx, db.Limits.Read)
	defer cancel()
	r := db.Read(ctx, operation)
	stx, err := db.Reads.BeginTx(ctx, &sql.TxOptions{Isolation: db.Dialect.snapshot, ReadOnly: true})
	if err != nil {
		return r.wrap(err)
	}
	defer func() { _ = stx.Rollback() }() // the transaction has written nothing
	r.from = stx
	return fn(r)
}

// eachRow calls scan for every row, and closes the rows.
func eachRow(rows *sql.Rows, scan func(Row) error) error {
	for rows.Next() {
		if err := scan(rows); err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// Select reads rows. Its statement is "SELECT", the columns and the rest, which begins with FROM.
func Select[T any](q Querier, columns func(*T) Columns, rest string, args ...any) ([]T, error) {
	d := describe(columns)
	return d.collect(q, `SELECT `+d.columns.List()+` `+rest, args)
}

// Returning runs a statement and returns the rows that it changed. It adds "RETURNING" and the columns to the
// text.
func Returning[T any](q Querier, columns func(*T) Columns, text string, args ...any) ([]T, error) {
	d := describe(columns)
	return d.collect(q, text+` RETURNING `+d.columns.List(), args)
}

func (d *described[T]) collect(q Querier, text string, args []any) ([]T, error) {
	var found []T
	err := q.Each(func(r Row) error {
		err := d.scan(r)
		found = append(found, *d.row)
		return err
	}, text, args...)
	return found, err
}

// One is [Select] for a statement that finds at most one row.
func One[T any](q Querier, columns func(*T) Columns, rest string,
	args ...any) (row T, found bool, err error) {
	rows, err := Select(q, columns, rest, args...)
	if err != nil || len(rows) == 0 {
		return row, false, err
	}
	return rows[0], true, nil
}

// Get is [One] that returns store.ErrNotFound if there is no row. what names the missing row in the error,
// and may be empty.
func Get[T any](q Querier, what string, columns func(*T) Columns, rest string,
	args ...any) (row T, err error) {
	row, found, err := One(q, columns, rest, args...)
	switch {
	case err != nil || found:
		return row, err
	case what == "":
		return row, store.ErrNotFound
	}
	return row, fmt.Errorf("%s: %w", what, store.ErrNotFound)
}

// Values returns the column of all rows. The statement must have one column.
func Values[V any](q Querier, text string, args ...any) ([]V, error) {
	var all []V
	err := q.Each(func(r Row) error {
		var v V
		err := r.Scan(&v)
		all = append(all, v)
		return err
	}, text, args...)
	return all, err
}

// Value is [Values] for a statement that finds at most one row.
func Value[V any](q Querier, text string, args ...any) (value V, found bool, err error) {
	all, err := Values[V](q, text, args...)
	if err != nil || len(all) == 0 {
		return value, false, err
	}
	return all[0], true, nil
}

// Exists reports whether a statement finds a row.
func Exists(q Querier, text string, args ...any) (found bool, err error) {
	err = q.Each(func(Row) error { found = true; return nil }, text, args...)
	return found, err
}

// Map returns all rows of a statement with two columns, which are the keys and the values.
func Map[K comparable, V any](q Querier, text string, args ...any) (map[K]V, error) {
	all := make(map[K]V)
	err := q.Each(func(r Row) error {
		var k K
		var v V
		err := r.Scan(&k, &v)
		all[k] = v
		return err
	}, text, args...)
	return all, err
}
