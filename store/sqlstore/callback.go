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

// callbackColumns are what scanCallback reads of fromCallbacks or fromRequests, in its order.
const callbackColumns = `
	callbacks.id,
	callbacks.project,
	callbacks.kind,
	requests.endpoint_id,
	` + presentURL + `,
	requests.follows,
	requests.method,
	requests.headers,
	requests.topic,
	requests.ref,
	callbacks.lock_key,
	callbacks.strict,
	(SELECT lanes.key FROM lanes WHERE lanes.id = callbacks.lane),
	callbacks.lane,
	requests.labels,
	requests.policy,
	requests.success,
	requests.signer,
	callbacks.state,
	callbacks.reason,
	callbacks.due_at,
	requests.first_due_at,
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
	callbacks.poll_errors,
	requests.version,
	requests.created_at,
	callbacks.updated_at,
	callbacks.finished_at,
	callbacks.fence,
	callbacks.claim_token,
	callbacks.claim_until,
	callbacks.claimed_at,
	callbacks.lost_at,
	callbacks.crash_count,
	CASE
		WHEN callbacks.payload <> 1 THEN ''
		WHEN requests.shared <> '' THEN requests.shared
		ELSE callbacks.id
	END,
	requests.content_type,
	CASE WHEN callbacks.payload = 2 THEN 1 ELSE 0 END`

// fromCallbacks has both rows of callbacks, found by those of the first table.
const fromCallbacks = `callbacks JOIN requests ON ` + ofCallback

// ofCallback finds the second row of a callback. The id is written so that PostgreSQL looks for it after the
// first row. By the ids of a list alone it would read the whole index for each, which costs nothing while the
// table is empty and the plan is made.
const ofCallback = `requests.project = callbacks.project AND requests.id = callbacks.id || ''`

// fromRequests is fromCallbacks for conditions that the second table is searched by. They follow it with AND.
// SQLite takes the tables of a CROSS JOIN in their order.
const fromRequests = `requests CROSS JOIN callbacks WHERE callbacks.id = requests.id`

// bodyColumn is a callback's payload, its own or one that it shares; NULL: none.
const bodyColumn = `CASE
		WHEN requests.shared = '' THEN requests.body
		ELSE (SELECT payloads.body FROM payloads WHERE payloads.id = requests.shared)
	END`

// presentURL is where the next attempt goes: for an open row that follows its endpoint, where that is now. What has ended keeps the
// address that its last stamp wrote.
const presentURL = `CASE
		WHEN requests.follows = 1 AND callbacks.state = 'scheduled'
			THEN COALESCE((SELECT endpoints.url FROM endpoints WHERE endpoints.id = requests.endpoint_id),
				requests.url)
		ELSE requests.url
	END`

// isOpen is the condition for rows that are found by their ids. It is written so that it does not match the condition of
// the index over all open rows: PostgreSQL, when it knows little of a table, would rather walk that whole index than look
// up a hundred ids.
const isOpen = `callbacks.state || '' = 'scheduled'`

// A row is a callback as it is stored, with what only this package needs.
type row struct {
	store.Callback
	// claimedAt is when the present claim was made; lostAt, when the claim before it was, if that ended without a result.
	claimedAt, lostAt int64
	// cancelAs is the reason for which it ends if its cancel was requested; empty: store.Requested. It is stored as the reason, which an
	// open row has no other.
	cancelAs store.Reason
	// broken says which structured column could not be decoded; the rest is as it should be.
	broken error
}

// scanCallback reads callbackColumns, and more columns after them.
func (db *DB) scanCallback(rows scanner, more ...any) (row, error) {
	var r row
	c := &r.Callback
	var lane sql.NullString
	var headers, labels, policy, success string
	var version sql.NullInt64
	var follows, strict, cancelRequested, freeRetry, purged int
	dest := []any{
		&c.ID, &c.Project, &c.Kind, &c.EndpointID, &c.URL, &follows, &c.Method, &headers, &c.Topic, &c.Ref, &c.LockKey, &strict, &lane,
		&c.LaneID, &labels, &policy, &success, &c.Signer, &c.State, &c.Reason, &c.DueAt, &c.FirstDueAt, &c.ExpiresAt,
		&c.AttemptCount, &c.DivertCount, &c.AttemptSeq, &c.LadderBase, &c.Trigger, &c.ResumeState, &c.ResumeReason,
		&cancelRequested, &freeRetry, &c.LastStatus, &c.LastClass, &c.PollErrors, &version, &c.CreatedAt, &c.UpdatedAt, &c.FinishedAt,
		&c.Fence, &c.ClaimToken, &c.ClaimUntil, &r.claimedAt, &r.lostAt, &c.CrashCount, &c.PayloadID, &c.ContentType, &purged,
	}
	if err := rows.Scan(append(dest, more...)...); err != nil {
		return r, fmt.Errorf("scan callback: %w", err)
	}
	c.Lane = lane.String
	if version.Valid {
		c.Version = &version.Int64
	}
	if c.State == store.Scheduled {
		r.cancelAs, c.Reason = c.Reason, ""
	}
	c.Follows, c.Strict = follows != 0, strict != 0
	c.CancelRequested, c.FreeRetry, c.PayloadPurged = cancelRequested != 0, freeRetry != 0, purged != 0
	r.broken = errors.Join(decode("labels", labels, &c.Labels), db.structured(c, headers, success, policy))
	return r, nil
}

