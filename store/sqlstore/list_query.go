package sqlstore

import (
	"context"
	"strconv"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// This file builds the statements of lists: which index serves a filter, what that index bounds, and what the
// rest of the filter compares. list_scan.go runs them.

// maxList is the maximum number of callbacks on a page.
const maxList = 500

// Bounds of ids: no id sorts before the first or after the second.
const (
	belowAllIDs = "!"
	aboveAllIDs = "~"
)

// A query is a statement that is built in parts. Its parameters are numbered in the order in which they are
// added.
type query struct {
	text string
	args []any
}

// and adds a condition. Each ? in it stands for one of the values.
func (q *query) and(condition string, values ...any) { q.add("\n\tAND "+condition, values...) }

// andIf is and if the filter wants the condition.
func (q *query) andIf(asked bool, condition string, values ...any) {
	if asked {
		q.and(condition, values...)
	}
}

// add appends text. Each ? in it becomes the next parameter.
func (q *query) add(text string, values ...any) {
	for i, part := range strings.Split(text, "?") {
		if i > 0 {
			q.args = append(q.args, values[i-1])
			q.text += "$" + strconv.Itoa(len(q.args))
		}
		q.text += part
	}
}

// find runs a query that begins with FROM.
func find[T any](q sqldb.Querier, columns func(*T) sqldb.Columns, rest *query) ([]T, error) {
	return sqldb.Select(q, columns, rest.text, rest.args...)
}

// List returns a page of the project's callbacks. A page may be shorter than its limit, even empty, and still
// have a Next: a filter that no index serves is applied in a scan of bounded size (see listing).
func (db *DB) List(ctx context.Context, project string, f store.Filter) (store.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, db.sql.Limits.Read)
	defer cancel()
	l := newListing(db, project, f, min(max(f.Limit, 1), maxList))
	// Planned makes PostgreSQL plan for these values. With one plan for all values it would choose the plan
	// of a large project, and search the rows of a small one by id among those of all.
	l.read = db.read(ctx, listCallbacks).Planned()
	if err := l.run(ctx); err != nil {
		return store.Page{}, err
	}
	return l.page, nil
}

const listCallbacks = "list callbacks"

// hasLabels reports whether have contains all of want.
func hasLabels(have, want map[string]string) bool {
	for name, value := range want {
		if v, ok := have[name]; !ok || v != value {
			return false
		}
	}
	return true
}

// laneOf finds the id of a lane by its project and key.
const laneOf = "(SELECT lanes.id FROM lanes WHERE lanes.project = ? AND lanes.key = ?)"

// An index is the one that a list is read by.
type index int

const (
	byProject index = iota
	byDue
	byRef
	byLock
	byEndpoint
	byPolls    // few of all callbacks are polls
	byDeadLane // the dead of one lane
	byEnded    // dead or canceled, which few callbacks are
	byGroup    // the dead of one reason and class (see DeadGroups)
)

// indexFor chooses the index that a list is read by. A list in due order needs byDue. The other indexes are
// tried from those that usually leave few rows for the rest of the filter to those that leave many. A bad
// choice is slow and never wrong: bound and filter together contain every condition. For byEnded, byDeadLane
// and byGroup that holds because one state alone leads to them. byGroup needs one status too, which
// findStatus looks up.
func indexFor(f *store.Filter) index {
	var state store.State
	if len(f.States) == 1 {
		state = f.States[0]
	}
	dead := state == store.Dead
	switch {
	case f.ByDue:
		return byDue
	case f.Ref != "":
		return byRef
	case f.LockKey != "":
		return byLock
	case f.EndpointID != "":
		return byEndpoint
	case f.Kind == store.Poll:
		return byPolls
	case dead && f.Lane != "":
		return byDeadLane
	case dead && f.Reason != "" && f.Class != "":
		return byGroup
	case dead || state == store.Canceled:
		return byEnded
	}
	return byProject
}

// table is the table of the chosen index.
func (l *listing) table() string {
	switch l.by {
	case byRef, byEndpoint, byProject:
		return "requests"
	}
	return "callbacks"
}

