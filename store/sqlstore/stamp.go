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
	known *store.Stamped
	// One of the three is the answer.
	stamped *store.Stamped
	refused *store.Refusal
	err     error
}

// Fail implements [sqldb.Entry].
func (e *stampEntry) Fail(err error) { e.stamped, e.refused, e.err = nil, nil, err }

// suspectFrom is the count of crashes from which on a row is refused.
func (e *stampEntry) suspectFrom() int64 {
	if e.stamp.Suspect == 0 {
		return math.MaxInt32
	}
	return int64(e.stamp.Suspect)
}

// dueBy is up to when rows may be due.
func (e *stampEntry) dueBy() int64 { return e.stamp.Now + e.stamp.Lead }

func (e *stampEntry) refuse(r store.Refusal) { e.stamped, e.refused, e.err = nil, &r, nil }

// Stamp claims rows in SQL for a batch that was claimed in the index. Every claim is among the stamped or among the
// refusals, unless there is an error; then those that were stamped are stamped again by the same token.
func (db *DB) Stamp(ctx context.Context, s store.Stamp) ([]*store.Stamped, []store.Refusal, error) {
	entries := make([]sqldb.Entry, len(s.Claims))
	own := make([]stampEntry, len(s.Claims))
	for i, claim := range s.Claims {
		own[i] = stampEntry{StampClaim: claim, stamp: &s}
		entries[i] = &own[i]
	}
	if err := db.sql.Commit(ctx, stamps, entries); err != nil {
		return nil, nil, fmt.Errorf("stamp: %w", err)
	}
	db.fresh.remove(s.Claims)
	stamped := make([]*store.Stamped, 0, len(own))
	var refusals []store.Refusal
	var err error
	for i := range own {
		switch e := &own[i]; {
		case e.stamped != nil:
			stamped = append(stamped, e.stamped)
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

// applyStamps stamps the claims of one group, in rounds in which no row comes twice.
func (t *tx) applyStamps(entries []*stampEntry) error {
	for len(entries) > 0 {
		round, later := distinct(entries, func(e *stampEntry) string { return e.ID })
		if err := t.stampRound(round); err != nil {
			return err
		}
		entries = later
	}
	return nil
}

// distinct splits off the first entry of each id, in the order of ids; the others keep their order.
func distinct[E any](entries []E, id func(E) string) (first, later []E) {
	seen := make(map[string]bool, len(entries))
	first = make([]E, 0, len(entries))
	for _, e := range entries {
		if seen[id(e)] {
			later = append(later, e)
			continue
		}
		seen[id(e)] = true
		first = append(first, e)
	}
	slices.SortFunc(first, func(a, b E) int { return cmp.Compare(id(a), id(b)) })
	return first, later
}

// stampRound stamps each row once, records claims that ended without a result, and answers every entry.
func (t *tx) stampRound(entries []*stampEntry) error {
	byID := make(map[string]*stampEntry, len(entries))
	for _, e := range entries {
		e.stamped, e.refused, e.err = nil, nil, nil
		byID[e.ID] = e
	}
	unknown, err := t.claimFirst(entries)
	if err != nil {
		return err
	}
	rows, err := t.claimRows(unknown)
	if err != nil {
		return err
	}
	var lost []store.Attempt
	var ended []ending
	var corrupt []string
	for i := range rows {
		r := &rows[i]
		e := byID[r.ID]
		if r.lostAt > 0 {
			lost = append(lost, lostAttempt(&r.row, r.Fence-1, r.lostAt, e.stamp.Now))
		}
		switch {
		case r.CancelRequested:
			// The attempt that was in flight at the cancel has died; there is no other.
			ended = append(ended, ending{&r.row, store.Canceled, r.cancelReason(), e.stamp.Now})
			e.refuse(store.Refusal{ID: r.ID, Terminal: true, Retry: r.AttemptCount > 0})
		case r.broken != nil:
			t.db.logger.Error("a callback cannot be decoded and is set aside", "callback_id", r.ID, "error", r.broken)
			corrupt = append(corrupt, r.ID)
			e.refuse(store.Refusal{ID: r.ID, Terminal: true, Corrupt: true, Retry: r.AttemptCount > 0})
		default:
			r.ClaimToken = e.stamp.Token
			e.stamped = &store.Stamped{Callback: r.Callback, Body: r.body, Lost: r.lostAt > 0}
		}
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

// A claimedRow is a row as the stamp left it.
type claimedRow struct {
	row
	// storedURL is the address in the row. Where the callback's endpoint has moved it is not the present one.
	storedURL string
}

// claimColumns describe what an attempt and its result need of a row, no more.
func claimColumns(r *claimedRow) sqldb.Columns {
	c := &r.Callback
	return sqldb.Columns{
		col("callbacks.id", &c.ID),
		col("callbacks.project", &c.Project),
		col("callbacks.kind", &c.Kind),
		col("requests.endpoint_id", &c.EndpointID),
		col(presentURL, &c.URL),
		col("requests.url", &r.storedURL),
		col("requests.method", &c.Method),
		col("requests.headers", &r.headers),
		col("requests.follows", sqldb.Bool(&c.Follows)),
		col("CASE WHEN callbacks.strict = 1 THEN callbacks.lock_key ELSE '' END", &c.LockKey),
		col("callbacks.lane", &c.LaneID),
		col("requests.policy", &r.policy),
		col("requests.success", &r.success),
		col("requests.signer", &c.Signer),
		col("requests.content_type", &c.ContentType),
		col("callbacks.due_at", &c.DueAt),
		col("requests.first_due_at", &c.FirstDueAt),
		col("callbacks.expires_at", &c.ExpiresAt),
		col("callbacks.attempt_count", &c.AttemptCount),
		col("callbacks.divert_count", &c.DivertCount),
		col("callbacks.attempt_seq", &c.AttemptSeq),
		col("callbacks.ladder_base", &c.LadderBase),
		col("callbacks.trigger", &c.Trigger),
		col(`CASE
		WHEN callbacks.cancel_requested = 0 THEN ''
		WHEN callbacks.reason = '' THEN 'requested'
		ELSE callbacks.reason
	END`, &r.cancelAs),
		col("callbacks.free_retry", sqldb.Bool(&c.FreeRetry)),
		col("callbacks.last_class", &c.LastClass),
		col("callbacks.poll_errors", &c.PollErrors),
		col("callbacks.fence", &c.Fence),
		col("callbacks.claim_until", &c.ClaimUntil),
		col("callbacks.lost_at", &r.lostAt),
		col("callbacks.crash_count", &c.CrashCount),
		col(bodyColumn, &r.body),
	}
}

// stampUpdate is the stamp itself. A row qualifies while it is scheduled, due, and not claimed by somebody alive. It
// remembers in lost_at when the claim was made that this one replaces: a token that is still there says that no result
// came of it, and what it may have sent gets a number of its own.
var stampUpdate = sqldb.BulkUpdate[*stampEntry]{Table: "callbacks", From: fromCallbacks, Fields: sqldb.Fields[*stampEntry]{
	sqldb.Text("id", func(e *stampEntry) string { return e.ID }),
	sqldb.Text("token", func(e *stampEntry) string { return e.stamp.Token }),
	sqldb.Int("stamped_at", func(e *stampEntry) int64 { return e.stamp.Now }),
	sqldb.Int("margin", func(e *stampEntry) int64 { return e.stamp.Margin }),
	sqldb.Int("diverts", func(e *stampEntry) int { return e.Diverts }),
	sqldb.Int("suspect", func(e *stampEntry) int64 { return e.suspectFrom() }),
	sqldb.Int("due_by", func(e *stampEntry) int64 { return e.dueBy() }),
}, Set: `
		fence = callbacks.fence + 1,
		lost_at = CASE WHEN callbacks.claim_token <> '' THEN callbacks.claimed_at ELSE 0 END,
		attempt_seq = callbacks.attempt_seq + CASE WHEN callbacks.claim_token <> '' THEN 1 ELSE 0 END,
		claim_token = i.token,
		claim_until = i.stamped_at + callbacks.timeout_ms + i.margin,
		claimed_at = i.stamped_at,
		crash_count = callbacks.crash_count + 1,
		divert_count = callbacks.divert_count + i.diverts,
		updated_at = i.stamped_at`,
	Where: isOpen + `
		AND callbacks.due_at <= i.due_by
		AND callbacks.claim_until <= i.stamped_at
		AND callbacks.crash_count < i.suspect
		AND (callbacks.strict = 0 OR NOT EXISTS (SELECT 1 FROM callbacks AS older WHERE ` + isNext("older", "callbacks") + `
			AND older.id < callbacks.id))`,
	Returning: claimColumns(new(claimedRow)).List(),
}.Prepare()

// claimRows stamps the rows that qualify and returns them.
func (t *tx) claimRows(entries []*stampEntry) ([]claimedRow, error) {
	claimed := make([]claimedRow, 0, len(entries))
	var c claimedRow
	scan := claimColumns(&c).Scan()
	err := stampUpdate.Run(t.Tx, entries, func(r sqldb.Row) error {
		c = claimedRow{row: row{Callback: store.Callback{State: store.Scheduled}}}
		if err := scan(r); err != nil {
			return err
		}
		c.Strict, c.CancelRequested = c.LockKey != "", c.cancelAs != ""
		c.broken = t.db.structured(&c.row)
		claimed = append(claimed, c)
		return nil
	})
	if err == nil {
		err = t.moveToEndpoints(claimed)
	}
	if err == nil {
		err = t.nameLanes(claimed)
	}
	if err != nil {
		return nil, fmt.Errorf("claim rows: %w", err)
	}
	return claimed, nil
}

// moveToEndpoints writes the present address of claimed rows whose endpoint has moved. They keep it when they
// end.
func (t *tx) moveToEndpoints(claimed []claimedRow) error {
	var moved []claimedRow
	for i := range claimed {
		if claimed[i].URL != claimed[i].storedURL {
			moved = append(moved, claimed[i])
		}
	}
	if len(moved) == 0 {
		return nil
	}
	slices.SortFunc(moved, func(a, b claimedRow) int { return cmp.Compare(a.ID, b.ID) })
	return t.Later(`UPDATE requests SET url = i.url FROM $i
		WHERE requests.project = i.project AND requests.id = i.id`, sqldb.Rows(moved,
		sqldb.Text("project", func(r claimedRow) string { return r.Project }),
		sqldb.Text("id", func(r claimedRow) string { return r.ID }),
		sqldb.Text("url", func(r claimedRow) string { return r.URL })))
}

// refuseRest answers the entries that the stamp did not take: with the row again where the same token took it before,
// because that reply was lost; else with why not.
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
	rows, err := sqldb.Select(t, func(r *row) sqldb.Columns {
		return append(callbackColumns(r), col(bodyColumn, &r.body))
	}, `FROM `+fromCallbacks+` WHERE callbacks.id IN (SELECT i.id FROM $i)`, sqldb.Texts("id", sortedKeys(rest)))
	if err != nil {
		return fmt.Errorf("read refused rows: %w", err)
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
			// The lead later, so that it is not claimed and refused again and again until the claim has ended.
			e.refuse(store.Refusal{ID: r.ID, Due: max(r.DueAt, r.ClaimUntil+e.stamp.Lead), Retry: r.AttemptCount > 0})
		default:
			due := r.DueAt <= e.dueBy()
			suspect := due && int64(r.CrashCount) >= e.suspectFrom()
			e.refuse(store.Refusal{ID: r.ID, Due: r.DueAt, Retry: r.AttemptCount > 0, Suspect: suspect, Behind: due && r.Strict && !suspect})
		}
	}
	for _, e := range rest {
		e.refuse(store.Refusal{ID: e.ID, Terminal: true})
	}
	return nil
}

// lostAttempt is the record of a claim that ended without a result: it may have reached the receiver, once it was due.
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

// setAside makes rows that cannot be decoded, or cannot be claimed, Dead, Invalid. It reads only what any row has and
// leaves all other bytes as they are.
func (t *tx) setAside(ids []string, now int64) error {
	input := sqldb.Rows(slices.Sorted(slices.Values(ids)), theID, sqldb.Int("set_at", func(string) int64 { return now }))
	due, err := sqldb.Map[string, int64](t, `SELECT callbacks.id, callbacks.due_at FROM callbacks
		WHERE callbacks.id IN (SELECT i.id FROM $i)
		ORDER BY callbacks.id FOR UPDATE`, input)
	if err != nil {
		return fmt.Errorf("read due times: %w", err)
	}
	err = t.Each(func(rows sqldb.Row) error {
		c := store.Callback{State: store.Scheduled}
		if err := rows.Scan(&c.ID, &c.Project, &c.Kind, &c.LaneID, &c.AttemptCount, &c.LadderBase, &c.LastStatus, &c.LastClass); err != nil {
			return err
		}
		c.DueAt = due[c.ID]
		t.deltas.count(&c, -1)
		c.State, c.Reason = store.Dead, store.Invalid
		t.deltas.count(&c, 1)
		t.ended(&c, now)
		return nil
	}, `UPDATE callbacks SET
			state = 'dead',
			reason = 'invalid',
			last_class = 'corrupt',
			due_at = 0,
			claim_until = 0,
			claim_token = '',
			finished_at = i.set_at,
			updated_at = i.set_at
		FROM $i
		WHERE callbacks.id = i.id AND `+isOpen+`
		RETURNING callbacks.id, callbacks.project, callbacks.kind, callbacks.lane, callbacks.attempt_count, callbacks.ladder_base, callbacks.last_status,
			callbacks.last_class`, input)
	return named("set rows aside", err)
}
