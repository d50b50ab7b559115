package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// alertSubscriber selects endpoints that may subscribe to operational events, in the words of the index
// endpoints_alerts.
func (d *dialect) alertSubscriber() string {
	return fmt.Sprintf(`endpoints.deleted_at = 0
		AND (%[1]s(endpoints.topics, '"*"') > 0 OR %[1]s(endpoints.topics, '"dispatcher.') > 0)`, d.position)
}

// FeedReaders returns, by id, the first limit projects above after that have an endpoint which subscribes to
// one of the topics, or a cursor of their own: its name is prefix and the project's id. The topics begin with
// "dispatcher.".
func (db *DB) FeedReaders(
	ctx context.Context, prefix string, topics []string, after string, limit int,
) ([]store.FeedReader, error) {
	q, err := db.readersQuery(prefix, topics, after, limit)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var readers []store.FeedReader
	err = queryEach(ctx, db.read, func(rows scanner) error {
		r, err := scanFeedReader(rows)
		readers = append(readers, r)
		return err
	}, q.text.String(), q.args...)
	if err != nil {
		return nil, readError("read the readers of the feed", err)
	}
	return readers, nil
}

func (db *DB) readersQuery(prefix string, topics []string, after string, limit int) (*query, error) {
	q := new(query)
	q.add(`SELECT id, wanted, due_at, place FROM (
		SELECT projects.id AS id, COALESCE(cursors.due_at, 0) AS due_at, COALESCE(cursors.id, '') AS place,
			CASE WHEN EXISTS (
				SELECT 1 FROM endpoints
				WHERE endpoints.project = projects.id AND ` + db.dialect.alertSubscriber() + ` AND (1 = 0`)
	for _, topic := range topics {
		for _, pattern := range store.TopicPatterns(topic) {
			text, err := encode(pattern)
			if err != nil {
				return nil, fmt.Errorf("encode topic: %w", err)
			}
			q.add(" OR "+db.dialect.position+"(endpoints.topics, ?) > 0", text)
		}
	}
	q.add(`)) THEN 1 ELSE 0 END AS wanted
		FROM projects LEFT JOIN cursors ON cursors.name = CAST(? AS TEXT) || projects.id
		WHERE projects.id > ?) AS readers
	WHERE wanted = 1 OR place <> ''
	ORDER BY id
	LIMIT ?`, prefix, after, limit)
	return q, nil
}

func scanFeedReader(rows scanner) (r store.FeedReader, err error) {
	var wanted int
	var c store.OutcomeCursor
	var place string
	if err := rows.Scan(&r.Project, &wanted, &c.Tx, &place); err != nil {
		return r, fmt.Errorf("scan reader of the feed: %w", err)
	}
	r.Wanted = wanted != 0
	if place == "" {
		return r, nil
	}
	if _, err := fmt.Sscanf(place, "%d.%d", &c.Group, &c.Item); err != nil {
		return r, fmt.Errorf("decode the cursor of project %s: %w", r.Project, err)
	}
	r.Cursor = &c
	return r, nil
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
