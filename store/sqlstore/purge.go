package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// Purge removes payloads, and whole callbacks with their attempts, as the retention says, in transactions of
// bounded size. Each of its three steps looks at up to limit rows. It returns how many of each went, and
// whether there may be more. A row that was opened again meanwhile is left alone.
//
// A row is in one index until its payload goes, then in the other. The two are worked off side by side: so
// SQLite's writer has the next transaction at hand when the last one ends.
func (db *DB) Purge(ctx context.Context, r store.Retention, limit int) (p store.Purged, err error) {
	var whole, payloads, callbacks int
	var moreWhole, morePayloads, moreCallbacks bool
	var with, without error
	var wg sync.WaitGroup
	wg.Go(func() {
		whole, moreWhole, with = db.purgeInBatches(ctx, wholePurge, r.Now, r.Callbacks, limit,
			removeCallbacks(withPayload))
		if with != nil {
			with = named("purge callbacks with payloads", with)
			return
		}
		payloads, morePayloads, with = db.purgeInBatches(ctx, payloadPurge, r.Now, r.Payloads, limit,
			func(t *tx, b *batch) (int, int, error) {
				// What is older goes as a whole. It must not come into the other index behind that one's
				// place.
				b.from.DueAt = max(b.from.DueAt, r.Callbacks)
				return t.purgePayloads(b)
			})
		with = named("purge payloads", with)
	})
	callbacks, moreCallbacks, without = db.purgeInBatches(ctx, callbackPurge, r.Now, r.Callbacks, limit,
		removeCallbacks(withoutPayload))
	wg.Wait()
	return store.Purged{
		Payloads: whole + payloads, Callbacks: whole + callbacks,
		More: moreWhole || morePayloads || moreCallbacks,
	}, errors.Join(with, named("purge callbacks", without))
}

// The rows that go next, and the time of the first. The conditions are those of the indexes over age, word
// for word.
const (
	withPayload = ` FROM callbacks
		WHERE finished_at > 0 AND payload = 1 AND finished_at >= $1 AND finished_at < $2`
	withoutPayload = ` FROM callbacks
		WHERE finished_at > 0 AND payload <> 1 AND finished_at >= $1 AND finished_at < $2`
	nextEnded = ` AND state <> 'scheduled'
		ORDER BY finished_at
		LIMIT $3 FOR UPDATE SKIP LOCKED`
)

var endedFields = sqldb.Named[store.Callback](`id project state kind finished_at`)

// endedColumns describe what a purge finds. Its PayloadID is that of a payload that is shared.
func endedColumns(c *store.Callback) sqldb.Columns {
	return append(endedFields(c), col(`CASE WHEN payload = 1
		THEN COALESCE((SELECT requests.shared FROM requests WHERE `+ofCallback+`), '') ELSE '' END`,
		&c.PayloadID))
}

// aged are callbacks that go, or whose payloads do.
type expiredRows struct {
	rows []store.Callback
	// users counts the rows of each payload that is shared.
	users map[string]int64
}

// lockExpired locks the next rows and moves the batch to the last of them.
func (t *tx) lockExpired(which string, b *batch) (*expiredRows, error) {
	a := &expiredRows{users: make(map[string]int64)}
	var err error
	a.rows, err = sqldb.Select(t, endedColumns, which+nextEnded, b.from.DueAt, b.before, b.rows)
	for i := range a.rows {
		b.from.DueAt = a.rows[i].FinishedAt
		if shared := a.rows[i].PayloadID; shared != "" {
			a.users[shared]++
		}
	}
	return a, err
}

// purgePayloads takes the payloads from terminal rows. A shared payload goes with its last user.
func (t *tx) purgePayloads(b *batch) (seen, removed int, err error) {
	a, err := t.lockExpired(withPayload, b)
	if err != nil || len(a.rows) == 0 {
		return 0, 0, err
	}
	if err := a.exec(t,
		`UPDATE callbacks SET payload = 2 FROM $i WHERE callbacks.id = i.id AND callbacks.state <> 'scheduled'`,
		`UPDATE requests SET body = NULL, shared = '' FROM $i
			WHERE requests.project = i.project AND requests.id = i.id`); err != nil {
		return 0, 0, err
	}
	return len(a.rows), len(a.rows), t.dropPayloads(a.users)
}

// removing removes the terminal rows that a query finds with all that is theirs, and their users from
// payloads.
func removeCallbacks(which string) func(*tx, *batch) (seen, removed int, err error) {
	return func(t *tx, b *batch) (seen, removed int, err error) {
		a, err := t.lockExpired(which, b)
		if err != nil || len(a.rows) == 0 {
			return 0, 0, err
		}
		for i := range a.rows {
			t.deltas.count(&a.rows[i], -1)
		}
		if err := t.dropPayloads(a.users); err != nil {
			return 0, 0, err
		}
		return len(a.rows), len(a.rows), a.exec(t,
			`DELETE FROM attempts USING $i WHERE attempts.callback_id = i.id`,
			`DELETE FROM polls USING $i WHERE polls.id = i.id AND i.kind = 'poll'`,
			`DELETE FROM requests USING $i WHERE requests.project = i.project AND requests.id = i.id`,
			`DELETE FROM callbacks USING $i WHERE callbacks.id = i.id AND callbacks.state <> 'scheduled'`)
	}
}

