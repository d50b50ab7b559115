package sqlstore

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// callbackColumns are what scanCallback reads, in its order. They work in SELECT and in RETURNING.
const callbackColumns = `
	callbacks.id,
	callbacks.project,
	callbacks.kind,
	callbacks.endpoint_id,
	callbacks.url,
	callbacks.method,
	callbacks.headers,
	callbacks.topic,
	callbacks.ref,
	callbacks.lock_key,
	(SELECT lanes.key FROM lanes WHERE lanes.id = callbacks.lane),
	callbacks.lane,
	callbacks.labels,
	callbacks.policy,
	callbacks.success,
	callbacks.signer,
	callbacks.state,
	callbacks.reason,
	callbacks.due_at,
	callbacks.first_due_at,
	callbacks.expires_at,
	callbacks.attempt_count,
	callbacks.divert_count,
	callbacks.attempt_seq,
	callbacks.ladder_base,
	callbacks.trigger,
	callbacks.resume_state,
	callbacks.resume_reason,
	callbacks.cancel_requested,
	callbacks.free_retry,
	callbacks.last_status,
	callbacks.last_class,
	callbacks.version,
	callbacks.created_at,
	callbacks.updated_at,
	callbacks.finished_at,
	callbacks.fence,
	callbacks.claim_token,
	callbacks.claim_until,
	callbacks.claimed_at,
	callbacks.lost_at,
	callbacks.crash_count,
	callbacks.payload_id,
	callbacks.content_type,
	callbacks.payload_purged`

// isOpen is the condition for rows that are found by their ids. It is written so that it does not match the condition of
// the index over all open rows: PostgreSQL, when it knows little of a table, would rather walk that whole index than look
// up a hundred ids.
const isOpen = `callbacks.state || '' = 'scheduled'`

// A row is a callback as it is stored, with what only this package needs.
type row struct {
	store.Callback
	// claimedAt is when the present claim was made; lostAt, when the claim before it was, if that ended without a result.
	claimedAt, lostAt int64
	// broken says which structured column could not be decoded; the rest is as it should be.
	broken error
}

// scanCallback reads callbackColumns, and more columns after them.
func (db *DB) scanCallback(rows *sql.Rows, more ...any) (row, error) {
	var r row
	c := &r.Callback
	var lane sql.NullString
	var headers, labels, policy, success string
	var version sql.NullInt64
	var cancelRequested, freeRetry, purged int
	dest := []any{
		&c.ID, &c.Project, &c.Kind, &c.EndpointID, &c.URL, &c.Method, &headers, &c.Topic, &c.Ref, &c.LockKey, &lane,
		&c.LaneID, &labels, &policy, &success, &c.Signer, &c.State, &c.Reason, &c.DueAt, &c.FirstDueAt, &c.ExpiresAt,
		&c.AttemptCount, &c.DivertCount, &c.AttemptSeq, &c.LadderBase, &c.Trigger, &c.ResumeState, &c.ResumeReason,
		&cancelRequested, &freeRetry, &c.LastStatus, &c.LastClass, &version, &c.CreatedAt, &c.UpdatedAt, &c.FinishedAt,
		&c.Fence, &c.ClaimToken, &c.ClaimUntil, &r.claimedAt, &r.lostAt, &c.CrashCount, &c.PayloadID, &c.ContentType, &purged,
	}
	if err := rows.Scan(append(dest, more...)...); err != nil {
		return r, fmt.Errorf("scan callback: %w", err)
	}
	c.Lane = lane.String
	if version.Valid {
		c.Version = &version.Int64
	}
	c.CancelRequested, c.FreeRetry, c.PayloadPurged = cancelRequested != 0, freeRetry != 0, purged != 0
	r.broken = errors.Join(
		decode("headers", headers, &c.Headers),
		decode("labels", labels, &c.Labels),
		decode("success", success, &c.Success),
		db.policies.decode(policy, &c.Policy),
	)
	return r, nil
}

// decode reads JSON text of a column; empty text leaves v as it is.
func decode(column, text string, v any) error {
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("decode %s: %w", column, err)
	}
	return nil
}

// encode writes JSON text for a column.
func encode(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

// A policyCache remembers decoded policies by their text: most callbacks share a few.
type policyCache struct {
	max  int
	mu   sync.Mutex
	text map[string]store.Policy
}

func (p *policyCache) decode(text string, v *store.Policy) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	policy, ok := p.text[text]
	if !ok {
		if text == "" {
			return errors.New("decode policy: it is empty")
		}
		if err := decode("policy", text, &policy); err != nil {
			return err
		}
		if p.text == nil || len(p.text) >= p.max {
			p.text = make(map[string]store.Policy)
		}
		p.text[text] = policy
	}
	// The caller's own slices: what one callback's holder does to them must not reach another.
	policy.Tiers = slices.Clone(policy.Tiers)
	policy.StopOn = slices.Clone(policy.StopOn)
	*v = policy
	return nil
}

// flag is how a yes or no is stored.
func flag(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// timeoutMillis is the policy's timeout in milliseconds, rounded up.
func timeoutMillis(p store.Policy) int64 {
	return int64((p.Timeout + time.Millisecond - 1) / time.Millisecond)
}

// position is where in its ladder the callback stands: 0 before the first charged attempt.
func position(c *store.Callback) int { return c.AttemptCount - c.LadderBase }
