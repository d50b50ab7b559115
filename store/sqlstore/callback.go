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

// callbackFields are the columns of a callback's two rows, in tables callbacks and requests.
var callbackFields = sqldb.Named[row](`callbacks.id callbacks.project callbacks.kind
	requests.endpoint_id requests.follows requests.method requests.topic requests.ref callbacks.lock_key
	callbacks.strict callbacks.lane=LaneID requests.signer callbacks.state callbacks.reason
	callbacks.due_at requests.first_due_at callbacks.expires_at callbacks.attempt_count
	callbacks.divert_count callbacks.diverts_since callbacks.divert_reason callbacks.attempt_seq
	callbacks.ladder_base callbacks.trigger callbacks.resume_state callbacks.resume_reason
	callbacks.cancel_requested callbacks.free_retry callbacks.last_status callbacks.last_class
	callbacks.poll_errors requests.version requests.created_by requests.created_at callbacks.updated_at
	callbacks.finished_at callbacks.fence callbacks.claim_token callbacks.claim_until
	callbacks.claims_without_result requests.content_type requests.headers=HeadersText
	requests.labels=LabelsText requests.policy=PolicyText requests.success=SuccessText
	callbacks.claimed_at callbacks.lost_at`)

// callbackColumns are all columns of a callback but its payload, to be read FROM fromCallbacks or
// fromRequests.
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

// editableCallback is callbackColumns with the URLs that an edit needs.
func editableCallback(r *row) sqldb.Columns {
	return append(callbackColumns(r), col("requests.url", &r.storedURL), col(firstURL, &r.firstURL))
}

// wholeCallback is editableCallback with the payload and the trace context.
func wholeCallback(r *row) sqldb.Columns {
	return append(editableCallback(r), col("requests.trace_context", &r.TraceContext),
		col(bodyColumn, &r.body))
}

// fromCallbacks joins the two rows of callbacks that conditions on table callbacks find.
const fromCallbacks = `callbacks JOIN requests ON ` + ofCallback

// ofCallback is the join condition for the second row of a callback. The id is an expression, so that
// PostgreSQL looks up the requests row after the callbacks row and by its whole key. With the plain id it
// could use the ids of a list alone, and read the whole index of requests for each. A plan that is made while
// the table is empty would do so.
const ofCallback = `requests.project = callbacks.project AND requests.id = callbacks.id || ''`

// fromRequests joins the two rows of callbacks that conditions on table requests find. The conditions follow
// with AND. CROSS JOIN makes SQLite read requests first.
const fromRequests = `requests CROSS JOIN callbacks WHERE callbacks.id = requests.id`

// bodyColumn is a callback's payload: its own body or the shared one. NULL means none.
const bodyColumn = `CASE
		WHEN requests.shared = '' THEN requests.body
		ELSE (SELECT payloads.body FROM payloads WHERE payloads.id = requests.shared)
	END`

// laneName is the key of a callback's lane.
const laneName = `COALESCE((SELECT lanes.key FROM lanes WHERE lanes.id = callbacks.lane), '')`

// presentURL is the URL of the next attempt. An open row that follows its endpoint has the endpoint's present
// URL. A row that has ended keeps the URL that its last stamp wrote.
const presentURL = `CASE
		WHEN requests.follows = 1 AND callbacks.state = 'scheduled'
			THEN COALESCE((SELECT endpoints.url FROM endpoints WHERE endpoints.id = requests.endpoint_id),
				requests.url)
		ELSE requests.url
	END`

// firstURL is where attempts without a URL have gone. It is empty if that is the callback's URL for certain:
// the URL never changed, and does not follow an endpoint.
const firstURL = `COALESCE(requests.first_url, CASE WHEN requests.follows = 1 THEN requests.url ELSE '' END)`

// isOpen is the condition for open rows that are found by their ids. The expression does not match the WHERE
// of the index callbacks_due. Otherwise PostgreSQL, with poor statistics, would scan that whole index rather
// than look up a hundred ids.
const isOpen = `callbacks.state || '' = 'scheduled'`

// A row is a callback as it is stored, with columns that only this package needs.
type row struct {
	store.Callback
	// ClaimedAt is when the present claim was made. LostAt is when the claim before it was made, if that one
	// ended without a result; else it is zero.
	ClaimedAt, LostAt int64
	// DivertsSince and DivertReason are the fields of Callback.Since.
	DivertsSince int
	DivertReason string
	// pendingReason is the reason with which the row ends if its cancel was requested. Empty means
	// store.Requested. Column reason holds it while the row is open.
	pendingReason store.Reason
	// The texts are JSON. broken is the error of the ones that an attempt needs and that cannot be decoded;
	// the other fields are valid.
	HeadersText, LabelsText, PolicyText, SuccessText string
	broken                                           error
	// body is the payload, if it was read. storedURL is the URL in table requests; presentURL differs from it
	// after the endpoint has moved. firstURL is that constant's value. Only editableCallback reads them.
	body                []byte
	storedURL, firstURL string
	// structuredEdited is set by take if headers, policy or success rule changed. writeEdited then writes
	// them.
	structuredEdited bool
}

// callbacks reads the callbacks that a FROM clause finds.
func (db *DB) callbacks(q sqldb.Querier, from string, args ...any) ([]row, error) {
	rows, err := sqldb.Select(q, callbackColumns, `FROM `+from, args...)
	for i := range rows {
		db.complete(&rows[i])
	}
	return rows, err
}

