package sqlstore

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// An idempotencyKey identifies a request: its project, its route and the key that the caller gave it.
type idempotencyKey struct{ Project, Route, Key string }

// keyOf returns the key of a draft. The draft must have one.
func keyOf(d *store.Draft) idempotencyKey {
	return idempotencyKey{d.Callback.Project, d.Idempotency.Route, d.Idempotency.Key}
}

// fingerprintOf returns the hash of the draft's request, as it is stored.
func fingerprintOf(d *store.Draft) string { return hex.EncodeToString(d.Idempotency.Fingerprint) }

// A storedKey is a row of table idempotency, with the callback that owns the key.
type storedKey struct {
	idempotencyKey
	Fingerprint, CallbackID string
	CreatedAt               int64
	callback                store.Callback
}

var storedKeyColumns = sqldb.Named[storedKey](`project route key fingerprint callback_id created_at`)

// takeIdempotencyKeys inserts the keys of the drafts, in the transaction that accepts them. It answers the
// drafts whose key an earlier callback owns: with that callback, or with an error if the request was another
// one. A draft with the same key as another of its group gets the answer of that one. It returns the drafts
// that are still to be inserted.
func (t *tx) takeIdempotencyKeys(entries []*acceptEntry) ([]*acceptEntry, error) {
	firstWith := make(map[idempotencyKey]*acceptEntry)
	var wanted []storedKey
	for _, e := range entries {
		if e.draft.Idempotency == nil {
			continue
		}
		if k := keyOf(e.draft); firstWith[k] == nil {
			firstWith[k] = e
			c := &e.draft.Callback
			wanted = append(wanted, storedKey{idempotencyKey: k, Fingerprint: fingerprintOf(e.draft),
				CallbackID: c.ID, CreatedAt: c.CreatedAt})
		}
	}
	if len(wanted) == 0 {
		return entries, nil
	}
	slices.SortFunc(wanted, func(a, b storedKey) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Route, b.Route),
			cmp.Compare(a.Key, b.Key))
	})
	known, err := t.insertKeys(wanted)
	if err != nil {
		return nil, err
	}
	var toInsert []*acceptEntry
	for _, e := range entries {
		if e.draft.Idempotency == nil {
			toInsert = append(toInsert, e)
			continue
		}
		k := keyOf(e.draft)
		first := firstWith[k]
		stored, ok := known[k]
		switch {
		case !ok && first == e:
			toInsert = append(toInsert, e)
		case !ok && fingerprintOf(first.draft) == fingerprintOf(e.draft):
			e.original = first // gets the same answer, also if that is an error
		case ok && stored.Fingerprint == fingerprintOf(e.draft):
			e.out = store.Accepted{Callback: stored.callback, Replayed: true}
		default:
			e.out = store.Accepted{Err: store.ErrIdempotencyMismatch}
		}
	}
	return toInsert, nil
}

var (
	idempotencyKeyColumns = sqldb.Named[idempotencyKey](`project route key`)
	foundKeyColumns       = sqldb.Named[storedKey](`h.project h.route h.key h.fingerprint h.callback_id`)
)

// readStoredKeys returns the stored ones of the keys by the primary key, without their callbacks.
func readStoredKeys(q sqldb.Querier, keys sqldb.Input) ([]storedKey, error) {
	return sqldb.Select(q, foundKeyColumns, `FROM $i
		JOIN idempotency AS h ON h.project = i.project AND h.route = i.route AND h.key = i.key`, keys)
}

// insertKeys inserts the keys for the drafts that came first with them, and returns the keys that earlier
// callbacks own. Two transactions cannot insert the same key: the second waits for the first and then finds
// the key. The caller sorts wanted, so that two transactions cannot wait for each other.
func (t *tx) insertKeys(wanted []storedKey) (map[idempotencyKey]storedKey, error) {
	input := sqldb.Rows(wanted, storedKeyColumns)
	inserted, err := t.Exec(`INSERT INTO idempotency (
			project, route, key, fingerprint, callback_id, created_at)
		SELECT i.project, i.route, i.key, i.fingerprint, i.callback_id, i.created_at FROM $i WHERE 1 = 1
		ON CONFLICT (project, route, key) DO NOTHING`, input)
	if err != nil {
		return nil, named("insert idempotency keys", err)
	}
	if inserted == int64(len(wanted)) {
		return nil, nil
	}
	stored, err := readStoredKeys(t, input)
	if err != nil {
		return nil, named("read idempotency keys", err)
	}
	if len(stored) < len(wanted) {
		// A purge deleted an expired key between the two statements. The repeated transaction inserts it.
		return nil, fmt.Errorf("read idempotency keys: %w", sqldb.ErrOvertaken)
	}
	known := make(map[idempotencyKey]storedKey)
	for _, h := range stored {
		known[h.idempotencyKey] = h
	}
	for _, k := range wanted {
		if known[k.idempotencyKey].CallbackID == k.CallbackID {
			delete(known, k.idempotencyKey)
		}
	}
	return known, t.readKeyOwners(wanted, known)
}

