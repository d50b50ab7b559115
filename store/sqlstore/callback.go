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

var callbackFields = sqldb.Named[row](`callbacks.id callbacks.project callbacks.kind requests.endpoint_id
	requests.follows requests.method requests.topic requests.ref callbacks.lock_key callbacks.strict callbacks.lane=LaneID
	requests.signer callbacks.state callbacks.reason callbacks.due_at requests.first_due_at callbacks.expires_at
	callbacks.attempt_count callbacks.divert_count callbacks.attempt_seq callbacks.ladder_base callbacks.trigger
	callbacks.resume_state callbacks.resume_reason callbacks.cancel_requested callbacks.free_retry callbacks.last_status
	callbacks.last_class callbacks.poll_errors requests.version requests.created_at callbacks.updated_at
	callbacks.finished_at callbacks.fence callbacks.claim_token callbacks.claim_until callbacks.claims_without_result
	requests.content_type requests.headers=HeadersText requests.labels=LabelsText requests.policy=PolicyText
	requests.success=SuccessText callbacks.claimed_at callbacks.lost_at`)

// callbackColumns describe a row of fromCallbacks or fromRequests.
func callbackColumns(r *row) sqldb.Columns {
	return append(callbackFields(r),
		col(presentURL, &r.URL),
		col(laneName, &r.Lane),
		col(`CASE
		WHEN callbacks.payload <> 1 THEN ''
		WHEN requests.shared <> '' THEN requests.shared
		ELSE callbacks.id
	END`, &r.PayloadID),
		col("CASE WHEN callbacks.payload = 2 THEN 1 ELSE 0 END", sqldb.Bool(&r.PayloadPurged)))
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

const laneName = `COALESCE((SELECT lanes.key FROM lanes WHERE lanes.id = callbacks.lane), '')`

// presentURL is where the next attempt goes: for an open row that follows its endpoint, where that is now.
// What has ended keeps the address that its last stamp wrote.
const presentURL = `CASE
		WHEN requests.follows = 1 AND callbacks.state = 'scheduled'
			THEN COALESCE((SELECT endpoints.url FROM endpoints WHERE endpoints.id = requests.endpoint_id),
				requests.url)
		ELSE requests.url
	END`

// isOpen is the condition for rows that are found by their ids. It is written so that it does not match the
// condition of the index over all open rows: PostgreSQL, when it knows little of a table, would rather walk
// that whole index than look up a hundred ids.
const isOpen = `callbacks.state || '' = 'scheduled'`

// A row is a callback as it is stored, with what only this package needs.
type row struct {
	store.Callback
	// ClaimedAt is when the present claim was made; LostAt, when the claim before it was, if that ended
	// without a result.
	ClaimedAt, LostAt int64
	// cancelAs is the reason for which it ends if its cancel was requested; empty: store.Requested. It is
	// stored as the reason, which an open row has no other.
	pendingReason store.Reason
	// The texts are JSON. broken says which of those that an attempt needs could not be
	// decoded; the rest is as it should be.
	HeadersText, LabelsText, PolicyText, SuccessText string
	broken                                           error
	// body is its payload, where that was read; storedURL is the address in the row. Where the callback's
	// endpoint has moved it is not the present one.
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
		r.pendingReason, r.Reason = r.Reason, ""
	}
	_ = decode("labels", r.LabelsText, &r.Labels) // what can be shown is shown
	var errs [3]error
	errs[0] = decode("headers", r.HeadersText, &r.Headers)
	r.Success, errs[1] = decodeOnce(&db.successes, "success", r.SuccessText)
	r.Policy, errs[2] = db.policy(r.PolicyText)
	r.broken = errors.Join(errs[:]...)
}

// policy decodes a callback's policy, which every callback has.
func (db *DB) policy(text string) (store.Policy, error) {
	if text == "" {
		return store.Policy{}, errors.New("decode policy: it is empty")
	}
	policy, err := decodeOnce(&db.policies, "policy", text)
	return clonePolicy(policy), err
}

// clonePolicy has slices of its own: what one callback's holder does to them must not reach another.
func clonePolicy(p store.Policy) store.Policy {
	p.Tiers, p.StopOn = slices.Clone(p.Tiers), slices.Clone(p.StopOn)
	return p
}

// sortedKeys are the keys of a map, in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// timeoutMillis is the policy's timeout in milliseconds, rounded up.
func timeoutMillis(p store.Policy) int64 {
	return int64((p.Timeout + time.Millisecond - 1) / time.Millisecond)
}

// position is where in its ladder the callback stands: 0 before the first charged attempt.
func position(c *store.Callback) int { return c.AttemptCount - c.LadderBase }

// oneCallback finds a callback by the primary keys of both tables.
const oneCallback = fromRequests + `
		AND requests.id = $1 AND requests.project = $2`

// Get returns the callback, or store.ErrNotFound when the project has none of that id. What of a damaged row
// can be shown is shown.
func (db *DB) Get(ctx context.Context, project, id string) (store.Callback, error) {
	r, err := sqldb.Get(db.read(ctx, "get callback"), "get callback "+id, callbackColumns,
		`FROM `+oneCallback, id, project)
	db.complete(&r)
	return r.Callback, err
}

// Payload returns the callback's body as it was given; store.ErrNotFound when the project has no such
// callback, store.ErrPayloadPurged when retention has removed the body. A callback that never had one has the
// zero Payload.
func (db *DB) Payload(ctx context.Context, project, id string) (store.Payload, error) {
	r, err := sqldb.Get(db.read(ctx, "read payload"), "get callback "+id, wholeCallback, `FROM `+oneCallback,
		id, project)
	switch {
	case err != nil:
		return store.Payload{}, err
	case r.PayloadPurged:
		return store.Payload{}, fmt.Errorf("payload of %s: %w", id, store.ErrPayloadPurged)
	case r.PayloadID == "":
		return store.Payload{}, nil
	}
	return store.Payload{ID: r.PayloadID, ContentType: r.ContentType, Body: append([]byte{}, r.body...)}, nil
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
func (db *DB) LockHolder(ctx context.Context, project, lockKey string,
	now int64) (id string, since int64, err error) {
	err = db.read(ctx, "find the holder of a lock").Each(func(r sqldb.Row) error {
		return r.Scan(&id, &since)
	},
		findLockHolder, project, lockKey, lockedRows, now)
	return id, since, err
}

// Attempted returns when the callback was last claimed, and when its last attempt ended; zero: never.
func (db *DB) Attempted(ctx context.Context, project, id string) (claimedAt, endedAt int64, err error) {
	err = db.read(ctx, "read when it was attempted").Each(func(r sqldb.Row) error {
		return r.Scan(&claimedAt, &endedAt)
	},
		`SELECT callbacks.claimed_at, COALESCE((
			SELECT attempts.ended_at FROM attempts WHERE attempts.callback_id = callbacks.id
			ORDER BY attempts.number DESC
			LIMIT 1), 0)
		FROM callbacks WHERE callbacks.id = $1 AND callbacks.project = $2`, id, project)
	return claimedAt, endedAt, err
}
