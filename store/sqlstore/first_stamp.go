package sqlstore

import (
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// firstStamp stamps rows that this process remembers, if they are as they were accepted: never claimed, never changed. What
// they say then is known.
var firstStamp = newBulkUpdate(firstStampFields(), firstStampSet, firstStampWhere, `callbacks.id`).byItself()

// firstStampThere is firstStamp for rows whose address is their endpoint's: if it still is what it was at the accept.
var firstStampThere = newBulkUpdate(
	append(firstStampFields(),
		textField("endpoint_id", func(e *stampEntry) string { return e.known.EndpointID }),
		textField("url", func(e *stampEntry) string { return e.known.URL })),
	firstStampSet,
	firstStampWhere+`
		AND EXISTS (SELECT 1 FROM endpoints WHERE endpoints.id = i.endpoint_id AND endpoints.url = i.url)`,
	`callbacks.id`).byItself()

func firstStampFields() fields[*stampEntry] {
	return fields[*stampEntry]{
		textField("id", func(e *stampEntry) string { return e.ID }),
		textField("token", func(e *stampEntry) string { return e.stamp.Token }),
		numberField("stamped_at", func(e *stampEntry) int64 { return e.stamp.Now }),
		numberField("until", func(e *stampEntry) int64 { return e.until(e.known) }),
		numberField("diverts", func(e *stampEntry) int64 { return int64(e.Diverts) }),
		numberField("created_at", func(e *stampEntry) int64 { return e.known.CreatedAt }),
		numberField("due_at", func(e *stampEntry) int64 { return e.known.DueAt }),
		numberField("due_by", func(e *stampEntry) int64 { return e.dueBy() }),
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
	changed, err := firstStamp.take(t, known, (*stampEntry).takeFirst)
	if err != nil {
		return nil, fmt.Errorf("claim fresh rows: %w", err)
	}
	moved, err := firstStampThere.take(t, following, (*stampEntry).takeFirst)
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
