package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// newID returns a ULID of the present time by this machine's clock. The ids of a process ascend, even within
// a millisecond.
func (db *DB) newID() (string, error) { return db.idAt(time.Now().UnixMilli()) }

// idAt returns a ULID of that time, in Unix milliseconds.
func (db *DB) idAt(ms int64) (string, error) {
	id, err := ulid.New(uint64(ms), &db.entropy)
	return id.String(), named("make an id", err)
}

// audit appends entries to the audit in the transaction of the change that they record, so neither exists
// without the other. An entry without an id gets one.
func (t *tx) audit(entries ...store.AuditEntry) error {
	for i := range entries {
		if entries[i].ID != "" {
			continue
		}
		var err error
		entries[i].ID, err = t.db.newID()
		if err != nil {
			return err
		}
	}
	return named("append to audit", sqldb.InsertRows(t.Tx, "audit", entryColumns, entries, ""))
}

// entryColumns are the columns of an entry, without its place in the chain. ChainAudit adds that later.
var entryColumns = sqldb.Named[store.AuditEntry](
	`id project at actor address action object reason before after detail`)

// auditColumns are all columns of an entry.
func auditColumns(e *store.AuditEntry) sqldb.Columns {
	return append(entryColumns(e), linkColumns(e)...)
}

var linkColumns = sqldb.Named[store.AuditEntry](`seq=LinkSeq hash=LinkHash`)

// auditChange appends one entry for a change to one object.
func (t *tx) auditChange(
	project, action, object string, at int64, by store.Actor, changed auditDiff, detail fields,
) error {
	entry, err := auditOf(project, action, object, at, by, changed, detail)
	if err != nil {
		return err
	}
	return t.audit(entry)
}

// auditOf returns the entry for a change to one object. detail may be nil.
func auditOf(
	project, action, object string, at int64, by store.Actor, changed auditDiff, detail fields,
) (e store.AuditEntry, err error) {
	e = store.AuditEntry{
		Project: project, At: at, Actor: by.Name, Address: by.Address,
		Action: action, Object: object, Reason: by.Reason,
	}
	e.Before, e.After, err = changed.texts()
	if err != nil || detail == nil {
		return e, err
	}
	e.Detail, err = encode(detail)
	if err != nil {
		return e, named("encode audit detail", err)
	}
	return e, nil
}

// AppendAudit records a change that has no row in this database. An entry without an id gets one.
func (db *DB) AppendAudit(ctx context.Context, e store.AuditEntry) error {
	return db.change(ctx, "append audit", func(t *tx) error { return t.audit(e) })
}

// The audit is chained by hashes, and a chain needs one order. Entries commit without a place in the chain,
// in the transaction of their change, so that no writer waits for another. ChainAudit gives them places
// afterwards. See docs/adr/0029-audit-chained-after-the-commit.md.

// chainEntries is the maximum number of entries for one call of ChainAudit. A call works in maintenance
// transactions, between which others pass.
const chainEntries = 10_000

// ChainAudit gives unchained entries their places in the chain, in the order of their ids, at most
// chainEntries of them. It calls key only if there are such entries. Processes that call it at once take
// turns by the lock of the head. It returns the last link and the number of entries that it chained.
func (db *DB) ChainAudit(
	ctx context.Context, key func(context.Context) ([]byte, error),
) (head store.AuditLink, chained int, err error) {
	waits, err := sqldb.Exists(db.read(ctx, "find entries to chain"),
		`SELECT 1 FROM audit WHERE seq = 0 LIMIT 1`)
	if err != nil || !waits {
		return head, 0, err
	}
	secret, err := key(ctx)
	if err != nil {
		return head, 0, named("chain audit: read the key", err)
	}
	chained, err = db.inBatches(ctx, "chain audit", chainEntries, func(t *tx, batch int) (int, error) {
		last, taken, err := t.chainAudit(secret, batch)
		t.OnCommit(func() { head = last })
		return taken, err
	})
	return head, chained, err
}

