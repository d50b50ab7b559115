package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// FeedCursor returns how far a reader of the feed that keeps its place here has come, and whether it has kept one.
func (db *DB) FeedCursor(ctx context.Context, name string) (c store.OutcomeCursor, known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var place string
	err = queryEach(ctx, db.read, func(rows scanner) error {
		known = true
		return rows.Scan(&c.Tx, &place)
	}, `SELECT due_at, id FROM cursors WHERE name = $1`, name)
	if err == nil && known {
		_, err = fmt.Sscanf(place, "%d.%d", &c.Group, &c.Item)
	}
	if err != nil {
		return c, false, readError("read a place in the feed", err)
	}
	return c, known, nil
}

// SetFeedCursor keeps it; nil forgets it.
func (db *DB) SetFeedCursor(ctx context.Context, name string, c *store.OutcomeCursor) error {
	err := db.change(ctx, func(t *tx) error {
		if c == nil {
			_, err := t.exec(`DELETE FROM cursors WHERE name = $1`, name)
			return err
		}
		return t.setCursor(name, store.Cursor{DueAt: c.Tx, ID: fmt.Sprintf("%d.%d", c.Group, c.Item)})
	})
	if err != nil {
		return fmt.Errorf("keep a place in the feed: %w", err)
	}
	return nil
}
