package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// This file reads open rows for the sweep, the rebuild and the horizon of the index, and ends those that
// expire.

var openFields = sqldb.Named[store.OpenRow](
	`id project lane=LaneID lock_key strict due_at claim_token claim_until expires_at`)

// openColumns are what the index needs of an open row.
func openColumns(r *store.OpenRow) sqldb.Columns {
	return append(openFields(r),
		col("CASE WHEN attempt_count > 0 THEN 1 ELSE 0 END", sqldb.Bool(&r.Retry)),
		col("CASE WHEN trigger = 'manual' THEN 1 ELSE 0 END", sqldb.Bool(&r.Manual)))
}

// walk reads open rows after a position, in the order of (due_at, id), by the index callbacks_due. It begins
// at the low-water mark if that is later. which adds conditions, whose parameters start at $3. The last
// argument is the maximum number of rows.
func (db *DB) walk(ctx context.Context, operation string, after store.Cursor, which string,
	args ...any) ([]store.OpenRow, error) {
	after, err := db.fromLowWater(ctx, after)
	if err != nil {
		return nil, err
	}
	return sqldb.Select(db.read(ctx, operation), openColumns, walkRest(which, len(args)+2),
		append([]any{after.DueAt, after.ID}, args...)...)
}

// walkRest is the statement of a walk. Its last parameter, the limit, has the number params.
func walkRest(which string, params int) string {
	return fmt.Sprintf(`FROM callbacks WHERE state = 'scheduled' AND (due_at, id) > ($1, $2)%s
		ORDER BY due_at, id
		LIMIT $%d`, which, params)
}

// overdue selects due rows without a live claim.
const overdue = ` AND due_at < $3 AND claim_until <= $4`

// Overdue returns up to limit scheduled rows after the cursor, in the order of (due_at, id), that are due
// before dueBefore and have no claim that lasts beyond claimedBefore.
func (db *DB) Overdue(ctx context.Context, after store.Cursor, dueBefore, claimedBefore int64,
	limit int) ([]store.OpenRow, error) {
	return db.walk(ctx, "walk overdue rows", after, overdue, dueBefore, claimedBefore, limit)
}

// Open returns up to limit open rows after the cursor, in the order of (due_at, id).
func (db *DB) Open(ctx context.Context, after store.Cursor, limit int) ([]store.OpenRow, error) {
	return db.walk(ctx, "walk open rows", after, "", limit)
}

// OpenUntil returns up to limit open rows after the cursor that are due at until or before, in the order of
// (due_at, id). It returns every matching row that was committed before the call.
func (db *DB) OpenUntil(ctx context.Context, after store.Cursor, until int64,
	limit int) ([]store.OpenRow, error) {
	return db.walk(ctx, "walk open rows", after, ` AND due_at <= $3`, until, limit)
}

// claimDueSlack is how far in the future the due time of a claimed row may lie, in milliseconds. A claim
// needs a row that is due, or will be within the stamp's lookahead. But the claim may have used another clock
// than now's.
const claimDueSlack = 3_600_000

// claimWindow is how many rows one statement of Claimed scans, so that none takes long. No index finds
// claimed rows, because a claim must not change an indexed column. After a long outage a million rows may be
// overdue and few of them claimed.
const claimWindow = 5000

// Claimed returns up to limit rows after the cursor whose claim is alive at now, in the order of (due_at,
// id). It scans the due rows in windows.
func (db *DB) Claimed(ctx context.Context, after store.Cursor, now int64,
	limit int) ([]store.OpenRow, error) {
	const operation = "walk claimed rows"
	after, err := db.fromLowWater(ctx, after)
	if err != nil {
		return nil, err
	}
	until := now + claimDueSlack
	var claimed []store.OpenRow
	for {
		end, more, err := endOfDue(db.read(ctx, operation), after, until, db.claimWindow)
		if err != nil {
			return nil, err
		}
		part, err := db.walk(ctx, operation, after,
			` AND due_at <= $3 AND (due_at, id) <= ($3, $4) AND claim_until > $5`,
			end.DueAt, end.ID, now, limit-len(claimed))
		if err != nil {
			return nil, err
		}
		claimed = append(claimed, part...)
		if !more || len(claimed) >= limit {
			return claimed, nil
		}
		after = end
	}
}

