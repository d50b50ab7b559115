package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Purge removes payloads, and whole callbacks with their attempts, as the retention says, in transactions of
// bounded size. Each of its three steps looks at up to limit rows. It returns how many of each went, and
// whether there may be more. A row that was opened again meanwhile is left alone.
//
// A row is in one index until its payload goes, then in the other. The two are worked off side by side: so
// SQLite's writer has the next transaction at hand when the last one ends.
func (db *DB) Purge(ctx context.Context, r store.Retention, limit int) (p store.Purged, err error) {
	var whole, payloads, callbacks int
	var moreWith, moreWithout bool
	var with, without error
	var wg sync.WaitGroup
	wg.Go(func() {
		var more bool
		whole, more, with = db.removeAged(ctx, wholePurge, r.Now, r.Callbacks, limit, (*tx).purgeWhole)
		if with != nil {
			with = fmt.Errorf("purge callbacks with payloads: %w", with)
			return
		}
		payloads, moreWith, with = db.removeAged(ctx, payloadPurge, r.Now, r.Payloads, limit,
			func(t *tx, b *batch) (int, int, error) {
				// What is older goes as a whole. It must not come into the other index behind that one's
				// place.
				b.from.DueAt = max(b.from.DueAt, r.Callbacks)
				return t.purgePayloads(b)
			})
		if moreWith = moreWith || more; with != nil {
			with = fmt.Errorf("purge payloads: %w", with)
		}
	})
	callbacks, moreWithout, without = db.removeAged(ctx, callbackPurge, r.Now, r.Callbacks, limit,
		(*tx).purgeCallbacks)
	if without != nil {
		without = fmt.Errorf("purge callbacks: %w", without)
	}
	wg.Wait()
	return store.Purged{
		Payloads: whole + payloads, Callbacks: whole + callbacks, More: moreWith || moreWithout,
	}, errors.Join(with, without)
}

// The rows that go next. The conditions are those of the indexes over age, word for word.
const (
	endedWithPayload = `SELECT id, project, state, kind, finished_at,
			COALESCE((SELECT requests.shared FROM requests WHERE ` + ofCallback + `), '')
		FROM callbacks
		WHERE finished_at > 0 AND payload = 1 AND finished_at >= $1 AND finished_at < $2
			AND state <> 'scheduled'
		ORDER BY finished_at
		LIMIT $3`
	endedWithout = `SELECT id, project, state, kind, finished_at, '' FROM callbacks
		WHERE finished_at > 0 AND payload <> 1 AND finished_at >= $1 AND finished_at < $2
			AND state <> 'scheduled'
		ORDER BY finished_at
		LIMIT $3`
)

// aged are callbacks that go, or whose payloads do.
type aged struct {
	rows []store.Callback
	// ids are theirs, and polls those of kind poll.
	ids, polls []string
	// users counts the rows of each payload that is shared.
	users map[string]int64
}

// findAged locks the next rows and moves the batch to the last of them.
func (t *tx) findAged(query string, b *batch) (*aged, error) {
	a := &aged{users: make(map[string]int64)}
	err := t.each(func(rows scanner) error {
		var c store.Callback
		var shared string
		if err := rows.Scan(&c.ID, &c.Project, &c.State, &c.Kind, &b.from.DueAt, &shared); err != nil {
			return err
		}
		a.rows, a.ids = append(a.rows, c), append(a.ids, c.ID)
		if c.Kind == store.Poll {
			a.polls = append(a.polls, c.ID)
		}
		if shared != "" {
			a.users[shared]++
		}
		return nil
	}, query+t.db.dialect.skipLocked, b.from.DueAt, b.before, b.rows)
	return a, err
}

// purgePayloads takes the payloads from terminal rows. A shared payload goes with its last user.
func (t *tx) purgePayloads(b *batch) (seen, removed int, err error) {
	a, err := t.findAged(endedWithPayload, b)
	if err != nil || len(a.ids) == 0 {
		return 0, 0, err
	}
	const purged = `UPDATE callbacks SET payload = 2 WHERE id %s AND state <> 'scheduled'`
	if err := t.execIDs(purged, a.ids); err != nil {
		return 0, 0, err
	}
	if err := a.execRequests(t, `UPDATE requests SET body = NULL, shared = ''`); err != nil {
		return 0, 0, err
	}
	return len(a.ids), len(a.ids), t.dropPayloads(a.users)
}

// purgeWhole removes terminal rows with all that is theirs.
func (t *tx) purgeWhole(b *batch) (seen, removed int, err error) {
	return t.removeCallbacks(endedWithPayload, b)
}

