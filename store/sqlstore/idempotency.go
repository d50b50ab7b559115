package sqlstore

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// An idempotencyKey finds the first request with a key.
type idempotencyKey struct{ project, route, key string }

func (e *acceptEntry) idempotencyKey() idempotencyKey {
	return idempotencyKey{e.draft.Callback.Project, e.draft.Idempotency.Route, e.draft.Idempotency.Key}
}

func (e *acceptEntry) fingerprint() string {
	return hex.EncodeToString(e.draft.Idempotency.Fingerprint)
}

func idempotencyColumns(k *idempotencyKey) sqldb.Columns {
	return sqldb.Columns{col("project", &k.project), col("route", &k.route), col("key", &k.key)}
}

// claimKeys takes the idempotency keys of the drafts and answers those whose key is known already. It returns the drafts
// that are to be inserted.
func (t *tx) claimKeys(entries []*acceptEntry) ([]*acceptEntry, error) {
	first := make(map[idempotencyKey]*acceptEntry)
	var order []idempotencyKey
	for _, e := range entries {
		if e.draft.Idempotency == nil {
			continue
		}
		k := e.idempotencyKey()
		if first[k] == nil {
			first[k] = e
			order = append(order, k)
		}
	}
	if len(order) == 0 {
		return entries, nil
	}
	slices.SortFunc(order, func(a, b idempotencyKey) int {
		return cmp.Or(cmp.Compare(a.project, b.project), cmp.Compare(a.route, b.route), cmp.Compare(a.key, b.key))
	})
	known, err := t.knownKeys(order, first)
	if err != nil {
		return nil, err
	}
	var fresh []*acceptEntry
	for _, e := range entries {
		if e.draft.Idempotency == nil {
			fresh = append(fresh, e)
			continue
		}
		k := e.idempotencyKey()
		leader := first[k]
		held, ok := known[k]
		switch {
		case !ok && leader == e:
			fresh = append(fresh, e)
		case !ok && leader.fingerprint() == e.fingerprint():
			e.leader = leader // whatever becomes of that
		case ok && held.fingerprint == e.fingerprint():
			e.out = store.Accepted{Callback: held.callback, Replayed: true}
		default:
			e.out = store.Accepted{Err: store.ErrIdempotencyMismatch}
		}
	}
	return fresh, nil
}

// A heldKey is an idempotency key that an earlier request holds.
type heldKey struct {
	idempotencyKey
	fingerprint, callbackID string
	callback                store.Callback
}

// heldKeys returns those of the keys that are held, but for their callbacks.
func heldKeys(q sqldb.Querier, keys sqldb.Input) ([]heldKey, error) {
	return sqldb.Select(q, func(h *heldKey) sqldb.Columns {
		return sqldb.Columns{
			col("h.project", &h.project), col("h.route", &h.route), col("h.key", &h.key),
			col("h.fingerprint", &h.fingerprint), col("h.callback_id", &h.callbackID),
		}
	}, `FROM $i JOIN idempotency AS h ON h.project = i.project AND h.route = i.route AND h.key = i.key`, keys)
}

// knownKeys inserts the keys, each for the draft that came first with it, and returns those that an earlier callback
// holds. A key whose callback has been purged is free again.
func (t *tx) knownKeys(order []idempotencyKey, first map[idempotencyKey]*acceptEntry) (map[idempotencyKey]heldKey, error) {
	input := sqldb.Rows(order, func(k *idempotencyKey) sqldb.Columns {
		return append(idempotencyColumns(k),
			calc("fingerprint", func() string { return first[*k].fingerprint() }),
			calc("callback_id", func() string { return first[*k].draft.Callback.ID }),
			calc("created_at", func() int64 { return first[*k].draft.Callback.CreatedAt }))
	})
	inserted, err := t.Exec(`INSERT INTO idempotency (project, route, key, fingerprint, callback_id, created_at)
		SELECT i.project, i.route, i.key, i.fingerprint, i.callback_id, i.created_at FROM $i WHERE 1 = 1
		ON CONFLICT (project, route, key) DO NOTHING`, input)
	if err != nil {
		return nil, named("insert idempotency keys", err)
	}
	if inserted == int64(len(order)) {
		return nil, nil
	}
	held, err := heldKeys(t, input)
	if err != nil {
		return nil, named("read idempotency keys", err)
	}
	if len(held) < len(order) {
		// Maintenance removed an expired one between the two statements: the next try inserts it.
		return nil, fmt.Errorf("read idempotency keys: %w", sqldb.ErrOvertaken)
	}
	known := make(map[idempotencyKey]heldKey)
	for _, h := range held {
		if h.callbackID != first[h.idempotencyKey].draft.Callback.ID {
			known[h.idempotencyKey] = h
		}
	}
	return known, t.fillKeys(order, first, known)
}

// fillKeys adds the callbacks that hold the known keys. A key whose callback is gone is taken over and
// forgotten. Of two transactions that do so at once the second finds that the row has another callback, and
// is tried again.
func (t *tx) fillKeys(order []idempotencyKey, first map[idempotencyKey]*acceptEntry, known map[idempotencyKey]heldKey) error {
	var ids []string
	for _, h := range known {
		ids = append(ids, h.callbackID)
	}
	held, err := t.callbacksByID(ids, "")
	if err != nil {
		return err
	}
	for _, k := range order {
		h, ok := known[k]
		if !ok {
			continue
		}
		if r, ok := held[h.callbackID]; ok {
			h.callback = r.Callback
			known[k] = h
			continue
		}
		delete(known, k)
		taker := first[k]
		n, err := t.Exec(`UPDATE idempotency SET fingerprint = $1, callback_id = $2, created_at = $3
			WHERE project = $4 AND route = $5 AND key = $6 AND callback_id = $7`,
			taker.fingerprint(), taker.draft.Callback.ID, taker.draft.Callback.CreatedAt,
			k.project, k.route, k.key, h.callbackID)
		if err == nil && n == 0 {
			err = sqldb.ErrOvertaken
		}
		if err != nil {
			return named("take over idempotency key", err)
		}
	}
	return nil
}

