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

// An acceptEntry is one draft of a group.
type acceptEntry struct {
	draft *store.Draft
	// Headers, Labels, Policy and Success are JSON text of the draft's; Body is its payload if no other draft
	// has it, and Shared else the id of the payload.
	Headers, Labels, Policy, Success string
	Shared                           string
	Body                             []byte
	HasPayload                       bool
	Timeout                          int64
	// SealedKey is the id of the master key that the draft's credentials are sealed with, PollKey the same of
	// its poll's.
	SealedKey, PollKey string
	Context            string
	// OnResult is JSON of a poll's result callback; Live, the key under which the poll is the open one.
	OnResult, Live string
	// original is the draft of the same group that this one is the same as: its answer is that one's.
	original *acceptEntry
	out      store.Accepted
}

// Fail implements [sqldb.Entry].
func (e *acceptEntry) Fail(err error) { e.out = store.Accepted{Err: err} }

// Accept commits the drafts in one transaction, with those of other callers, and answers each in its place.
// Its error is store.ErrUnavailable or the context's: then none is known to be accepted. (They may be where
// the caller's context ended while the transaction ran, or where the connection broke for good with the
// commit under way.) A draft that alone is refused has its reason in Err. The drafts must not be changed
// afterwards: the group may still run when the caller's context has ended.
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

// remember keeps what was accepted for its first stamp. A body that it shares with others is not known here.
func (db *DB) cacheAccepted(e *acceptEntry) {
	if c := &e.out.Callback; e.out.Err == nil && !e.out.Replayed &&
		(e.draft.Body != nil || c.PayloadID == "") {
		db.accepted.add(c, e.draft.Body)
	}
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
		if e.original == nil {
			continue
		}
		original := e.original
		for original.original != nil { // the same request as one that became the open poll of another
			original = original.original
		}
		e.out = store.Accepted{Callback: original.out.Callback, Replayed: true, Err: original.out.Err}
	}
	return nil
}

func (t *tx) acceptAll(entries []*acceptEntry) error {
	entries, err := t.placeDrafts(entries)
	if err != nil {
		return err
	}
	fresh, err := t.takeIdempotencyKeys(entries)
	if err != nil {
		return err
	}
	fresh, err = t.registerPolls(fresh)
	if err != nil {
		return err
	}
	if err := t.supersede(fresh); err != nil {
		return err
	}
	accepted, err := t.insertCallbacks(fresh)
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

// placeDrafts begins the answers to drafts and gives each its lane. It returns those that have one.
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

// encode writes the structured parts of the draft as JSON text.
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

var draftFields = sqldb.Named[store.Callback](`id project kind lock_key state reason trigger lane=LaneID due_at expires_at ladder_base
	updated_at finished_at strict`)

// draftColumns are the first rows of callbacks; the columns that are not named begin at their defaults.
func draftColumns(e *acceptEntry) sqldb.Columns {
	return append(draftFields(&e.out.Callback), col("timeout_ms", &e.Timeout),
		col("payload", sqldb.Bool(&e.HasPayload)))
}

var requestFields = sqldb.Named[store.Callback](`id project created_at first_due_at follows endpoint_id topic ref method content_type
	signer url version`)

var requestTexts = sqldb.Named[acceptEntry](`headers labels policy success sealed_key shared body`)

// requestColumns are the second rows of callbacks.
func requestColumns(e *acceptEntry) sqldb.Columns {
	return append(requestFields(&e.out.Callback), requestTexts(e)...)
}

// insertCallbacks inserts the drafts' first rows, and returns those that were not there yet, by id.
func (t *tx) insertCallbacks(entries []*acceptEntry) ([]*acceptEntry, error) {
	sorted := slices.SortedFunc(slices.Values(entries), func(a, b *acceptEntry) int {
		return cmp.Compare(a.draft.Callback.ID, b.draft.Callback.ID)
	})
	if !t.Again {
		// Duplicate ids are not expected. If one occurs, the INSERT fails and the group is halved.
		return sorted, sqldb.InsertEach(t.Tx, "callbacks", draftColumns, sorted, "", nil)
	}
	// Rows that are there may be those that the first try committed without our hearing of it.
	added := make(map[string]bool, len(sorted))
	err := sqldb.InsertEach(t.Tx, "callbacks", draftColumns, sorted, `ON CONFLICT (id) DO NOTHING`,
		func(id string) {
			added[id] = true
		})
	return slices.DeleteFunc(sorted, func(e *acceptEntry) bool { return !added[e.draft.Callback.ID] }), err
}

// insertRequests inserts the second rows of drafts whose first rows are new, and the payloads that they
// share.
func (t *tx) insertRequests(accepted []*acceptEntry) error {
	if err := t.insertPayloads(accepted); err != nil {
		return err
	}
	return named("insert requests", sqldb.InsertEach(t.Tx, "requests", requestColumns, accepted, "", nil))
}

// A newPayload is a body and how many drafts of the group share it.
type newPayload struct {
	ID, Project string
	Users       int64
	Body        []byte
}

var payloadColumns = sqldb.Named[newPayload](`id project users body`)

// insertPayloads inserts the bodies that accepted drafts share.
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
	fresh := make([]*newPayload, 0, len(payloads))
	for _, id := range sortedKeys(payloads) {
		p := payloads[id]
		if p.Body != nil {
			fresh = append(fresh, p)
			continue
		}
		n, err := t.Exec(`UPDATE payloads SET users = users + $1 WHERE id = $2 AND project = $3`, p.Users,
			p.ID, p.Project)
		if err != nil {
			return named("share payload", err)
		}
		if n == 0 {
			return fmt.Errorf("payload %s that is to be shared is not there", p.ID)
		}
	}
	return named("insert payloads", sqldb.InsertEach(t.Tx, "payloads", payloadColumns, fresh,
		`ON CONFLICT (id) DO UPDATE SET users = payloads.users + excluded.users`, nil))
}
