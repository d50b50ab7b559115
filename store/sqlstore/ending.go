package sqlstore

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// An ending makes an open row terminal without a result, or ends a dead poll otherwise. The row is as the transaction has read it.
type ending struct {
	*row
	state  store.State
	reason store.Reason
	at     int64
}

// end makes rows terminal and clears their claims. A claim that ended without a result is recorded: whoever ends the row takes
// away the next stamp, which would have done it.
func (t *tx) end(endings ...ending) error {
	if len(endings) == 0 {
		return nil
	}
	slices.SortFunc(endings, func(a, b ending) int { return cmp.Compare(a.ID, b.ID) })
	var lost []*store.Attempt
	for _, e := range endings {
		if e.ClaimToken != "" {
			e.AttemptSeq++
			lost = append(lost, lostAttempt(e.row, e.Fence, e.claimedAt, e.at))
		}
	}
	if err := t.insertAttempts(lost); err != nil {
		return err
	}
	for _, e := range endings {
		t.deltas.count(&e.Callback, -1)
		e.State, e.Reason, e.DueAt, e.FinishedAt, e.UpdatedAt = e.state, e.reason, 0, e.at, e.at
		e.ClaimUntil, e.ClaimToken, e.CancelRequested = 0, "", false
		e.ResumeState, e.ResumeReason = "", ""
		t.deltas.count(&e.Callback, 1)
		t.ended(&e.Callback, e.at)
	}
	input, args, _, err := t.input([]column{
		texts("id", endings, func(e ending) string { return e.ID }),
		texts("state", endings, func(e ending) string { return string(e.state) }),
		texts("reason", endings, func(e ending) string { return string(e.reason) }),
		ints("ended_at", endings, func(e ending) int64 { return e.at }),
		ints("attempt_seq", endings, func(e ending) int64 { return int64(e.AttemptSeq) }),
	})
	if err != nil {
		return err
	}
	if _, err := t.exec(`UPDATE callbacks SET
			state = i.state,
			reason = i.reason,
			due_at = 0,
			finished_at = i.ended_at,
			updated_at = i.ended_at,
			claim_until = 0,
			claim_token = '',
			cancel_requested = 0,
			resume_state = '',
			resume_reason = '',
			attempt_seq = i.attempt_seq
		FROM `+input+` WHERE callbacks.id = i.id`, args...); err != nil {
		return fmt.Errorf("end callbacks: %w", err)
	}
	return nil
}

// cancelReason is how a row ends whose cancel was requested.
func (r *row) cancelReason() store.Reason { return cmp.Or(r.cancelAs, store.Requested) }

// cancelAll cancels locked open rows for a reason, and returns those that have ended by it as they were. One that is being attempted
// ends so if that fails.
func (t *tx) cancelAll(open []row, reason store.Reason, now int64) ([]store.OpenRow, error) {
	var ended []store.OpenRow
	var endings []ending
	var attempting []row
	for i := range open {
		r := &open[i]
		at := max(now, r.UpdatedAt)
		if r.StateAt(at) == store.Attempting {
			attempting = append(attempting, *r)
			continue
		}
		ended = append(ended, r.openRow())
		endings = append(endings, ending{r, store.Canceled, reason, at})
	}
	if err := t.end(endings...); err != nil {
		return nil, err
	}
	if err := t.requestCancel(attempting, reason, now); err != nil {
		return nil, err
	}
	return ended, nil
}

// requestCancel has rows that are being attempted end for a reason, unless they succeed. A reason that they have already stays.
func (t *tx) requestCancel(rows []row, reason store.Reason, now int64) error {
	if len(rows) == 0 {
		return nil
	}
	input, args, _, err := t.input([]column{
		texts("id", rows, func(r row) string { return r.ID }),
		texts("reason", rows, func(r row) string {
			if r.CancelRequested {
				return string(r.cancelReason())
			}
			return string(reason)
		}),
		ints("requested_at", rows, func(r row) int64 { return max(now, r.UpdatedAt) }),
	})
	if err != nil {
		return err
	}
	if _, err := t.exec(`UPDATE callbacks SET cancel_requested = 1, reason = i.reason, updated_at = i.requested_at
		FROM `+input+` WHERE callbacks.id = i.id`, args...); err != nil {
		return fmt.Errorf("request cancel: %w", err)
	}
	return nil
}

// openRow is the row as walks show it.
func (r *row) openRow() store.OpenRow {
	return store.OpenRow{
		ID: r.ID, Project: r.Project, LaneID: r.LaneID, LockKey: r.LockKey, Strict: r.Strict, DueAt: r.DueAt, Retry: r.AttemptCount > 0,
		Manual: r.Trigger == store.Manual, ClaimToken: r.ClaimToken, ClaimUntil: r.ClaimUntil, ExpiresAt: r.ExpiresAt,
	}
}
