package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// openColumns are what scanOpen reads, in its order.
const openColumns = `
	id,
	project,
	lane,
	lock_key,
	strict,
	due_at,
	CASE WHEN attempt_count > 0 THEN 1 ELSE 0 END,
	CASE WHEN trigger = 'manual' THEN 1 ELSE 0 END,
	claim_token,
	claim_until,
	expires_at`

func scanOpen(rows scanner) (store.OpenRow, error) {
	var r store.OpenRow
	var strict, retry, manual int
	err := rows.Scan(&r.ID, &r.Project, &r.LaneID, &r.LockKey, &strict, &r.DueAt, &retry, &manual, &r.ClaimToken, &r.ClaimUntil, &r.ExpiresAt)
	r.Strict, r.Retry, r.Manual = strict != 0, retry != 0, manual != 0
	return r, err
}

// walk reads open rows for sweep and rebuild.
func (db *DB) walk(ctx context.Context, name, query string, args ...any) ([]store.OpenRow, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var open []store.OpenRow
	err := queryEach(ctx, db.read, func(rows scanner) error {
		r, err := scanOpen(rows)
		open = append(open, r)
		return err
	}, query, args...)
	if err != nil {
		return nil, readError(name, err)
	}
	return open, nil
}

// Overdue returns scheduled rows after the cursor, in order of (due_at, id), that are due before dueBefore and have no
// claim that is alive at claimedBefore or later.
func (db *DB) Overdue(ctx context.Context, after store.Cursor, dueBefore, claimedBefore int64, limit int) ([]store.OpenRow, error) {
	after, err := db.fromLow(ctx, after)
	if err != nil {
		return nil, err
	}
	return db.walk(ctx, "walk overdue rows", overdueRows,
		after.DueAt, after.ID, dueBefore, claimedBefore, limit)
}

const overdueRows = `SELECT ` + openColumns + ` FROM callbacks
	WHERE state = 'scheduled'
		AND (due_at, id) > ($1, $2)
		AND due_at < $3
		AND claim_until <= $4
	ORDER BY due_at, id
	LIMIT $5`

// Open returns open rows after the cursor, in order of (due_at, id).
func (db *DB) Open(ctx context.Context, after store.Cursor, limit int) ([]store.OpenRow, error) {
	after, err := db.fromLow(ctx, after)
	if err != nil {
		return nil, err
	}
	return db.walk(ctx, "walk open rows", `SELECT `+openColumns+` FROM callbacks
		WHERE state = 'scheduled' AND (due_at, id) > ($1, $2)
		ORDER BY due_at, id
		LIMIT $3`, after.DueAt, after.ID, limit)
}

// claimAhead is how far the due time of a claimed row may lie ahead of now: a claim needs a due row, but the clock that
// said so may have been another one than now's.
const claimAhead = 3_600_000

// claimWindow is how many rows one statement looks through for claims that are alive, so that none takes long. No index leads to them, for a claim may change
// nothing that is indexed; and after a long outage a million rows may be overdue, few of them claimed.
const claimWindow = 5000

