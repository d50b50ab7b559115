package sqlstore

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// OpenUntil returns open rows after the cursor that are due at until or before, in order of (due_at, id). It sees every row that
// was committed before it was called.
func (db *DB) OpenUntil(ctx context.Context, after store.Cursor, until int64, limit int) ([]store.OpenRow, error) {
	after, err := db.fromLow(ctx, after)
	if err != nil {
		return nil, err
	}
	return db.walk(ctx, "walk open rows", `SELECT `+openColumns+` FROM callbacks
		WHERE state = 'scheduled'
			AND (due_at, id) > ($1, $2)
			AND due_at <= $3
		ORDER BY due_at, id
		LIMIT $4`, after.DueAt, after.ID, until, limit)
}
