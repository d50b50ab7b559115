package sqlstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// feedRow is about how many bytes of ids one row of the feed holds, and feedRows how many rows are read at a time.
	feedRow  = 16 << 10
	feedRows = 16
)

// The rows that number the feed.
const (
	feedNumber = "outcomes"
	feedTime   = "outcomes_at"
)

// lockFeed keeps other transactions from adding to the feed: from before the notes are taken, so that of two that end the same callback
// the first comes first. It returns the last number and time.
func (t *tx) lockFeed() (number, at int64, err error) {
	err = t.each(func(rows scanner) error {
		var name string
		var value int64
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		if name == feedNumber {
			number = value
		} else {
			at = value
		}
		return nil
	}, `SELECT name, value FROM versions WHERE name IN ('`+feedNumber+`', '`+feedTime+`') ORDER BY name`+t.db.dialect.forUpdate)
	if err != nil {
		return 0, 0, fmt.Errorf("lock the feed: %w", err)
	}
	return number, at, nil
}

// A feedEntry is a row that is added to the feed.
type feedEntry struct {
	project, entries string
	at, id           int64
}

// feed adds what has ended to the feed, after the last number and time, and notes the new ones.
func (t *tx) feed(ended endings, number, last, now int64) error {
	var rows []feedEntry
	at := max(now, last)
	for _, project := range sortedKeys(ended) {
		for groups := ended[project]; len(groups) > 0; {
			n, size := 0, 0
			for n < len(groups) && (n == 0 || size+len(groups[n].IDs) <= feedRow) {
				size += len(groups[n].IDs)
				n++
			}
			text, err := encode(groups[:n])
			if err != nil {
				return fmt.Errorf("encode outcomes: %w", err)
			}
			number++
			rows = append(rows, feedEntry{project, text, at, number})
			groups = groups[n:]
		}
	}
	if len(rows) == 0 {
		return nil
	}
	input, args, _, err := t.input([]column{
		texts("project", rows, func(r feedEntry) string { return r.project }),
		ints("at", rows, func(r feedEntry) int64 { return r.at }),
		ints("id", rows, func(r feedEntry) int64 { return r.id }),
		texts("entries", rows, func(r feedEntry) string { return r.entries }),
	})
	if err != nil {
		return err
	}
	if _, err := t.exec(`INSERT INTO outcomes (project, at, id, entries)
		SELECT i.project, i.at, i.id, i.entries FROM `+input, args...); err != nil {
		return fmt.Errorf("add to the feed: %w", err)
	}
	if _, err := t.exec(`UPDATE versions SET value = CASE WHEN name = '`+feedNumber+`' THEN CAST($1 AS BIGINT) ELSE CAST($2 AS BIGINT) END
		WHERE name IN ('`+feedNumber+`', '`+feedTime+`')`, number, at); err != nil {
		return fmt.Errorf("number the feed: %w", err)
	}
	return nil
}

// Outcomes returns up to limit outcomes of the project after the cursor, in order, and where to go on; with none, that is after. An outcome
// is in the feed a second or so after its commit (see Fold), and none ever comes into it before one that was read.
func (db *DB) Outcomes(ctx context.Context, project string, after store.OutcomeCursor, limit int) ([]store.TerminalEvent, store.OutcomeCursor, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var events []store.TerminalEvent
	next := after
	for more := true; more && len(events) < limit; {
		rows, err := db.readFeed(ctx, project, next)
		if err != nil {
			return nil, after, readError("read outcomes", err)
		}
		more = len(rows) == feedRows
		for _, r := range rows {
			if events, next, err = r.take(events, next, limit); err != nil {
				return nil, after, readError("read outcomes", err)
			}
		}
	}
	if err := db.describe(ctx, project, events); err != nil {
		return nil, after, readError("read outcomes", err)
	}
	return events, next, nil
}

