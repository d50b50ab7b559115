package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

const (
	// feedIDs is the approximate maximum number of ids in one row of the feed.
	feedIDs = 600
	// feedRows is the number of rows of the feed that one statement reads.
	feedRows = 16
)

// The rows of table versions that hold the last number and time of the feed.
const (
	feedNumber = "outcomes"
	feedTime   = "outcomes_at"
)

// lockFeed locks the last number and time of the feed until the transaction ends, and returns them. fold
// calls it before it takes notes. So notes are folded by one transaction at a time, in their order: if a
// callback ends twice, its first end comes first in the feed.
func (t *tx) lockFeed() (number, at int64, err error) {
	last, err := sqldb.Map[string, int64](t, `SELECT name, value FROM versions
		WHERE name IN ('`+feedNumber+`', '`+feedTime+`') ORDER BY name FOR UPDATE`)
	return last[feedNumber], last[feedTime], named("lock the feed", err)
}

// A feedEntry is one row of the feed: callbacks of a project that ended. ID is its number in the feed.
type feedEntry struct {
	Project string
	At, ID  int64
	Entries []endedGroup
}

var feedColumns = sqldb.Named[feedEntry](`project at id entries`)

// appendFeed adds ended callbacks to the feed with numbers after number, and stores the last number. at never
// decreases, even if the clock does: readers go by (at, id). The caller holds the lock of lockFeed.
func (t *tx) appendFeed(ended endedByProject, number, last, now int64) error {
	var rows []feedEntry
	at := max(now, last)
	for _, project := range sortedKeys(ended) {
		for groups := ended[project]; len(groups) > 0; {
			n, size := 0, 0
			for n < len(groups) && (n == 0 || size+len(groups[n].IDs) <= feedIDs) {
				size += len(groups[n].IDs)
				n++
			}
			number++
			rows = append(rows, feedEntry{project, at, number, groups[:n]})
			groups = groups[n:]
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if err := sqldb.InsertRows(t.Tx, "outcomes", feedColumns, rows, ""); err != nil {
		return named("add to the feed", err)
	}
	_, err := t.Exec(`UPDATE versions SET value = CASE WHEN name = '`+feedNumber+
		`' THEN CAST($1 AS BIGINT) ELSE CAST($2 AS BIGINT) END
		WHERE name IN ('`+feedNumber+`', '`+feedTime+`')`, number, at)
	return named("number the feed", err)
}

// Outcomes returns up to limit outcomes of the project after the cursor, in order, and the cursor to continue
// from. Without outcomes that is after. An outcome is in the feed about a second after its commit (see Fold).
// None enters the feed before one that was already read.
func (db *DB) Outcomes(ctx context.Context, project string, after store.OutcomeCursor,
	limit int) ([]store.TerminalEvent, store.OutcomeCursor, error) {
	read := db.read(ctx, "read outcomes")
	var events []store.TerminalEvent
	next := after
	for more := true; more && len(events) < limit; {
		// The row of the cursor is read again, because the cursor may be inside it.
		rows, err := sqldb.Select(read, feedColumns, `FROM outcomes
			WHERE project = $1 AND at >= $2 AND (at, id) >= ($2, $3)
			ORDER BY at, id
			LIMIT $4`, project, next.Tx, next.Group, feedRows)
		if err != nil {
			return nil, after, err
		}
		more = len(rows) == feedRows
		for _, r := range rows {
			events, next = r.take(events, next, limit)
		}
	}
	if err := db.describe(read, project, events); err != nil {
		return nil, after, err
	}
	return events, next, nil
}

// take appends the row's outcomes after the cursor, up to limit, and returns the cursor of the last one. The
// Item of a cursor is how many outcomes of its row were read.
func (r *feedEntry) take(events []store.TerminalEvent, after store.OutcomeCursor,
	limit int) ([]store.TerminalEvent, store.OutcomeCursor) {
	at := store.OutcomeCursor{Tx: r.At, Group: r.ID}
	skip := 0
	if after.Tx == r.At && after.Group == r.ID {
		skip = after.Item
	}
	for _, g := range r.Entries {
		for _, id := range g.IDs {
			at.Item++
			if at.Item <= skip {
				continue
			}
			if len(events) == limit {
				return events, after
			}
			events = append(events, store.TerminalEvent{
				Cursor: at, ID: id, Project: r.Project, State: g.State, Reason: g.Reason, At: g.At,
				AttemptCount: g.Attempts, LastStatus: g.Status, LastClass: g.Class,
			})
			after = at
		}
	}
	return events, after
}

// describedColumns are what describe adds to an event.
var describedColumns = sqldb.Named[row](`callbacks.id callbacks.kind requests.endpoint_id requests.topic
	requests.ref requests.labels=LabelsText`)

// describe adds kind, endpoint, topic, reference and labels to the events. They stay empty for a callback
// that was purged.
func (db *DB) describe(read sqldb.Read, project string, events []store.TerminalEvent) error {
	if len(events) == 0 {
		return nil
	}
	byID := make(map[string][]int, len(events))
	for i := range events {
		byID[events[i].ID] = append(byID[events[i].ID], i)
	}
	rows, err := sqldb.Select(read, describedColumns,
		`FROM `+fromRequests+` AND requests.id IN (SELECT i.id FROM $i) AND requests.project = $1`,
		project, sqldb.Texts("id", sortedKeys(byID)))
	for _, r := range rows {
		for _, i := range byID[r.ID] {
			e := &events[i]
			e.Kind, e.EndpointID, e.Topic, e.Ref = r.Kind, r.EndpointID, r.Topic, r.Ref
			if err := decode("labels", r.LabelsText, &e.Labels); err != nil {
				db.logger.Error("labels of an outcome cannot be decoded", "callback_id", r.ID, "error", err)
			}
		}
	}
	return err
}

// PurgeOutcomes removes rows that entered the feed before that time, at most limit. Each holds up to some
// hundred outcomes. It returns how many rows it removed, and whether there may be more.
func (db *DB) PurgeOutcomes(
	ctx context.Context, now, before int64, limit int,
) (removed int, more bool, err error) {
	return db.purgeByStatement(ctx, feedPurge, now, before, limit, `DELETE FROM outcomes
		WHERE (project, at, id) IN (
		SELECT project, at, id FROM outcomes WHERE at >= $1 AND at < $2 ORDER BY at LIMIT $3)
		RETURNING at`)
}

// alertSubscriber selects endpoints that may subscribe to operational events. It repeats the WHERE of the
// index endpoints_alerts word for word.
const alertSubscriber = `endpoints.deleted_at = 0
		AND (strpos(endpoints.topics, '"*"') > 0 OR strpos(endpoints.topics, '"dispatcher.') > 0)`

// FeedReaders returns the first limit projects, by id, above after that have an endpoint subscribed to one of
// the topics, or a saved cursor. The cursor's name is prefix and the project's id. All topics begin with
// "dispatcher.".
func (db *DB) FeedReaders(
	ctx context.Context, prefix string, topics []string, after string, limit int,
) ([]store.FeedReader, error) {
	q, err := readersQuery(prefix, topics, after, limit)
	if err != nil {
		return nil, err
	}
	var readers []store.FeedReader
	err = db.read(ctx, "read the readers of the feed").Each(func(rows sqldb.Row) error {
		var r store.FeedReader
		var c store.OutcomeCursor
		var place string
		err := rows.Scan(&r.Project, sqldb.Bool(&r.Wanted), &c.Tx, &place)
		if err == nil && place != "" {
			r.Cursor = &c
			_, err = fmt.Sscanf(place, "%d.%d", &c.Group, &c.Item)
			if err != nil {
				err = fmt.Errorf("decode the cursor of project %s: %w", r.Project, err)
			}
		}
		readers = append(readers, r)
		return err
	}, q.text, q.args...)
	return readers, err
}

// readersQuery builds the statement of FeedReaders. For each project it looks into the index
// endpoints_alerts.
func readersQuery(prefix string, topics []string, after string, limit int) (*query, error) {
	q := new(query)
	q.add(`SELECT id, wanted, due_at, place FROM (
		SELECT projects.id AS id, COALESCE(cursors.due_at, 0) AS due_at, COALESCE(cursors.id, '') AS place,
			CASE WHEN EXISTS (
				SELECT 1 FROM endpoints
				WHERE endpoints.project = projects.id AND ` + alertSubscriber + ` AND (1 = 0`)
	for _, topic := range topics {
		for _, pattern := range store.TopicPatterns(topic) {
			text, err := encode(pattern)
			if err != nil {
				return nil, named("encode topic", err)
			}
			q.add(" OR strpos(endpoints.topics, ?) > 0", text)
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

// SetFeedCursor saves a reader's cursor. Nil deletes it.
func (db *DB) SetFeedCursor(ctx context.Context, name string, c *store.OutcomeCursor) error {
	return db.change(ctx, "save a feed cursor", func(t *tx) error {
		if c == nil {
			_, err := t.Exec(`DELETE FROM cursors WHERE name = $1`, name)
			return err
		}
		return t.setCursor(name, store.Cursor{DueAt: c.Tx, ID: fmt.Sprintf("%d.%d", c.Group, c.Item)})
	})
}