// callbacks reads the callbacks that a FROM clause finds, for an edit.
func (t *tx) callbacks(from string, args ...any) ([]row, error) {
	rows, err := sqldb.Select(t, editableCallback, `FROM `+from, args...)
	for i := range rows {
		t.db.complete(&rows[i])
	}
	return rows, err
}

// callbacksByID reads callbacks of any project by their ids. lock is a clause that locks them in the order of
// ids, or empty.
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

// complete decodes the JSON texts of a row, and moves the reason of an open row to pendingReason.
func (db *DB) complete(r *row) {
	if r.State == store.Scheduled {
		r.pendingReason, r.Reason = r.Reason, ""
	}
	if r.DivertsSince > 0 {
		r.Since = &store.Diverts{Times: r.DivertsSince, Reason: r.DivertReason}
	}
	_ = decode("labels", r.LabelsText, &r.Labels) // damaged labels hide nothing else
	var errs [3]error
	errs[0] = decode("headers", r.HeadersText, &r.Headers)
	r.Success, errs[1] = decodeOnce(&db.successes, "success", r.SuccessText)
	r.Policy, errs[2] = db.policy(r.PolicyText)
	r.broken = errors.Join(errs[:]...)
}

// policy decodes the policy of a callback. Every callback has one.
func (db *DB) policy(text string) (store.Policy, error) {
	if text == "" {
		return store.Policy{}, errors.New("decode policy: it is empty")
	}
	policy, err := decodeOnce(&db.policies, "policy", text)
	return clonePolicy(policy), err
}

// clonePolicy copies the slices too, so that a change of one callback's policy cannot reach the cached one.
func clonePolicy(p store.Policy) store.Policy {
	p.Tiers, p.StopOn = slices.Clone(p.Tiers), slices.Clone(p.StopOn)
	return p
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// timeoutMillis returns the policy's timeout in milliseconds, rounded up.
func timeoutMillis(p store.Policy) int64 {
	return int64((p.Timeout + time.Millisecond - 1) / time.Millisecond)
}

// position returns the callback's place on its present ladder. It is 0 before the first charged attempt, and
// each charged attempt adds one, unless its result has Stays (see store.Result).
func position(c *store.Callback) int { return c.AttemptCount - c.LadderBase }

// oneCallback finds one callback by the primary keys of both tables.
const oneCallback = fromRequests + `
		AND requests.id = $1 AND requests.project = $2`

// Get returns the callback, or store.ErrNotFound if the project has none with that id. Of a damaged row it
// returns the fields that can be decoded.
func (db *DB) Get(ctx context.Context, project, id string) (store.Callback, error) {
	r, err := sqldb.Get(db.read(ctx, "get callback"), "get callback "+id, callbackColumns,
		`FROM `+oneCallback, id, project)
	db.complete(&r)
	return r.Callback, err
}

// Payload returns the callback's body as it was accepted. It returns store.ErrNotFound if the project has no
// such callback, and store.ErrPayloadPurged if retention has removed the body. A callback without a body has
// the zero Payload.
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

// lockedRows is how many callbacks of a lock key findLockHolder reads, newest first. Most of the older ones
// ended long ago.
const lockedRows = 1000

// findLockHolder finds the claimed row of a lock key, by the index callbacks_lock.
const findLockHolder = `SELECT recent.id, recent.claimed_at, recent.claim_until FROM (
		SELECT callbacks.id, callbacks.state, callbacks.claim_until, callbacks.claimed_at FROM callbacks
		WHERE callbacks.project = $1 AND callbacks.lock_key = $2 AND callbacks.lock_key <> ''
		ORDER BY callbacks.id DESC
		LIMIT $3) AS recent
	WHERE recent.state = 'scheduled' AND recent.claim_until > $4
	ORDER BY recent.claimed_at
	LIMIT 1`

// LockHolder returns the callback of a lock key that is being attempted at now. It is zero if none of the
// newest thousand callbacks of the key is being attempted. It is for pages: the lock itself is in the index.
func (db *DB) LockHolder(ctx context.Context, project, lockKey string, now int64,
) (holder store.LockHolder, err error) {
	err = db.read(ctx, "find the holder of a lock").Each(func(r sqldb.Row) error {
		return r.Scan(&holder.ID, &holder.ClaimedAt, &holder.ClaimUntil)
	}, findLockHolder, project, lockKey, lockedRows, now)
	return holder, err
}

// attemptTimes are the columns of store.AttemptTimes.
func attemptTimes(a *store.AttemptTimes) sqldb.Columns {
	return sqldb.Columns{
		col("callbacks.id", &a.CallbackID), col("callbacks.claimed_at", &a.ClaimedAt),
		col(`COALESCE((SELECT attempts.ended_at FROM attempts WHERE attempts.callback_id = callbacks.id
			ORDER BY attempts.number DESC
			LIMIT 1), 0)`, &a.EndedAt),
	}
}

// AttemptTimes returns when callbacks of the project were last claimed and when their last attempts ended, by
// id.
func (db *DB) AttemptTimes(ctx context.Context, project string, ids []string) ([]store.AttemptTimes, error) {
	return sqldb.Select(db.read(ctx, "read times of attempts"), attemptTimes, `FROM callbacks
		WHERE callbacks.id IN (SELECT i.id FROM $i) AND callbacks.project = $1
		ORDER BY callbacks.id`, project, sqldb.Texts("id", ids))
}
