package sqlstore

import (
	"context"
	"strconv"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/seed-ff5a32d8/dispatcher/store"
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

// List returns a page of the project's callbacks. A page may be shorter than its limit, even empty, and still have a Next: a
// filter that no index serves is looked for in a bounded number of callbacks (see listing).
func (db *DB) List(ctx context.Context, project string, f store.Filter) (store.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, db.sql.Limits.Read)
	defer cancel()
	l := listing{db: db, project: project, Filter: f, left: min(max(f.Limit, 1), maxList)}
	// Lists of a large project and of a small one want other plans: PostgreSQL would make one for all, and look for the
	// rows of a small one by id among those of all.
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

// bound adds what the index that the list is read by bounds: where the list begins, where it ends or, if end is not nil, the last row
// to be read of it, and what all its rows have in common. From and To bound the id, whose first characters are CreatedAt
// (docs/adr/0002-partitions-by-day.md). What it leaves out, the function filter adds. Each side has one bound, the closest: SQLite goes
// by the first that it finds.
func (l *listing) bound(q *query, end *store.Cursor) {
	if l.ByDue {
		// PostgreSQL knows of due times over all rows, and of pairs nothing: without a bound below that leaves out the zeros of those that
		// have ended, and with the pair alone, it takes a few hundred rows for the half of the table and reads them in parallel.
		after := store.Cursor{DueAt: 1}
		if l.After != nil {
			after = *l.After
		}
		q.add("callbacks.state = 'scheduled'")
		q.and("callbacks.due_at >= ? AND (callbacks.due_at, callbacks.id) > (?, ?)", after.DueAt, after.DueAt, after.ID)
		switch {
		case end != nil:
			q.and("callbacks.due_at <= ? AND (callbacks.due_at, callbacks.id) <= (?, ?)", end.DueAt, end.DueAt, end.ID)
		case l.Overdue:
			q.and("callbacks.due_at < ?", l.Now)
		}
		return
	}
	table := l.table()
	if l.byDeadLane() {
		q.add("callbacks.lane = "+laneOf+" AND callbacks.state = 'dead'", l.project, l.Lane)
	} else {
		q.add(table+".project = ?", l.project)
	}
	switch {
	case l.Ref != "":
		q.and("requests.ref = ? AND requests.ref <> ''", l.Ref)
	case l.LockKey != "":
		q.and("callbacks.lock_key = ? AND callbacks.lock_key <> ''", l.LockKey)
	case l.EndpointID != "":
		q.and("requests.endpoint_id = ? AND requests.endpoint_id <> ''", l.EndpointID)
	case l.byPoll():
		q.and("callbacks.kind = 'poll'") // written out, as below; PostgreSQL, too, would not know of a value that is passed to a plan for all
	case l.byGroup():
		q.and("callbacks.state = 'dead' AND callbacks.reason = ? AND callbacks.last_class = ? AND callbacks.last_status = ?",
			string(l.Reason), string(l.Class), *l.status)
	case l.byEnded():
		// Written out, not passed, and the index's own condition beside it, word for word: only so SQLite takes a partial index.
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

// table is the one whose index the list is read by.
func (l *listing) table() string {
	switch {
	case l.ByDue:
		return "callbacks"
	case l.Ref != "":
		return "requests"
	case l.LockKey != "":
		return "callbacks"
	case l.EndpointID != "":
		return "requests"
	case l.byPoll() || l.byDeadLane() || l.byEnded():
		return "callbacks"
	}
	return "requests"
}

// from names both tables, such that SQLite begins with the one that the list is read by. Conditions follow it
// with AND.
func (l *listing) from() string {
	if l.table() == "requests" || l.Ref != "" {
		return fromRequests
	}
	return "callbacks CROSS JOIN requests WHERE " + ofCallback
}

// byFew says that the list is read by the index of a reference, a lock key or an endpoint: those have few of all callbacks.
func (l *listing) byFew() bool {
	return !l.ByDue && (l.Ref != "" || l.LockKey != "" || l.EndpointID != "")
}

// byPoll says that the list is read by the index of polls, which are few among all callbacks.
func (l *listing) byPoll() bool { return l.Kind == store.Poll && !l.ByDue && !l.byFew() }

// byGroup says that the list is read by the index of those that died of one cause (see DeadGroups).
func (l *listing) byGroup() bool { return l.status != nil && l.canGroup() }

// canGroup says that the list has only callbacks that died for one reason with one class.
func (l *listing) canGroup() bool {
	return l.byEnded() && l.States[0] == store.Dead && l.Reason != "" && l.Class != ""
}

// byDeadLane says that the list is read by the index of the dead of a lane.
func (l *listing) byDeadLane() bool {
	return !l.ByDue && !l.byFew() && !l.byPoll() && l.Lane != "" && len(l.States) == 1 && l.States[0] == store.Dead
}

// byEnded says that the list is read by the index of one state that few callbacks end in.
func (l *listing) byEnded() bool {
	return !l.ByDue && !l.byFew() && !l.byPoll() && !l.byDeadLane() && len(l.States) == 1 && (l.States[0] == store.Dead || l.States[0] == store.Canceled)
}

// idsFrom is below every id of a callback that was made at the time, in Unix milliseconds, or later, and above all earlier ones.
func idsFrom(at int64) string {
	const timeLength = 10
	var id ulid.ULID
	// Times that no id can have are before or after all of them.
	if err := id.SetTime(min(uint64(max(at, 0)), ulid.MaxTime())); err != nil {
		panic(err) // it is not above the most
	}
	return id.String()[:timeLength]
}

// filter adds the conditions that bound leaves out, each of which begins with AND.
func (l *listing) filter(q *query) {
	if l.ByDue {
		switch {
		case l.Ref != "":
			q.and("requests.project = ? AND requests.ref = ? AND requests.ref <> ''", l.project, l.Ref)
		default:
			// Written so that SQLite does not take an index that begins with the project, and sort.
			q.and("callbacks.project || '' = ?", l.project)
		}
		if l.From != 0 {
			q.and("callbacks.id >= ?", idsFrom(l.From))
		}
		if l.To != 0 {
			q.and("callbacks.id < ?", idsFrom(l.To))
		}
	}
	if len(l.States) > 0 && !l.byEnded() && !l.byDeadLane() {
		l.filterStates(q)
	}
	// Where they are not what the list is read by, what they name is written so that no index that has it is taken in the place of a better one.
	for _, equal := range []struct {
		name, value string
		bound       bool
	}{
		{"callbacks.kind || ''", string(l.Kind), l.byPoll()},
		{"requests.topic", l.Topic, false},
		{"callbacks.last_class || ''", string(l.Class), l.byGroup()},
	} {
		if equal.value != "" && !equal.bound {
			q.and(equal.name+" = ?", equal.value)
		}
	}
	if l.LockKey != "" && (l.ByDue || l.Ref != "") {
		q.and("callbacks.lock_key || '' = ?", l.LockKey)
	}
	if l.EndpointID != "" && (l.ByDue || l.Ref != "" || l.LockKey != "") {
		q.and("requests.endpoint_id || '' = ?", l.EndpointID)
	}
	if l.Reason != "" && !l.byGroup() {
		q.and("callbacks.reason || '' = ? AND callbacks.state <> 'scheduled'", string(l.Reason))
	}
	if l.Lane != "" && !l.byDeadLane() {
		q.and("callbacks.lane + 0 = "+laneOf, l.project, l.Lane)
	}
	if l.Status != 0 && !l.byGroup() {
		q.and("callbacks.last_status + 0 = ?", l.Status)
	}
	if l.MinAttempts > 0 {
		q.and("callbacks.attempt_count >= ?", l.MinAttempts)
	}
	if l.Overdue {
		q.and("callbacks.state = 'scheduled' AND callbacks.due_at < ? AND callbacks.claim_until <= ?", l.Now, l.Now)
	}
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
			if l.byPoll() || l.LockKey != "" {
				state += " || ''" // written so that PostgreSQL does not take the index of all that ended so
			}
			states = append(states, state+" = '"+string(s)+"'")
		default:
			states = append(states, "1 = 0")
		}
	}
	q.and("("+strings.Join(states, " OR ")+")", values...)
}

// filterLabels looks for each label in the JSON text, as it was written there. The text is not taken apart in SQL, so
// that a row whose text is damaged spoils no list; the rare text that only looks as if it had the label is left out of
// the page by hasLabels.
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
