package sqlstore

import (
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

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