// findKeys finds the callbacks that hold the idempotency keys of drafts. A key that was used with another
// request is answered at once.
func (db *DB) findKeys(
	ctx context.Context, drafts []store.Draft, repeated map[string][]int, answers []store.Accepted,
) error {
	given := make(map[idempotencyKey][]int)
	var keys []idempotencyKey
	for i := range drafts {
		if id := drafts[i].Idempotency; id != nil {
			k := idempotencyKey{drafts[i].Callback.Project, id.Route, id.Key}
			if given[k] == nil {
				keys = append(keys, k)
			}
			given[k] = append(given[k], i)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	held, err := heldKeys(db.read(ctx, "find idempotency keys"), sqldb.Rows(keys, idempotencyColumns))
	for _, h := range held {
		for _, i := range given[h.idempotencyKey] {
			if h.fingerprint != hex.EncodeToString(drafts[i].Idempotency.Fingerprint) {
				answers[i].Err = store.ErrIdempotencyMismatch
				continue
			}
			repeated[h.callbackID] = append(repeated[h.callbackID], i)
		}
	}
	return err
}

// PurgeKeys removes idempotency keys that have ended: they are older than store.IdempotencyAge, and their
// callbacks are terminal or gone. Those of events go with their plans. It looks at up to limit of each; more
// says that there may be others.
func (db *DB) PurgeKeys(ctx context.Context, now int64, limit int) (removed int, more bool, err error) {
	before := now - store.IdempotencyAge.Milliseconds()
	keys, moreKeys, err := db.removeAged(ctx, idempotencyCursor, now, before, limit, (*tx).endKeys)
	if err != nil {
		return keys, false, named("purge idempotency keys", err)
	}
	events, more, err := db.removeAged(ctx, eventsCursor, now, before, limit, (*tx).endEvents)
	return keys + events, err == nil && (moreKeys || more), named("purge plans of events", err)
}

// endKeys looks at the next keys that are old enough, and removes those whose callback is not open.
func (t *tx) endKeys(b *batch) (seen, removed int, err error) {
	type oldKey struct {
		idempotencyKey
		callbackID string
		open       bool
	}
	old, err := sqldb.Select(t, func(k *oldKey) sqldb.Columns {
		return sqldb.Columns{
			col("project", &k.project), col("route", &k.route), col("key", &k.key),
			col("created_at", &b.from.DueAt), col("callback_id", &k.callbackID),
			col(`CASE WHEN EXISTS (
				SELECT 1 FROM callbacks WHERE callbacks.id = idempotency.callback_id AND callbacks.state = 'scheduled')
				THEN 1 ELSE 0 END`, sqldb.Bool(&k.open)),
		}
	}, `FROM idempotency
		WHERE (created_at, callback_id) > ($1, $2) AND created_at < $3
		ORDER BY created_at, callback_id
		LIMIT $4`, b.from.DueAt, b.from.ID, b.before, b.rows)
	if err != nil || len(old) == 0 {
		return 0, 0, err
	}
	b.from.ID = old[len(old)-1].callbackID
	// An accept may have taken the key over since it was read.
	n, err := t.Exec(`DELETE FROM idempotency WHERE (project, route, key, callback_id) IN (
		SELECT i.project, i.route, i.key, i.callback_id FROM $i)`,
		sqldb.Rows(slices.DeleteFunc(slices.Clone(old), func(k oldKey) bool { return k.open }), func(k *oldKey) sqldb.Columns {
			return append(idempotencyColumns(&k.idempotencyKey), col("callback_id", &k.callbackID))
		}))
	return len(old), int(n), err
}

// Replays answers those of the drafts that repeat what was accepted before, by their idempotency key or as a
// poll that is open, as Accept would, and changes nothing. Each of the others has store.ErrNotFound.
func (db *DB) Replays(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error) {
	answers := make([]store.Accepted, len(drafts))
	for i := range answers {
		answers[i].Err = store.ErrNotFound
	}
	repeated := make(map[string][]int) // the drafts, by the callback that they repeat
	if err := db.findOpenPolls(ctx, drafts, repeated); err != nil {
		return nil, err
	}
	if err := db.findKeys(ctx, drafts, repeated, answers); err != nil || len(repeated) == 0 {
		return answers, err
	}
	rows, err := db.callbacks(db.read(ctx, "read what was accepted before"), fromCallbacks+`
		WHERE callbacks.id IN (SELECT i.id FROM $i)`, sqldb.Texts("id", sortedKeys(repeated)))
	if err != nil {
		return nil, err
	}
	for i := range rows {
		for _, n := range repeated[rows[i].ID] {
			answers[n] = store.Accepted{Callback: rows[i].Callback, Replayed: true}
		}
	}
	return answers, nil
}

// findOpenPolls finds the open polls that the drafts of polls would become.
func (db *DB) findOpenPolls(ctx context.Context, drafts []store.Draft, repeated map[string][]int) error {
	polls := make(map[string][]int)
	for i := range drafts {
		if drafts[i].Poll != nil {
			live := liveKey(&drafts[i].Callback)
			polls[live] = append(polls[live], i)
		}
	}
	if len(polls) == 0 {
		return nil
	}
	open, err := sqldb.Map[string, string](db.read(ctx, "find open polls"), openPolls, sqldb.Texts("live", sortedKeys(polls)))
	for live, id := range open {
		repeated[id] = append(repeated[id], polls[live]...)
	}
	return err
}
