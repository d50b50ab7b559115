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

// A stampEntry is one claim in a group of stamps.
type stampEntry struct {
	store.StampClaim
	stamp *store.Stamp
	// cached is the row as this process accepted it, or nil. It may be out of date.
	cached *store.Stamped
	// One of these three is the answer.
	stamped *store.Stamped
	refused *store.Refusal
	err     error
}

// Fail implements [sqldb.Entry]: the claim alone could not be committed.
func (e *stampEntry) Fail(err error) { e.stamped, e.refused, e.err = nil, nil, err }

// quarantineFrom is the number of claims without a result from which a stamp refuses a row as quarantined. If
// QuarantineAfter is zero, no row reaches it.
func (e *stampEntry) quarantineFrom() int64 {
	if e.stamp.QuarantineAfter == 0 {
		return math.MaxInt32
	}
	return int64(e.stamp.QuarantineAfter)
}

// dueBy is the latest due time that the stamp takes: now and the lookahead.
func (e *stampEntry) dueBy() int64 { return e.stamp.Now + e.stamp.Lookahead }

func (e *stampEntry) refuse(r store.Refusal) { e.stamped, e.refused, e.err = nil, &r, nil }

// Stamp claims rows in SQL for a batch that was claimed in the index. Each claim is among the stamped rows or
// among the refusals. If Stamp returns an error, some rows may be claimed all the same; a stamp with the same
// token returns those again, while their claims last. Rows that no stamp repeats wait until their claims run
// out, and count as crashed.
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

// forAttempt clears what no attempt needs, so that a row from the cache and one from SQL look the same.
func forAttempt(s *store.Stamped) *store.Stamped {
	c := &s.Callback
	c.Topic, c.Ref, c.Labels, c.Version, c.PayloadID, c.PayloadPurged = "", "", nil, nil, "", false
	c.Reason, c.ResumeState, c.ResumeReason, c.LastStatus = "", "", "", 0
	c.CreatedAt, c.UpdatedAt, c.FinishedAt = 0, 0, 0
	if !c.Strict {
		c.LockKey = ""
	}
	if s.FirstURL == c.URL {
		s.FirstURL = ""
	}
	return s
}

// applyStamps stamps the claims of one group. Each round has at most one claim of a row.
func (t *tx) applyStamps(entries []*stampEntry) error {
	return inRounds(entries, func(e *stampEntry) string { return e.ID }, t.stampRound)
}

// inRounds calls apply with the first entry of each id, then with the second of each id, and so on. A round
// is sorted by id, so that transactions lock rows in the same order.
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

// stampRound answers every entry of a round, in one transaction with the group. Rows that this process
// accepted need no read (stampCached). stampUpdate claims the others. A claimed row then takes one of three
// ways:
//   - The row's cancel was requested: the row ends canceled, and the claim is refused.
//   - A column cannot be decoded: the row ends as Dead, Invalid, and the claim is refused.
//   - Otherwise it is stamped.
//
// If the claim before had no result, an attempt of class crashed is recorded for it. refuseRest answers the
// rows that were not claimed.
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
			// The attempt in flight at the cancel has died. So nothing more is sent, and this claim records
			// no attempt when the row ends.
			r.ClaimToken = ""
			ended = append(ended, ending{new(*r), store.Canceled, r.cancelReason(), e.stamp.Now})
			e.refuse(refusal)
		case r.broken != nil:
			t.db.logger.Error("callback cannot be decoded: it ends as dead, invalid", "callback_id", r.ID,
				"error", r.broken)
			corrupt = append(corrupt, r.ID)
			refusal.Corrupt = true
			e.refuse(refusal)
		default:
			e.stamped = &store.Stamped{Callback: r.Callback, FirstURL: r.firstURL, Body: r.body,
				Lost: r.LostAt > 0}
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