// from joins both tables and makes SQLite begin with the table of the chosen index. Conditions follow with
// AND.
func (l *listing) from() string {
	if l.table() == "requests" || l.Ref != "" {
		return fromRequests
	}
	return "callbacks CROSS JOIN requests WHERE " + ofCallback
}

// bound adds the conditions that the chosen index serves: what all rows of the list have in common, where the
// page begins, and where the list ends or, if end is not nil, the last row to read. filter adds the rest of
// the filter. From and To bound the id, which begins with the time of CreatedAt
// (docs/adr/0002-partitions-by-day.md). Each side of the range has one bound, the closest: SQLite uses only
// the first that it finds.
func (l *listing) bound(q *query, end *store.Cursor) {
	table := l.table()
	if l.by != byDue && l.by != byDeadLane {
		q.add(table+".project = ?", l.project)
	}
	switch l.by {
	case byDue:
		// The plain bounds on due_at are for PostgreSQL. It has statistics of due_at, in which ended rows
		// have zero, but none of the pair. With the pair alone it estimates half of the table, and scans it
		// in parallel.
		after := store.Cursor{DueAt: 1}
		if l.After != nil {
			after = *l.After
		}
		q.add("callbacks.state = 'scheduled'")
		q.and("callbacks.due_at >= ? AND (callbacks.due_at, callbacks.id) > (?, ?)", after.DueAt, after.DueAt,
			after.ID)
		switch {
		case end != nil:
			q.and("callbacks.due_at <= ? AND (callbacks.due_at, callbacks.id) <= (?, ?)", end.DueAt,
				end.DueAt, end.ID)
		case l.Overdue:
			q.and("callbacks.due_at < ?", l.Now)
		}
		return
	case byRef:
		q.and("requests.ref = ? AND requests.ref <> ''", l.Ref)
	case byLock:
		q.and("callbacks.lock_key = ? AND callbacks.lock_key <> ''", l.LockKey)
	case byEndpoint:
		q.and("requests.endpoint_id = ? AND requests.endpoint_id <> ''", l.EndpointID)
	case byPolls:
		// Written out like the state below. With a parameter PostgreSQL could not match the index's WHERE in
		// a generic plan.
		q.and("callbacks.kind = 'poll'")
	case byDeadLane:
		q.add("callbacks.lane = "+laneOf+" AND callbacks.state = 'dead'", l.project, l.Lane)
	case byGroup:
		q.and("callbacks.state = 'dead'")
		q.and("callbacks.reason = ? AND callbacks.last_class = ? AND callbacks.last_status = ?",
			string(l.Reason), string(l.Class), l.status)
	case byEnded:
		// The state is written out, and the index's own WHERE is repeated word for word. Otherwise SQLite
		// does not use the partial index.
		q.and("callbacks.state <> 'scheduled' AND callbacks.state <> 'succeeded' AND callbacks.state = '" +
			string(l.States[0]) + "'")
	}
	below := aboveAllIDs // without any bound SQLite would take another index than that of the state
	if l.After != nil {
		below = l.After.ID
	}
	if l.To != 0 {
		below = min(below, idsFrom(l.To))
	}
	q.and(table+".id < ?", below)
	switch {
	case end != nil:
		q.and(table+".id >= ?", end.ID)
	case l.From != 0:
		q.and(table+".id >= ?", idsFrom(l.From))
	}
}

// idsFrom returns the prefix of the ids that were made at the time, in Unix milliseconds. It sorts before all
// ids of that time or later, and after all earlier ones.
func idsFrom(at int64) string {
	const timeLength = 10
	var id ulid.ULID
	// A time that no id can have is replaced by the first or the last possible one.
	if err := id.SetTime(min(uint64(max(at, 0)), ulid.MaxTime())); err != nil {
		panic(err) // cannot happen: the time is at most ulid.MaxTime
	}
	return id.String()[:timeLength]
}

