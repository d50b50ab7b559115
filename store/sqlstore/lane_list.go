package sqlstore

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// LaneList returns a part of the project's lanes, in the order of their keys, each with what waits in it.
func (db *DB) LaneList(ctx context.Context, project string, f store.LaneFilter) ([]store.LaneBacklog, error) {
	const operation = "list lanes"
	lanes, err := db.pageOfLanes(ctx, operation, project, f)
	if err != nil || len(lanes) == 0 {
		return nil, err
	}
	if err := db.countOpen(ctx, operation, project, lanes); err != nil {
		return nil, err
	}
	return lanes, db.findOldest(ctx, operation, lanes, f.DueBy)
}

func (db *DB) pageOfLanes(ctx context.Context, operation, project string, f store.LaneFilter) ([]store.LaneBacklog, error) {
	var q query
	q.add("FROM lanes WHERE lanes.project = ? AND lanes.key > ?", project, f.After)
	if f.Search != "" {
		q.and("strpos(lanes.search, ?) > 0", store.Fold(f.Search))
	}
	if f.EndpointID != "" {
		q.and("lanes.key = ? AND lanes.endpoint_id = ?", store.EndpointPrefix+f.EndpointID, f.EndpointID)
	}
	if f.Held {
		q.and("lanes.paused_until > ?", f.Now)
	}
	if len(f.Keys) > 0 {
		q.and("lanes.key IN (SELECT i.key FROM $i)")
	}
	q.add("\n\tORDER BY lanes.key LIMIT ?", min(max(f.Limit, 1), maxList+1))
	if len(f.Keys) > 0 {
		q.args = append(q.args, sqldb.Texts("key", f.Keys))
	}
	found, err := sqldb.Select(db.read(ctx, operation), laneColumns, q.text.String(), q.args...)
	lanes := make([]store.LaneBacklog, len(found))
	for i := range found {
		lanes[i].Lane = found[i]
	}
	return lanes, err
}

// countOpen fills in how many open callbacks the lanes have, by the counters.
func (db *DB) countOpen(ctx context.Context, operation, project string, lanes []store.LaneBacklog) error {
	keys := make([]string, len(lanes))
	for i := range lanes {
		keys[i] = strconv.FormatInt(lanes[i].ID, 10)
	}
	return db.sql.Snapshot(ctx, operation, func(read sqldb.Read) error {
		pending, err := readDeltas(read)
		if err != nil {
			return err
		}
		folded, err := sqldb.Map[string, int64](read, `SELECT key, value FROM counters
			WHERE kind = 'lane' AND key IN (SELECT i.key FROM $i) AND project = $1`, project, sqldb.Texts("key", keys))
		for i, key := range keys {
			lanes[i].Open = folded[key] + pending[project][laneCounter+":"+key]
		}
		return err
	})
}

// findOldest fills in the earliest due time of the lanes that have open callbacks. No index leads to them: open
// callbacks of all lanes are looked at by due time, window by window, until all are found or so much was looked at that
// it must be enough (see listing). With dueBy it ends there, and has less to look at: lanes with nothing due yet would
// have it look at all it may, each time.
func (db *DB) findOldest(ctx context.Context, operation string, lanes []store.LaneBacklog, dueBy int64) error {
	missing := make(map[int64]*store.LaneBacklog)
	for i := range lanes {
		if lanes[i].Open > 0 {
			missing[lanes[i].ID] = &lanes[i]
		}
	}
	if len(missing) == 0 {
		return nil
	}
	most := db.counting
	if dueBy == 0 {
		dueBy = store.Forever
	} else {
		most.rows, most.time = most.rows/4, most.time/4
	}
	read := db.read(ctx, operation)
	_, err := db.dueWindows(ctx, read, most, dueBy, func(after, end store.Cursor) (bool, error) {
		// The rows of the window are few, and read as they lie in the index over due times: not by their lane.
		oldest, err := sqldb.Map[int64, int64](read, `SELECT lane, MIN(due_at) FROM callbacks
			WHERE lane IN (SELECT i.lane FROM $i)
				AND state = 'scheduled' AND due_at >= $1 AND due_at <= $2 AND (due_at, id) > ($1, $3) AND (due_at, id) <= ($2, $4)
			GROUP BY lane`, after.DueAt, end.DueAt, after.ID, end.ID, sqldb.Ints("lane", slices.Collect(maps.Keys(missing))))
		for lane, due := range oldest {
			missing[lane].OldestDue = due
			delete(missing, lane)
		}
		return len(missing) == 0, err
	})
	return err
}
