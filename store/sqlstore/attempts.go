package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// attemptColumns are what scanAttempt reads, in its order.
const attemptColumns = `
	callback_id,
	project,
	number,
	trigger,
	outcome,
	charged,
	class,
	status,
	error,
	started_at,
	ended_at,
	due_at,
	lateness,
	next_due_at,
	fence,
	stale,
	key_id,
	response_body,
	response_truncated,
	detail`

// An attemptDetail is what of an attempt is stored as JSON.
type attemptDetail struct {
	Timings         store.Timings  `json:"timings"`
	RequestHeaders  []store.Header `json:"request_headers,omitempty"`
	ResponseHeaders []store.Header `json:"response_headers,omitempty"`
	Rule            *store.Rule    `json:"rule,omitempty"`
}

// clean makes text out of what a receiver sent, so that no answer can keep a result from being committed: PostgreSQL
// takes neither NUL nor invalid UTF-8.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// attemptInput are the attempts as multi-row input. Its columns are named as the table's, in the same order.
func attemptInput(attempts []*store.Attempt) ([]column, error) {
	details := make([]string, len(attempts))
	lateness := make([]float64, len(attempts))
	for i, a := range attempts {
		text, err := encode(attemptDetail{a.Timings, a.RequestHeaders, a.ResponseHeaders, a.Rule})
		if err != nil {
			return nil, fmt.Errorf("encode attempt %d of %s: %w", a.Number, a.CallbackID, err)
		}
		details[i], lateness[i] = text, a.Lateness
	}
	type att = *store.Attempt
	return []column{
		texts("callback_id", attempts, func(a att) string { return a.CallbackID }),
		texts("project", attempts, func(a att) string { return a.Project }),
		ints("number", attempts, func(a att) int64 { return int64(a.Number) }),
		texts("trigger", attempts, func(a att) string { return string(a.Trigger) }),
		texts("outcome", attempts, func(a att) string { return string(a.Outcome) }),
		ints("charged", attempts, func(a att) int64 { return flag(a.Charged) }),
		texts("class", attempts, func(a att) string { return string(a.Class) }),
		ints("status", attempts, func(a att) int64 { return int64(a.Status) }),
		texts("error", attempts, func(a att) string { return clean(a.Error) }),
		ints("started_at", attempts, func(a att) int64 { return a.StartedAt }),
		ints("ended_at", attempts, func(a att) int64 { return a.EndedAt }),
		ints("due_at", attempts, func(a att) int64 { return a.DueAt }),
		{name: "lateness", reals: lateness},
		ints("next_due_at", attempts, func(a att) int64 { return a.NextDueAt }),
		ints("fence", attempts, func(a att) int64 { return a.Fence }),
		ints("stale", attempts, func(a att) int64 { return flag(a.Stale) }),
		texts("key_id", attempts, func(a att) string { return a.KeyID }),
		texts("response_body", attempts, func(a att) string { return clean(a.ResponseBody) }),
		ints("response_truncated", attempts, func(a att) int64 { return flag(a.ResponseTruncated) }),
		{name: "detail", texts: details},
	}, nil
}

// insertAttempts appends attempt rows. Their callbacks' rows are locked by this transaction, so no number can be taken
// by another.
func (t *tx) insertAttempts(attempts []*store.Attempt) error {
	if len(attempts) == 0 {
		return nil
	}
	columns, err := attemptInput(attempts)
	if err != nil {
		return err
	}
	names := columnNames(columns)
	input, args, _, err := t.input(columns)
	if err != nil {
		return err
	}
	if _, err := t.exec(`INSERT INTO attempts (`+names+`)
		SELECT `+names+` FROM `+input+` WHERE 1 = 1`, args...); err != nil {
		return fmt.Errorf("insert attempts: %w", err)
	}
	return nil
}

// replaceAttempt writes an attempt over the row with its callback and number.
func (t *tx) replaceAttempt(a *store.Attempt) error {
	if _, err := t.exec(`DELETE FROM attempts WHERE callback_id = $1 AND number = $2`, a.CallbackID, a.Number); err != nil {
		return fmt.Errorf("replace attempt: %w", err)
	}
	return t.insertAttempts([]*store.Attempt{a})
}

// attemptOfFence returns the attempt that was made under the fence, or nil.
func (t *tx) attemptOfFence(id string, fence int64) (*store.Attempt, error) {
	var found *store.Attempt
	err := t.each(func(rows *sql.Rows) error {
		a, err := scanAttempt(rows)
		found = &a
		return err
	}, `SELECT `+attemptColumns+` FROM attempts WHERE callback_id = $1 AND fence = $2`, id, fence)
	if err != nil {
		return nil, fmt.Errorf("read attempt of fence %d: %w", fence, err)
	}
	return found, nil
}

// scanAttempt reads attemptColumns. Details that cannot be decoded are left out: what can be shown is shown.
func scanAttempt(rows *sql.Rows) (store.Attempt, error) {
	var a store.Attempt
	var charged, stale, truncated int
	var detail string
	if err := rows.Scan(&a.CallbackID, &a.Project, &a.Number, &a.Trigger, &a.Outcome, &charged, &a.Class, &a.Status, &a.Error,
		&a.StartedAt, &a.EndedAt, &a.DueAt, &a.Lateness, &a.NextDueAt, &a.Fence, &stale, &a.KeyID, &a.ResponseBody,
		&truncated, &detail); err != nil {
		return a, fmt.Errorf("scan attempt: %w", err)
	}
	a.Charged, a.Stale, a.ResponseTruncated = charged != 0, stale != 0, truncated != 0
	var d attemptDetail
	if err := decode("detail", detail, &d); err == nil {
		a.Timings, a.RequestHeaders, a.ResponseHeaders, a.Rule = d.Timings, d.RequestHeaders, d.ResponseHeaders, d.Rule
	}
	return a, nil
}

// Attempts returns the callback's attempts by number; store.ErrNotFound for a callback that is not in the project.
func (db *DB) Attempts(ctx context.Context, project, id string) ([]store.Attempt, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	var attempts []store.Attempt
	err := queryEach(ctx, db.read, func(rows *sql.Rows) error {
		a, err := scanAttempt(rows)
		attempts = append(attempts, a)
		return err
	}, `SELECT `+attemptColumns+` FROM attempts WHERE callback_id = $1 AND project = $2 ORDER BY number`, id, project)
	if err != nil {
		return nil, readError("read attempts", err)
	}
	if len(attempts) == 0 {
		if _, err := db.Get(ctx, project, id); err != nil {
			return nil, err
		}
	}
	return attempts, nil
}
