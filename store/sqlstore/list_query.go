package sqlstore

import (
	"context"
	"strconv"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// maxList is the most callbacks of a page.
const maxList = 500

// No id is below the one or above the other.
const (
	belowAllIDs = "!"
	aboveAllIDs = "~"
)

// A query is a statement that grows. Parameters are numbered in the order in which they are added.
type query struct {
	text string
	args []any
}

// and adds a condition; each ? in it stands for one of the values.
func (q *query) and(condition string, values ...any) { q.add("\n\tAND "+condition, values...) }

// andIf is and, where the filter asks for it.
func (q *query) andIf(asked bool, condition string, values ...any) {
	if asked {
		q.and(condition, values...)
	}
}

func (q *query) add(text string, values ...any) {
	for i, part := range strings.Split(text, "?") {
		if i > 0 {
			q.args = append(q.args, values[i-1])
			q.text += "$" + strconv.Itoa(len(q.args))
		}
		q.text += part
	}
}

// find returns the rows that a query without its SELECT finds.
func find[T any](q sqldb.Querier, columns func(*T) sqldb.Columns, rest *query) ([]T, error) {
	return sqldb.Select(q, columns, rest.text, rest.args...)
}

// List returns a page of the project's callbacks. A page may be shorter than its limit, even empty, and still
// have a Next: a filter that no index serves is looked for in a bounded number of callbacks (see listing).
func (db *DB) List(ctx context.Context, project string, f store.Filter) (store.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, db.sql.Limits.Read)
	defer cancel()
	l := newListing(db, project, f, min(max(f.Limit, 1), maxList))
	// Lists of a large project and of a small one want other plans: PostgreSQL would make one for all, and
	// look for the rows of a small one by id among those of all.
	l.read = db.read(ctx, listCallbacks).Planned()
	if err := l.run(ctx); err != nil {
		return store.Page{}, err
	}
	return l.page, nil
}

const listCallbacks = "list callbacks"

// hasLabels says whether have contains all of want.
func hasLabels(have, want map[string]string) bool {
	for name, value := range want {
		if v, ok := have[name]; !ok || v != value {
			return false
		}
	}
	return true
}

// laneOf is the number of a lane of a project, which its callbacks have.
const laneOf = "(SELECT lanes.id FROM lanes WHERE lanes.project = ? AND lanes.key = ?)"

// An index is what a list is read by.
type index int

const (
	byProject index = iota
	byDue
	byRef
	byLock
	byEndpoint
	byPolls    // which are few among all callbacks
	byDeadLane // the dead of a lane
	byEnded    // one of the states that few callbacks end in
	byGroup    // those that died of one cause (see DeadGroups)
)

// indexFor is the index that serves most of a filter.
func indexFor(f *store.Filter) index {
	var state store.State
	if len(f.States) == 1 {
		state = f.States[0]
	}
	switch dead := state == store.Dead; {
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

// table is the one whose index the list is read by.
func (l *listing) table() string {
	switch l.by {
	case byRef, byEndpoint, byProject:
		return "requests"
	}
	return "callbacks"
}

// from names both tables, such that SQLite begins with the one that the list is read by. Conditions follow it
// with AND.
func (l *listing) from() string {
	if l.table() == "requests" || l.Ref != "" {
		return fromRequests
	}
	return "callbacks CROSS JOIN requests WHERE " + ofCallback
}

// bound adds what the index that the list is read by bounds: where the list begins, where it ends or, if end
// is not nil, the last row to be read of it, and what all its rows have in common. From and To bound the id,
// whose first characters are CreatedAt (docs/adr/0002-partitions-by-day.md). What it leaves out, the function
// filter adds. Each side has one bound, the closest: SQLite goes by the first that it finds.
func (l *listing) bound(q *query, end *store.Cursor) {
	table := l.table()
	if l.by != byDue && l.by != byDeadLane {
		q.add(table+".project = ?", l.project)
	}
	switch l.by {
	case byDue:
		// PostgreSQL knows of due times over all rows, and of pairs nothing: without a bound below that
		// leaves out the zeros of those that have ended, and with the pair alone, it takes a few hundred rows
		// for the half of the table and reads them in parallel.
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
		// written out, as below; PostgreSQL, too, would not know of a value that is passed to a plan for all
		q.and("callbacks.kind = 'poll'")
	case byDeadLane:
		q.add("callbacks.lane = "+laneOf+" AND callbacks.state = 'dead'", l.project, l.Lane)
	case byGroup:
		q.and("callbacks.state = 'dead' AND callbacks.reason = ? AND callbacks.last_class = ? AND "+
			"callbacks.last_status = ?",
			string(l.Reason), string(l.Class), l.status)
	case byEnded:
		// Written out, not passed, and the index's own condition beside it, word for word: only so SQLite
		// takes a partial index.
		q.and("callbacks.state <> 'scheduled' AND callbacks.state <> 'succeeded' AND callbacks.state = '" +
			string(l.States[0]) + "'")
	}
	below := aboveAllIDs // with no bound at all, SQLite would take another index than that of a state
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

// idsFrom is below every id of a callback that was made at the time, in Unix milliseconds, or later, and
// above all earlier ones.
func idsFrom(at int64) string {
	const timeLength = 10
	var id ulid.ULID
	// Times that no id can have are before or after all of them.
	if err := id.SetTime(min(uint64(max(at, 0)), ulid.MaxTime())); err != nil {
		panic(err) // it is not above the most
	}
	return id.String()[:timeLength]
}

// filter adds the conditions that bound leaves out, each of which begins with AND. Where they are not what
// the list is read by, what they name is written so that no index that has it is taken in the place of a
// better one.
func (l *listing) filter(q *query) {
	due := l.by == byDue
	if due && l.Ref != "" {
		q.and("requests.project = ? AND requests.ref = ? AND requests.ref <> ''", l.project, l.Ref)
	} else if due {
		// else SQLite would take an index that begins with the project, and sort
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
	q.andIf(l.MinAttempts > 0, "callbacks.attempt_count >= ?", l.MinAttempts)
	q.andIf(l.Overdue, "callbacks.state = 'scheduled' AND callbacks.due_at < ? AND callbacks.claim_until "+
		"<= ?", l.Now, l.Now)
	filterLabels(q, l.Labels)
}

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
				state += " || ''" // written so that PostgreSQL does not take the index of all that ended so
			}
			states = append(states, state+" = '"+string(s)+"'")
		default:
			states = append(states, "1 = 0")
		}
	}
	q.and("("+strings.Join(states, " OR ")+")", values...)
}

// filterLabels looks for each label in the JSON text, as it was written there. The text is not taken apart in
// SQL, so that a row whose text is damaged spoils no list; the rare text that only looks as if it had the
// label is left out of the page by hasLabels.
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
