package sqldb

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// A groupTx is a transaction on PostgreSQL. It uses pgx directly, without the conversions of database/sql. To
// save round trips, statements whose results are not needed at once are collected in waiting. They are sent
// with the next other statement, or with the commit. BEGIN is sent with the first statements.
type groupTx struct {
	conn *pgx.Conn
	// waiting are the statements that are not sent yet, in order. If one of them fails, PostgreSQL skips the
	// statements after it, and the call that sent them returns the error.
	waiting []statement
	// begun: BEGIN was sent.
	begun bool
}

// A statement is a query and its arguments.
type statement struct {
	query string
	args  []any
}

// exec runs a statement and returns the number of changed rows.
func (g *groupTx) exec(ctx context.Context, query string, args []any) (changed int64, err error) {
	err = g.send(ctx, statement{query, args}, func(results pgx.BatchResults) error {
		tag, err := results.Exec()
		changed = tag.RowsAffected()
		return err
	})
	return changed, err
}

// each runs a statement and calls scan for every row that it returns. With separate, the first statement of a
// transaction runs before BEGIN. So it is committed at once, and stays even if the transaction fails.
func (g *groupTx) each(ctx context.Context, separate bool, scan func(Row) error, last statement) error {
	read := func(results pgx.BatchResults) error {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}
	if separate && !g.begun && len(g.waiting) == 0 {
		return g.ship(ctx, []statement{last}, read)
	}
	return g.send(ctx, last, read)
}

// commit sends the waiting statements and COMMIT.
func (g *groupTx) commit(ctx context.Context) error {
	if !g.begun && len(g.waiting) == 0 {
		return nil
	}
	return g.send(ctx, statement{query: "COMMIT"}, func(results pgx.BatchResults) error {
		tag, err := results.Exec()
		if err == nil && tag.String() != "COMMIT" {
			return pgx.ErrTxCommitRollback
		}
		return err
	})
}

// rollback drops the waiting statements and rolls the transaction back.
func (g *groupTx) rollback(ctx context.Context) error {
	g.waiting = nil
	if g.conn.PgConn().TxStatus() == 'I' {
		return nil // it has not begun, or it has ended
	}
	_, err := g.conn.Exec(ctx, "ROLLBACK")
	return err
}

// send sends the waiting statements and then last, within the transaction, and reads the result of last.
func (g *groupTx) send(ctx context.Context, last statement, read func(pgx.BatchResults) error) error {
	all := make([]statement, 0, len(g.waiting)+2)
	if !g.begun {
		all = append(all, statement{query: "BEGIN"})
	}
	all = append(append(all, g.waiting...), last)
	g.begun, g.waiting = true, nil
	return g.ship(ctx, all, read)
}

// ship sends statements in one round trip, and reads the result of the last one.
func (g *groupTx) ship(ctx context.Context, all []statement, read func(pgx.BatchResults) error) (err error) {
	var batch pgx.Batch
	for _, s := range all {
		batch.Queue(s.query, s.args...)
	}
	results := g.conn.SendBatch(ctx, &batch)
	defer func() {
		cerr := results.Close()
		if err == nil {
			err = cerr
		} else if cerr != nil && cerr.Error() != err.Error() {
			err = errors.Join(err, cerr)
		}
	}()
	for range len(all) - 1 {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	return read(results)
}
