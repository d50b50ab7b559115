package sqlstore

import (
	"bytes"
	"slices"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

const (
	// cacheBytes bounds what is remembered of callbacks that wait for their first attempt, in bytes.
	cacheBytes = 32 << 20
	// cacheDueWithin is how soon after its accept a callback must be due to be remembered, in milliseconds: it
	// would take the place of one that is.
	cacheDueWithin = 60_000
	// cacheMaxAge is how long, in milliseconds, one is remembered that nobody claims here: another process may
	// have.
	cacheMaxAge = 2 * cacheDueWithin
	// cacheRowBytes is about what a remembered callback takes beside its body.
	cacheRowBytes = 1200
)

// fresh remembers callbacks that this process has accepted, until their first attempt: nearly always it is
// this process that makes it, at once, and then need not read back what it wrote. Who uses it must have the
// row say that it is as it was accepted (cachedUpdate): so whatever changes a row changes its updated_at, its
// due_at or its fence.
//
// When it is full nothing is added: of a backlog, what came first is wanted first.
type acceptedCache struct {
	// max is the most bytes; with less than none nothing is remembered.
	max int

	mu    sync.Mutex
	rows  map[string]*store.Stamped
	bytes int
	// order has the ids and times of the accepts, the oldest first; some are not in rows any more.
	order []cachedID
}

type cachedID struct {
	id string
	at int64
}

// add remembers what was accepted. A strict one has to be compared with others at its stamp.
func (f *acceptedCache) add(c *store.Callback, body []byte) {
	if c.DueAt-c.CreatedAt > cacheDueWithin || c.State != store.Scheduled || c.Strict {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.order) > 0 && (f.rows[f.order[0].id] == nil || c.CreatedAt-f.order[0].at > cacheMaxAge) {
		f.drop(f.order[0].id)
		f.order = f.order[1:]
	}
	if f.bytes+cacheRowBytes+len(body) > f.max {
		return
	}
	// the caller's may be a part of something larger
	s := &store.Stamped{Body: bytes.Clone(body), Callback: *c}
	if f.rows == nil {
		f.rows = make(map[string]*store.Stamped)
	}
	f.rows[c.ID] = s
	f.order = append(f.order, cachedID{c.ID, c.CreatedAt})
	f.bytes += cacheRowBytes + len(s.Body)
}

// get returns what is remembered of the callback, or nil. It must not be changed.
func (f *acceptedCache) get(id string) *store.Stamped {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rows[id]
}

// remove forgets callbacks that were claimed.
func (f *acceptedCache) remove(claims []store.StampClaim) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range claims {
		f.drop(claims[i].ID)
	}
	if len(f.rows) == 0 {
		f.order = nil
	}
}

func (f *acceptedCache) drop(id string) {
	if s := f.rows[id]; s != nil {
		f.bytes -= cacheRowBytes + len(s.Body)
		delete(f.rows, id)
	}
}

// cachedUpdate stamps rows that this process remembers, if they are as they were accepted: never claimed, never
// changed, and where their address is their endpoint's, that is still the same. What they say then is known.
var cachedUpdate = sqldb.BulkUpdate[stampEntry, struct{}]{Table: "callbacks", Alone: true,
	Columns: func(e *stampEntry) sqldb.Columns {
		return append(claimColumns(e),
			calc("until", func() int64 { return e.until(e.cached) }),
			calc("created_at", func() int64 { return e.cached.CreatedAt }),
			calc("due_at", func() int64 { return e.cached.DueAt }),
			calc("url", func() string { return e.ifFollows(e.cached.URL) }),
			calc("endpoint_id", func() string { return e.ifFollows(e.cached.EndpointID) }))
	}, Set: `
		fence = 1,
		claim_token = i.token,
		claim_until = i.until,
		claimed_at = i.stamped_at,
		claims_without_result = 1,
		divert_count = i.diverts,
		updated_at = i.stamped_at`,
	Where: isOpen + `
		AND callbacks.fence = 0
		AND callbacks.updated_at = i.created_at
		AND callbacks.due_at = i.due_at
		AND callbacks.due_at <= i.due_by
		AND (i.endpoint_id = '' OR EXISTS (
			SELECT 1 FROM endpoints WHERE endpoints.id = i.endpoint_id AND endpoints.url = i.url))`,
}.Prepare()

// ifFollows is what a remembered row that follows its endpoint has of that; empty for others.
func (e *stampEntry) ifFollows(value string) string {
	if !e.cached.Follows {
		return ""
	}
	return value
}

// until is when the claim of the row ends.
func (e *stampEntry) until(s *store.Stamped) int64 {
	return e.stamp.Now + timeoutMillis(s.Policy) + e.stamp.Margin
}

// stampCached stamps what is remembered and as it was accepted, answers those entries, and returns the others.
func (t *tx) stampCached(entries []*stampEntry) ([]*stampEntry, error) {
	var known []*stampEntry
	for _, e := range entries {
		e.cached = t.db.accepted.get(e.ID)
		if e.cached != nil {
			known = append(known, e)
		}
	}
	if err := cachedUpdate.Run(t.Tx, known, func(e *stampEntry, _ *struct{}) error {
		e.answerFromCache()
		return nil
	}); err != nil {
		return nil, named("claim fresh rows", err)
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e *stampEntry) bool { return e.stamped != nil }), nil
}

// answerFromCache answers a row that is as it was accepted.
func (e *stampEntry) answerFromCache() {
	s := *e.cached
	s.Policy.Tiers, s.Policy.StopOn = slices.Clone(s.Policy.Tiers), slices.Clone(s.Policy.StopOn)
	s.Fence, s.ClaimToken, s.ClaimUntil, s.ClaimsWithoutResult, s.DivertCount = 1, e.stamp.Token, e.until(&s), 1,
		e.Diverts
	e.stamped = &s
}
