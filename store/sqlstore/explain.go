package sqlstore

import "context"

// lockedRows bounds how many callbacks of a lock key are looked at, the newest first: most of them ended long
// ago.
const lockedRows = 1000

const findLockHolder = `SELECT recent.id, recent.claimed_at FROM (
		SELECT callbacks.id, callbacks.state, callbacks.claim_until, callbacks.claimed_at FROM callbacks
		WHERE callbacks.project = $1 AND callbacks.lock_key = $2 AND callbacks.lock_key <> ''
		ORDER BY callbacks.id DESC
		LIMIT $3) AS recent
	WHERE recent.state = 'scheduled' AND recent.claim_until > $4
	ORDER BY recent.claimed_at
	LIMIT 1`

// LockHolder returns the bare id of the callback of a lock key that is being attempted at now, and when it
// was claimed. Empty: there is none among the newest thousand callbacks of the key.
func (db *DB) LockHolder(
	ctx context.Context, project, lockKey string, now int64,
) (id string, since int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	err = queryEach(ctx, db.read, func(rows scanner) error { return rows.Scan(&id, &since) },
		findLockHolder, project, lockKey, lockedRows, now)
	if err != nil {
		return "", 0, readError("find the holder of a lock", err)
	}
	return id, since, nil
}

const findAttempted = `SELECT callbacks.claimed_at, COALESCE((
		SELECT attempts.ended_at FROM attempts WHERE attempts.callback_id = callbacks.id
		ORDER BY attempts.number DESC
		LIMIT 1), 0)
	FROM callbacks WHERE callbacks.id = $1 AND callbacks.project = $2`

// Attempted returns when the callback was last claimed, and when its last attempt ended; zero: never.
func (db *DB) Attempted(ctx context.Context, project, id string) (claimedAt, endedAt int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	err = queryEach(ctx, db.read, func(rows scanner) error { return rows.Scan(&claimedAt, &endedAt) },
		findAttempted, id, project)
	if err != nil {
		return 0, 0, readError("read when it was attempted", err)
	}
	return claimedAt, endedAt, nil
}