// purgeCallbacks removes terminal rows, whose payloads are gone already, with their attempts.
func (t *tx) purgeCallbacks(b *batch) (seen, removed int, err error) {
	return t.removeCallbacks(endedWithout, b)
}

func (t *tx) removeCallbacks(query string, b *batch) (seen, removed int, err error) {
	a, err := t.findAged(query, b)
	if err != nil || len(a.ids) == 0 {
		return 0, 0, err
	}
	for i := range a.rows {
		t.deltas.count(&a.rows[i], -1)
	}
	if err := t.dropPayloads(a.users); err != nil {
		return 0, 0, err
	}
	if err := t.execIDs(`DELETE FROM attempts WHERE callback_id %s`, a.ids); err != nil {
		return 0, 0, err
	}
	if err := t.execIDs(`DELETE FROM polls WHERE id %s`, a.polls); err != nil {
		return 0, 0, err
	}
	if err := a.execRequests(t, `DELETE FROM requests`); err != nil {
		return 0, 0, err
	}
	err = t.execIDs(`DELETE FROM callbacks WHERE id %s AND state <> 'scheduled'`, a.ids)
	return len(a.ids), len(a.ids), err
}

// dropPayloads takes so many users from each payload, and removes those that have none left.
func (t *tx) dropPayloads(users map[string]int64) error {
	var single, shared []string
	for _, id := range sortedKeys(users) {
		if users[id] == 1 {
			single = append(single, id)
		} else {
			shared = append(shared, id)
		}
	}
	// Nearly all have one user, and need not be written before they are removed.
	alone := make(map[string]bool, len(single))
	if len(single) > 0 {
		input, args, _, err := t.input([]column{{name: "id", texts: single}})
		if err != nil {
			return err
		}
		if err := t.each(func(rows scanner) error {
			var id string
			err := rows.Scan(&id)
			alone[id] = true
			return err
		}, `DELETE FROM payloads WHERE id IN (SELECT i.id FROM `+input+`) AND users <= 1
			RETURNING id`, args...); err != nil {
			return err
		}
	}
	for _, id := range single {
		if !alone[id] {
			shared = append(shared, id)
		}
	}
	if len(shared) == 0 {
		return nil
	}
	input, args, _, err := t.input([]column{
		{name: "id", texts: shared},
		ints("users", shared, func(id string) int64 { return users[id] }),
	})
	if err != nil {
		return err
	}
	if _, err := t.exec(`UPDATE payloads SET users = payloads.users - i.users FROM `+input+`
		WHERE payloads.id = i.id`, args...); err != nil {
		return err
	}
	return t.execIDs(`DELETE FROM payloads WHERE id %s AND users <= 0`, shared)
}

// execRequests runs a statement for the second rows of the callbacks.
func (a *aged) execRequests(t *tx, statement string) error {
	if t.lite != nil {
		statement += ` WHERE project = $1 AND id = $2`
		for i := range a.rows {
			if _, err := t.exec(statement, a.rows[i].Project, a.rows[i].ID); err != nil {
				return err
			}
		}
		return nil
	}
	input, args, _, err := t.input([]column{
		texts("project", a.rows, func(c store.Callback) string { return c.Project }),
		texts("id", a.rows, func(c store.Callback) string { return c.ID }),
	})
	if err != nil {
		return err
	}
	_, err = t.exec(statement+` WHERE (project, id) IN (SELECT i.project, i.id FROM `+input+`)`, args...)
	return err
}

// execIDs runs a statement for the ids, with the comparison in the place of %s: at once, or on SQLite one by
// one (docs/adr/0011-sqlite-row-by-row.md).
func (t *tx) execIDs(statement string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	if t.lite != nil {
		statement = fmt.Sprintf(statement, `= $1`)
		for _, id := range ids {
			if _, err := t.exec(statement, id); err != nil {
				return err
			}
		}
		return nil
	}
	input, args, _, err := t.input([]column{{name: "id", texts: ids}})
	if err != nil {
		return err
	}
	_, err = t.exec(fmt.Sprintf(statement, `IN (SELECT i.id FROM `+input+`)`), args...)
	return err
}

// inBatches runs step in maintenance transactions until it finds less than it may take, or limit rows are
// done.
func (db *DB) inBatches(
	ctx context.Context, limit int, step func(t *tx, batch int) (int, error),
) (int, error) {
	done := 0
	for done < limit {
		batch := min(limit-done, db.dialect.maintenanceBatch)
		n := 0
		err := db.maintain(ctx, func(t *tx) error {
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
