package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// maxList is the most callbacks of a page.
const maxList = 500

// A query is a statement that grows. Parameters are numbered in the order in which they are added.
type query struct {
	text strings.Builder
	args []any
}

// and adds a condition; each ? in it stands for one of the values.
func (q *query) and(condition string, values ...any) {
	q.text.WriteString("\n\tAND ")
	q.add(condition, values...)
}

func (q *query) add(text string, values ...any) {
	for i, part := range strings.Split(text, "?") {
		if i > 0 {
			q.args = append(q.args, values[i-1])
			q.text.WriteString("$" + strconv.Itoa(len(q.args)))
		}
		q.text.WriteString(part)
	}
}

// List returns a page of the project's callbacks. A page may be shorter than its limit and still have a Next.
func (db *DB) List(ctx context.Context, project string, f store.Filter) (store.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	limit := min(max(f.Limit, 1), maxList)
	var q query
	q.add(`SELECT `+callbackColumns+` FROM callbacks WHERE callbacks.project = ?`, project)
	db.filter(&q, project, f)
	if f.ByDue {
		q.and("callbacks.state = 'scheduled'")
		if f.After != nil {
			q.and("(callbacks.due_at, callbacks.id) > (?, ?)", f.After.DueAt, f.After.ID)
		}
		q.add("\n\tORDER BY callbacks.due_at, callbacks.id LIMIT ?", limit+1)
	} else {
		if f.After != nil {
			q.and("callbacks.id < ?", f.After.ID)
		}
		q.add("\n\tORDER BY callbacks.id DESC LIMIT ?", limit+1)
	}
	var page store.Page
	seen := 0
	var last store.Cursor
	err := queryEach(ctx, db.read, func(rows *sql.Rows) error {
		r, err := db.scanCallback(rows)
		if err != nil {
			return err
		}
		if seen++; seen > limit {
			next := last
			page.Next = &next
			return nil
		}
		last = store.Cursor{DueAt: r.DueAt, ID: r.ID}
		if hasLabels(r.Labels, f.Labels) {
			page.Callbacks = append(page.Callbacks, r.Callback)
		}
		return nil
	}, q.text.String(), q.args...)
	if err != nil {
		return store.Page{}, readError("list callbacks", err)
	}
	return page, nil
}

// hasLabels says whether have contains all of want.
func hasLabels(have, want map[string]string) bool {
	for name, value := range want {
		if v, ok := have[name]; !ok || v != value {
			return false
		}
	}
	return true
}

// filter adds the filter's conditions.
func (db *DB) filter(q *query, project string, f store.Filter) {
	if len(f.States) > 0 {
		var states []string
		var values []any
		for _, s := range f.States {
			switch s {
			case store.Scheduled:
				states = append(states, "(callbacks.state = 'scheduled' AND callbacks.claim_until <= ?)")
				values = append(values, f.Now)
			case store.Attempting:
				states = append(states, "(callbacks.state = 'scheduled' AND callbacks.claim_until > ?)")
				values = append(values, f.Now)
			case store.Succeeded, store.Dead, store.Canceled:
				// Written out, not passed: only so a partial index can serve it.
				states = append(states, "callbacks.state = '"+string(s)+"'")
			default:
				states = append(states, "1 = 0")
			}
		}
		q.and("("+strings.Join(states, " OR ")+")", values...)
	}
	for _, equal := range []struct{ name, value string }{
		{"kind", string(f.Kind)}, {"topic", f.Topic}, {"last_class", string(f.Class)},
	} {
		if equal.value != "" {
			q.and("callbacks."+equal.name+" = ?", equal.value)
		}
	}
	if f.Ref != "" {
		q.and("callbacks.ref = ? AND callbacks.ref <> ''", f.Ref)
	}
	if f.Lane != "" {
		q.and("callbacks.lane = (SELECT lanes.id FROM lanes WHERE lanes.project = ? AND lanes.key = ?)", project, f.Lane)
	}
	if f.Status != 0 {
		q.and("callbacks.last_status = ?", f.Status)
	}
	if f.MinAttempts > 0 {
		q.and("callbacks.attempt_count >= ?", f.MinAttempts)
	}
	if f.Overdue {
		q.and("callbacks.state = 'scheduled' AND callbacks.due_at < ? AND callbacks.claim_until <= ?", f.Now, f.Now)
	}
	if f.From != 0 {
		q.and("callbacks.created_at >= ?", f.From)
	}
	if f.To != 0 {
		q.and("callbacks.created_at < ?", f.To)
	}
	db.filterLabels(q, f.Labels)
}

// filterLabels looks for each label in the JSON text, as it was written there. The text is not taken apart in SQL, so
// that a row whose text is damaged spoils no list; the rare text that only looks as if it had the label is left out of
// the page by hasLabels.
func (db *DB) filterLabels(q *query, labels map[string]string) {
	for _, name := range sortedKeys(labels) {
		text, err := encode(map[string]string{name: labels[name]})
		if err != nil {
			q.and("1 = 0")
			continue
		}
		q.and(fmt.Sprintf("%s(callbacks.labels, ?) > 0", db.dialect.position), strings.Trim(text, "{}"))
	}
}
