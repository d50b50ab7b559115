package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A listing is the reading of one page of a list. If an index serves the whole filter, the page is one
// statement. Any other filter is applied in a scan in the order of the list, in windows that grow. The scan
// ends when the page is full, when the list ends, or when listBudget is used up; the next page continues
// there. So no page takes long, however rare the matching rows are. An index for each filter would avoid the
// scan, but every accept and every result would have to write it.
type listing struct {
	db      *DB
	read    sqldb.Read
	project string
	store.Filter
	// by is the index that the list is read by. With byGroup, status is the HTTP status of all its callbacks.
	by     index
	status int
	// left is how many callbacks still fit on the page.
	left int
	page store.Page
}

// A pageBudget is how much one page may scan. It is reached by rows mostly, so that the same page ends at the
// same row when it is read again; time is for slow disks.
type pageBudget struct {
	// first is the least size of the first window, which is also at least twice the page.
	first int
	// rows and time end the scan when one of them is used up. A window is not begun if it would not end in
	// time.
	rows int
	time time.Duration
	// sortable is up to how many open callbacks, or due ones of them, or dead ones of a period, are read at
	// once and sorted.
	sortable int
}

// listBudget is the budget of a page of a list. It is measured. A row costs 1 to 2 µs if it is in memory
// beside its neighbours, up to 20 µs if each row is on a page of its own, and ten times that if the page is
// on disk (docs/reports/performance.md).
func listBudget() pageBudget {
	return pageBudget{first: 200, rows: 2000, time: 8 * time.Millisecond, sortable: 2000}
}

// countBudget is the budget of one count on a page.
func countBudget() pageBudget {
	return pageBudget{first: 200, rows: 20_000, time: 4 * time.Millisecond, sortable: 2000}
}

// newListing prepares a page with room for limit callbacks.
func newListing(db *DB, project string, f store.Filter, limit int) *listing {
	return &listing{db: db, project: project, Filter: f, by: indexFor(&f), status: f.Status, left: limit}
}

// run reads the page by the cheapest way that fits its filter.
func (l *listing) run(ctx context.Context) error {
	if l.by == byGroup && l.status == 0 {
		if err := l.findStatus(); err != nil {
			return err
		}
	}
	if l.direct() {
		_, err := l.take(l.read, l.readQuery(nil))
		return err
	}
	if l.isOpen() || l.isDied() {
		if done, err := l.readSorted(ctx); done || err != nil {
			return err
		}
	}
	return l.scanWindows()
}

// groupStatus finds the next status of the dead callbacks of a reason and class, by the index callbacks_dead.
const groupStatus = `SELECT callbacks.last_status FROM callbacks
	WHERE callbacks.project = $1 AND callbacks.state = 'dead' AND callbacks.reason = $2
		AND callbacks.last_class = $3 AND (callbacks.last_status, callbacks.id) > ($4, '` + aboveAllIDs + `')
	ORDER BY callbacks.last_status, callbacks.id
	LIMIT 1`

// findStatus finds the status that all dead callbacks of the filter's reason and class share. Mostly there is
// only one: that of no response, or of one kind of response. If there are several, byGroup cannot keep the
// order of ids, and the list is read byEnded.
func (l *listing) findStatus() error {
	for after := -1; ; after = l.status {
		next, found, err := sqldb.Value[int](l.read, groupStatus, l.project, string(l.Reason),
			string(l.Class), after)
		if err != nil || !found {
			return err
		}
		if after >= 0 {
			l.by = byEnded
			return nil
		}
		l.status = next
	}
}

// direct reports whether one statement finds the page with few rows to spare: the index serves the whole
// filter, or finds the few callbacks of one reference.
func (l *listing) direct() bool {
	var rest query
	l.filter(&rest)
	return rest.text == "" || l.ByDue && l.Ref != ""
}

// isOpen reports whether the list has only open callbacks, newest first. They may be few and anywhere among
// many ended ones, so a scan could take many pages to find them.
func (l *listing) isOpen() bool {
	switch l.by {
	case byDue, byRef, byLock:
		return false
	}
	ended := slices.ContainsFunc(l.States, func(s store.State) bool {
		return s != store.Scheduled && s != store.Attempting
	})
	return !ended && (l.Overdue || len(l.States) > 0)
}

// isDied reports whether the list has only callbacks that died in a period, which may be a few among many.
func (l *listing) isDied() bool {
	return l.FinishedFrom != 0 && (l.by == byEnded || l.by == byGroup || l.by == byDeadLane) &&
		l.States[0] == store.Dead
}

// scanWindows reads the page window by window: the end of each window by an index, and then its matching
// rows.
func (l *listing) scanWindows() error {
	return l.db.listBudget.scan(2*l.left, func(size int) (bool, error) {
		q := l.endQuery(size)
		end, more, err := sqldb.One(l.read, l.placeColumns, q.text, q.args...)
		if err != nil {
			return false, err
		}
		if !more {
			_, err := l.take(l.read, l.readQuery(nil))
			return false, err
		}
		full, err := l.take(l.read, l.readQuery(&end))
		if err != nil || full {
			return false, err
		}
		l.After, l.page.Next = &end, &end
		return l.left > 0, nil
	})
}

// scan calls look with the size of one window after the other, until look returns false or the budget is used
// up. Each window is larger than the one before; the first has at least first rows.
func (b pageBudget) scan(first int, look func(size int) (more bool, err error)) error {
	began, looked := time.Now(), 0
	for size := max(b.first, first); size > 0; size = nextWindow(size, looked, time.Since(began), b) {
		more, err := look(size)
		if err != nil || !more {
			return err
		}
		looked += size
	}
	return nil
}