// readKeyOwners reads the callbacks that own the known keys. A key whose callback was purged is taken over
// for its new draft, and removed from known. If two transactions take over a key at once, the second finds
// another callback_id, and is repeated.
func (t *tx) readKeyOwners(wanted []storedKey, known map[idempotencyKey]storedKey) error {
	var ids []string
	for _, h := range known {
		ids = append(ids, h.CallbackID)
	}
	owners, err := t.callbacksByID(ids, "")
	if err != nil {
		return err
	}
	for _, taker := range wanted {
		h, ok := known[taker.idempotencyKey]
		if !ok {
			continue
		}
		if r, ok := owners[h.CallbackID]; ok {
			h.callback = r.Callback
			known[taker.idempotencyKey] = h
			continue
		}
		delete(known, taker.idempotencyKey)
		n, err := t.Exec(`UPDATE idempotency SET fingerprint = $1, callback_id = $2, created_at = $3
			WHERE project = $4 AND route = $5 AND key = $6 AND callback_id = $7`,
			taker.Fingerprint, taker.CallbackID, taker.CreatedAt, taker.Project, taker.Route, taker.Key,
			h.CallbackID)
		if err == nil && n == 0 {
			err = sqldb.ErrOvertaken
		}
		if err != nil {
			return named("take over idempotency key", err)
		}
	}
	return nil
}

// findKeys finds the callbacks that own the idempotency keys of drafts. It answers a draft whose key belongs
// to another request with store.ErrIdempotencyMismatch.
func (db *DB) findKeys(
	ctx context.Context, drafts []store.Draft, repeated map[string][]int, answers []store.Accepted,
) error {
	given := make(map[idempotencyKey][]int)
	for i := range drafts {
		if drafts[i].Idempotency != nil {
			k := keyOf(&drafts[i])
			given[k] = append(given[k], i)
		}
	}
	if len(given) == 0 {
		return nil
	}
	stored, err := readStoredKeys(db.read(ctx, "find idempotency keys"),
		sqldb.Rows(slices.Collect(maps.Keys(given)), idempotencyKeyColumns))
	for _, h := range stored {
		for _, i := range given[h.idempotencyKey] {
			if h.Fingerprint != fingerprintOf(&drafts[i]) {
				answers[i].Err = store.ErrIdempotencyMismatch
				continue
			}
			repeated[h.CallbackID] = append(repeated[h.CallbackID], i)
		}
	}
	return err
}

// PurgeKeys deletes idempotency keys that are older than store.IdempotencyAge and whose callbacks are not
// open. Keys of events are deleted with their plans. It reads up to limit of each kind, and returns how many
// it deleted and whether there may be more.
func (db *DB) PurgeKeys(ctx context.Context, now int64, limit int) (removed int, more bool, err error) {
	before := now - store.IdempotencyAge.Milliseconds()
	keys, moreKeys, err := db.purgeInBatches(ctx, idempotencyCursor, now, before, limit, (*tx).endKeys)
	if err != nil {
		return keys, false, named("purge idempotency keys", err)
	}
	events, more, err := db.purgeInBatches(ctx, eventsCursor, now, before, limit, (*tx).endEvents)
	return keys + events, err == nil && (moreKeys || more), named("purge plans of events", err)
}

// endKeys is the step of a purge: it reads the next keys that are old enough by the index idempotency_age,
// and deletes those whose callback is not open.
func (t *tx) endKeys(b *batch) (seen, removed int, err error) {
	type oldKey struct {
		storedKey
		open bool
	}
	old, err := sqldb.Select(t, func(k *oldKey) sqldb.Columns {
		return append(storedKeyColumns(&k.storedKey), col(`CASE WHEN EXISTS (
			SELECT 1 FROM callbacks
			WHERE callbacks.id = idempotency.callback_id AND callbacks.state = 'scheduled')
			THEN 1 ELSE 0 END`, sqldb.Bool(&k.open)))
	}, `FROM idempotency
		WHERE (created_at, callback_id) > ($1, $2) AND created_at < $3
		ORDER BY created_at, callback_id
		LIMIT $4`, b.from.DueAt, b.from.ID, b.before, b.rows)
	if err != nil || len(old) == 0 {
		return 0, 0, err
	}
	last := &old[len(old)-1]
	b.from = store.Cursor{DueAt: last.CreatedAt, ID: last.CallbackID}
	// callback_id is compared, because an accept may have taken the key over since it was read.
	n, err := t.Exec(`DELETE FROM idempotency WHERE (project, route, key, callback_id) IN (
		SELECT i.project, i.route, i.key, i.callback_id FROM $i)`,
		sqldb.Rows(slices.DeleteFunc(slices.Clone(old), func(k oldKey) bool { return k.open }),
			sqldb.Named[oldKey](`project route key callback_id`)))
	return len(old), int(n), err
}

// Replays answers the drafts that repeat an accepted callback, by their idempotency key or as an open poll,
// in the way that Accept would. It changes nothing. The answer of every other draft is store.ErrNotFound.
func (db *DB) Replays(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error) {
	answers := make([]store.Accepted, len(drafts))
	for i := range answers {
		answers[i].Err = store.ErrNotFound
	}
	repeated := make(map[string][]int) // the drafts by the id of the callback that they repeat
	if err := db.findOpenPolls(ctx, drafts, repeated); err != nil {
		return nil, err
	}
	if err := db.findKeys(ctx, drafts, repeated, answers); err != nil || len(repeated) == 0 {
		return answers, err
	}
	rows, err := db.callbacks(db.read(ctx, "read accepted callbacks"), fromCallbacks+`
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

// findOpenPolls finds the open polls that drafts of polls would join.
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
	open, err := sqldb.Map[string, string](db.read(ctx, "find open polls"), openPolls,
		sqldb.Texts("live", sortedKeys(polls)))
	for live, id := range open {
		repeated[id] = append(repeated[id], polls[live]...)
	}
	return err
}
