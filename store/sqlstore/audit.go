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

// newID returns a ULID of this moment by this machine's clock. They rise within a process, also within one
// millisecond.
func (db *DB) newID() (string, error) { return db.idAt(time.Now().UnixMilli()) }

// idAt returns one of that time.
func (db *DB) idAt(ms int64) (string, error) {
	id, err := ulid.New(uint64(ms), &db.entropy)
	return id.String(), named("make an id", err)
}

// audit appends entries to the audit, in the transaction of what they record. Empty ids are made.
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

// entryColumns describe an entry of the audit but for its place in the chain, which it gets later.
var entryColumns = sqldb.Named[store.AuditEntry](
	`id project at actor address action object reason before after detail`)

func auditColumns(e *store.AuditEntry) sqldb.Columns {
	return append(entryColumns(e), linkColumns(e)...)
}

var linkColumns = sqldb.Named[store.AuditEntry](`seq=LinkSeq hash=LinkHash`)

// auditChange appends one entry.
func (t *tx) auditChange(
	project, action, object string, at int64, by store.Actor, changed auditDiff, detail fields,
) error {
	entry, err := auditOf(project, action, object, at, by, changed, detail)
	if err != nil {
		return err
	}
	return t.audit(entry)
}

// auditOf is the entry of a change to one object; detail may be nil.
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

// AppendAudit records a mutation that has no row of its own. An empty id is made.
func (db *DB) AppendAudit(ctx context.Context, e store.AuditEntry) error {
	return db.change(ctx, "append audit", func(t *tx) error { return t.audit(e) })
}

// Entries are committed without a place in the chain, in the transaction of what they record, so that no
// writer waits for another. ChainAudit gives them their places afterwards. See docs/adr/0029.

// chainEntries is how many entries one call of ChainAudit takes at most, in transactions of a maintenance
// batch each.
const chainEntries = 10_000

// ChainAudit gives the entries that wait for it their places in the chain, in the order of their ids, at most
// 10,000. key is asked for only if there are any. Processes that do it at once take turns. It returns the
// last link, and how many entries it has chained.
func (db *DB) ChainAudit(
	ctx context.Context, key func(context.Context) ([]byte, error),
) (head store.AuditLink, chained int, err error) {
	waits, err := sqldb.Exists(db.read(ctx, "look for entries to chain"),
		`SELECT 1 FROM audit WHERE seq = 0 LIMIT 1`)
	if err != nil || !waits {
		return head, 0, err
	}
	secret, err := key(ctx)
	if err != nil {
		return head, 0, named("chain audit: its key", err)
	}
	chained, err = db.inBatches(ctx, "chain audit", chainEntries, func(t *tx, batch int) (int, error) {
		last, taken, err := t.chainAudit(secret, batch)
		t.OnCommit(func() { head = last })
		return taken, err
	})
	return head, chained, err
}

// chainAudit chains so many entries at most. The head is locked before they are read, so that
// no two transactions give the same place away.
func (t *tx) chainAudit(key []byte, batch int) (head store.AuditLink, taken int, err error) {
	head, found, err := sqldb.One(t, sqldb.Named[store.AuditLink](`seq hash`),
		`FROM audit_head WHERE id = 1 FOR UPDATE`)
	if err == nil && !found {
		err = errors.New("the row is not there")
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

// writeLinks writes the places of entries, and the new head.
func (t *tx) writeLinks(entries []store.AuditEntry, head store.AuditLink) error {
	n, err := sqldb.ExecRows(t.Tx, `UPDATE audit SET seq = i.seq, hash = i.hash FROM $i
		WHERE audit.id = i.id AND audit.seq = 0`, entries,
		func(e *store.AuditEntry) sqldb.Columns { return append(linkColumns(e), col("id", &e.ID)) })
	if err != nil {
		return named("write links", err)
	}
	if n != int64(len(entries)) {
		return fmt.Errorf("write links: %d entries, and %d of them were there", len(entries), n)
	}
	if _, err := t.Exec(`UPDATE audit_head SET seq = $1, hash = $2 WHERE id = 1`,
		head.Seq, head.Hash); err != nil {
		return named("write the head", err)
	}
	return nil
}

// AuditHead returns where the chain ends, all of it at one moment. Without the row of the head it is zero, as
// if nothing were chained.
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

// chainPage names the condition of the index audit_chained, by which it is read.
const chainPage = `FROM audit WHERE seq > $1 AND seq <= $2 AND seq <> 0 ORDER BY seq LIMIT $3`

// ChainedAudit returns the entries of all projects with places above after, up to until, in their order, at
// most limit.
func (db *DB) ChainedAudit(ctx context.Context, after, until int64, limit int) ([]store.AuditEntry, error) {
	return sqldb.Select(db.read(ctx, "read the chain of the audit"), auditColumns, chainPage, after, until,
		limit)
}

// Audit returns a page of the project's audit, newest first. What was done to one object is found by its
// index; every other filter is looked for in a bounded number of entries, as in a list of callbacks (see
// listing). A page has at most 501 entries: one more than the API shows.
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

// An auditListing is a page of the audit that is being read.
type auditListing struct {
	read    sqldb.Read
	budget  pageBudget
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
	l.filter(&rest)
	if rest.text == "" {
		return l.add(0)
	}
	return l.budget.scan(2*l.left, func(size int) (bool, error) {
		q := l.endQuery(size)
		end, more, err := sqldb.Value[string](l.read, q.text, q.args...)
		if err != nil {
			return false, err
		}
		if err := l.add(size); err != nil || l.page.Next != "" || !more {
			return false, err
		}
		l.After, l.page.Next = end, end
		return l.left > 0, nil
	})
}

// bound adds what the index bounds: where the page begins.
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

// filter adds what bound leaves out, of a part of the audit. Ids are of another clock than times, so times
// bound no ids.
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
	names, err := sqldb.Values[string](l.read, q.text, q.args...)
	for _, name := range names {
		if strings.Contains(store.Fold(name), wanted) {
			l.actors = append(l.actors, name)
		}
	}
	return err
}

// readQuery finds what is in the next window, or with size zero, on the page. A window is a statement within
// the statement: whatever the filter says, no other index is taken.
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

// add adds the entries of the next window, or with size zero, of the page, that are as the filter says. Where
// there are more than there is room for it says in Next where they begin.
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