// Claimed returns the rows after the cursor whose claim is alive at now, in order of (due_at, id).
func (db *DB) Claimed(ctx context.Context, after store.Cursor, now int64, limit int) ([]store.OpenRow, error) {
	const due = `state = 'scheduled' AND (due_at, id) > ($1, $2) AND due_at <= $3`
	after, err := db.fromLow(ctx, after)
	if err != nil {
		return nil, err
	}
	var claimed []store.OpenRow
	for {
		end, more, err := db.windowEnd(ctx, `SELECT due_at, id FROM callbacks WHERE `+due+`
			ORDER BY due_at, id
			LIMIT 1 OFFSET $4`, after.DueAt, after.ID, now+claimAhead, db.window-1)
		if err != nil {
			return nil, err
		}
		if !more {
			end = store.Cursor{DueAt: now + claimAhead, ID: aboveAllIDs}
		}
		part, err := db.walk(ctx, "walk claimed rows", `SELECT `+openColumns+` FROM callbacks
			WHERE `+due+`
				AND (due_at, id) <= ($4, $5)
				AND claim_until > $6
			ORDER BY due_at, id
			LIMIT $7`, after.DueAt, after.ID, now+claimAhead, end.DueAt, end.ID, now, limit-len(claimed))
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

// windowEnd returns the one place that the query finds, if it finds any.
func (db *DB) windowEnd(ctx context.Context, query string, args ...any) (end store.Cursor, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	err = queryEach(ctx, db.read, func(rows scanner) error {
		found = true
		return rows.Scan(&end.DueAt, &end.ID)
	}, query, args...)
	if err != nil {
		return end, false, readError("find the end of a window", err)
	}
	return end, found, nil
}

// ByID returns those of the ids that are open, in order of (due_at, id).
func (db *DB) ByID(ctx context.Context, ids []string) ([]store.OpenRow, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	columns := []column{{name: "id", texts: ids}}
	input, _ := db.dialect.input(1, columns)
	args, err := db.dialect.args(columns)
	if err != nil {
		return nil, err
	}
	return db.walk(ctx, "find open rows", `SELECT `+openColumns+` FROM callbacks
		WHERE id IN (SELECT i.id FROM `+input+`) AND `+isOpen+`
		ORDER BY due_at, id`, args...)
}

// Known returns those of the ids that there is a row of, whatever its state.
func (db *DB) Known(ctx context.Context, ids []string) ([]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	columns := []column{{name: "id", texts: ids}}
	input, _ := db.dialect.input(1, columns)
	args, err := db.dialect.args(columns)
	if err != nil {
		return nil, err
	}
	var known []string
	err = queryEach(ctx, db.read, func(rows scanner) error {
		var id string
		err := rows.Scan(&id)
		known = append(known, id)
		return err
	}, `SELECT id FROM callbacks WHERE id IN (SELECT i.id FROM `+input+`) ORDER BY id`, args...)
	if err != nil {
		return nil, readError("find rows", err)
	}
	return known, nil
}

// Expire ends up to limit open, unclaimed rows whose expiry has passed as Dead, Expired, and returns them as they were.
// One whose cancel was requested ends Canceled, one that was retried once from a terminal state falls back to that.
func (db *DB) Expire(ctx context.Context, now int64, limit int) ([]store.OpenRow, error) {
	low, err := db.low(ctx, expiryMark)
	if err != nil {
		return nil, err
	}
	var expired []store.OpenRow
	for limit > 0 {
		batch := min(limit, db.dialect.maintenanceBatch)
		var part []store.OpenRow
		err := db.maintain(ctx, func(t *tx) error {
			part = nil
			return t.expire(low, now, batch, &part)
		})
		if err != nil {
			return expired, fmt.Errorf("expire: %w", err)
		}
		expired = append(expired, part...)
		if len(part) < batch {
			break
		}
		limit -= batch
	}
	return expired, nil
}

func (t *tx) expire(low, now int64, limit int, expired *[]store.OpenRow) error {
	var due []row
	if err := t.each(func(rows scanner) error {
		r, err := t.db.scanCallback(rows)
		due = append(due, r)
		return err
	}, `SELECT `+callbackColumns+` FROM `+fromCallbacks+`
		WHERE callbacks.state = 'scheduled'
			AND callbacks.expires_at > 0
			AND callbacks.expires_at >= $1
			AND callbacks.expires_at <= $2
			AND callbacks.claim_until <= $2
		ORDER BY callbacks.expires_at
		LIMIT $3`+t.db.dialect.skipLocked, low, now, limit); err != nil {
		return err
	}
	endings := make([]ending, len(due))
	for i := range due {
		r := &due[i]
		*expired = append(*expired, r.openRow())
		endings[i] = ending{r, store.Dead, store.Expired, now}
		switch e := &endings[i]; {
		case r.CancelRequested:
			e.state, e.reason = store.Canceled, r.cancelReason()
		case r.ResumeState != "":
			e.state, e.reason = r.ResumeState, r.ResumeReason
		}
	}
	return t.end(endings...)
}

// DropClaims makes every claim end at once and returns how many did. Only the sole owner of an embedded index may call
// it, at start: the attempts that held the claims died with the process before, and each counts as crashed.
func (db *DB) DropClaims(ctx context.Context, now int64) (int, error) {
	dropped := 0
	var after store.Cursor
	for {
		claimed, err := db.Claimed(ctx, after, now, db.dialect.maintenanceBatch)
		if err != nil {
			return dropped, fmt.Errorf("drop claims: %w", err)
		}
		if len(claimed) > 0 {
			after = store.Cursor{DueAt: claimed[len(claimed)-1].DueAt, ID: claimed[len(claimed)-1].ID}
			var n int64
			err := db.maintain(ctx, func(t *tx) error {
				ids := texts("id", claimed, func(r store.OpenRow) string { return r.ID })
				input, args, next, err := t.input([]column{ids})
				if err != nil {
					return err
				}
				n, err = t.exec(fmt.Sprintf(`UPDATE callbacks SET claim_until = $%d
					WHERE id IN (SELECT i.id FROM %s) AND claim_until > $%[1]d`, next, input), append(args, now)...)
				return err
			})
			if err != nil {
				return dropped, fmt.Errorf("drop claims: %w", err)
			}
			dropped += int(n)
		}
		if len(claimed) < db.dialect.maintenanceBatch {
			return dropped, nil
		}
	}
}