// filter adds the conditions that bound leaves out, each beginning with AND. An indexed column is compared as
// an expression, so that the database does not use its index in the place of the chosen one.
func (l *listing) filter(q *query) {
	due := l.by == byDue
	if due && l.Ref != "" {
		q.and("requests.project = ? AND requests.ref = ? AND requests.ref <> ''", l.project, l.Ref)
	} else if due {
		// Otherwise SQLite would take an index that begins with the project, and sort.
		q.and("callbacks.project || '' = ?", l.project)
	}
	if len(l.States) > 0 && l.by != byEnded && l.by != byGroup && l.by != byDeadLane {
		l.filterStates(q)
	}
	q.andIf(due && l.From != 0, "callbacks.id || '' >= ?", idsFrom(l.From))
	q.andIf(due && l.To != 0, "callbacks.id || '' < ?", idsFrom(l.To))
	q.andIf(l.Kind != "" && l.by != byPolls, "callbacks.kind || '' = ?", string(l.Kind))
	q.andIf(l.Topic != "", "requests.topic = ?", l.Topic)
	q.andIf(l.Class != "" && l.by != byGroup, "callbacks.last_class || '' = ?", string(l.Class))
	q.andIf(l.LockKey != "" && l.by != byLock, "callbacks.lock_key || '' = ?", l.LockKey)
	q.andIf(l.EndpointID != "" && l.by != byEndpoint, "requests.endpoint_id || '' = ?", l.EndpointID)
	q.andIf(l.Reason != "" && l.by != byGroup,
		"callbacks.reason || '' = ? AND callbacks.state <> 'scheduled'", string(l.Reason))
	q.andIf(l.Lane != "" && l.by != byDeadLane, "callbacks.lane + 0 = "+laneOf, l.project, l.Lane)
	q.andIf(l.Status != 0 && l.by != byGroup, "callbacks.last_status + 0 = ?", l.Status)
	// The sum keeps the databases from the indexes of retention.
	q.andIf(l.FinishedFrom != 0, "callbacks.finished_at + 0 >= ?", l.FinishedFrom)
	q.andIf(l.FinishedTo != 0, "callbacks.finished_at + 0 < ? AND callbacks.state <> 'scheduled'",
		l.FinishedTo)
	q.andIf(l.MinAttempts > 0, "callbacks.attempt_count >= ?", l.MinAttempts)
	q.andIf(l.Overdue,
		"callbacks.state = 'scheduled' AND callbacks.due_at < ? AND callbacks.claim_until <= ?", l.Now, l.Now)
	q.andIf(l.Begun, "(callbacks.attempt_seq > 0 OR requests.first_due_at <= ?)", l.Now)
	filterLabels(q, l.Labels)
}

// filterStates adds a condition for the states. Scheduled and attempting are both stored as scheduled, and
// differ by claim_until.
func (l *listing) filterStates(q *query) {
	var states []string
	var values []any
	for _, s := range l.States {
		switch s {
		case store.Scheduled:
			states = append(states, "(callbacks.state = 'scheduled' AND callbacks.claim_until <= ?)")
			values = append(values, l.Now)
		case store.Attempting:
			states = append(states, "(callbacks.state = 'scheduled' AND callbacks.claim_until > ?)")
			values = append(values, l.Now)
		case store.Succeeded, store.Dead, store.Canceled:
			state := "callbacks.state"
			if l.by == byPolls || l.LockKey != "" {
				state += " || ''" // otherwise PostgreSQL takes the index callbacks_ended
			}
			states = append(states, state+" = '"+string(s)+"'")
		default:
			states = append(states, "1 = 0")
		}
	}
	q.and("("+strings.Join(states, " OR ")+")", values...)
}

// filterLabels searches the JSON text for each label as encode writes it. SQL does not parse the text, so a
// row with damaged labels breaks no list. A text may contain the search text by accident; hasLabels removes
// such rows from the page.
func filterLabels(q *query, labels map[string]string) {
	for _, name := range sortedKeys(labels) {
		text, err := encode(map[string]string{name: labels[name]})
		if err != nil {
			q.and("1 = 0")
			continue
		}
		q.and("strpos(requests.labels, ?) > 0", strings.Trim(text, "{}"))
	}
}
