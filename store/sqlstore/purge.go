package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Purge removes up to limit payloads of callbacks that were terminal before payloadBefore, and up to limit whole callbacks
// with their attempts that were terminal before metadataBefore, in transactions of bounded size. It returns how many of
// each. A row that was opened again meanwhile is left alone. Which version of a reference was the highest is forgotten, too, if
// nothing was accepted for it since metadataBefore.
func (db *DB) Purge(ctx context.Context, payloadBefore, metadataBefore int64, limit int) (payloads, callbacks int, err error) {
	// Whatever goes as a whole first loses its payload, so that one index serves each of the two steps.
	payloads, err = db.inBatches(ctx, limit, func(t *tx, batch int) (int, error) {
		return t.purgePayloads(max(payloadBefore, metadataBefore), batch)
	})
	if err != nil {
		return payloads, 0, fmt.Errorf("purge payloads: %w", err)
	}
	callbacks, err = db.inBatches(ctx, limit, func(t *tx, batch int) (int, error) {
		return t.purgeCallbacks(metadataBefore, batch)
	})
	if err != nil {
		return payloads, callbacks, fmt.Errorf("purge callbacks: %w", err)
	}
	if _, err := db.inBatches(ctx, limit, func(t *tx, batch int) (int, error) {
		return t.purgeVersions(metadataBefore, batch)
	}); err != nil {
		return payloads, callbacks, fmt.Errorf("purge versions of references: %w", err)
	}
	return payloads, callbacks, nil
}

// inBatches runs step in maintenance transactions until it finds less than it may take, or limit rows are done.
func (db *DB) inBatches(ctx context.Context, limit int, step func(t *tx, batch int) (int, error)) (int, error) {
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

// purgePayloads takes the payloads from terminal rows. A shared payload goes with its last user.
func (t *tx) purgePayloads(before int64, batch int) (int, error) {
	var ids []string
	users := make(map[string]int64)
	if err := t.each(func(rows scanner) error {
		var id, payload string
		if err := rows.Scan(&id, &payload); err != nil {
			return err
		}
		ids = append(ids, id)
		users[payload]++
		return nil
	}, `SELECT id, payload_id FROM callbacks
		WHERE finished_at > 0 AND payload_id <> '' AND finished_at < $1 AND state <> 'scheduled'
		ORDER BY finished_at
		LIMIT $2`+t.db.dialect.skipLocked, before, batch); err != nil {
		return 0, err
	}
	if len(ids) == 0 {
		return 0, nil
	}
	input, args, _, err := t.input([]column{{name: "id", texts: ids}})
	if err != nil {
		return 0, err
	}
	if _, err := t.exec(`UPDATE callbacks SET payload_id = '', payload_purged = 1
		WHERE id IN (SELECT i.id FROM `+input+`) AND state <> 'scheduled'`, args...); err != nil {
		return 0, err
	}
	payloads := sortedKeys(users)
	input, args, _, err = t.input([]column{
		{name: "id", texts: payloads},
		ints("users", payloads, func(id string) int64 { return users[id] }),
	})
	if err != nil {
		return 0, err
	}
	if _, err := t.exec(`UPDATE payloads SET users = payloads.users - i.users FROM `+input+`
		WHERE payloads.id = i.id`, args...); err != nil {
		return 0, err
	}
	if _, err := t.exec(`DELETE FROM payloads
		WHERE id IN (SELECT i.id FROM `+input+`) AND users <= 0`, args...); err != nil {
		return 0, err
	}
	return len(ids), nil
}

// purgeCallbacks removes terminal rows, whose payloads are gone already, with their attempts.
func (t *tx) purgeCallbacks(before int64, batch int) (int, error) {
	var ids []string
	if err := t.each(func(rows scanner) error {
		var c store.Callback
		if err := rows.Scan(&c.ID, &c.Project, &c.State); err != nil {
			return err
		}
		ids = append(ids, c.ID)
		t.deltas.count(&c, -1)
		return nil
	}, `SELECT id, project, state FROM callbacks
		WHERE finished_at > 0 AND payload_id = '' AND finished_at < $1 AND state <> 'scheduled'
		ORDER BY finished_at
		LIMIT $2`+t.db.dialect.skipLocked, before, batch); err != nil {
		return 0, err
	}
	if len(ids) == 0 {
		return 0, nil
	}
	input, args, _, err := t.input([]column{{name: "id", texts: ids}})
	if err != nil {
		return 0, err
	}
	if _, err := t.exec(`DELETE FROM attempts WHERE callback_id IN (SELECT i.id FROM `+input+`)`, args...); err != nil {
		return 0, err
	}
	if _, err := t.exec(`DELETE FROM polls WHERE id IN (SELECT i.id FROM `+input+`)`, args...); err != nil {
		return 0, err
	}
	if _, err := t.exec(`DELETE FROM callbacks
		WHERE id IN (SELECT i.id FROM `+input+`) AND state <> 'scheduled'`, args...); err != nil {
		return 0, err
	}
	return len(ids), nil
}
