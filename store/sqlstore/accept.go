package sqlstore

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// An acceptEntry is one draft of a group.
type acceptEntry struct {
	draft *store.Draft
	// headers, labels, policy and success are JSON text of the draft's.
	headers, labels, policy, success string
	// onResult is JSON of a poll's result callback; live, the key under which the poll is the open one.
	onResult, live string
	// leader is the draft of the same group that this one is the same as: its answer is that one's.
	leader *acceptEntry
	out    store.Accepted
}

func (e *acceptEntry) fail(err error) { e.out = store.Accepted{Err: err} }

// Accept commits the drafts in one transaction, with those of other callers, and answers each in its place. Its error is
// store.ErrUnavailable or the context's: then none is known to be accepted. (They may be where the caller's context ended
// while the transaction ran, or where the connection broke for good with the commit under way.) A draft that alone is refused has its reason in Err.
// The drafts must not be changed afterwards: the group may still run when the caller's context has ended.
func (db *DB) Accept(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error) {
	entries := make([]entry, 0, len(drafts))
	own := make([]acceptEntry, len(drafts))
	for i := range drafts {
		own[i].draft = &drafts[i]
		if err := own[i].encode(&db.written); err != nil {
			own[i].fail(err)
			continue
		}
		entries = append(entries, &own[i])
	}
	if err := db.accepts.commit(ctx, entries); err != nil {
		return nil, fmt.Errorf("accept: %w", err)
	}
	accepted := make([]store.Accepted, len(drafts))
	for i := range own {
		accepted[i] = own[i].out
		db.remember(&own[i])
	}
	return accepted, nil
}

// remember keeps what was accepted for its first stamp. A body that it shares with others is not known here.
func (db *DB) remember(e *acceptEntry) {
	if c := &e.out.Callback; e.out.Err == nil && !e.out.Replayed && (e.draft.Body != nil || c.PayloadID == "") {
		db.fresh.add(c, e.draft.Body)
	}
}

// An idempotencyKey finds the first request with a key.
type idempotencyKey struct{ project, route, key string }

func (e *acceptEntry) idempotencyKey() idempotencyKey {
	return idempotencyKey{e.draft.Callback.Project, e.draft.Idempotency.Route, e.draft.Idempotency.Key}
}

// applyDrafts accepts the drafts of one group.
func (t *tx) applyDrafts(entries []*acceptEntry) error {
	if len(entries) == 0 {
		return nil
	}
	if err := t.acceptAll(entries); err != nil {
		return err
	}
	for _, e := range entries {
		if e.leader == nil {
			continue
		}
		leader := e.leader
		for leader.leader != nil { // the same request as one that became the open poll of another
			leader = leader.leader
		}
		e.out = store.Accepted{Callback: leader.out.Callback, Replayed: true, Err: leader.out.Err}
	}
	return nil
}

func (t *tx) acceptAll(entries []*acceptEntry) error {
	entries, err := t.placeDrafts(entries)
	if err != nil {
		return err
	}
	fresh, err := t.claimKeys(entries)
	if err != nil {
		return err
	}
	if fresh, err = t.claimLive(fresh); err != nil {
		return err
	}
	if err := t.supersede(fresh); err != nil {
		return err
	}
	inserted, err := t.insertCallbacks(fresh)
	if err != nil {
		return err
	}
	var accepted []*acceptEntry
	var early earlyTimes
	for _, e := range fresh {
		switch {
		case inserted[e.out.Callback.ID]:
			accepted = append(accepted, e)
			t.deltas.count(&e.out.Callback, 1)
			early.add(&e.out.Callback, e.out.Callback.CreatedAt)
			if e.out.Callback.State.Terminal() {
				t.ended(&e.out.Callback, e.out.Callback.FinishedAt)
			}
			delete(inserted, e.out.Callback.ID)
		case !t.again:
			// Refused, so that the group is halved until this draft stands alone. On a later try the row may be the one that
			// the first try committed without our hearing of it.
			return fmt.Errorf("callback %s exists already", e.out.Callback.ID)
		}
	}
	if err := t.lowerMarks(early); err != nil {
		return err
	}
	return t.insertRequests(accepted)
}

// placeDrafts begins the answers to drafts and gives each its lane. It returns those that have one.
func (t *tx) placeDrafts(entries []*acceptEntry) ([]*acceptEntry, error) {
	keys := make([]laneKey, len(entries))
	for i, e := range entries {
		e.out, e.leader = store.Accepted{Callback: e.draft.Callback}, nil
		e.out.Callback.Trigger = cmp.Or(e.out.Callback.Trigger, store.BySchedule)
		e.out.Callback.State = cmp.Or(e.out.Callback.State, store.Scheduled)
		e.out.Callback.Strict = e.draft.Callback.Strict && e.draft.Callback.LockKey != ""
		keys[i] = laneKey{e.draft.Callback.Project, e.draft.Callback.Lane}
	}
	lanes, err := t.laneIDs(keys)
	if err != nil {
		return nil, err
	}
	refused := false
	for i, e := range entries {
		c := &e.out.Callback
		var ok bool
		if c.LaneID, ok = lanes[keys[i]]; !ok {
			e.fail(store.ErrLaneQuota)
			refused = true
			continue
		}
		if e.draft.Body != nil && c.PayloadID == "" {
			c.PayloadID = c.ID
		}
	}
	if refused {
		placed := slices.Clone(entries)
		return slices.DeleteFunc(placed, func(e *acceptEntry) bool { return e.out.Err != nil }), nil
	}
	return entries, nil
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
		case !ok && string(leader.draft.Idempotency.Fingerprint) == string(e.draft.Idempotency.Fingerprint):
			e.leader = leader // whatever becomes of that
		case ok && held.fingerprint == hex.EncodeToString(e.draft.Idempotency.Fingerprint):
			e.out = store.Accepted{Callback: held.callback, Replayed: true}
		default:
			e.out = store.Accepted{Err: store.ErrIdempotencyMismatch}
		}
	}
	return fresh, nil
}