// stampUpdate is the claim stamp. It matches a row that is scheduled, due by i.due_by and without a live
// claim. Two processes that stamp a row at once cannot both match: the second waits for the row's lock, and
// then finds a live claim_until. A row with too many claims without a result (i.quarantine_after) does not
// match. A strict row matches only if no older one of its lock key is open.
//
// The new fence makes every result of an earlier claim lose (see resultUpdate). A claim_token that is still
// set means that the claim before had no result. Then lost_at keeps when it was made, and the attempt that it
// may have sent gets a number.
var stampUpdate = sqldb.BulkUpdate[stampEntry, row]{Table: "callbacks", From: fromCallbacks,
	Columns: func(e *stampEntry) sqldb.Columns {
		return append(claimColumns(e),
			calc("margin", func() int64 { return e.stamp.Margin }),
			calc("quarantine_after", e.quarantineFrom))
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
		AND callbacks.claims_without_result < i.quarantine_after
		AND (callbacks.strict = 0 OR NOT EXISTS (
			SELECT 1 FROM callbacks AS older WHERE ` + openStrictOf("older", "callbacks") + `
				AND older.id < callbacks.id))`,
	Returning: stampedColumns,
}.Prepare()

var stampedFields = sqldb.Named[row](`callbacks.id callbacks.project callbacks.kind requests.endpoint_id
	requests.follows requests.method callbacks.strict callbacks.lane=LaneID requests.signer callbacks.state
	callbacks.reason callbacks.due_at requests.first_due_at callbacks.expires_at callbacks.attempt_count
	callbacks.divert_count callbacks.diverts_since callbacks.divert_reason callbacks.attempt_seq
	callbacks.ladder_base callbacks.trigger
	callbacks.cancel_requested callbacks.free_retry callbacks.last_status callbacks.last_class
	callbacks.poll_errors callbacks.fence callbacks.claim_until callbacks.claims_without_result
	requests.content_type requests.headers=HeadersText requests.policy=PolicyText
	requests.success=SuccessText requests.trace_context callbacks.lost_at`)

// stampedColumns are what an attempt and its result need, and what the feed has of a callback that ends
// canceled. claim_token is not read: it is the stamp's own.
func stampedColumns(r *row) sqldb.Columns {
	return append(stampedFields(r),
		col(presentURL, &r.URL),
		col(laneName, &r.Lane),
		col("CASE WHEN callbacks.strict = 1 THEN callbacks.lock_key ELSE '' END", &r.LockKey),
		col("requests.url", &r.storedURL),
		col(firstURL, &r.firstURL),
		col(bodyColumn, &r.body))
}

// claimColumns are the input columns that both kinds of stamp share.
func claimColumns(e *stampEntry) sqldb.Columns {
	return sqldb.Columns{
		col("id", &e.ID),
		col("diverts", &e.Diverts),
		calc("token", func() string { return e.stamp.Token }),
		calc("stamped_at", func() int64 { return e.stamp.Now }),
		calc("due_by", e.dueBy),
	}
}

func movedColumns(r *row) sqldb.Columns {
	return sqldb.Columns{col("project", &r.Project), col("id", &r.ID), col("url", &r.URL),
		calc("first_url", r.keptURL)}
}

// moveToEndpoints writes the present URL of the endpoint to claimed rows that follow it. A row that ends
// keeps this URL, so it names the receiver of its last attempt.
func (t *tx) moveToEndpoints(moved []row) error {
	if len(moved) == 0 {
		return nil
	}
	slices.SortFunc(moved, func(a, b row) int { return cmp.Compare(a.ID, b.ID) })
	return t.Later(`UPDATE requests SET url = i.url, first_url = i.first_url FROM $i
		WHERE requests.project = i.project AND requests.id = i.id`, sqldb.Rows(moved, movedColumns))
}

// refuseRest answers the entries that no update matched, after reading their rows. A row that the same token
// claimed before is returned as stamped: that reply was lost. All others are refused with the reason.
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
			e.stamped = &store.Stamped{Callback: r.Callback, FirstURL: r.firstURL, Body: r.body}
		case r.ClaimUntil > e.stamp.Now:
			// The lookahead is added, because the index may claim a row that much before its due time.
			// Without it the row would be claimed and refused again until the live claim ends.
			e.refuse(store.Refusal{ID: r.ID, Due: max(r.DueAt, r.ClaimUntil+e.stamp.Lookahead),
				Retry: r.AttemptCount > 0})
		default:
			due := r.DueAt <= e.dueBy()
			quarantined := due && int64(r.ClaimsWithoutResult) >= e.quarantineFrom()
			e.refuse(store.Refusal{ID: r.ID, Due: r.DueAt, Retry: r.AttemptCount > 0,
				Quarantined: quarantined, Behind: due && r.Strict && !quarantined})
		}
	}
	for _, e := range rest {
		e.refuse(store.Refusal{ID: e.ID, Terminal: true})
	}
	return nil
}

// lostAttempt is the record of a claim that ended without a result. The request may have reached the
// receiver, so its outcome is unknown. It cannot have begun before the due time: a row that is claimed early
// waits for it.
func lostAttempt(r *row, fence, claimedAt, now int64) store.Attempt {
	lost := store.Attempt{
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
	if r.storedURL != r.keptURL() { // the URL had changed before the claim, which wrote it
		lost.URL = r.storedURL
	}
	return lost
}

// setAside ends rows that cannot be decoded or claimed as Dead, Invalid, with the class corrupt. The columns
// that cannot be decoded keep what they have, so that an operator can read them. It records no attempt for
// the claim that found the row.
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
