package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// An acceptEntry is one draft in a group of accepts. Its exported fields are columns.
type acceptEntry struct {
	draft *store.Draft
	// Headers, Labels, Policy and Success are JSON of the draft's fields. Body is the payload if the draft
	// has it alone. Otherwise Shared is the id of the shared payload.
	Headers, Labels, Policy, Success string
	Shared                           string
	Body                             []byte
	HasPayload                       bool
	Timeout                          int64
	// SealedKey is the id of the master key that sealed the draft's credentials, PollKey the one for the
	// credentials of its result callback. Empty means that none is sealed.
	SealedKey, PollKey string
	Context            string
	// OnResult is JSON of a poll's result callback. Live is the poll's key while it is open: see liveKey.
	OnResult, Live string
	// original is the draft of the same group that this one repeats. Both get the same answer.
	original *acceptEntry
	out      store.Accepted
}

// Fail implements [sqldb.Entry]: the draft alone could not be committed.
func (e *acceptEntry) Fail(err error) { e.out = store.Accepted{Err: err} }

// Accept commits the drafts in one transaction, together with those of other callers, and answers each in its
// place. A draft that is refused alone has the reason in Err, and the others are committed. If Accept returns
// an error, no draft is known to be accepted; the error is store.ErrUnavailable or the context's. Drafts may
// be accepted all the same if the context ended during the transaction, or if the connection broke during the
// commit. The caller must not change the drafts afterwards, because the transaction may outlive its context.
func (db *DB) Accept(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error) {
	entries := make([]sqldb.Entry, 0, len(drafts))
	own := make([]acceptEntry, len(drafts))
	for i := range drafts {
		own[i].draft = &drafts[i]
		if err := own[i].encode(&db.written); err != nil {
			own[i].Fail(err)
			continue
		}
		entries = append(entries, &own[i])
	}
	if err := db.sql.Commit(ctx, accepts, entries); err != nil {
		return nil, named("accept", err)
	}
	accepted := make([]store.Accepted, len(drafts))
	for i := range own {
		accepted[i] = own[i].out
		db.cacheAccepted(&own[i])
	}
	return accepted, nil
}

// cacheAccepted keeps a new callback for its first stamp. A draft whose body another draft carries is left
// out.
func (db *DB) cacheAccepted(e *acceptEntry) {
	if c := &e.out.Callback; e.out.Err == nil && !e.out.Replayed &&
		(e.draft.Body != nil || c.PayloadID == "") {
		db.accepted.add(c, e.draft.Body)
	}
}

// applyDrafts accepts the drafts of one transaction. A draft that repeats another of the group takes its
// answer, once all others are answered.
func (t *tx) applyDrafts(entries []*acceptEntry) error {
	if len(entries) == 0 {
		return nil
	}
	if err := t.acceptAll(entries); err != nil {
		return err
	}
	for _, e := range entries {
		if e.original == nil {
			continue
		}
		original := e.original
		for original.original != nil { // that one joined the open poll of a third draft
			original = original.original
		}
		e.out = store.Accepted{Callback: original.out.Callback, Replayed: true, Err: original.out.Err}
	}
	return nil
}

// acceptAll writes the drafts. Each step depends on the ones before it. Lanes come first. Idempotency keys
// and open polls answer the drafts that repeat an earlier callback. Versions cancel what is superseded. The
// rest is inserted, counted and kept above the low-water marks. All of it is one transaction, so a crash
// leaves nothing of a draft.
func (t *tx) acceptAll(entries []*acceptEntry) error {
	entries, err := t.placeDrafts(entries)
	if err != nil {
		return err
	}
	toInsert, err := t.takeIdempotencyKeys(entries)
	if err != nil {
		return err
	}
	toInsert, err = t.registerPolls(toInsert)
	if err != nil {
		return err
	}
	if err := t.supersede(toInsert); err != nil {
		return err
	}
	accepted, err := t.insertCallbacks(toInsert)
	if err != nil {
		return named("insert callbacks", err)
	}
	var earliest earliestTimes
	for _, e := range accepted {
		c := &e.out.Callback
		t.deltas.count(c, 1)
		earliest.add(c, c.CreatedAt)
		if c.State.Terminal() {
			t.noteEnd(c, c.FinishedAt)
		}
	}
	if err := t.lowerMarks(earliest); err != nil {
		return err
	}
	return t.insertRequests(accepted)
}

// placeDrafts resets the answers, since a transaction may run again, and looks up the lane of each draft. It
// fails the drafts that the lane quota refuses, and returns the others.
func (t *tx) placeDrafts(entries []*acceptEntry) ([]*acceptEntry, error) {
	keys := make([]laneKey, len(entries))
	for i, e := range entries {
		e.out, e.original = store.Accepted{Callback: e.draft.Callback}, nil
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
		c.LaneID, ok = lanes[keys[i]]
		if !ok {
			e.Fail(store.ErrLaneQuota)
			refused = true
			continue
		}
		if e.draft.Body != nil && c.PayloadID == "" {
			c.PayloadID = c.ID
		}
		e.HasPayload = c.PayloadID != ""
	}
	if refused {
		placed := slices.Clone(entries)
		return slices.DeleteFunc(placed, func(e *acceptEntry) bool { return e.out.Err != nil }), nil
	}
	return entries, nil
}