// dropPayloads takes so many users from each payload, and removes those that have none left.
func (t *tx) dropPayloads(users map[string]int64) error {
	if len(users) == 0 {
		return nil
	}
	var single []string
	for _, id := range sortedKeys(users) {
		if users[id] == 1 {
			single = append(single, id)
		}
	}
	// Nearly all have one user, and need not be written before they are removed.
	gone,
		err := sqldb.Values[string](t, `DELETE FROM payloads WHERE id IN (SELECT i.id FROM $i) AND users <= 1
		RETURNING id`, sqldb.Texts("id", single))
	if err != nil {
		return err
	}
	for _, id := range gone {
		delete(users, id)
	}
	shared := sortedKeys(users)
	for _, text := range []string{
		`UPDATE payloads SET users = payloads.users - i.users FROM $i WHERE payloads.id = i.id`,
		`DELETE FROM payloads USING $i WHERE payloads.id = i.id AND payloads.users <= 0`,
	} {
		if _, err := sqldb.ExecRows(t.Tx, text, shared, func(id *string) sqldb.Columns {
			return sqldb.Columns{col("id", id), calc("users", func() int64 { return users[*id] })}
		}); err != nil {
			return err
		}
	}
	return nil
}

var expiredColumns = sqldb.Named[store.Callback](`id project kind`)

// exec runs statements for the callbacks.
func (a *expiredRows) exec(t *tx, texts ...string) error {
	for _, text := range texts {
		if _, err := sqldb.ExecRows(t.Tx, text, a.rows, expiredColumns); err != nil {
			return err
		}
	}
	return nil
}

// inBatches runs step in maintenance transactions, between which others pass, until one finds fewer rows than
// it may take or limit rows are done. A step may be tried again.
func (db *DB) inBatches(ctx context.Context, operation string, limit int,
	step func(t *tx, batch int) (int, error)) (done int, err error) {
	for done < limit {
		batch := min(limit-done, db.sql.Dialect.MaintenanceBatch)
		n := 0
		err := db.maintain(ctx, operation, func(t *tx) error {
			var err error
			n, err = step(t, batch)
			return err
		})
		if err != nil {
			return done, err
		}
		done += n
		if n < batch {
			break
		}
	}
	return done, nil
}

// deleteBatches runs a statement that removes rows in batches. Its last parameter, which is not among args,
// is how many it may take.
func (db *DB) deleteBatches(ctx context.Context, operation string, limit int, text string,
	args ...any) (int, error) {
	return db.inBatches(ctx, operation, limit, func(t *tx, batch int) (int, error) {
		n, err := t.Exec(text, append(args[:len(args):len(args)], batch)...)
		return int(n), err
	})
}

// Overstays returns the time of the oldest row of each kind that should be gone: when it ended or was made,
// in Unix milliseconds. Kinds of which none should be are left out. Keys and plans of events whose callbacks
// are open are not counted once a purge has passed them.
func (db *DB) Overstays(ctx context.Context, r store.Retention) (map[string]int64, error) {
	const oldestEnded, first = `SELECT finished_at`, ` ORDER BY finished_at LIMIT 1`
	keys := r.Now - store.IdempotencyAge.Milliseconds()
	times := make(map[string]int64)
	for _, k := range []struct {
		what, place, query string
		before             int64
	}{
		{"payload", payloadPurge, oldestEnded + withPayload + first, r.Payloads},
		{"callback", wholePurge, oldestEnded + withPayload + first, r.Callbacks},
		{"callback", callbackPurge, oldestEnded + withoutPayload + first, r.Callbacks},
		{"key", idempotencyCursor, oldest("idempotency", "created_at", ">"), keys},
		{"key", eventsCursor, oldest("events", "created_at", ">"), keys},
		{"version", versionsPurge, oldest("refs_latest", "updated_at", ">="), r.Callbacks},
		{"outcome", feedPurge, oldest("outcomes", "at", ">="), r.Outcomes},
	} {
		p, err := db.progressOf(ctx, k.place, r.Now)
		if err != nil {
			return nil, err
		}
		at, found, err := sqldb.Value[int64](db.read(ctx, "look for what should be gone"), k.query,
			p.start(r.Now).DueAt, k.before)
		if err != nil {
			return nil, err
		}
		if before, ok := times[k.what]; found && (!ok || at < before) {
			times[k.what] = at
		}
	}
	return times, nil
}

// oldest finds the oldest row of a table from a time on, or after it, and before another, by its index over
// age.
func oldest(table, column, from string) string {
	return fmt.Sprintf(`SELECT %[2]s FROM %[1]s WHERE %[2]s %[3]s $1 AND %[2]s < $2 ORDER BY %[2]s LIMIT 1`,
		table, column, from)
}
