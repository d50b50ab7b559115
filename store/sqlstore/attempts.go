package sqlstore

import (
	"context"
	"fmt"
	"math"
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

// clean makes text out of what a receiver sent, so that no answer can keep a result from being committed: PostgreSQL
// takes neither NUL nor invalid UTF-8.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// An attemptRow is an attempt and its details as JSON text.
type attemptRow struct {
	*store.Attempt
	detail string
}

var attemptInsert = newBulkInsert("attempts", fields[attemptRow]{
	textField("callback_id", func(a attemptRow) string { return a.CallbackID }),
	textField("project", func(a attemptRow) string { return a.Project }),
	numberField("number", func(a attemptRow) int64 { return int64(a.Number) }),
	textField("trigger", func(a attemptRow) string { return string(a.Trigger) }),
	textField("outcome", func(a attemptRow) string { return string(a.Outcome) }),
	numberField("charged", func(a attemptRow) int64 { return flag(a.Charged) }),
	textField("class", func(a attemptRow) string { return string(a.Class) }),
	numberField("status", func(a attemptRow) int64 { return int64(a.Status) }),
	textField("error", func(a attemptRow) string { return clean(a.Error) }),
	numberField("started_at", func(a attemptRow) int64 { return a.StartedAt }),
	numberField("ended_at", func(a attemptRow) int64 { return a.EndedAt }),
	numberField("due_at", func(a attemptRow) int64 { return a.DueAt }),
	{name: "lateness", real: func(a attemptRow) float64 { return a.Lateness }},
	numberField("next_due_at", func(a attemptRow) int64 { return a.NextDueAt }),
	numberField("fence", func(a attemptRow) int64 { return a.Fence }),
	numberField("stale", func(a attemptRow) int64 { return flag(a.Stale) }),
	textField("key_id", func(a attemptRow) string { return a.KeyID }),
	textField("response_body", func(a attemptRow) string { return clean(a.ResponseBody) }),
	numberField("response_truncated", func(a attemptRow) int64 { return flag(a.ResponseTruncated) }),
	textField("detail", func(a attemptRow) string { return a.detail }),
}, "")

// insertAttempts appends attempt rows. Their callbacks' rows are locked by this transaction, so no number can be taken
// by another.
func (t *tx) insertAttempts(attempts []*store.Attempt) error {
	if len(attempts) == 0 {
		return nil
	}
	rows := make([]attemptRow, len(attempts))
	for i, a := range attempts {
		detail, err := detailOf(a)
		if err != nil {
			return fmt.Errorf("encode attempt %d of %s: %w", a.Number, a.CallbackID, err)
		}
		rows[i] = attemptRow{a, detail}
	}
	if err := attemptInsert.run(t, rows, nil); err != nil {
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
	err := t.each(func(rows scanner) error {
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
func scanAttempt(rows scanner) (store.Attempt, error) {
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
		d.into(&a)
	}
	return a, nil
}

// lastAttempts and oneAttempt read the attempts of one callback by the primary key. A page costs the same
// wherever it is.
const (
	lastAttempts = `SELECT ` + attemptColumns + ` FROM attempts
	WHERE callback_id = $1 AND project = $2 AND number < $3
	ORDER BY number DESC
	LIMIT $4`
	oneAttempt = `SELECT ` + attemptColumns + ` FROM attempts
	WHERE callback_id = $1 AND project = $2 AND number = $3`
)

// Attempts returns a part of a callback's attempts, newest first: at most limit, which is at most maxList+1,
// with numbers below before; zero begins with the last one. It returns store.ErrNotFound for a callback that
// is not in the project.
func (db *DB) Attempts(ctx context.Context, project, id string, before, limit int) ([]store.Attempt, error) {
	if before <= 0 {
		before = math.MaxInt32
	}
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var attempts []store.Attempt
	err := queryEach(ctx, db.read, func(rows scanner) error {
		a, err := scanAttempt(rows)
		attempts = append(attempts, a)
		return err
	}, lastAttempts, id, project, min(before, math.MaxInt32), min(max(limit, 1), maxList+1))
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

// Attempt returns one attempt of a callback by its number; store.ErrNotFound when the project has none.
func (db *DB) Attempt(ctx context.Context, project, id string, number int) (store.Attempt, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	if number < 1 || number > math.MaxInt32 {
		return store.Attempt{}, fmt.Errorf("attempt %d of %s: %w", number, id, store.ErrNotFound)
	}
	var found []store.Attempt
	err := queryEach(ctx, db.read, func(rows scanner) error {
		a, err := scanAttempt(rows)
		found = append(found, a)
		return err
	}, oneAttempt, id, project, number)
	if err != nil {
		return store.Attempt{}, readError("read an attempt", err)
	}
	if len(found) == 0 {
		return store.Attempt{}, fmt.Errorf("attempt %d of %s: %w", number, id, store.ErrNotFound)
	}
	return found[0], nil
}