// nextWindow returns the size of the next window after one of last rows, when looked rows took that time in
// all. Zero ends the scan.
func nextWindow(last, looked int, took time.Duration, budget pageBudget) int {
	size := min(2*last, budget.rows-looked)
	if took > 0 {
		// the number of rows that fit into the rest of the time, at the speed so far
		size = min(size, int(float64(looked)*float64(budget.time-took)/float64(took)))
	}
	if size < budget.first/2 {
		return 0
	}
	return size
}

// order is the ORDER BY of the list.
func (l *listing) order() string {
	if l.ByDue {
		return "callbacks.due_at, callbacks.id"
	}
	return l.table() + ".id DESC"
}

// placeColumns describe a position in the list.
func (l *listing) placeColumns(c *store.Cursor) sqldb.Columns {
	due := "0"
	if l.ByDue {
		due = "callbacks.due_at"
	}
	return sqldb.Columns{col(due, &c.DueAt), col(l.table()+".id", &c.ID)}
}

// endQuery finds the last row of the next window of so many rows, whatever the filter is. It reads only an
// index.
func (l *listing) endQuery(rows int) *query {
	var q query
	q.add("FROM " + l.table() + " WHERE ")
	l.bound(&q, nil)
	q.add("\n\tORDER BY "+l.order()+" LIMIT 1 OFFSET ?", rows-1)
	return &q
}

// readQuery finds the matching rows after l.After, up to and including end, or to the end of the list if end
// is nil. It reads as many as fit on the page and one more, by which take sees that the page is full.
func (l *listing) readQuery(end *store.Cursor) *query {
	var q query
	q.add(l.from() + "\n\tAND ")
	l.bound(&q, end)
	l.filter(&q)
	q.add("\n\tORDER BY "+l.order()+" LIMIT ?", l.left+1)
	return &q
}

// take appends the rows that the query finds, which may be one more than fit. full is set in that case, and
// Next then continues after the last one.
func (l *listing) take(read sqldb.Read, q *query) (full bool, err error) {
	l.page.Next = nil
	rows, err := l.db.callbacks(read, q.text, q.args...)
	for i := range rows {
		r := &rows[i]
		if l.left == 0 {
			before := &rows[i-1]
			l.page.Next, full = &store.Cursor{DueAt: before.DueAt, ID: before.ID}, true
			break
		}
		l.left--
		if hasLabels(r.Labels, l.Labels) {
			l.page.Callbacks = append(l.page.Callbacks, r.Callback)
		}
	}
	return full, err
}

// readSorted reads a page of an isOpen or isDied list if the list can have at most sortable callbacks. The
// index callbacks_due or callbacks_died finds them, and they are sorted by id. done is false if there are
// more. Both statements use one snapshot, so no callback is missed that is accepted between them.
func (l *listing) readSorted(ctx context.Context) (done bool, err error) {
	err = l.db.sql.Snapshot(ctx, listCallbacks, func(read sqldb.Read) error {
		read = read.Planned()
		one := l.tooManyQuery()
		many, err := sqldb.Exists(read, one.text, one.args...)
		if err != nil || many {
			return err
		}
		done = true
		_, err = l.take(read, l.sortedQuery())
		return err
	})
	return done, err
}

// addFewRows adds the SELECT of the open callbacks that the list can have, by due time, or of the dead ones,
// by the time of their death. limit is the format of the LIMIT clause, into which sortable is printed.
func (l *listing) addFewRows(q *query, columns, limit string) {
	// The number is written out: PostgreSQL uses the index only if it knows the number when it plans.
	limit = fmt.Sprintf(limit, l.db.listBudget.sortable)
	if l.isDied() {
		q.add("SELECT "+columns+" FROM callbacks WHERE callbacks.project = ? AND callbacks.state = 'dead'",
			l.project)
		q.and("callbacks.finished_at >= ?", l.FinishedFrom)
		q.andIf(l.FinishedTo != 0, "callbacks.finished_at < ?", l.FinishedTo)
		q.add("\n\tORDER BY callbacks.finished_at " + limit)
		return
	}
	q.add("SELECT " + columns + " FROM callbacks WHERE callbacks.state = 'scheduled'")
	switch {
	case l.Overdue:
		q.and("callbacks.due_at < ?", l.Now)
	case !slices.Contains(l.States, store.Scheduled):
		q.and("callbacks.due_at <= ?", l.Now+claimDueSlack)
	}
	q.add("\n\tORDER BY callbacks.due_at, callbacks.id " + limit)
}

// tooManyQuery finds a row if the list can have more than sortable callbacks.
func (l *listing) tooManyQuery() *query {
	var q query
	l.addFewRows(&q, "1", "LIMIT 1 OFFSET %d")
	return &q
}

// sortedQuery finds the matching ones of all callbacks that addFewRows selects, and sorts them.
func (l *listing) sortedQuery() *query {
	var q query
	q.add("(")
	l.addFewRows(&q, "*", "LIMIT %d")
	q.add(") AS callbacks JOIN requests ON " + ofCallback + " WHERE ")
	l.bound(&q, nil)
	l.filter(&q)
	q.add("\n\tORDER BY "+l.order()+" LIMIT ?", l.left+1)
	return &q
}