// chainAudit chains up to batch entries in one transaction. It locks the head before it reads the entries, so
// no other transaction gives the same places away.
func (t *tx) chainAudit(key []byte, batch int) (head store.AuditLink, taken int, err error) {
	head, found, err := sqldb.One(t, sqldb.Named[store.AuditLink](`seq hash`),
		`FROM audit_head WHERE id = 1 FOR UPDATE`)
	if err == nil && !found {
		err = errors.New("table audit_head is empty: restore it from a backup")
	}
	if err != nil {
		return head, 0, named("lock the head", err)
	}
	entries, err := sqldb.Select(t, auditColumns, `FROM audit WHERE seq = 0 ORDER BY id LIMIT $1`, batch)
	if err != nil || len(entries) == 0 {
		return head, 0, named("read entries", err)
	}
	for i := range entries {
		head = head.Next(key, &entries[i])
		entries[i].Link = head
	}
	return head, len(entries), t.writeLinks(entries, head)
}

// writeLinks writes the places of the entries and the new head. An entry that is chained already makes the
// transaction fail.
func (t *tx) writeLinks(entries []store.AuditEntry, head store.AuditLink) error {
	n, err := sqldb.ExecRows(t.Tx, `UPDATE audit SET seq = i.seq, hash = i.hash FROM $i
		WHERE audit.id = i.id AND audit.seq = 0`, entries,
		func(e *store.AuditEntry) sqldb.Columns { return append(linkColumns(e), col("id", &e.ID)) })
	if err != nil {
		return named("write links", err)
	}
	if n != int64(len(entries)) {
		return fmt.Errorf("write links: only %d of %d entries were unchained", n, len(entries))
	}
	_, err = t.Exec(`UPDATE audit_head SET seq = $1, hash = $2 WHERE id = 1`, head.Seq, head.Hash)
	return named("write the head", err)
}

// AuditHead returns the end of the chain, read by one statement. Without the row in audit_head the link is
// zero, as if nothing were chained.
func (db *DB) AuditHead(ctx context.Context) (store.AuditHead, error) {
	head, _, err := sqldb.One(db.read(ctx, "read the head of the audit"),
		func(h *store.AuditHead) sqldb.Columns {
			return sqldb.Columns{
				col(`COALESCE((SELECT seq FROM audit_head WHERE id = 1), 0)`, &h.Link.Seq),
				col(`COALESCE((SELECT hash FROM audit_head WHERE id = 1), '')`, &h.Link.Hash),
				col(`COALESCE((SELECT MAX(seq) FROM audit WHERE seq <> 0), 0)`, &h.Last),
				col(`(SELECT COUNT(*) FROM (SELECT 1 AS one FROM audit WHERE seq = 0 LIMIT $1) AS part)`,
					&h.Unchained),
			}
		}, "", store.MaxUnchained)
	return head, err
}

// chainPage repeats the WHERE of the index audit_chained, which serves it.
const chainPage = `FROM audit WHERE seq > $1 AND seq <= $2 AND seq <> 0 ORDER BY seq LIMIT $3`

// ChainedAudit returns entries of all projects with places above after, up to until, in their order, at most
// limit.
func (db *DB) ChainedAudit(ctx context.Context, after, until int64, limit int) ([]store.AuditEntry, error) {
	return sqldb.Select(db.read(ctx, "read the chain of the audit"), auditColumns, chainPage, after, until,
		limit)
}

// Audit returns a page of the project's audit, newest first. An index finds the entries of one object. Every
// other filter is applied in a scan of bounded size (see listing). A page has at most 501 entries: one more
// than the API returns, which thereby knows that there is a next page.
func (db *DB) Audit(ctx context.Context, project string, f store.AuditFilter) (store.AuditPage, error) {
	ctx, cancel := context.WithTimeout(ctx, db.sql.Limits.Read)
	defer cancel()
	l := auditListing{
		read: db.read(ctx, "read audit").Planned(), budget: db.listBudget, project: project, AuditFilter: f,
		left: min(max(f.Limit, 1), maxList+1),
	}
	if err := l.run(); err != nil {
		return store.AuditPage{}, err
	}
	return l.page, nil
}

// AuditOf returns the newest entries of objects in the project, newest first, that were written at from or
// later. The objects are named as in store.AuditFilter.
func (db *DB) AuditOf(
	ctx context.Context, project string, objects []string, from int64, limit int,
) ([]store.AuditEntry, error) {
	// Sorting by an expression keeps the databases from reading all entries of the project in their order.
	return sqldb.Select(db.read(ctx, "read audit"), auditColumns, `FROM audit
		WHERE audit.project = $1 AND audit.object IN (SELECT i.object FROM $i) AND audit.at >= $2
		ORDER BY audit.id || '' DESC
		LIMIT $3`, project, from, min(max(limit, 1), maxList), sqldb.Texts("object", objects))
}

