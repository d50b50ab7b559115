package sqldb

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// A groupTx is a transaction on PostgreSQL. It goes without the conversions of database/sql, and in few round
// trips: what need not be answered at once waits, and goes with the next statement that must be, or with the
// commit. The transaction begins with the first of them; what comes before its beginning and may stand by
// itself is committed by itself.
type groupTx struct {
	conn *pgx.Conn
	// waiting are statements that nobody has sent yet, in order. Their errors are those of whatever they go
	// with: after the first that fails PostgreSQL does none of the rest.
	waiting []statement
	// begun says that BEGIN was sent.
	begun bool
}

// A statement is a query and its arguments.
type statement struct {
	query string
	args  []any
}

// exec runs a statement and returns how many rows it changed.
func (g *groupTx) exec(ctx context.Context, query string, args []any) (changed int64, err error) {
	err = g.send(ctx, statement{query, args}, func(results pgx.BatchResults) error {
		tag, err := results.Exec()
		changed = tag.RowsAffected()
		return err
	})
	return changed, err
}

// each runs a statement and calls scan for every row it returns. With alone the changes of the statement may
// be committed though the transaction fails: if it is the first, they are.
func (g *groupTx) each(ctx context.Context, alone bool, scan func(Row) error, last statement) error {
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
	if alone && !g.begun && len(g.waiting) == 0 {
		return g.ship(ctx, []statement{last}, read)
	}
	return g.send(ctx, last, read)
}

// commit ends the transaction with what waits.
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

// rollback gives the transaction up.
func (g *groupTx) rollback(ctx context.Context) error {
	g.waiting = nil
	if g.conn.PgConn().TxStatus() == 'I' {
		return nil // it has not begun, or it has ended
	}
	_, err := g.conn.Exec(ctx, "ROLLBACK")
	return err
}

// send sends what waits and the statement within the transaction, and reads the answer to the latter.
func (g *groupTx) send(ctx context.Context, last statement, read func(pgx.BatchResults) error) error {
	all := make([]statement, 0, len(g.waiting)+2)
	if !g.begun {
		all = append(all, statement{query: "BEGIN"})
	}
	all = append(append(all, g.waiting...), last)
	g.begun, g.waiting = true, nil
	return g.ship(ctx, all, read)
}

// ship sends statements in one round trip, and reads the answer to the last.
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
