package sqlstore

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Overstays returns the time of the oldest row of each kind that should be gone: when it ended or was made,
// in Unix milliseconds. Kinds of which none should be are left out. Keys and plans of events whose callbacks
// are open are not counted once a purge has passed them.
func (db *DB) Overstays(ctx context.Context, r store.Retention) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	keys := r.Now - store.IdempotencyAge.Milliseconds()
	oldest := make(map[string]int64)
	for _, k := range []struct {
		what, place, query string
		before             int64
	}{
		{"payload", payloadPurge, oldestWithPayload, r.Payloads},
		{"callback", wholePurge, oldestWithPayload, r.Callbacks},
		{"callback", callbackPurge, oldestWithout, r.Callbacks},
		{"key", idempotencyCursor, oldestKey, keys},
		{"key", eventsCursor, oldestEvent, keys},
		{"version", versionsPurge, oldestVersion, r.Callbacks},
		{"outcome", feedPurge, oldestOutcome, r.Outcomes},
	} {
		p, err := db.place(ctx, k.place, r.Now)
		if err != nil {
			return nil, err
		}
		if err := queryEach(ctx, db.read, func(rows scanner) error {
			var at int64
			err := rows.Scan(&at)
			if first, ok := oldest[k.what]; !ok || at < first {
				oldest[k.what] = at
			}
			return err
		}, k.query, p.start(r.Now).DueAt, k.before); err != nil {
			return nil, readError("look for what should be gone", err)
		}
	}
	return oldest, nil
}

// The oldest rows from a time on and before another, by the indexes over age.
const (
	oldestWithPayload = `SELECT finished_at FROM callbacks
		WHERE finished_at > 0 AND payload = 1 AND finished_at >= $1 AND finished_at < $2
		ORDER BY finished_at LIMIT 1`
	oldestWithout = `SELECT finished_at FROM callbacks
		WHERE finished_at > 0 AND payload <> 1 AND finished_at >= $1 AND finished_at < $2
		ORDER BY finished_at LIMIT 1`
	oldestKey = `SELECT created_at FROM idempotency WHERE created_at > $1 AND created_at < $2
		ORDER BY created_at LIMIT 1`
	oldestEvent = `SELECT created_at FROM events WHERE created_at > $1 AND created_at < $2
		ORDER BY created_at LIMIT 1`
	oldestVersion = `SELECT updated_at FROM refs_latest WHERE updated_at >= $1 AND updated_at < $2
		ORDER BY updated_at LIMIT 1`
	oldestOutcome = `SELECT at FROM outcomes WHERE at >= $1 AND at < $2 ORDER BY at LIMIT 1`
)
