package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// Purge removes payloads, and whole callbacks with their attempts, as the retention says. It works in
// maintenance transactions of bounded size. Each of its three steps sees up to limit rows. It returns how
// many payloads and callbacks it removed, and whether there may be more.
//
// A row that a person reopens at the same time stays: the purge locks only rows that have ended, and skips
// locked ones.
//
// An ended row is in the index callbacks_payload_retention until its payload goes, and then in
// callbacks_retention. Both are purged at once, so SQLite's writer always has the next transaction ready.
func (db *DB) Purge(ctx context.Context, r store.Retention, limit int) (p store.Purged, err error) {
	var whole, payloads, callbacks int
	var moreWhole, morePayloads, moreCallbacks bool
	var withErr, withoutErr error
	var wg sync.WaitGroup
	wg.Go(func() {
		whole, moreWhole, withErr = db.purgeInBatches(ctx, wholePurge, r.Now, r.Callbacks, limit,
			removeCallbacks(withPayload))
		if withErr != nil {
			withErr = named("purge callbacks with payloads", withErr)
			return
		}
		payloads, morePayloads, withErr = db.purgeInBatches(ctx, payloadPurge, r.Now, r.Payloads, limit,
			func(t *tx, b *batch) (int, int, error) {
				// Rows that are old enough to be removed whole are left to the step above. Without their
				// payload they would enter the other index behind the position of its purge.
				b.from.DueAt = max(b.from.DueAt, r.Callbacks)
				return t.purgePayloads(b)
			})
		withErr = named("purge payloads", withErr)
	})
	callbacks, moreCallbacks, withoutErr = db.purgeInBatches(ctx, callbackPurge, r.Now, r.Callbacks, limit,
		removeCallbacks(withoutPayload))
	wg.Wait()
	return store.Purged{
		Payloads: whole + payloads, Callbacks: whole + callbacks,
		More: moreWhole || morePayloads || moreCallbacks,
	}, errors.Join(withErr, named("purge callbacks", withoutErr))
}

// The next rows to remove, and the time of the first one. Each condition repeats the WHERE of its index word
// for word, so that the index serves it.
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

// endedColumns are what a purge reads of a row. PayloadID is set only for a payload that callbacks share.
func endedColumns(c *store.Callback) sqldb.Columns {
	return append(endedFields(c), col(`CASE WHEN payload = 1
		THEN COALESCE((SELECT requests.shared FROM requests WHERE `+ofCallback+`), '') ELSE '' END`,
		&c.PayloadID))
}

// expiredRows are ended callbacks that a purge has locked.
type expiredRows struct {
	rows []store.Callback
	// users is how many of the rows use each shared payload.
	users map[string]int64
}

// lockExpired locks the next rows of a batch and moves the batch to the last of them. Rows that another
// transaction has locked are skipped; the next full pass finds them.
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

// purgePayloads removes the payloads of locked rows, in the transaction of the batch. A shared payload goes
// with its last user.
func (t *tx) purgePayloads(b *batch) (seen, removed int, err error) {
	a, err := t.lockExpired(withPayload, b)
	if err != nil || len(a.rows) == 0 {
		return 0, 0, err
	}
	if err := a.exec(t,
		`UPDATE callbacks SET payload = 2 FROM $i
			WHERE callbacks.id = i.id AND callbacks.state <> 'scheduled'`,
		`UPDATE requests SET body = NULL, shared = '' FROM $i
			WHERE requests.project = i.project AND requests.id = i.id`); err != nil {
		return 0, 0, err
	}
	return len(a.rows), len(a.rows), t.dropPayloads(a.users)
}

// removeCallbacks returns the step that deletes ended callbacks with their attempts, polls and payloads, all
// in the transaction of the batch. which is withPayload or withoutPayload.
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

// dropPayloads subtracts the users that go from each shared payload, and deletes payloads without users.
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
	// Most payloads have one user. They are deleted without an update first.
	gone, err := sqldb.Values[string](t, `DELETE FROM payloads
		WHERE id IN (SELECT i.id FROM $i) AND users <= 1
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

// exec runs each statement for all rows, in order.
func (a *expiredRows) exec(t *tx, texts ...string) error {
	for _, text := range texts {
		if _, err := sqldb.ExecRows(t.Tx, text, a.rows, expiredColumns); err != nil {
			return err
		}
	}
	return nil
}

// inBatches runs step in maintenance transactions until a step returns fewer rows than it may take, or limit
// rows are done. Other transactions pass in between. A step runs again if its transaction is repeated.
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

// deleteBatches runs a DELETE in batches. The statement's last parameter is the maximum number of rows; args
// holds the others.
func (db *DB) deleteBatches(ctx context.Context, operation string, limit int, text string,
	args ...any) (int, error) {
	return db.inBatches(ctx, operation, limit, func(t *tx, batch int) (int, error) {
		n, err := t.Exec(text, append(args[:len(args):len(args)], batch)...)
		return int(n), err
	})
}

// Overstays returns the time of the oldest row of each kind that the purges should have removed: when it
// ended or was made, in Unix milliseconds. A kind without such a row is left out. The search begins at the
// position of each purge. So an idempotency key or an event plan whose callback is open is not reported once
// its purge has passed it.
func (db *DB) Overstays(ctx context.Context, r store.Retention) (map[string]int64, error) {
	const oldestEnded, first = `SELECT finished_at`, ` ORDER BY finished_at LIMIT 1`
	keys := r.Now - store.IdempotencyAge.Milliseconds()
	times := make(map[string]int64)
	for _, k := range []struct {
		kind, cursor, query string
		before              int64
	}{
		{"payload", payloadPurge, oldestEnded + withPayload + first, r.Payloads},
		{"callback", wholePurge, oldestEnded + withPayload + first, r.Callbacks},
		{"callback", callbackPurge, oldestEnded + withoutPayload + first, r.Callbacks},
		{"key", idempotencyCursor, oldest("idempotency", "created_at", ">"), keys},
		{"key", eventsCursor, oldest("events", "created_at", ">"), keys},
		{"version", versionsPurge, oldest("refs_latest", "updated_at", ">="), r.Callbacks},
		{"outcome", feedPurge, oldest("outcomes", "at", ">="), r.Outcomes},
	} {
		p, err := db.progressOf(ctx, k.cursor, r.Now)
		if err != nil {
			return nil, err
		}
		at, found, err := sqldb.Value[int64](db.read(ctx, "find overstays"), k.query,
			p.start(r.Now).DueAt, k.before)
		if err != nil {
			return nil, err
		}
		if before, ok := times[k.kind]; found && (!ok || at < before) {
			times[k.kind] = at
		}
	}
	return times, nil
}

// oldest is the statement for the oldest row of a table between two times, by the table's index over age.
// from is ">" or ">=".
func oldest(table, column, from string) string {
	return fmt.Sprintf(`SELECT %[2]s FROM %[1]s WHERE %[2]s %[3]s $1 AND %[2]s < $2 ORDER BY %[2]s LIMIT 1`,
		table, column, from)
}
