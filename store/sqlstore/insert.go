package sqlstore

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// draftInsert makes the first rows of callbacks; the columns that it does not name begin at their defaults.
var draftInsert = newBulkInsert("callbacks", fields[*acceptEntry]{
	textField("id", func(e *acceptEntry) string { return e.out.Callback.ID }),
	textField("project", func(e *acceptEntry) string { return e.out.Callback.Project }),
	textField("kind", func(e *acceptEntry) string { return string(e.out.Callback.Kind) }),
	textField("lock_key", func(e *acceptEntry) string { return e.out.Callback.LockKey }),
	textField("state", func(e *acceptEntry) string { return string(e.out.Callback.State) }),
	textField("reason", func(e *acceptEntry) string { return string(e.out.Callback.Reason) }),
	textField("trigger", func(e *acceptEntry) string { return string(e.out.Callback.Trigger) }),
	numberField("lane", func(e *acceptEntry) int64 { return e.out.Callback.LaneID }),
	numberField("due_at", func(e *acceptEntry) int64 { return e.out.Callback.DueAt }),
	numberField("expires_at", func(e *acceptEntry) int64 { return e.out.Callback.ExpiresAt }),
	numberField("ladder_base", func(e *acceptEntry) int64 { return int64(e.out.Callback.LadderBase) }),
	numberField("updated_at", func(e *acceptEntry) int64 { return e.out.Callback.UpdatedAt }),
	numberField("finished_at", func(e *acceptEntry) int64 { return e.out.Callback.FinishedAt }),
	numberField("timeout_ms", func(e *acceptEntry) int64 { return timeoutMillis(e.out.Callback.Policy) }),
	numberField("strict", func(e *acceptEntry) int64 { return flag(e.out.Callback.Strict) }),
	numberField("payload", func(e *acceptEntry) int64 { return flag(e.out.Callback.PayloadID != "") }),
}, `ON CONFLICT (id) DO NOTHING`)

// requestInsert makes the second rows of callbacks whose first rows are new.
var requestInsert = newBulkInsert("requests", fields[*acceptEntry]{
	textField("id", func(e *acceptEntry) string { return e.out.Callback.ID }),
	textField("project", func(e *acceptEntry) string { return e.out.Callback.Project }),
	numberField("created_at", func(e *acceptEntry) int64 { return e.out.Callback.CreatedAt }),
	numberField("first_due_at", func(e *acceptEntry) int64 { return e.out.Callback.FirstDueAt }),
	numberField("follows", func(e *acceptEntry) int64 { return flag(e.out.Callback.Follows) }),
	textField("endpoint_id", func(e *acceptEntry) string { return e.out.Callback.EndpointID }),
	textField("topic", func(e *acceptEntry) string { return e.out.Callback.Topic }),
	textField("ref", func(e *acceptEntry) string { return e.out.Callback.Ref }),
	textField("method", func(e *acceptEntry) string { return e.out.Callback.Method }),
	textField("content_type", func(e *acceptEntry) string { return e.out.Callback.ContentType }),
	textField("signer", func(e *acceptEntry) string { return e.out.Callback.Signer }),
	textField("url", func(e *acceptEntry) string { return e.out.Callback.URL }),
	textField("headers", func(e *acceptEntry) string { return e.headers }),
	textField("labels", func(e *acceptEntry) string { return e.labels }),
	textField("policy", func(e *acceptEntry) string { return e.policy }),
	textField("success", func(e *acceptEntry) string { return e.success }),
	textField("sealed_key", func(e *acceptEntry) string { return store.SealedKey(e.out.Callback.Headers) }),
	textField("shared", (*acceptEntry).shared),
	{name: "version", maybe: func(e *acceptEntry) *int64 { return e.out.Callback.Version }},
	{name: "body", bytes: (*acceptEntry).ownBody},
}, "")

// shared is the id of a payload that several drafts share, or empty.
func (e *acceptEntry) shared() string { return e.draft.Callback.PayloadID }

// ownBody is the draft's payload if no other draft has it.
func (e *acceptEntry) ownBody() []byte {
	if e.shared() != "" {
		return nil
	}
	return e.draft.Body
}

// insertCallbacks inserts the drafts' first rows, and returns the ids of those that were not there yet.
func (t *tx) insertCallbacks(entries []*acceptEntry) (map[string]bool, error) {
	inserted := make(map[string]bool, len(entries))
	sorted := sortedByID(entries)
	add := func(id string) { inserted[id] = true }
	var err error
	if t.group != nil && !t.again {
		// None can be there: then the transaction fails, and its halves are tried. So nothing need be heard before the commit.
		for _, e := range sorted {
			add(e.draft.Callback.ID)
		}
		err = draftInsert.later(t, sorted)
	} else {
		err = draftInsert.run(t, sorted, add)
	}
	if err != nil {
		return nil, fmt.Errorf("insert callbacks: %w", err)
	}
	return inserted, nil
}

func sortedByID(entries []*acceptEntry) []*acceptEntry {
	return slices.SortedFunc(slices.Values(entries), func(a, b *acceptEntry) int {
		return cmp.Compare(a.draft.Callback.ID, b.draft.Callback.ID)
	})
}

// insertRequests inserts the second rows of drafts whose first rows are new, and the payloads that they
// share.
func (t *tx) insertRequests(accepted []*acceptEntry) error {
	if err := t.insertPayloads(accepted); err != nil {
		return err
	}
	if err := requestInsert.run(t, sortedByID(accepted), nil); err != nil {
		return fmt.Errorf("insert requests: %w", err)
	}
	return nil
}

// A newPayload is a body and how many drafts of the group share it.
type newPayload struct {
	id, project string
	users       int64
	body        []byte
}

var payloadInsert = newBulkInsert("payloads", fields[*newPayload]{
	textField("id", func(p *newPayload) string { return p.id }),
	textField("project", func(p *newPayload) string { return p.project }),
	numberField("users", func(p *newPayload) int64 { return p.users }),
	{name: "body", bytes: func(p *newPayload) []byte { return p.body }},
}, `ON CONFLICT (id) DO UPDATE SET users = payloads.users + excluded.users`)

// insertPayloads inserts the bodies that accepted drafts share.
func (t *tx) insertPayloads(entries []*acceptEntry) error {
	var payloads map[string]*newPayload
	for _, e := range entries {
		id := e.shared()
		if id == "" {
			continue
		}
		p := payloads[id]
		if p == nil {
			if payloads == nil {
				payloads = make(map[string]*newPayload)
			}
			p = &newPayload{id: id, project: e.out.Callback.Project}
			payloads[id] = p
		}
		p.users++
		if e.draft.Body != nil {
			p.body = e.draft.Body
		}
	}
	fresh := make([]*newPayload, 0, len(payloads))
	for _, id := range sortedKeys(payloads) {
		p := payloads[id]
		if p.body != nil {
			fresh = append(fresh, p)
			continue
		}
		n, err := t.exec(`UPDATE payloads SET users = users + $1 WHERE id = $2 AND project = $3`, p.users, p.id, p.project)
		if err != nil {
			return fmt.Errorf("share payload: %w", err)
		}
		if n == 0 {
			return fmt.Errorf("payload %s that is to be shared is not there", p.id)
		}
	}
	if err := payloadInsert.run(t, fresh, nil); err != nil {
		return fmt.Errorf("insert payloads: %w", err)
	}
	return nil
}
