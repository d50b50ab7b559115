package sqlstore

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

const (
	// freshBytes bounds what is remembered of callbacks that wait for their first attempt, in bytes.
	freshBytes = 32 << 20
	// freshWithin is how soon after its accept a callback must be due to be remembered, in milliseconds: it would take the place of
	// one that is.
	freshWithin = 60_000
	// freshFor is how long, in milliseconds, one is remembered that nobody claims here: another process may have.
	freshFor = 2 * freshWithin
	// freshRow is about what a remembered callback takes beside its body.
	freshRow = 1200
)

// fresh remembers callbacks that this process has accepted, until their first attempt: nearly always it is this process that
// makes it, at once, and then need not read back what it wrote. Who uses it must have the row say that it is as it was
// accepted (firstStamp): so whatever changes a row changes its updated_at, its due_at or its fence.
//
// When it is full nothing is added: of a backlog, what came first is wanted first.
type fresh struct {
	// max is the most bytes; with less than none nothing is remembered.
	max int

	mu    sync.Mutex
	rows  map[string]*store.Stamped
	bytes int
	// order has the ids and times of the accepts, the oldest first; some are not in rows any more.
	order []freshID
}

type freshID struct {
	id string
	at int64
}

// add remembers what was accepted. A strict one has to be compared with others at its stamp.
func (f *fresh) add(c *store.Callback, body []byte) {
	if c.DueAt-c.CreatedAt > freshWithin || c.State != store.Scheduled || c.Strict {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.order) > 0 && (f.rows[f.order[0].id] == nil || c.CreatedAt-f.order[0].at > freshFor) {
		f.drop(f.order[0].id)
		f.order = f.order[1:]
	}
	if f.bytes+freshRow+len(body) > f.max {
		return
	}
	s := &store.Stamped{Body: bytes.Clone(body), Callback: *c} // the caller's may be a part of something larger
	// Only what a stamp that reads the row would say.
	s.Topic, s.Ref, s.LockKey, s.Labels, s.Version = "", "", "", nil, nil
	s.UpdatedAt, s.PayloadID = 0, ""
	if f.rows == nil {
		f.rows = make(map[string]*store.Stamped)
	}
	f.rows[c.ID] = s
	f.order = append(f.order, freshID{c.ID, c.CreatedAt})
	f.bytes += freshRow + len(s.Body)
}

// get returns what is remembered of the callback, or nil. It must not be changed.
func (f *fresh) get(id string) *store.Stamped {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rows[id]
}

// remove forgets callbacks that were claimed.
func (f *fresh) remove(claims []store.StampClaim) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range claims {
		f.drop(claims[i].ID)
	}
	if len(f.rows) == 0 {
		f.order = nil
	}
}

func (f *fresh) drop(id string) {
	if s := f.rows[id]; s != nil {
		f.bytes -= freshRow + len(s.Body)
		delete(f.rows, id)
	}
}

// firstStamp stamps rows that this process remembers, if they are as they were accepted: never claimed, never changed. What
// they say then is known.
var firstStamp = sqldb.BulkUpdate[*stampEntry]{
	Table: "callbacks", Fields: firstStampFields(), Set: firstStampSet, Where: firstStampWhere, Returning: `callbacks.id`, Alone: true,
}.Prepare()

// firstStampThere is firstStamp for rows whose address is their endpoint's: if it still is what it was at the accept.
var firstStampThere = sqldb.BulkUpdate[*stampEntry]{
	Table: "callbacks",
	Fields: append(firstStampFields(),
		sqldb.Text("endpoint_id", func(e *stampEntry) string { return e.known.EndpointID }),
		sqldb.Text("url", func(e *stampEntry) string { return e.known.URL })),
	Set: firstStampSet,
	Where: firstStampWhere + `
		AND EXISTS (SELECT 1 FROM endpoints WHERE endpoints.id = i.endpoint_id AND endpoints.url = i.url)`,
	Returning: `callbacks.id`,
	Alone:     true,
}.Prepare()

func firstStampFields() sqldb.Fields[*stampEntry] {
	return sqldb.Fields[*stampEntry]{
		sqldb.Text("id", func(e *stampEntry) string { return e.ID }),
		sqldb.Text("token", func(e *stampEntry) string { return e.stamp.Token }),
		sqldb.Int("stamped_at", func(e *stampEntry) int64 { return e.stamp.Now }),
		sqldb.Int("until", func(e *stampEntry) int64 { return e.until(e.known) }),
		sqldb.Int("diverts", func(e *stampEntry) int { return e.Diverts }),
		sqldb.Int("created_at", func(e *stampEntry) int64 { return e.known.CreatedAt }),
		sqldb.Int("due_at", func(e *stampEntry) int64 { return e.known.DueAt }),
		sqldb.Int("due_by", func(e *stampEntry) int64 { return e.dueBy() }),
	}
}

const (
	firstStampSet = `
		fence = 1,
		claim_token = i.token,
		claim_until = i.until,
		claimed_at = i.stamped_at,
		crash_count = 1,
		divert_count = i.diverts,
		updated_at = i.stamped_at`
	firstStampWhere = isOpen + `
		AND callbacks.fence = 0
		AND callbacks.updated_at = i.created_at
		AND callbacks.due_at = i.due_at
		AND callbacks.due_at <= i.due_by`
)

// until is when the claim of the row ends.
func (e *stampEntry) until(s *store.Stamped) int64 {
	return e.stamp.Now + timeoutMillis(s.Policy) + e.stamp.Margin
}

// claimFirst stamps what is remembered and as it was accepted, answers those entries, and returns the others.
func (t *tx) claimFirst(entries []*stampEntry) ([]*stampEntry, error) {
	var known, following, rest []*stampEntry
	for _, e := range entries {
		switch e.known = t.db.fresh.get(e.ID); {
		case e.known == nil:
			rest = append(rest, e)
		case e.known.Follows:
			following = append(following, e)
		default:
			known = append(known, e)
		}
	}
	changed, err := firstStamp.Take(t.Tx, known, (*stampEntry).takeFirst)
	if err != nil {
		return nil, fmt.Errorf("claim fresh rows: %w", err)
	}
	moved, err := firstStampThere.Take(t.Tx, following, (*stampEntry).takeFirst)
	if err != nil {
		return nil, fmt.Errorf("claim fresh rows of endpoints: %w", err)
	}
	return append(append(rest, changed...), moved...), nil
}

// takeFirst answers a row that is as it was accepted.
func (e *stampEntry) takeFirst() {
	s := *e.known
	s.CreatedAt = 0
	s.Policy.Tiers, s.Policy.StopOn = slices.Clone(s.Policy.Tiers), slices.Clone(s.Policy.StopOn)
	s.Fence, s.ClaimToken, s.ClaimUntil, s.CrashCount, s.DivertCount = 1, e.stamp.Token, e.until(&s), 1, e.Diverts
	e.stamped = &s
}