// written remembers the texts of named policies and success rules: nearly all callbacks share a few.
type written struct {
	mu        sync.RWMutex
	policies  map[string]writtenPolicy
	successes map[store.Success]string
}

// A writtenPolicy is a policy as it was when its text was written: what a name stands for may change.
type writtenPolicy struct {
	store.Policy
	text string
}

func (w *written) policy(p *store.Policy) (string, error) {
	w.mu.RLock()
	known, ok := w.policies[p.Name]
	w.mu.RUnlock()
	if ok && samePolicy(&known.Policy, p) {
		return known.text, nil
	}
	text, err := encode(p)
	if err != nil || p.Name == "" {
		return text, err
	}
	keep := writtenPolicy{*p, text}
	keep.Tiers, keep.StopOn = slices.Clone(p.Tiers), slices.Clone(p.StopOn)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.policies == nil || len(w.policies) >= maxDecoded {
		w.policies = make(map[string]writtenPolicy)
	}
	w.policies[p.Name] = keep
	return text, nil
}

func samePolicy(a, b *store.Policy) bool {
	return slices.Equal(a.Tiers, b.Tiers) && slices.Equal(a.StopOn, b.StopOn) && (a.Tiers == nil) == (b.Tiers == nil) &&
		a.Name == b.Name && a.RepeatLast == b.RepeatLast && a.Deadline == b.Deadline && a.Timeout == b.Timeout && a.Jitter == b.Jitter &&
		a.RetryAfterCap == b.RetryAfterCap && a.OverloadFloor == b.OverloadFloor
}

func (w *written) success(s store.Success) (string, error) {
	w.mu.RLock()
	text, ok := w.successes[s]
	w.mu.RUnlock()
	if ok {
		return text, nil
	}
	text, err := encode(s)
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.successes == nil || len(w.successes) >= maxDecoded {
		w.successes = make(map[store.Success]string)
	}
	w.successes[s] = text
	return text, nil
}

// structured decodes what an attempt needs of a row's structured columns.
func (db *DB) structured(c *store.Callback, headers, success, policy string) error {
	var errs [3]error
	if headers != "" {
		errs[0] = decode("headers", headers, &c.Headers)
	}
	c.Success, errs[1] = db.successes.decode("success", success)
	c.Policy, errs[2] = db.policy(policy)
	return errors.Join(errs[:]...)
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

// maxDecoded is how many values one decoded remembers.
const maxDecoded = 1000

// decoded remembers what the texts of a column mean: most callbacks share a few. The zero value is empty.
type decoded[V any] struct {
	mu   sync.RWMutex
	text map[string]V
}

// decode returns what the text means. Who gets it must not change what it points to.
func (d *decoded[V]) decode(column, text string) (V, error) {
	d.mu.RLock()
	v, ok := d.text[text]
	d.mu.RUnlock()
	if ok || text == "" {
		return v, nil
	}
	if err := decode(column, text, &v); err != nil {
		return v, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.text == nil || len(d.text) >= maxDecoded {
		d.text = make(map[string]V)
	}
	d.text[text] = v
	return v, nil
}

// policy decodes a callback's policy, which every callback has.
func (db *DB) policy(text string) (store.Policy, error) {
	if text == "" {
		return store.Policy{}, errors.New("decode policy: it is empty")
	}
	policy, err := db.policies.decode("policy", text)
	// The caller's own slices: what one callback's holder does to them must not reach another.
	policy.Tiers = slices.Clone(policy.Tiers)
	policy.StopOn = slices.Clone(policy.StopOn)
	return policy, err
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
