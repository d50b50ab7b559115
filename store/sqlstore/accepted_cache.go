package sqlstore

import (
	"bytes"
	"slices"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

const (
	// cacheBytes bounds the cache, in bytes.
	cacheBytes = 32 << 20
	// cacheDueWithin is how soon after its accept a callback must be due, in milliseconds. A later one would
	// take the place of one that is due now.
	cacheDueWithin = 60_000
	// cacheMaxAge is how long an unclaimed callback stays, in milliseconds. Another process may have claimed
	// it.
	cacheMaxAge = 2 * cacheDueWithin
	// cacheRowBytes is the approximate size of a cached callback without its body, in bytes.
	cacheRowBytes = 1200
)

// acceptedCache holds callbacks that this process accepted, until their first stamp. Mostly the same process
// makes the first attempt at once, and so need not read back what it wrote.
//
// The cache only saves a read. It may be out of date, because another process may have changed or claimed the
// row. The guard is the condition of cachedUpdate: it matches only a row that is as it was accepted. So every
// change of a row must change its updated_at, its due_at or its fence.
//
// A full cache takes no new rows: of a backlog the oldest rows are claimed first.
type acceptedCache struct {
	// max is the maximum size in bytes. A negative max disables the cache.
	max int

	mu    sync.Mutex
	rows  map[string]*store.Stamped
	bytes int
	// order holds the ids and accept times, oldest first. It may hold ids that rows has no more.
	order []cachedID
}

type cachedID struct {
	id string
	at int64
}

// add caches an accepted callback with its body. A strict callback is left out: its stamp must compare it
// with older ones.
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
	// The body may be a slice of the whole request, which must not stay in memory.
	s := &store.Stamped{Body: bytes.Clone(body), Callback: *c}
	if f.rows == nil {
		f.rows = make(map[string]*store.Stamped)
	}
	f.rows[c.ID] = s
	f.order = append(f.order, cachedID{c.ID, c.CreatedAt})
	f.bytes += cacheRowBytes + len(s.Body)
}

// get returns the cached callback, or nil. The caller must not change it.
func (f *acceptedCache) get(id string) *store.Stamped {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rows[id]
}

// remove drops callbacks that this process has claimed, or tried to claim.
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

// drop removes a row from the map and from the size. The caller holds the lock.
func (f *acceptedCache) drop(id string) {
	if s := f.rows[id]; s != nil {
		f.bytes -= cacheRowBytes + len(s.Body)
		delete(f.rows, id)
	}
}

// cachedUpdate stamps rows from the cache, if they are as they were accepted: never claimed, never changed,
// not moved in time. A row that follows its endpoint matches only while that has the cached URL. So the
// stamped row is known without a read. Its guards against a second claim are fence = 0 and the row's lock.
//
// Separate lets PostgreSQL commit the update before the group's transaction. If that transaction fails, the
// repeated stamp finds the rows claimed by its own token, and refuseRest returns them.
var cachedUpdate = sqldb.BulkUpdate[stampEntry, struct{}]{Table: "callbacks", Separate: true,
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

// ifFollows returns value for a cached row that follows its endpoint, and else "", which disables the
// comparison with the endpoint.
func (e *stampEntry) ifFollows(value string) string {
	if !e.cached.Follows {
		return ""
	}
	return value
}

// until is when the claim ends: the timeout of the attempt and the margin after now.
func (e *stampEntry) until(s *store.Stamped) int64 {
	return e.stamp.Now + timeoutMillis(s.Policy) + e.stamp.Margin
}

// stampCached stamps the entries whose rows are in the cache and still as they were accepted, and fills in
// their answers. It returns the other entries, which stampUpdate takes.
func (t *tx) stampCached(entries []*stampEntry) ([]*stampEntry, error) {
	var cached []*stampEntry
	for _, e := range entries {
		e.cached = t.db.accepted.get(e.ID)
		if e.cached != nil {
			cached = append(cached, e)
		}
	}
	if err := cachedUpdate.Run(t.Tx, cached, func(e *stampEntry, _ *struct{}) error {
		e.answerFromCache()
		return nil
	}); err != nil {
		return nil, named("claim cached rows", err)
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e *stampEntry) bool { return e.stamped != nil }), nil
}

// answerFromCache fills in the answer: the cached row and what cachedUpdate wrote. Slices are copied: the
// caller may change a stamped row, but not the cache.
func (e *stampEntry) answerFromCache() {
	s := *e.cached
	s.Policy.Tiers, s.Policy.StopOn = slices.Clone(s.Policy.Tiers), slices.Clone(s.Policy.StopOn)
	s.Fence, s.ClaimToken, s.ClaimUntil = 1, e.stamp.Token, e.until(&s)
	s.ClaimsWithoutResult, s.DivertCount = 1, e.Diverts
	e.stamped = &s
}
