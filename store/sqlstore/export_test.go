package sqlstore

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A TestDB is a DB whose rows can be damaged.
type TestDB struct{ *DB }

// Damage makes a callback's policy undecodable, as a change that went wrong would.
func (db TestDB) Damage(ctx context.Context, id string) error {
	return db.change(ctx, func(t *tx) error {
		_, err := t.exec(`UPDATE callbacks SET policy = '{"tiers": [1', updated_at = updated_at + 1 WHERE id = $1`, id)
		return err
	})
}

// HoldWriter keeps the writer of an SQLite store busy until the returned function is called.
func HoldWriter(db *DB) (release func()) {
	begun, end := make(chan struct{}), make(chan struct{})
	go func() {
		_ = db.accepts.do(context.Background(), false, func() error {
			close(begun)
			<-end
			return nil
		})
	}()
	<-begun
	return func() { close(end) }
}

// Forget has the database remember nothing of what it accepts.
func Forget(db *DB) { db.fresh.max = -1 }

// SetWindow sets how many rows one statement looks through for claims that are alive.
func SetWindow(db *DB, rows int) { db.window = rows }

// SetBooksWindow sets how many callbacks one statement counts.
func SetBooksWindow(db *DB, rows int) { db.booksWindow = rows }

// SetLooking sets how much one page of a list may look at: the first window, all windows, and how many open callbacks are few.
// Time does not end a page then.
func SetLooking(db *DB, first, rows, few int) {
	db.looking = looking{first: first, rows: rows, time: time.Hour, few: few}
	db.counting = db.looking
}

// A Statement is one that a list may run.
type Statement struct {
	Text string
	Args []any
}

// ListStatements are those that a page of the list may run, as the filter says.
func ListStatements(db *DB, project string, f store.Filter) []Statement {
	l := listing{db: db, project: project, Filter: f, left: f.Limit}
	var queries []*query
	if l.canGroup() {
		l.status = &f.Status // all have one
		queries = append(queries, &query{args: []any{project, string(f.Reason), string(f.Class), -1}})
		queries[0].text.WriteString(groupStatus)
	}
	queries = append(queries, l.readQuery(nil))
	if !l.direct() {
		queries = append(queries, l.endQuery(100), l.readQuery(&store.Cursor{DueAt: 1, ID: "0"}))
	}
	if l.isOpen() {
		queries = append(queries, l.manyQuery(), l.fewQuery())
	}
	var all []Statement
	for _, q := range queries {
		all = append(all, Statement{q.text.String(), q.args})
	}
	return all
}

// NextWindow is how large the window after one of a hundred rows is, when so many rows were looked at in that time.
func NextWindow(last, looked int, took time.Duration) int {
	return nextWindow(last, looked, took, looking{first: 100, rows: 10_000, time: 20 * time.Millisecond})
}

// IDsFrom is below every id that was made at the time, in Unix milliseconds, or later.
func IDsFrom(at int64) string { return idsFrom(at) }
