package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A listing is a list that is being read. Where an index serves all of its filter, a page is one statement.
// Every other filter is looked for in the order of the list, window by window, each larger than the one
// before, until the page is full, the list has ended, or so much was looked at that it must be enough for one
// page: the next one goes on where that was. So no page takes long, however rare what it looks for is; an
// index for each filter would be paid for by every accept and every result.
type listing struct {
	db      *DB
	read    sqldb.Read
	project string
	store.Filter
	// by is the index that it is read by. status is that of all its callbacks with byGroup.
	by     index
	status int
	// left is how many callbacks the page still has room for.
	left int
	page store.Page
}

// A looking says how much one page may look at.
type pageBudget struct {
	// first is the rows of the first window; it is never less than twice the page.
	first int
	// rows and time end the page when they are used up. The last window is not begun if it would not end in
	// time.
	rows int
	time time.Duration
	// few is up to how many open callbacks, or of them such as are due, are taken all at once and put in
	// order.
	sortable int
}

// lookAt is how much a page of a list may look at. It is measured: a row costs 1 to 2 µs where its page is in
// memory and its neighbours are looked at too, up to 20 µs where each is on a page of its own, and a page
// that is on a disk ten times that (docs/reports/performance.md). Mostly the rows end a page, and not the
// time: who reads a list again finds what he found before.
func listBudget() pageBudget {
	return pageBudget{first: 200, rows: 2000, time: 8 * time.Millisecond, sortable: 2000}
}

// countAt is how much may be looked at for a number on a page.
func countBudget() pageBudget {
	return pageBudget{first: 200, rows: 20_000, time: 4 * time.Millisecond, sortable: 2000}
}

func newListing(db *DB, project string, f store.Filter, limit int) *listing {
	return &listing{db: db, project: project, Filter: f, by: indexFor(&f), status: f.Status, left: limit}
}

// run reads the page.
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
	if l.isOpen() {
		if done, err := l.readSorted(ctx); done || err != nil {
			return err
		}
	}
	return l.scanWindows()
}

// groupStatus finds the next status of those that died for a reason with a class.
const groupStatus = `SELECT callbacks.last_status FROM callbacks
	WHERE callbacks.project = $1 AND callbacks.state = 'dead' AND callbacks.reason = $2 AND callbacks.last_class = $3
		AND (callbacks.last_status, callbacks.id) > ($4, '` + aboveAllIDs + `')
	ORDER BY callbacks.last_status, callbacks.id
	LIMIT 1`

// findStatus finds out which status all have that died for the filter's reason with its class. Where the
// filter names none there is mostly one: that of no answer, or of the one kind of answer. Where there are
// more the list is read by another index.
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

// direct says that one statement finds the page without looking at much else: the index serves all of the
// filter, or leads to the callbacks of one reference, which are few.
func (l *listing) direct() bool {
	var rest query
	l.filter(&rest)
	return rest.text == "" || l.ByDue && l.Ref != ""
}

// isOpen says that the list has open callbacks only, newest first: they may be few, and anywhere among many
// that have ended.
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

// look reads window by window.
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

// windows calls look for one window after the other, each larger than the one before and the first one at
// least so large, until it says that there is no more to look at, or so much was looked at that it must be
// enough.
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

// nextWindow is how large the next window is after the last one of so many rows, when so many were looked at
// in that time; zero: there is none.
func nextWindow(last, looked int, took time.Duration, budget pageBudget) int {
	size := min(2*last, budget.rows-looked)
	if took > 0 {
		// As many as the time that is left is enough for, at the speed so far.
		size = min(size, int(float64(looked)*float64(budget.time-took)/float64(took)))
	}
	if size < budget.first/2 {
		return 0
	}
	return size
}

// order is that of the list.
func (l *listing) order() string {
	if l.ByDue {
		return "callbacks.due_at, callbacks.id"
	}
	return l.table() + ".id DESC"
}

// placeColumns describe a place in the list.
func (l *listing) placeColumns(c *store.Cursor) sqldb.Columns {
	due := "0"
	if l.ByDue {
		due = "callbacks.due_at"
	}
	return sqldb.Columns{col(due, &c.DueAt), col(l.table()+".id", &c.ID)}
}

// endQuery finds the last of the list's next rows, so many, whatever the filter says. It reads an index
// alone.
func (l *listing) endQuery(rows int) *query {
	var q query
	q.add("FROM " + l.table() + " WHERE ")
	l.bound(&q, nil)
	q.add("\n\tORDER BY "+l.order()+" LIMIT 1 OFFSET ?", rows-1)
	return &q
}

// readQuery finds the rows up to end, or to the end of the list, that are as the filter says.
func (l *listing) readQuery(end *store.Cursor) *query {
	var q query
	q.add(l.from() + "\n\tAND ")
	l.bound(&q, end)
	l.filter(&q)
	q.add("\n\tORDER BY "+l.order()+" LIMIT ?", l.left+1)
	return &q
}

// take adds what the query finds, which may be one more than there is room for. It says whether the page is
// full, and then where the next one begins.
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

// readSorted reads the page of a list of open callbacks when all those that it can have are few: the index over
// due times leads to them, and they are put in order. It says whether that was so. Both statements see the
// same state, so that none is left out that comes in between.
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

// few adds the open callbacks that the list can have, by due time.
func (l *listing) addOpenRows(q *query, what, which string) {
	q.add("SELECT " + what + " FROM callbacks WHERE callbacks.state = 'scheduled'")
	switch {
	case l.Overdue:
		q.and("callbacks.due_at < ?", l.Now)
	case !slices.Contains(l.States, store.Scheduled):
		q.and("callbacks.due_at <= ?", l.Now+claimDueSlack)
	}
	// The number is written out: knowing it, PostgreSQL takes the index.
	q.add("\n\tORDER BY callbacks.due_at, callbacks.id " + fmt.Sprintf(which, l.db.listBudget.sortable))
}

// tooManyQuery finds a row if those that the list can have are not few.
func (l *listing) tooManyQuery() *query {
	var q query
	l.addOpenRows(&q, "1", "LIMIT 1 OFFSET %d")
	return &q
}

func (l *listing) sortedQuery() *query {
	var q query
	q.add("(")
	l.addOpenRows(&q, "*", "LIMIT %d")
	q.add(") AS callbacks JOIN requests ON " + ofCallback + " WHERE ")
	l.bound(&q, nil)
	l.filter(&q)
	q.add("\n\tORDER BY "+l.order()+" LIMIT ?", l.left+1)
	return &q
}
