package sqlstore

import (
	"context"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const auditColumns = `id, project, at, actor, address, action, object, reason, before, after, detail, seq,
	hash`

func scanAudit(rows scanner) (e store.AuditEntry, err error) {
	err = rows.Scan(&e.ID, &e.Project, &e.At, &e.Actor, &e.Address, &e.Action, &e.Object,
		&e.Reason, &e.Before, &e.After, &e.Detail, &e.Link.Seq, &e.Link.Hash)
	return e, err
}

// AuditEntries returns the project's audit, newest first: at most limit entries with ids below after, which is empty for
// the newest.
func (db *DB) AuditEntries(ctx context.Context, project, after string, limit int) ([]store.AuditEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	// One more is looked for than there is room for, in a statement that says so as a number of 32 bits.
	l := auditListing{db: db, project: project, AuditFilter: store.AuditFilter{After: after}, left: min(max(limit, 1), math.MaxInt32-1)}
	if err := l.read(ctx, 0); err != nil {
		return nil, readError("read audit", err)
	}
	return l.page.Entries, nil
}

// Audit returns a page of the project's audit, newest first. What was done to one object is found by its index; every other filter is looked
// for in a bounded number of entries, as in a list of callbacks (see listing).
func (db *DB) Audit(ctx context.Context, project string, f store.AuditFilter) (store.AuditPage, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	l := auditListing{db: db, project: project, AuditFilter: f, left: min(max(f.Limit, 1), maxList)}
	if err := l.run(ctx); err != nil {
		return store.AuditPage{}, readError("read audit", err)
	}
	return l.page, nil
}

// An auditListing is a page of the audit that is being read.
type auditListing struct {
	db      *DB
	project string
	store.AuditFilter
	// actors are those of the window whose names the filter's Actor picks, if it picks by them.
	actors []string
	// left is how many entries the page still has room for.
	left int
	page store.AuditPage
}

// run reads the page: at once where the index serves all of the filter, else window by window.
func (l *auditListing) run(ctx context.Context) error {
	var rest query
	if l.filter(&rest); rest.text.Len() == 0 {
		return l.read(ctx, 0)
	}
	most, began, looked := l.db.looking, time.Now(), 0
	for size := max(most.first, 2*l.left); size > 0; size = nextWindow(size, looked, time.Since(began), most) {
		q := l.endQuery(size)
		end, more, err := l.db.windowEnd(ctx, q.text.String(), l.db.planned(q)...)
		if err != nil {
			return err
		}
		if err := l.read(ctx, size); err != nil || l.page.Next != "" || !more {
			return err
		}
		if l.After, l.page.Next = end.ID, end.ID; l.left == 0 {
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
	q.add("SELECT 0, audit.id FROM audit WHERE ")
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
func (l *auditListing) findActors(ctx context.Context, size int) error {
	l.actors = l.actors[:0]
	wanted := store.Fold(l.Actor)
	q := l.actorsQuery(size)
	return queryEach(ctx, l.db.read, func(rows scanner) error {
		var name string
		err := rows.Scan(&name)
		if err == nil && strings.Contains(store.Fold(name), wanted) {
			l.actors = append(l.actors, name)
		}
		return err
	}, q.text.String(), l.db.planned(q)...)
}

// readQuery finds what is in the next window, or with size zero, on the page. A window is a statement within the statement: whatever the filter
// says, no other index is taken.
func (l *auditListing) readQuery(size int) *query {
	var q query
	q.add("SELECT " + auditColumns + " FROM ")
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

// read adds the entries of the next window, or with size zero, of the page, that are as the filter says. Where there are more than there is
// room for it says in Next where they begin.
func (l *auditListing) read(ctx context.Context, size int) error {
	l.page.Next = ""
	if l.Actor != "" {
		if err := l.findActors(ctx, size); err != nil || len(l.actors) == 0 {
			return err
		}
	}
	q := l.readQuery(size)
	return queryEach(ctx, l.db.read, func(rows scanner) error {
		e, err := scanAudit(rows)
		if err != nil {
			return err
		}
		if l.left == 0 {
			l.page.Next = l.page.Entries[len(l.page.Entries)-1].ID
			return nil
		}
		l.left--
		l.page.Entries = append(l.page.Entries, e)
		return nil
	}, q.text.String(), l.db.planned(q)...)
}