// An auditListing is the reading of one page of the audit.
type auditListing struct {
	read    sqldb.Read
	budget  pageBudget
	project string
	store.AuditFilter
	// actors are the names in the present window that match the filter's Actor. See findActors.
	actors []string
	// left is how many entries still fit on the page.
	left int
	page store.AuditPage
}

// run reads the page with one statement if an index serves the whole filter, and else window by window.
func (l *auditListing) run() error {
	var rest query
	l.filter(&rest)
	if rest.text == "" {
		return l.add(0)
	}
	return l.budget.scan(2*l.left, func(size int) (bool, error) {
		found := len(l.page.Entries)
		if err := l.add(size); err != nil || l.page.Next != "" {
			return false, err
		}
		// The end is read after the entries, and counted down from where the window begins. If entries were
		// added to a first window in between, the end is newer than the last entry that was read: the next
		// window overlaps this one, and leaves none out.
		q := l.endQuery(size)
		end, more, err := sqldb.Value[string](l.read, q.text, q.args...)
		if err != nil || !more {
			return false, err
		}
		if n := len(l.page.Entries); n > found {
			end = min(end, l.page.Entries[n-1].ID) // an overlap must not list an entry twice
		}
		l.After, l.page.Next = end, end
		return l.left > 0, nil
	})
}

// bound adds the conditions and the order that the index serves.
func (l *auditListing) bound(q *query) {
	below := l.After
	if below == "" {
		below = aboveAllIDs
	}
	q.add("audit.project = ?", l.project)
	q.andIf(l.Object != "", "audit.object = ?", l.Object)
	q.and("audit.id < ?", below)
	q.add("\n\tORDER BY audit.id DESC")
}

// filter adds the conditions that bound leaves out. They are on the columns of the subquery named part, so
// they do not change which index the database uses. From and To must be compared with the time of an entry:
// its id has the clock of the process that wrote it, its time that of the scheduling index.
// findActors must have filled l.actors for this window, unless the query is only tested for emptiness.
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
	q.andIf(l.From != 0, "part.at >= ?", l.From)
	q.andIf(l.To != 0, "part.at < ?", l.To)
}

// endQuery finds the last entry of the next window of size entries.
func (l *auditListing) endQuery(size int) *query {
	var q query
	q.add("SELECT audit.id FROM audit WHERE ")
	l.bound(&q)
	q.add(" LIMIT 1 OFFSET ?", size-1)
	return &q
}

// actorsQuery finds the actors in the next window.
func (l *auditListing) actorsQuery(size int) *query {
	var q query
	q.add("SELECT DISTINCT part.actor FROM (SELECT audit.actor FROM audit WHERE ")
	l.bound(&q)
	q.add(" LIMIT ?) AS part", size)
	return &q
}

// findActors reads which actors of the next window match the filter. The names are compared here, because the
// rules of upper and lower case in SQL depend on the database.
func (l *auditListing) findActors(size int) error {
	l.actors = l.actors[:0]
	wanted := store.Fold(l.Actor)
	q := l.actorsQuery(size)
	names, err := sqldb.Values[string](l.read, q.text, q.args...)
	for _, name := range names {
		if strings.Contains(store.Fold(name), wanted) {
			l.actors = append(l.actors, name)
		}
	}
	return err
}

// readQuery finds the matching entries of the next window, or of the whole page if size is zero. The window
// is a subquery, so that no condition of the filter makes the database choose another index.
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

// add appends the matching entries of the next window, or of the whole page if size is zero. If more match
// than fit, it sets Next to the last one that does.
func (l *auditListing) add(size int) error {
	l.page.Next = ""
	if l.Actor != "" {
		if err := l.findActors(size); err != nil || len(l.actors) == 0 {
			return err
		}
	}
	found, err := find(l.read, auditColumns, l.readQuery(size))
	if len(found) > l.left {
		found = found[:l.left]
		l.page.Next = found[l.left-1].ID
	}
	l.left -= len(found)
	l.page.Entries = append(l.page.Entries, found...)
	return err
}
