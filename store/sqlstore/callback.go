package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// callbackColumns describe a row of fromCallbacks or fromRequests.
func callbackColumns(r *row) sqldb.Columns {
	c := &r.Callback
	return sqldb.Columns{
		col("callbacks.id", &c.ID),
		col("callbacks.project", &c.Project),
		col("callbacks.kind", &c.Kind),
		col("requests.endpoint_id", &c.EndpointID),
		col(presentURL, &c.URL),
		col("requests.follows", sqldb.Bool(&c.Follows)),
		col("requests.method", &c.Method),
		col("requests.headers", &r.headers),
		col("requests.topic", &c.Topic),
		col("requests.ref", &c.Ref),
		col("callbacks.lock_key", &c.LockKey),
		col("callbacks.strict", sqldb.Bool(&c.Strict)),
		col("COALESCE((SELECT lanes.key FROM lanes WHERE lanes.id = callbacks.lane), '')", &c.Lane),
		col("callbacks.lane", &c.LaneID),
		col("requests.labels", &r.labels),
		col("requests.policy", &r.policy),
		col("requests.success", &r.success),
		col("requests.signer", &c.Signer),
		col("callbacks.state", &c.State),
		col("callbacks.reason", &c.Reason),
		col("callbacks.due_at", &c.DueAt),
		col("requests.first_due_at", &c.FirstDueAt),
		col("callbacks.expires_at", &c.ExpiresAt),
		col("callbacks.attempt_count", &c.AttemptCount),
		col("callbacks.divert_count", &c.DivertCount),
		col("callbacks.attempt_seq", &c.AttemptSeq),
		col("callbacks.ladder_base", &c.LadderBase),
		col("callbacks.trigger", &c.Trigger),
		col("callbacks.resume_state", &c.ResumeState),
		col("callbacks.resume_reason", &c.ResumeReason),
		col("callbacks.cancel_requested", sqldb.Bool(&c.CancelRequested)),
		col("callbacks.free_retry", sqldb.Bool(&c.FreeRetry)),
		col("callbacks.last_status", &c.LastStatus),
		col("callbacks.last_class", &c.LastClass),
		col("callbacks.poll_errors", &c.PollErrors),
		col("requests.version", &c.Version),
		col("requests.created_at", &c.CreatedAt),
		col("callbacks.updated_at", &c.UpdatedAt),
		col("callbacks.finished_at", &c.FinishedAt),
		col("callbacks.fence", &c.Fence),
		col("callbacks.claim_token", &c.ClaimToken),
		col("callbacks.claim_until", &c.ClaimUntil),
		col("callbacks.claimed_at", &r.claimedAt),
		col("callbacks.lost_at", &r.lostAt),
		col("callbacks.crash_count", &c.CrashCount),
		col(`CASE
		WHEN callbacks.payload <> 1 THEN ''
		WHEN requests.shared <> '' THEN requests.shared
		ELSE callbacks.id
	END`, &c.PayloadID),
		col("requests.content_type", &c.ContentType),
		col("CASE WHEN callbacks.payload = 2 THEN 1 ELSE 0 END", sqldb.Bool(&c.PayloadPurged)),
	}
}

// wholeCallback are the columns of a callback with its payload, and the address in its row.
func wholeCallback(r *row) sqldb.Columns {
	return append(callbackColumns(r), col("requests.url", &r.storedURL), col(bodyColumn, &r.body))
}

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
	// cancelAs is the reason for which it ends if its cancel was requested; empty: store.Requested. It is stored as the
	// reason, which an open row has no other.
	cancelAs store.Reason
	// headers, labels, policy and success are JSON text. broken says which of those that an attempt needs could not be
	// decoded; the rest is as it should be.
	headers, labels, policy, success string
	broken                           error
	// body is its payload, where that was read; storedURL is the address in the row. Where the callback's endpoint has
	// moved it is not the present one.
	body      []byte
	storedURL string
}

// callbacks reads the callbacks that a FROM clause finds.
func (db *DB) callbacks(q sqldb.Querier, from string, args ...any) ([]row, error) {
	rows, err := sqldb.Select(q, callbackColumns, `FROM `+from, args...)
	for i := range rows {
		db.complete(&rows[i])
	}
	return rows, err
}

func (t *tx) callbacks(from string, args ...any) ([]row, error) {
	return t.db.callbacks(t, from, args...)
}

// callbacksByID reads callbacks of any project; lock is a clause that locks them, or empty.
func (t *tx) callbacksByID(ids []string, lock string) (map[string]row, error) {
	found := make(map[string]row, len(ids))
	if len(ids) == 0 {
		return found, nil
	}
	rows, err := t.callbacks(fromCallbacks+`
		WHERE callbacks.id IN (SELECT i.id FROM $i)
		ORDER BY callbacks.id`+lock, sqldb.Texts("id", slices.Sorted(slices.Values(ids))))
	for i := range rows {
		found[rows[i].ID] = rows[i]
	}
	return found, named("read callbacks", err)
}