// encode writes the draft's fields as JSON. Accept and RunSchedules call it before the transaction, so a
// draft that cannot be encoded fails alone.
func (e *acceptEntry) encode(w *written) error {
	c := &e.draft.Callback
	e.Shared = c.PayloadID
	if c.PayloadID == "" {
		e.Body = e.draft.Body
	}
	e.Timeout, e.SealedKey = timeoutMillis(c.Policy), store.SealedKey(c.Headers)
	var errs [5]error
	if len(c.Headers) > 0 {
		e.Headers, errs[0] = encode(c.Headers)
	}
	if len(c.Labels) > 0 {
		e.Labels, errs[1] = encode(c.Labels)
	}
	e.Policy, errs[2] = w.policy(&c.Policy)
	e.Success, errs[3] = w.success(c.Success)
	if e.draft.Poll != nil {
		e.Context = string(e.draft.Poll.Context)
		if e.draft.Poll.OnResult != nil {
			e.PollKey = store.SealedKey(e.draft.Poll.OnResult.Callback.Headers)
		}
		e.OnResult, errs[4] = encodeResult(e.draft.Poll.OnResult)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("encode callback %s: %w", c.ID, err)
	}
	return nil
}

var draftFields = sqldb.Named[store.Callback](`id project kind lock_key state reason trigger lane=LaneID
	due_at expires_at ladder_base updated_at finished_at strict`)

// draftColumns are the columns of a new row in callbacks. All others have the defaults of the schema.
func draftColumns(e *acceptEntry) sqldb.Columns {
	return append(draftFields(&e.out.Callback), col("timeout_ms", &e.Timeout),
		col("payload", sqldb.Bool(&e.HasPayload)))
}

var requestFields = sqldb.Named[store.Callback](`id project created_at first_due_at follows endpoint_id topic
	ref method content_type signer url version trace_context created_by`)

var requestTexts = sqldb.Named[acceptEntry](`headers labels policy success sealed_key shared body`)

// requestColumns are the columns of a new row in requests.
func requestColumns(e *acceptEntry) sqldb.Columns {
	return append(requestFields(&e.out.Callback), requestTexts(e)...)
}

// insertCallbacks inserts the rows in callbacks, sorted by id, and returns the drafts whose rows are new.
func (t *tx) insertCallbacks(entries []*acceptEntry) ([]*acceptEntry, error) {
	sorted := slices.SortedFunc(slices.Values(entries), func(a, b *acceptEntry) int {
		return cmp.Compare(a.draft.Callback.ID, b.draft.Callback.ID)
	})
	if !t.MayBeCommitted {
		// Duplicate ids are not expected. If one occurs, the INSERT fails and the group is halved.
		return sorted, sqldb.InsertEach(t.Tx, "callbacks", draftColumns, sorted, "", nil)
	}
	// An earlier try may have committed some rows, although its reply was lost. Those are accepted, and must
	// not be counted again.
	added := make(map[string]bool, len(sorted))
	err := sqldb.InsertEach(t.Tx, "callbacks", draftColumns, sorted, `ON CONFLICT (id) DO NOTHING`,
		func(id string) {
			added[id] = true
		})
	return slices.DeleteFunc(sorted, func(e *acceptEntry) bool { return !added[e.draft.Callback.ID] }), err
}

// insertRequests inserts the shared payloads and the rows in requests. accepted must contain only entries
// that insertCallbacks added in this transaction. So a transaction that is repeated after a lost reply counts
// no user of a payload twice.
func (t *tx) insertRequests(accepted []*acceptEntry) error {
	if err := t.insertPayloads(accepted); err != nil {
		return err
	}
	return named("insert requests", sqldb.InsertEach(t.Tx, "requests", requestColumns, accepted, "", nil))
}

// A newPayload is a shared body and the number of its users in the group.
type newPayload struct {
	ID, Project string
	Users       int64
	Body        []byte
}

var payloadColumns = sqldb.Named[newPayload](`id project users body`)

// insertPayloads inserts the shared bodies, or adds users to bodies that an earlier draft of the same fan-out
// inserted.
func (t *tx) insertPayloads(entries []*acceptEntry) error {
	var payloads map[string]*newPayload
	for _, e := range entries {
		id := e.Shared
		if id == "" {
			continue
		}
		p := payloads[id]
		if p == nil {
			if payloads == nil {
				payloads = make(map[string]*newPayload)
			}
			p = &newPayload{ID: id, Project: e.out.Callback.Project}
			payloads[id] = p
		}
		p.Users++
		if e.draft.Body != nil {
			p.Body = e.draft.Body
		}
	}
	added := make([]*newPayload, 0, len(payloads))
	for _, id := range sortedKeys(payloads) {
		p := payloads[id]
		if p.Body != nil {
			added = append(added, p)
			continue
		}
		n, err := t.Exec(`UPDATE payloads SET users = users + $1 WHERE id = $2 AND project = $3`, p.Users,
			p.ID, p.Project)
		if err != nil {
			return named("share payload", err)
		}
		if n == 0 {
			return fmt.Errorf("shared payload %s does not exist", p.ID)
		}
	}
	return named("insert payloads", sqldb.InsertEach(t.Tx, "payloads", payloadColumns, added,
		`ON CONFLICT (id) DO UPDATE SET users = payloads.users + excluded.users`, nil))
}
