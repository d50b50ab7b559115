package sqlstore

import (
	"context"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// AuditEntries returns the project's audit, newest first: at most limit entries with ids below after, which is empty for
// the newest.
func (db *DB) AuditEntries(ctx context.Context, project, after string, limit int) ([]store.AuditEntry, error) {
	// One more is looked for than there is room for, in a statement that says so as a number of 32 bits.
	l := auditListing{read: db.read(ctx, "read audit").Planned(), most: db.looking, project: project, AuditFilter: store.AuditFilter{After: after}, left: min(max(limit, 1), math.MaxInt32-1)}
	if err := l.add(0); err != nil {
		return nil, err
	}
	return l.page.Entries, nil
}

// Audit returns a page of the project's audit, newest first. What was done to one object is found by its index; every other filter is looked
// for in a bounded number of entries, as in a list of callbacks (see listing).
func (db *DB) Audit(ctx context.Context, project string, f store.AuditFilter) (store.AuditPage, error) {
	ctx, cancel := context.WithTimeout(ctx, db.sql.Limits.Read)
	defer cancel()
	l := auditListing{read: db.read(ctx, "read audit").Planned(), most: db.looking, project: project, AuditFilter: f, left: min(max(f.Limit, 1), maxList)}
	if err := l.run(); err != nil {
		return store.AuditPage{}, err
	}
	return l.page, nil
}

// An auditListing is a page of the audit that is being read.
type auditListing struct {
	read    sqldb.Read
	most    looking
	project string
	store.AuditFilter
	// actors are those of the window whose names the filter's Actor picks, if it picks by them.
	actors []string
	// left is how many entries the page still has room for.
	left int
	page store.AuditPage
}

// run reads the page: at once where the index serves all of the filter, else window by window.
func (l *auditListing) run() error {
	var rest query
	if l.filter(&rest); rest.text.Len() == 0 {
		return l.add(0)
	}
	began, looked := time.Now(), 0
	for size := max(l.most.first, 2*l.left); size > 0; size = nextWindow(size, looked, time.Since(began), l.most) {
		q := l.endQuery(size)
		end, more, err := sqldb.Value[string](l.read, q.text.String(), q.args...)
		if err != nil {
			return err
		}
		if err := l.add(size); err != nil || l.page.Next != "" || !more {
			return err
		}
		if l.After, l.page.Next = end, end; l.left == 0 {
			return nil
		}
		looked += size
	}
	return nil
}

// bound adds what the index bounds: where the page begins.
func (l *auditListing) bound(q *query) {
	below := l.After
	if below == "" {
		below = aboveAllIDs
	}
	q.add("audit.project = ?", l.project)
	if l.Object != "" {
		q.and("audit.object = ?", l.Object)
	}
	q.and("audit.id < ?", below)
	q.add("\n\tORDER BY audit.id DESC")
}

// filter adds what bound leaves out, of a part of the audit. Ids are of another clock than times, so times bound no ids.
func (l *auditListing) filter(q *query) {
	switch {
	case strings.HasSuffix(l.Action, "."):
		q.and("SUBSTR(part.action, 1, ?) = ?", utf8.RuneCountInString(l.Action), l.Action)
	case l.Action != "":
		q.and("part.action = ?", l.Action)
	}
	if l.Actor != "" {
		names := make([]any, len(l.actors))
		for i, name := range l.actors {
			names[i] = name
		}
		q.and("part.actor IN ("+strings.TrimSuffix(strings.Repeat("?, ", len(names)), ", ")+")", names...)
	}
	if l.From != 0 {
		q.and("part.at >= ?", l.From)
	}
	if l.To != 0 {
		q.and("part.at < ?", l.To)
	}
}

// endQuery finds the last entry of the next window.
func (l *auditListing) endQuery(size int) *query {
	var q query
	q.add("SELECT audit.id FROM audit WHERE ")
	l.bound(&q)
	q.add(" LIMIT 1 OFFSET ?", size-1)
	return &q
}

// actorsQuery finds the actors of the next window.
func (l *auditListing) actorsQuery(size int) *query {
	var q query
	q.add("SELECT DISTINCT part.actor FROM (SELECT audit.actor FROM audit WHERE ")
	l.bound(&q)
	q.add(" LIMIT ?) AS part", size)
	return &q
}

// findActors reads which actors of the next window the filter picks. Their names are compared here and not in
// SQL, whose rules of upper and lower case depend on the database.
func (l *auditListing) findActors(size int) error {
	l.actors = l.actors[:0]
	wanted := store.Fold(l.Actor)
	q := l.actorsQuery(size)
	names, err := sqldb.Values[string](l.read, q.text.String(), q.args...)
	for _, name := range names {
		if strings.Contains(store.Fold(name), wanted) {
			l.actors = append(l.actors, name)
		}
	}
	return err
}

// readQuery finds what is in the next window, or with size zero, on the page. A window is a statement within the statement: whatever the filter
// says, no other index is taken.
func (l *auditListing) readQuery(size int) *query {
	var q query
	q.add("FROM ")
	if size == 0 {
		q.add("audit WHERE ")
		l.bound(&q)
		q.add(" LIMIT ?", l.left+1)
		return &q
	}
	q.add("(SELECT * FROM audit WHERE ")
	l.bound(&q)
	q.add(" LIMIT ?) AS part WHERE 1 = 1", size)
	l.filter(&q)
	q.add("\n\tORDER BY part.id DESC LIMIT ?", l.left+1)
	return &q
}

// add adds the entries of the next window, or with size zero, of the page, that are as the filter says. Where there are
// more than there is room for it says in Next where they begin.
func (l *auditListing) add(size int) error {
	l.page.Next = ""
	if l.Actor != "" {
		if err := l.findActors(size); err != nil || len(l.actors) == 0 {
			return err
		}
	}
	q := l.readQuery(size)
	found, err := sqldb.Select(l.read, auditColumns, q.text.String(), q.args...)
	if len(found) > l.left {
		found = found[:l.left]
		l.page.Next = found[l.left-1].ID
	}
	l.left -= len(found)
	l.page.Entries = append(l.page.Entries, found...)
	return err
}