// complete decodes a row that was read.
func (db *DB) complete(r *row) {
	if r.State == store.Scheduled {
		r.cancelAs, r.Reason = r.Reason, ""
	}
	_ = decode("labels", r.labels, &r.Labels) // what can be shown is shown
	var errs [3]error
	errs[0] = decode("headers", r.headers, &r.Headers)
	r.Success, errs[1] = db.successes.decode("success", r.success)
	r.Policy, errs[2] = db.policy(r.policy)
	r.broken = errors.Join(errs[:]...)
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

// sortedKeys are the keys of a map, in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// timeoutMillis is the policy's timeout in milliseconds, rounded up.
func timeoutMillis(p store.Policy) int64 {
	return int64((p.Timeout + time.Millisecond - 1) / time.Millisecond)
}

// position is where in its ladder the callback stands: 0 before the first charged attempt.
func position(c *store.Callback) int { return c.AttemptCount - c.LadderBase }

// One callback and its payload, by the primary keys of both tables.
const (
	oneCallback = fromRequests + `
		AND requests.id = $1 AND requests.project = $2`
	onePayload = `SELECT ` + bodyColumn + ` FROM ` + oneCallback + ` AND callbacks.payload = 1`
)

// Get returns the callback, or store.ErrNotFound when the project has none of that id. What of a damaged row can be
// shown is shown.
func (db *DB) Get(ctx context.Context, project, id string) (store.Callback, error) {
	found, err := db.callbacks(db.read(ctx, "get callback"), oneCallback, id, project)
	if err != nil {
		return store.Callback{}, err
	}
	if len(found) == 0 {
		return store.Callback{}, fmt.Errorf("get callback %s: %w", id, store.ErrNotFound)
	}
	return found[0].Callback, nil
}

// Payload returns the callback's body as it was given; store.ErrNotFound when the project has no such callback,
// store.ErrPayloadPurged when retention has removed the body. A callback that never had one has the zero Payload.
func (db *DB) Payload(ctx context.Context, project, id string) (store.Payload, error) {
	c, err := db.Get(ctx, project, id)
	if err != nil {
		return store.Payload{}, err
	}
	if !c.PayloadPurged && c.PayloadID == "" {
		return store.Payload{}, nil
	}
	p := store.Payload{ID: c.PayloadID, ContentType: c.ContentType}
	found := false
	if p.Body, found, err = sqldb.Value[[]byte](db.read(ctx, "read payload"), onePayload, id, project); err != nil {
		return store.Payload{}, err
	}
	if !found {
		return store.Payload{}, fmt.Errorf("payload of %s: %w", id, store.ErrPayloadPurged)
	}
	if p.Body == nil {
		p.Body = []byte{}
	}
	return p, nil
}

// lockedRows bounds how many callbacks of a lock key are looked at, the newest first: most of them ended long
// ago.
const lockedRows = 1000

const findLockHolder = `SELECT recent.id, recent.claimed_at FROM (
		SELECT callbacks.id, callbacks.state, callbacks.claim_until, callbacks.claimed_at FROM callbacks
		WHERE callbacks.project = $1 AND callbacks.lock_key = $2 AND callbacks.lock_key <> ''
		ORDER BY callbacks.id DESC
		LIMIT $3) AS recent
	WHERE recent.state = 'scheduled' AND recent.claim_until > $4
	ORDER BY recent.claimed_at
	LIMIT 1`

// LockHolder returns the bare id of the callback of a lock key that is being attempted at now, and when it
// was claimed. Empty: there is none among the newest thousand callbacks of the key.
func (db *DB) LockHolder(ctx context.Context, project, lockKey string, now int64) (id string, since int64, err error) {
	err = db.read(ctx, "find the holder of a lock").Each(func(r sqldb.Row) error { return r.Scan(&id, &since) },
		findLockHolder, project, lockKey, lockedRows, now)
	return id, since, err
}

// Attempted returns when the callback was last claimed, and when its last attempt ended; zero: never.
func (db *DB) Attempted(ctx context.Context, project, id string) (claimedAt, endedAt int64, err error) {
	err = db.read(ctx, "read when it was attempted").Each(func(r sqldb.Row) error { return r.Scan(&claimedAt, &endedAt) },
		`SELECT callbacks.claimed_at, COALESCE((
			SELECT attempts.ended_at FROM attempts WHERE attempts.callback_id = callbacks.id
			ORDER BY attempts.number DESC
			LIMIT 1), 0)
		FROM callbacks WHERE callbacks.id = $1 AND callbacks.project = $2`, id, project)
	return claimedAt, endedAt, err
}
