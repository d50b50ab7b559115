package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A stampEntry is one row of a stamp.
type stampEntry struct {
	store.StampClaim
	stamp *store.Stamp
	// known is what this process remembers of the row, or nil.
	cached *store.Stamped
	// One of the three is the answer.
	stamped *store.Stamped
	refused *store.Refusal
	err     error
}

// Fail implements [sqldb.Entry].
func (e *stampEntry) Fail(err error) { e.stamped, e.refused, e.err = nil, nil, err }

// quarantineFrom is the count of crashes from which on a row is refused.
func (e *stampEntry) quarantineFrom() int64 {
	if e.stamp.QuarantineAfter == 0 {
		return math.MaxInt32
	}
	return int64(e.stamp.QuarantineAfter)
}

// dueBy is up to when rows may be due.
func (e *stampEntry) dueBy() int64 { return e.stamp.Now + e.stamp.Lookahead }

func (e *stampEntry) refuse(r store.Refusal) { e.stamped, e.refused, e.err = nil, &r, nil }

// Stamp claims rows in SQL for a batch that was claimed in the index. Every claim is among the stamped or
// among the refusals, unless there is an error; then those that were stamped are stamped again by the same
// token.
func (db *DB) Stamp(ctx context.Context, s store.Stamp) ([]*store.Stamped, []store.Refusal, error) {
	entries := make([]sqldb.Entry, len(s.Claims))
	own := make([]stampEntry, len(s.Claims))
	for i, claim := range s.Claims {
		own[i] = stampEntry{StampClaim: claim, stamp: &s}
		entries[i] = &own[i]
	}
	if err := db.sql.Commit(ctx, stamps, entries); err != nil {
		return nil, nil, named("stamp", err)
	}
	db.accepted.remove(s.Claims)
	stamped := make([]*store.Stamped, 0, len(own))
	var refusals []store.Refusal
	var err error
	for i := range own {
		switch e := &own[i]; {
		case e.stamped != nil:
			stamped = append(stamped, forAttempt(e.stamped))
		case e.refused != nil:
			refusals = append(refusals, *e.refused)
		default:
			err = errors.Join(err, fmt.Errorf("stamp %s: %w", e.ID, e.err))
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return stamped, refusals, nil
}

// forAttempt takes out of a stamped row, wherever it is from, what no attempt needs.
func forAttempt(s *store.Stamped) *store.Stamped {
	c := &s.Callback
	c.Topic, c.Ref, c.Labels, c.Version, c.PayloadID, c.PayloadPurged = "", "", nil, nil, "", false
	c.Reason, c.ResumeState, c.ResumeReason, c.LastStatus = "", "", "", 0
	c.CreatedAt, c.UpdatedAt, c.FinishedAt = 0, 0, 0
	if !c.Strict {
		c.LockKey = ""
	}
	return s
}

// applyStamps stamps the claims of one group, in rounds in which no row comes twice.
func (t *tx) applyStamps(entries []*stampEntry) error {
	return inRounds(entries, func(e *stampEntry) string { return e.ID }, t.stampRound)
}

// inRounds applies the first entry of each id, in the order of ids, and then the others in their order
// likewise.
func inRounds[E any](entries []E, id func(E) string, apply func([]E) error) error {
	for len(entries) > 0 {
		seen := make(map[string]bool, len(entries))
		first := make([]E, 0, len(entries))
		var later []E
		for _, e := range entries {
			if seen[id(e)] {
				later = append(later, e)
				continue
			}
			seen[id(e)] = true
			first = append(first, e)
		}
		slices.SortFunc(first, func(a, b E) int { return cmp.Compare(id(a), id(b)) })
		if err := apply(first); err != nil {
			return err
		}
		entries = later
	}
	return nil
}

// stampRound stamps each row once, records claims that ended without a result, and answers every entry.
func (t *tx) stampRound(entries []*stampEntry) error {
	for _, e := range entries {
		e.stamped, e.refused, e.err = nil, nil, nil
	}
	unknown, err := t.stampCached(entries)
	if err != nil {
		return err
	}
	var lost []store.Attempt
	var ended []ending
	var corrupt []string
	var moved []row
	if err := stampUpdate.Run(t.Tx, unknown, func(e *stampEntry, r *row) error {
		t.db.complete(r)
		r.ClaimToken = e.stamp.Token
		if r.LostAt > 0 {
			lost = append(lost, lostAttempt(r, r.Fence-1, r.LostAt, e.stamp.Now))
		}
		if r.URL != r.storedURL {
			moved = append(moved, *r)
		}
		refusal := store.Refusal{ID: r.ID, Terminal: true, Retry: r.AttemptCount > 0}
		switch {
		case r.CancelRequested:
			// The attempt that was in flight at the cancel has died; there is no other, and this claim is
			// none.
			r.ClaimToken = ""
			ended = append(ended, ending{new(*r), store.Canceled, r.cancelReason(), e.stamp.Now})
			e.refuse(refusal)
		case r.broken != nil:
			t.db.logger.Error("a callback cannot be decoded and is set aside", "callback_id", r.ID, "error",
				r.broken)
			corrupt = append(corrupt, r.ID)
			refusal.Corrupt = true
			e.refuse(refusal)
		default:
			e.stamped = &store.Stamped{Callback: r.Callback, Body: r.body, Lost: r.LostAt > 0}
		}
		return nil
	}); err != nil {
		return named("claim rows", err)
	}
	if err := t.moveToEndpoints(moved); err != nil {
		return named("claim rows", err)
	}
	if err := t.insertAttempts(lost); err != nil {
		return err
	}
	if err := t.end(ended...); err != nil {
		return err
	}
	if len(corrupt) > 0 {
		if err := t.setAside(corrupt, entries[0].stamp.Now); err != nil {
			return err
		}
	}
	return t.refuseRest(entries)
}

// stampUpdate is the stamp itself. A row qualifies while it is scheduled, due, and not claimed by somebody
// alive. It remembers in lost_at when the claim was made that this one replaces: a token that is still there
// says that no result came of it, and what it may have sent gets a number of its own.
var stampUpdate = sqldb.BulkUpdate[stampEntry, row]{Table: "callbacks", From: fromCallbacks,
	Columns: func(e *stampEntry) sqldb.Columns {
		return append(claimColumns(e),
			calc("margin", func() int64 { return e.stamp.Margin }),
			calc("suspect", e.quarantineFrom))
	}, Set: `
		fence = callbacks.fence + 1,
		lost_at = CASE WHEN callbacks.claim_token <> '' THEN callbacks.claimed_at ELSE 0 END,
		attempt_seq = callbacks.attempt_seq + CASE WHEN callbacks.claim_token <> '' THEN 1 ELSE 0 END,
		claim_token = i.token,
		claim_until = i.stamped_at + callbacks.timeout_ms + i.margin,
		claimed_at = i.stamped_at,
		claims_without_result = callbacks.claims_without_result + 1,
		divert_count = callbacks.divert_count + i.diverts,
		updated_at = i.stamped_at`,
	Where: isOpen + `
		AND callbacks.due_at <= i.due_by
		AND callbacks.claim_until <= i.stamped_at
		AND callbacks.claims_without_result < i.suspect
		AND (callbacks.strict = 0 OR NOT EXISTS (SELECT 1 FROM callbacks AS older WHERE ` + openStrictOf("older",
		"callbacks") + `
			AND older.id < callbacks.id))`,
	Returning: stampedColumns,
}.Prepare()

var stampedFields = sqldb.Named[row](`callbacks.id callbacks.project callbacks.kind requests.endpoint_id requests.follows
	requests.method callbacks.strict callbacks.lane=LaneID requests.signer callbacks.state callbacks.reason callbacks.due_at
	requests.first_due_at callbacks.expires_at callbacks.attempt_count callbacks.divert_count callbacks.attempt_seq
	callbacks.ladder_base callbacks.trigger callbacks.cancel_requested callbacks.free_retry callbacks.last_status
	callbacks.last_class callbacks.poll_errors callbacks.fence callbacks.claim_until callbacks.claims_without_result requests.content_type
	requests.headers=HeadersText requests.policy=PolicyText requests.success=SuccessText callbacks.lost_at`)

// stampedColumns are what an attempt and its result need of a row, and what the feed says of a callback that
// was canceled. The claim's token is known.
func stampedColumns(r *row) sqldb.Columns {
	return append(stampedFields(r),
		col(presentURL, &r.URL),
		col(laneName, &r.Lane),
		col("CASE WHEN callbacks.strict = 1 THEN callbacks.lock_key ELSE '' END", &r.LockKey),
		col("requests.url", &r.storedURL),
		col(bodyColumn, &r.body))
}

// claimColumns are the input of every stamp.
func claimColumns(e *stampEntry) sqldb.Columns {
	return sqldb.Columns{
		col("id", &e.ID),
		col("diverts", &e.Diverts),
		calc("token", func() string { return e.stamp.Token }),
		calc("stamped_at", func() int64 { return e.stamp.Now }),
		calc("due_by", e.dueBy),
	}
}

var movedColumns = sqldb.Named[row](`project id url`)

// moveToEndpoints writes the present address of claimed rows whose endpoint has moved. They keep it when they
// end.
func (t *tx) moveToEndpoints(moved []row) error {
	if len(moved) == 0 {
		return nil
	}
	slices.SortFunc(moved, func(a, b row) int { return cmp.Compare(a.ID, b.ID) })
	return t.Later(`UPDATE requests SET url = i.url FROM $i
		WHERE requests.project = i.project AND requests.id = i.id`, sqldb.Rows(moved, movedColumns))
}

// refuseRest answers the entries that the stamp did not take: with the row again where the same token took it
// before, because that reply was lost; else with why not.
func (t *tx) refuseRest(entries []*stampEntry) error {
	rest := make(map[string]*stampEntry)
	for _, e := range entries {
		if e.stamped == nil && e.refused == nil {
			rest[e.ID] = e
		}
	}
	if len(rest) == 0 {
		return nil
	}
	rows, err := sqldb.Select(t, wholeCallback,
		`FROM `+fromCallbacks+` WHERE callbacks.id IN (SELECT i.id FROM $i)`,
		sqldb.Texts("id", sortedKeys(rest)))
	if err != nil {
		return named("read refused rows", err)
	}
	for i := range rows {
		r := &rows[i]
		t.db.complete(r)
		e := rest[r.ID]
		delete(rest, r.ID)
		switch {
		case r.State.Terminal():
			e.refuse(store.Refusal{ID: r.ID, Terminal: true, Retry: r.AttemptCount > 0})
		case r.ClaimToken == e.stamp.Token && r.ClaimUntil > e.stamp.Now:
			e.stamped = &store.Stamped{Callback: r.Callback, Body: r.body}
		case r.ClaimUntil > e.stamp.Now:
			// The lookahead later, so that it is not claimed and refused again and again until the claim has
			// ended.
			e.refuse(store.Refusal{ID: r.ID, Due: max(r.DueAt, r.ClaimUntil+e.stamp.Lookahead),
				Retry: r.AttemptCount > 0})
		default:
			due := r.DueAt <= e.dueBy()
			suspect := due && int64(r.ClaimsWithoutResult) >= e.quarantineFrom()
			e.refuse(store.Refusal{ID: r.ID, Due: r.DueAt, Retry: r.AttemptCount > 0, Quarantined: suspect,
				Behind: due && r.Strict && !suspect})
		}
	}
	for _, e := range rest {
		e.refuse(store.Refusal{ID: e.ID, Terminal: true})
	}
	return nil
}

// lostAttempt is the record of a claim that ended without a result: it may have reached the receiver, once it
// was due.
func lostAttempt(r *row, fence, claimedAt, now int64) store.Attempt {
	return store.Attempt{
		CallbackID: r.ID,
		Project:    r.Project,
		Number:     r.AttemptSeq,
		Trigger:    r.Trigger,
		Outcome:    store.AttemptUnknown,
		Class:      store.ClassCrashed,
		StartedAt:  max(claimedAt, r.DueAt),
		EndedAt:    max(now, r.DueAt),
		DueAt:      r.DueAt,
		Lateness:   float64(max(claimedAt-r.DueAt, 0)),
		NextDueAt:  r.DueAt,
		Fence:      fence,
		Error:      "the claim ended without a result",
	}
}

// setAside makes rows that cannot be decoded, or cannot be claimed, Dead, Invalid. All that they say stays as
// it is.
func (t *tx) setAside(ids []string, now int64) error {
	rows, err := t.callbacksByID(ids, " FOR UPDATE")
	var endings []ending
	for _, r := range rows {
		if r.State == store.Scheduled {
			r.ClaimToken, r.LastClass = "", "corrupt"
			endings = append(endings, ending{new(r), store.Dead, store.Invalid, now})
		}
	}
	if err == nil {
		err = t.end(endings...)
	}
	return named("set rows aside", err)
}
