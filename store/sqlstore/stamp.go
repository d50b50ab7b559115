package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A stampEntry is one row of a stamp.
type stampEntry struct {
	store.StampClaim
	stamp *store.Stamp
	// One of the three is the answer.
	stamped *store.Stamped
	refused *store.Refusal
	err     error
}

func (e *stampEntry) fail(err error) { e.stamped, e.refused, e.err = nil, nil, err }

// suspectFrom is the count of crashes from which on a row is refused.
func (e *stampEntry) suspectFrom() int64 {
	if e.stamp.Suspect == 0 {
		return math.MaxInt32
	}
	return int64(e.stamp.Suspect)
}

func (e *stampEntry) refuse(r store.Refusal) { e.stamped, e.refused, e.err = nil, &r, nil }

// Stamp claims rows in SQL for a batch that was claimed in the index. Every claim is among the stamped or among the
// refusals, unless there is an error; then those that were stamped are stamped again by the same token.
func (db *DB) Stamp(ctx context.Context, s store.Stamp) ([]store.Stamped, []store.Refusal, error) {
	entries := make([]entry, len(s.Claims))
	own := make([]stampEntry, len(s.Claims))
	for i, claim := range s.Claims {
		own[i] = stampEntry{StampClaim: claim, stamp: &s}
		entries[i] = &own[i]
	}
	if err := db.stamps.commit(ctx, entries); err != nil {
		return nil, nil, fmt.Errorf("stamp: %w", err)
	}
	var stamped []store.Stamped
	var refusals []store.Refusal
	var err error
	for i := range own {
		switch e := &own[i]; {
		case e.stamped != nil:
			stamped = append(stamped, *e.stamped)
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
	rows, err := t.claimRows(entries)
	if err != nil {
		return err
	}
	var lost []*store.Attempt
	var ended []row
	var corrupt []string
	for _, r := range rows {
		e := byID[r.ID]
		if r.lostAt > 0 {
			lost = append(lost, lostAttempt(&r.row, r.Fence-1, r.lostAt, e.stamp.Now))
		}
		switch {
		case r.CancelRequested:
			// The attempt that was in flight at the cancel has died; there is no other.
			ended = append(ended, r.row)
			e.refuse(store.Refusal{ID: r.ID, Terminal: true, Retry: r.AttemptCount > 0})
		case r.broken != nil:
			t.db.logger.Error("a callback cannot be decoded and is set aside", "callback_id", r.ID, "error", r.broken)
			corrupt = append(corrupt, r.ID)
			e.refuse(store.Refusal{ID: r.ID, Terminal: true, Corrupt: true, Retry: r.AttemptCount > 0})
		default:
			e.stamped = &store.Stamped{Callback: r.Callback, Body: r.body, Lost: r.lostAt > 0}
		}
	}
	if err := t.insertAttempts(lost); err != nil {
		return err
	}
	for _, r := range ended {
		if err := t.end(&r, store.Canceled, store.Requested, byID[r.ID].stamp.Now); err != nil {
			return err
		}
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
	body []byte
}

// claimRows is the stamp itself. A row qualifies while it is scheduled, due, and not claimed by somebody alive. It
// remembers in lost_at when the claim was made that this one replaces: a token that is still there says that no result
// came of it, and what it may have sent gets a number of its own.
func (t *tx) claimRows(entries []*stampEntry) ([]claimedRow, error) {
	input, args, _, err := t.input([]column{
		texts("id", entries, func(e *stampEntry) string { return e.ID }),
		texts("token", entries, func(e *stampEntry) string { return e.stamp.Token }),
		ints("stamped_at", entries, func(e *stampEntry) int64 { return e.stamp.Now }),
		ints("margin", entries, func(e *stampEntry) int64 { return e.stamp.Margin }),
		ints("diverts", entries, func(e *stampEntry) int64 { return int64(e.Diverts) }),
		ints("suspect", entries, func(e *stampEntry) int64 { return e.suspectFrom() }),
	})
	if err != nil {
		return nil, err
	}
	var claimed []claimedRow
	err = t.each(func(rows *sql.Rows) error {
		var c claimedRow
		var err error
		c.row, err = t.db.scanCallback(rows, &c.body)
		claimed = append(claimed, c)
		return err
	}, `UPDATE callbacks SET
			fence = callbacks.fence + 1,
			lost_at = CASE WHEN callbacks.claim_token <> '' THEN callbacks.claimed_at ELSE 0 END,
			attempt_seq = callbacks.attempt_seq + CASE WHEN callbacks.claim_token <> '' THEN 1 ELSE 0 END,
			claim_token = i.token,
			claim_until = i.stamped_at + callbacks.timeout_ms + i.margin,
			claimed_at = i.stamped_at,
			crash_count = callbacks.crash_count + 1,
			divert_count = callbacks.divert_count + i.diverts,
			updated_at = i.stamped_at
		FROM `+input+`
		WHERE callbacks.id = i.id
			AND `+isOpen+`
			AND callbacks.due_at <= i.stamped_at
			AND callbacks.claim_until <= i.stamped_at
			AND callbacks.crash_count < i.suspect
		RETURNING `+callbackColumns+`,
			(SELECT payloads.body FROM payloads WHERE payloads.id = callbacks.payload_id)`, args...)
	if err != nil {
		return nil, fmt.Errorf("claim rows: %w", err)
	}
	return claimed, nil
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
	input, args, _, err := t.input([]column{{name: "id", texts: sortedKeys(rest)}})
	if err != nil {
		return err
	}
	err = t.each(func(rows *sql.Rows) error {
		var body []byte
		r, err := t.db.scanCallback(rows, &body)
		if err != nil {
			return err
		}
		e := rest[r.ID]
		delete(rest, r.ID)
		switch {
		case r.State.Terminal():
			e.refuse(store.Refusal{ID: r.ID, Terminal: true, Retry: r.AttemptCount > 0})
		case r.ClaimToken == e.stamp.Token && r.ClaimUntil > e.stamp.Now:
			e.stamped = &store.Stamped{Callback: r.Callback, Body: body}
		case r.ClaimUntil > e.stamp.Now:
			e.refuse(store.Refusal{ID: r.ID, Due: max(r.DueAt, r.ClaimUntil), Retry: r.AttemptCount > 0})
		default:
			suspect := r.DueAt <= e.stamp.Now && int64(r.CrashCount) >= e.suspectFrom()
			e.refuse(store.Refusal{ID: r.ID, Due: r.DueAt, Retry: r.AttemptCount > 0, Suspect: suspect})
		}
		return nil
	}, `SELECT `+callbackColumns+`,
			(SELECT payloads.body FROM payloads WHERE payloads.id = callbacks.payload_id)
		FROM callbacks
		WHERE callbacks.id IN (SELECT i.id FROM `+input+`)`, args...)
	if err != nil {
		return fmt.Errorf("read refused rows: %w", err)
	}
	for _, e := range rest {
		e.refuse(store.Refusal{ID: e.ID, Terminal: true})
	}
	return nil
}

// lostAttempt is the record of a claim that ended without a result: it may have reached the receiver.
func lostAttempt(r *row, fence, claimedAt, now int64) *store.Attempt {
	return &store.Attempt{
		CallbackID: r.ID,
		Project:    r.Project,
		Number:     r.AttemptSeq,
		Trigger:    r.Trigger,
		Outcome:    store.AttemptUnknown,
		Class:      store.ClassCrashed,
		StartedAt:  claimedAt,
		EndedAt:    now,
		DueAt:      r.DueAt,
		Lateness:   float64(claimedAt - r.DueAt),
		NextDueAt:  r.DueAt,
		Fence:      fence,
		Error:      "the claim ended without a result",
	}
}

// end makes a scheduled row terminal and clears its claim. The row is as the transaction has read it.
func (t *tx) end(r *row, state store.State, reason store.Reason, now int64) error {
	t.deltas.count(&r.Callback, -1)
	r.State, r.Reason, r.DueAt, r.FinishedAt, r.UpdatedAt = state, reason, 0, now, now
	r.ClaimUntil, r.ClaimToken, r.CancelRequested = 0, "", false
	r.ResumeState, r.ResumeReason = "", ""
	t.deltas.count(&r.Callback, 1)
	_, err := t.exec(`UPDATE callbacks SET
			state = $1,
			reason = $2,
			due_at = 0,
			finished_at = $3,
			updated_at = $3,
			claim_until = 0,
			claim_token = '',
			cancel_requested = 0,
			resume_state = '',
			resume_reason = '',
			attempt_seq = $4
		WHERE id = $5`, string(state), string(reason), now, r.AttemptSeq, r.ID)
	if err != nil {
		return fmt.Errorf("end callback %s: %w", r.ID, err)
	}
	return nil
}

// setAside makes rows that cannot be decoded, or cannot be claimed, Dead, Invalid. It reads only what any row has and
// leaves all other bytes as they are.
func (t *tx) setAside(ids []string, now int64) error {
	ids = slices.Sorted(slices.Values(ids))
	input, args, _, err := t.input([]column{
		{name: "id", texts: ids},
		ints("set_at", ids, func(string) int64 { return now }),
	})
	if err != nil {
		return err
	}
	err = t.each(func(rows *sql.Rows) error {
		var project string
		var lane int64
		var tier int
		if err := rows.Scan(&project, &lane, &tier); err != nil {
			return err
		}
		t.deltas.add(project, stateCounter, string(store.Scheduled), -1)
		t.deltas.add(project, tierCounter, strconv.Itoa(tier), -1)
		t.deltas.add(project, laneCounter, strconv.FormatInt(lane, 10), -1)
		t.deltas.add(project, stateCounter, string(store.Dead), 1)
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
		FROM `+input+`
		WHERE callbacks.id = i.id AND `+isOpen+`
		RETURNING callbacks.project, callbacks.lane, callbacks.attempt_count - callbacks.ladder_base`, args...)
	if err != nil {
		return fmt.Errorf("set rows aside: %w", err)
	}
	return nil
}
