package sqlstore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// draftInsert makes new rows; the columns that it does not name begin at their defaults. markedInsert does so for the few that are marked.
var (
	draftInsert  = newBulkInsert("callbacks", draftFields(), onlyNew)
	markedInsert = newBulkInsert("callbacks", append(draftFields(),
		numberField("follows", func(e *acceptEntry) int64 { return flag(e.out.Callback.Follows) }),
		numberField("strict", func(e *acceptEntry) int64 { return flag(e.out.Callback.Strict) }),
		textField("sealed_key", func(e *acceptEntry) string { return store.SealedKey(e.out.Callback.Headers) }),
	), onlyNew)
)

const onlyNew = `ON CONFLICT (id) DO NOTHING`

// marked says that the row has something that most have not.
func (e *acceptEntry) marked() bool {
	c := &e.out.Callback
	return c.Follows || c.Strict || store.SealedKey(c.Headers) != ""
}

func draftFields() fields[*acceptEntry] {
	return fields[*acceptEntry]{
		textField("id", func(e *acceptEntry) string { return e.out.Callback.ID }),
		textField("project", func(e *acceptEntry) string { return e.out.Callback.Project }),
		textField("kind", func(e *acceptEntry) string { return string(e.out.Callback.Kind) }),
		textField("endpoint_id", func(e *acceptEntry) string { return e.out.Callback.EndpointID }),
		textField("url", func(e *acceptEntry) string { return e.out.Callback.URL }),
		textField("method", func(e *acceptEntry) string { return e.out.Callback.Method }),
		textField("headers", func(e *acceptEntry) string { return e.headers }),
		textField("topic", func(e *acceptEntry) string { return e.out.Callback.Topic }),
		textField("ref", func(e *acceptEntry) string { return e.out.Callback.Ref }),
		textField("lock_key", func(e *acceptEntry) string { return e.out.Callback.LockKey }),
		textField("labels", func(e *acceptEntry) string { return e.labels }),
		textField("policy", func(e *acceptEntry) string { return e.policy }),
		textField("success", func(e *acceptEntry) string { return e.success }),
		textField("signer", func(e *acceptEntry) string { return e.out.Callback.Signer }),
		textField("state", func(e *acceptEntry) string { return string(e.out.Callback.State) }),
		textField("reason", func(e *acceptEntry) string { return string(e.out.Callback.Reason) }),
		textField("trigger", func(e *acceptEntry) string { return string(e.out.Callback.Trigger) }),
		textField("payload_id", func(e *acceptEntry) string { return e.out.Callback.PayloadID }),
		textField("content_type", func(e *acceptEntry) string { return e.out.Callback.ContentType }),
		numberField("lane", func(e *acceptEntry) int64 { return e.out.Callback.LaneID }),
		numberField("due_at", func(e *acceptEntry) int64 { return e.out.Callback.DueAt }),
		numberField("first_due_at", func(e *acceptEntry) int64 { return e.out.Callback.FirstDueAt }),
		numberField("expires_at", func(e *acceptEntry) int64 { return e.out.Callback.ExpiresAt }),
		numberField("ladder_base", func(e *acceptEntry) int64 { return int64(e.out.Callback.LadderBase) }),
		numberField("created_at", func(e *acceptEntry) int64 { return e.out.Callback.CreatedAt }),
		numberField("updated_at", func(e *acceptEntry) int64 { return e.out.Callback.UpdatedAt }),
		numberField("finished_at", func(e *acceptEntry) int64 { return e.out.Callback.FinishedAt }),
		numberField("timeout_ms", func(e *acceptEntry) int64 { return timeoutMillis(e.out.Callback.Policy) }),
		{name: "version", maybe: func(e *acceptEntry) *int64 { return e.out.Callback.Version }},
	}
}

// insertCallbacks inserts the drafts' rows and returns the ids of those that were not there yet.
func (t *tx) insertCallbacks(entries []*acceptEntry) (map[string]bool, error) {
	inserted := make(map[string]bool, len(entries))
	sorted := slices.SortedFunc(slices.Values(entries), func(a, b *acceptEntry) int {
		return cmp.Compare(a.draft.Callback.ID, b.draft.Callback.ID)
	})
	marked := slices.IndexFunc(sorted, (*acceptEntry).marked)
	plain := sorted
	var rest []*acceptEntry
	if marked >= 0 {
		plain = nil
		for _, e := range sorted {
			if e.marked() {
				rest = append(rest, e)
			} else {
				plain = append(plain, e)
			}
		}
	}
	if t.group != nil && !t.again {
		// None can be there: then the transaction fails, and its halves are tried. So nothing need be heard before the commit.
		for _, e := range sorted {
			inserted[e.draft.Callback.ID] = true
		}
		if err := errors.Join(draftInsert.later(t, plain), markedInsert.later(t, rest)); err != nil {
			return nil, fmt.Errorf("insert callbacks: %w", err)
		}
		return inserted, nil
	}
	add := func(id string) { inserted[id] = true }
	if err := draftInsert.run(t, plain, add); err != nil {
		return nil, fmt.Errorf("insert callbacks: %w", err)
	}
	if err := markedInsert.run(t, rest, add); err != nil {
		return nil, fmt.Errorf("insert callbacks: %w", err)
	}
	return inserted, nil
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

// insertPayloads inserts the bodies of accepted drafts. Drafts with the same payload id share one.
func (t *tx) insertPayloads(entries []*acceptEntry) error {
	payloads := make(map[string]*newPayload, len(entries))
	for _, e := range entries {
		id := e.out.Callback.PayloadID
		if id == "" {
			continue
		}
		p := payloads[id]
		if p == nil {
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