// A heldKey is an idempotency key that an earlier request holds.
type heldKey struct {
	fingerprint string
	callbackID  string
	callback    store.Callback
}

// knownKeys inserts the keys, each for the draft that came first with it, and returns those that an earlier callback
// holds. A key whose callback has been purged is free again.
func (t *tx) knownKeys(order []idempotencyKey, first map[idempotencyKey]*acceptEntry) (map[idempotencyKey]heldKey, error) {
	columns := []column{
		texts("project", order, func(k idempotencyKey) string { return k.project }),
		texts("route", order, func(k idempotencyKey) string { return k.route }),
		texts("key", order, func(k idempotencyKey) string { return k.key }),
		texts("fingerprint", order, func(k idempotencyKey) string { return hex.EncodeToString(first[k].draft.Idempotency.Fingerprint) }),
		texts("callback_id", order, func(k idempotencyKey) string { return first[k].draft.Callback.ID }),
		ints("created_at", order, func(k idempotencyKey) int64 { return first[k].draft.Callback.CreatedAt }),
	}
	input, args, _, err := t.input(columns)
	if err != nil {
		return nil, err
	}
	inserted, err := t.exec(`INSERT INTO idempotency (project, route, key, fingerprint, callback_id, created_at)
		SELECT i.project, i.route, i.key, i.fingerprint, i.callback_id, i.created_at FROM `+input+` WHERE 1 = 1
		ON CONFLICT (project, route, key) DO NOTHING`, args...)
	if err != nil {
		return nil, fmt.Errorf("insert idempotency keys: %w", err)
	}
	if inserted == int64(len(order)) {
		return nil, nil
	}
	known := make(map[idempotencyKey]heldKey)
	seen := 0
	err = t.each(func(rows scanner) error {
		var k idempotencyKey
		var h heldKey
		if err := rows.Scan(&k.project, &k.route, &k.key, &h.fingerprint, &h.callbackID); err != nil {
			return err
		}
		seen++
		if h.callbackID != first[k].draft.Callback.ID {
			known[k] = h
		}
		return nil
	}, `SELECT idempotency.project, idempotency.route, idempotency.key, idempotency.fingerprint, idempotency.callback_id
		FROM `+input+`
		JOIN idempotency ON idempotency.project = i.project AND idempotency.route = i.route
			AND idempotency.key = i.key`, args...)
	if err != nil {
		return nil, fmt.Errorf("read idempotency keys: %w", err)
	}
	if seen < len(order) {
		// Maintenance removed an expired one between the two statements: the next try inserts it.
		return nil, fmt.Errorf("read idempotency keys: %w", errOvertaken)
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
		d := first[k].draft
		n, err := t.exec(`UPDATE idempotency SET fingerprint = $1, callback_id = $2, created_at = $3
			WHERE project = $4 AND route = $5 AND key = $6 AND callback_id = $7`,
			hex.EncodeToString(d.Idempotency.Fingerprint), d.Callback.ID, d.Callback.CreatedAt,
			k.project, k.route, k.key, h.callbackID)
		if err == nil && n == 0 {
			err = errOvertaken
		}
		if err != nil {
			return fmt.Errorf("take over idempotency key: %w", err)
		}
	}
	return nil
}

// callbacksByID reads callbacks of any project; lock is the dialect's clause that locks them, or empty.
func (t *tx) callbacksByID(ids []string, lock string) (map[string]row, error) {
	found := make(map[string]row, len(ids))
	if len(ids) == 0 {
		return found, nil
	}
	input, args, _, err := t.input([]column{{name: "id", texts: slices.Sorted(slices.Values(ids))}})
	if err != nil {
		return nil, err
	}
	err = t.each(func(rows scanner) error {
		r, err := t.db.scanCallback(rows)
		found[r.ID] = r
		return err
	}, `SELECT `+callbackColumns+` FROM `+fromCallbacks+`
		WHERE callbacks.id IN (SELECT i.id FROM `+input+`)
		ORDER BY callbacks.id`+lock, args...)
	if err != nil {
		return nil, fmt.Errorf("read callbacks: %w", err)
	}
	return found, nil
}

// encode writes the structured parts of the draft as JSON text.
func (e *acceptEntry) encode(w *written) error {
	c := &e.draft.Callback
	var errs [5]error
	if len(c.Headers) > 0 {
		e.headers, errs[0] = encode(c.Headers)
	}
	if len(c.Labels) > 0 {
		e.labels, errs[1] = encode(c.Labels)
	}
	e.policy, errs[2] = w.policy(&c.Policy)
	e.success, errs[3] = w.success(c.Success)
	if e.draft.Poll != nil {
		e.onResult, errs[4] = encodeResult(e.draft.Poll.OnResult)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("encode callback %s: %w", c.ID, err)
	}
	return nil
}
