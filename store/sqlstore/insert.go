package sqlstore

import (
	"cmp"
	"database/sql"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// insertCallbacks inserts the drafts' rows and returns the ids of those that were not there yet.
func (t *tx) insertCallbacks(entries []*acceptEntry) (map[string]bool, error) {
	inserted := make(map[string]bool, len(entries))
	if len(entries) == 0 {
		return inserted, nil
	}
	columns := draftColumns(slices.SortedFunc(slices.Values(entries), func(a, b *acceptEntry) int {
		return cmp.Compare(a.draft.Callback.ID, b.draft.Callback.ID)
	}))
	names := columnNames(columns)
	input, args, _, err := t.input(columns)
	if err != nil {
		return nil, err
	}
	err = t.each(func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		inserted[id] = true
		return err
	}, `INSERT INTO callbacks (`+names+`)
		SELECT `+names+` FROM `+input+` WHERE 1 = 1
		ON CONFLICT (id) DO NOTHING
		RETURNING id`, args...)
	if err != nil {
		return nil, fmt.Errorf("insert callbacks: %w", err)
	}
	return inserted, nil
}

// draftColumns are the columns of new rows; the others begin at their defaults.
func draftColumns(entries []*acceptEntry) []column {
	text := func(name string, f func(e *acceptEntry, c *store.Callback) string) column {
		return texts(name, entries, func(e *acceptEntry) string { return f(e, &e.out.Callback) })
	}
	number := func(name string, f func(c *store.Callback) int64) column {
		return ints(name, entries, func(e *acceptEntry) int64 { return f(&e.out.Callback) })
	}
	versions := column{name: "version", nullable: make([]*int64, len(entries))}
	for i, e := range entries {
		versions.nullable[i] = e.out.Callback.Version
	}
	return []column{
		text("id", func(_ *acceptEntry, c *store.Callback) string { return c.ID }),
		text("project", func(_ *acceptEntry, c *store.Callback) string { return c.Project }),
		text("kind", func(_ *acceptEntry, c *store.Callback) string { return string(c.Kind) }),
		text("endpoint_id", func(_ *acceptEntry, c *store.Callback) string { return c.EndpointID }),
		text("url", func(_ *acceptEntry, c *store.Callback) string { return c.URL }),
		text("method", func(_ *acceptEntry, c *store.Callback) string { return c.Method }),
		text("headers", func(e *acceptEntry, _ *store.Callback) string { return e.headers }),
		text("topic", func(_ *acceptEntry, c *store.Callback) string { return c.Topic }),
		text("ref", func(_ *acceptEntry, c *store.Callback) string { return c.Ref }),
		text("lock_key", func(_ *acceptEntry, c *store.Callback) string { return c.LockKey }),
		text("labels", func(e *acceptEntry, _ *store.Callback) string { return e.labels }),
		text("policy", func(e *acceptEntry, _ *store.Callback) string { return e.policy }),
		text("success", func(e *acceptEntry, _ *store.Callback) string { return e.success }),
		text("signer", func(_ *acceptEntry, c *store.Callback) string { return c.Signer }),
		text("state", func(_ *acceptEntry, c *store.Callback) string { return string(c.State) }),
		text("reason", func(_ *acceptEntry, c *store.Callback) string { return string(c.Reason) }),
		text("trigger", func(_ *acceptEntry, c *store.Callback) string { return string(c.Trigger) }),
		text("payload_id", func(_ *acceptEntry, c *store.Callback) string { return c.PayloadID }),
		text("content_type", func(_ *acceptEntry, c *store.Callback) string { return c.ContentType }),
		number("lane", func(c *store.Callback) int64 { return c.LaneID }),
		number("due_at", func(c *store.Callback) int64 { return c.DueAt }),
		number("first_due_at", func(c *store.Callback) int64 { return c.FirstDueAt }),
		number("expires_at", func(c *store.Callback) int64 { return c.ExpiresAt }),
		number("ladder_base", func(c *store.Callback) int64 { return int64(c.LadderBase) }),
		number("created_at", func(c *store.Callback) int64 { return c.CreatedAt }),
		number("updated_at", func(c *store.Callback) int64 { return c.UpdatedAt }),
		number("finished_at", func(c *store.Callback) int64 { return c.FinishedAt }),
		number("timeout_ms", func(c *store.Callback) int64 { return timeoutMillis(c.Policy) }),
		versions,
	}
}

// insertPayloads inserts the bodies of accepted drafts. Drafts with the same payload id share one.
func (t *tx) insertPayloads(entries []*acceptEntry) error {
	users := make(map[string]int64)
	bodies := make(map[string][]byte)
	project := make(map[string]string)
	for _, e := range entries {
		id := e.out.Callback.PayloadID
		if id == "" {
			continue
		}
		users[id]++
		project[id] = e.out.Callback.Project
		if e.draft.Body != nil {
			bodies[id] = e.draft.Body
		}
	}
	const upsert = ` ON CONFLICT (id) DO UPDATE SET users = payloads.users + excluded.users`
	ids, projects, counts := textColumn("id", len(users)), textColumn("project", len(users)), intColumn("users", len(users))
	contents := column{name: "body", bytes: make([][]byte, 0, len(users))}
	for _, id := range sortedKeys(users) {
		body, ok := bodies[id]
		if !ok {
			n, err := t.exec(`UPDATE payloads SET users = users + $1 WHERE id = $2 AND project = $3`, users[id], id, project[id])
			if err != nil {
				return fmt.Errorf("share payload: %w", err)
			}
			if n == 0 {
				return fmt.Errorf("payload %s that is to be shared is not there", id)
			}
			continue
		}
		if t.db.dialect.bodiesApart {
			if _, err := t.exec(`INSERT INTO payloads (id, project, users, body) VALUES ($1, $2, $3, $4)`+upsert,
				id, project[id], users[id], body); err != nil {
				return fmt.Errorf("insert payload: %w", err)
			}
			continue
		}
		ids.texts = append(ids.texts, id)
		projects.texts = append(projects.texts, project[id])
		counts.ints = append(counts.ints, users[id])
		contents.bytes = append(contents.bytes, body)
	}
	if len(ids.texts) == 0 {
		return nil
	}
	input, args, _, err := t.input([]column{ids, projects, counts, contents})
	if err != nil {
		return err
	}
	if _, err := t.exec(`INSERT INTO payloads (id, project, users, body)
		SELECT i.id, i.project, i.users, i.body FROM `+input+` WHERE 1 = 1`+upsert, args...); err != nil {
		return fmt.Errorf("insert payloads: %w", err)
	}
	return nil
}