// readFeed returns the next rows of the feed, the one that the cursor is in first.
func (db *DB) readFeed(ctx context.Context, project string, from store.OutcomeCursor) ([]feedEntry, error) {
	var rows []feedEntry
	err := queryEach(ctx, db.read, func(s scanner) error {
		r := feedEntry{project: project}
		err := s.Scan(&r.at, &r.id, &r.entries)
		rows = append(rows, r)
		return err
	}, `SELECT at, id, entries FROM outcomes
		WHERE project = $1 AND at >= $2 AND (at, id) >= ($2, $3)
		ORDER BY at, id
		LIMIT $4`, project, from.Tx, from.Group, feedRows)
	return rows, err
}

// take adds the row's outcomes after the cursor, as long as there is room, and returns the place of the last one.
func (r *feedEntry) take(events []store.TerminalEvent, after store.OutcomeCursor, limit int) ([]store.TerminalEvent, store.OutcomeCursor, error) {
	if len(events) == limit {
		return events, after, nil
	}
	var groups []endedGroup
	if err := decode("entries", r.entries, &groups); err != nil {
		return events, after, fmt.Errorf("row %d: %w", r.id, err)
	}
	at := store.OutcomeCursor{Tx: r.at, Group: r.id}
	skip := 0
	if after.Tx == r.at && after.Group == r.id {
		skip = after.Item
	}
	for _, g := range groups {
		for id := range strings.FieldsSeq(g.IDs) {
			if at.Item++; at.Item <= skip {
				continue
			}
			if len(events) == limit {
				return events, after, nil
			}
			events = append(events, store.TerminalEvent{
				Cursor: at, ID: id, Project: r.project, State: g.State, Reason: g.Reason, At: g.At,
				AttemptCount: g.Attempts, LastStatus: g.Status, LastClass: g.Class,
			})
			after = at
		}
	}
	return events, after, nil
}

// describe adds what the callbacks say to the events. One that has been purged says nothing.
func (db *DB) describe(ctx context.Context, project string, events []store.TerminalEvent) error {
	if len(events) == 0 {
		return nil
	}
	byID := make(map[string][]int, len(events))
	for i := range events {
		byID[events[i].ID] = append(byID[events[i].ID], i)
	}
	columns := []column{{name: "id", texts: sortedKeys(byID)}}
	input, next := db.dialect.input(1, columns)
	args, err := db.dialect.args(columns)
	if err != nil {
		return err
	}
	return queryEach(ctx, db.read, func(rows scanner) error {
		var e store.TerminalEvent
		var labels string
		if err := rows.Scan(&e.ID, &e.Kind, &e.EndpointID, &e.Topic, &e.Ref, &labels); err != nil {
			return err
		}
		for _, i := range byID[e.ID] {
			of := &events[i]
			of.Kind, of.EndpointID, of.Topic, of.Ref = e.Kind, e.EndpointID, e.Topic, e.Ref
			if err := decode("labels", labels, &of.Labels); err != nil {
				db.logger.Error("labels of an outcome cannot be decoded", "callback_id", e.ID, "error", err)
			}
		}
		return nil
	}, fmt.Sprintf(`SELECT callbacks.id, callbacks.kind, requests.endpoint_id, requests.topic, requests.ref,
			requests.labels
		FROM `+fromRequests+`
		AND requests.id IN (SELECT i.id FROM %s) AND requests.project = $%d`, input, next),
		append(args, project)...)
}

// PurgeOutcomes removes what came into the feed before that time, at most limit rows of it, each of which
// holds up to some hundred outcomes. It returns how many rows that were, and whether there may be more.
func (db *DB) PurgeOutcomes(
	ctx context.Context, now, before int64, limit int,
) (removed int, more bool, err error) {
	return db.deleteAged(ctx, feedPurge, now, before, limit, `DELETE FROM outcomes
		WHERE (project, at, id) IN (
		SELECT project, at, id FROM outcomes WHERE at >= $1 AND at < $2 ORDER BY at LIMIT $3)
		RETURNING at`)
}