// ByID returns the open ones of the ids, in the order of (due_at, id).
func (db *DB) ByID(ctx context.Context, ids []string) ([]store.OpenRow, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return sqldb.Select(db.read(ctx, "find open rows"), openColumns, `FROM callbacks
		WHERE id IN (SELECT i.id FROM $i) AND `+isOpen+`
		ORDER BY due_at, id`, sqldb.Texts("id", ids))
}

// Known returns the ids that have a row in any state.
func (db *DB) Known(ctx context.Context, ids []string) ([]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return sqldb.Values[string](db.read(ctx, "find rows"),
		`SELECT id FROM callbacks WHERE id IN (SELECT i.id FROM $i) ORDER BY id`, sqldb.Texts("id", ids))
}

// Expire ends up to limit open rows without a live claim whose expiry has passed, as Dead, Expired, and
// returns them. A row whose cancel was requested ends Canceled. A row that was retried once from a terminal
// state returns to that state.
func (db *DB) Expire(ctx context.Context, now int64, limit int) ([]store.EndedRow, error) {
	low, err := db.lowWaterMark(ctx, expiryMark)
	if err != nil {
		return nil, err
	}
	var expired []store.EndedRow
	_, err = db.inBatches(ctx, "expire", limit, func(t *tx, batch int) (int, error) {
		part, err := t.expire(low, now, batch)
		t.OnCommit(func() { expired = append(expired, part...) })
		return len(part), err
	})
	return expired, err
}

// expire ends one batch of expired rows in one transaction, by the index callbacks_expiry from its low-water
// mark on. Rows that another transaction has locked are skipped; the next call finds them.
func (t *tx) expire(low, now int64, limit int) ([]store.EndedRow, error) {
	due, err := t.callbacks(fromCallbacks+`
		WHERE callbacks.state = 'scheduled'
			AND callbacks.expires_at > 0
			AND callbacks.expires_at >= $1
			AND callbacks.expires_at <= $2
			AND callbacks.claim_until <= $2
		ORDER BY callbacks.expires_at
		LIMIT $3 FOR UPDATE SKIP LOCKED`, low, now, limit)
	if err != nil {
		return nil, err
	}
	expired := make([]store.EndedRow, len(due))
	endings := make([]ending, len(due))
	for i := range due {
		r := &due[i]
		e := ending{r, store.Dead, store.Expired, now}
		switch {
		case r.CancelRequested:
			e.state, e.reason = store.Canceled, r.cancelReason()
		case r.ResumeState != "":
			e.state, e.reason = r.ResumeState, r.ResumeReason
		}
		expired[i], endings[i] = store.EndedRow{OpenRow: r.openRow(), Kind: r.Kind, State: e.state,
			Reason: e.reason}, e
	}
	return expired, t.end(endings...)
}

// DropClaims ends every live claim at now, and returns how many there were. Only the process that owns an
// embedded index may call it, at start: the attempts of those claims died with the process before. The next
// stamp of each row records its attempt as crashed.
func (db *DB) DropClaims(ctx context.Context, now int64) (int, error) {
	dropped, batch := 0, db.sql.Dialect.MaintenanceBatch
	for after := (store.Cursor{}); ; {
		claimed, err := db.Claimed(ctx, after, now, batch)
		if err != nil {
			return dropped, named("drop claims", err)
		}
		var n int64
		err = db.maintain(ctx, "drop claims", func(t *tx) error {
			var err error
			n, err = sqldb.ExecRows(t.Tx, `UPDATE callbacks SET claim_until = i.ended_at FROM $i
				WHERE callbacks.id = i.id AND callbacks.claim_until > i.ended_at`, claimed,
				func(r *store.OpenRow) sqldb.Columns {
					return sqldb.Columns{col("id", &r.ID), calc("ended_at", func() int64 { return now })}
				})
			return err
		})
		dropped += int(n)
		if err != nil || len(claimed) < batch {
			return dropped, err
		}
		last := claimed[len(claimed)-1]
		after = store.Cursor{DueAt: last.DueAt, ID: last.ID}
	}
}
