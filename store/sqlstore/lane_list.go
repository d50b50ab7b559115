package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// LaneList returns a part of the project's lanes, in the order of their keys, each with what waits in it.
func (db *DB) LaneList(ctx context.Context, project string, f store.LaneFilter) ([]store.LaneBacklog, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	lanes, err := db.pageOfLanes(ctx, project, f)
	if err == nil {
		err = db.countOpen(ctx, project, lanes)
	}
	if err == nil {
		err = db.findOldest(ctx, lanes, f.DueBy)
	}
	if err != nil {
		return nil, readError("list lanes", err)
	}
	return lanes, nil
}

func (db *DB) pageOfLanes(ctx context.Context, project string, f store.LaneFilter) ([]store.LaneBacklog, error) {
	var q query
	q.add("SELECT "+laneColumns+" FROM lanes WHERE lanes.project = ? AND lanes.key > ?", project, f.After)
	if f.Search != "" {
		q.and(db.dialect.position+"(lanes.search, ?) > 0", store.Fold(f.Search))
	}
	if f.EndpointID != "" {
		q.and("lanes.key = ? AND lanes.endpoint_id = ?", store.EndpointPrefix+f.EndpointID, f.EndpointID)
	}
	if len(f.Keys) > 0 {
		columns := []column{{name: "key", texts: f.Keys}}
		input, _ := db.dialect.input(len(q.args)+1, columns)
		args, err := db.dialect.args(columns)
		if err != nil {
			return nil, err
		}
		q.and("lanes.key IN (SELECT i.key FROM " + input + ")")
		q.args = append(q.args, args...)
	}
	if f.Held {
		q.and("lanes.paused_until > ?", f.Now)
	}
	q.add("\n\tORDER BY lanes.key LIMIT ?", min(max(f.Limit, 1), maxList+1))
	var lanes []store.LaneBacklog
	err := queryEach(ctx, db.read, func(rows scanner) error {
		l, err := scanLane(rows)
		lanes = append(lanes, store.LaneBacklog{Lane: l})
		return err
	}, q.text.String(), q.args...)
	return lanes, err
}

// countOpen fills in how many open callbacks the lanes have, by the counters.
func (db *DB) countOpen(ctx context.Context, project string, lanes []store.LaneBacklog) error {
	if len(lanes) == 0 {
		return nil
	}
	stx, err := db.read.BeginTx(ctx, &sql.TxOptions{Isolation: db.dialect.snapshot, ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = stx.Rollback() }() // It has written nothing.
	pending, err := readDeltas(ctx, stx)
	if err != nil {
		return err
	}
	places := make(map[string]int, len(lanes))
	for i := range lanes {
		key := strconv.FormatInt(lanes[i].ID, 10)
		places[key] = i
		lanes[i].Open = pending[project][laneCounter+":"+key]
	}
	columns := []column{{name: "key", texts: sortedKeys(places)}}
	input, next := db.dialect.input(1, columns)
	args, err := db.dialect.args(columns)
	if err != nil {
		return err
	}
	return queryEach(ctx, stx, func(rows scanner) error {
		var key string
		var n int64
		err := rows.Scan(&key, &n)
		lanes[places[key]].Open += n
		return err
	}, fmt.Sprintf(`SELECT key, value FROM counters
		WHERE kind = 'lane' AND key IN (SELECT i.key FROM %s) AND project = $%d`, input, next), append(args, project)...)
}

// windowOfDue finds the last of so many open callbacks after a place and up to a due time, in the order of due times.
const windowOfDue = `SELECT due_at, id FROM callbacks
	WHERE state = 'scheduled' AND due_at >= $1 AND (due_at, id) > ($1, $2) AND due_at <= $3
	ORDER BY due_at, id
	LIMIT 1 OFFSET $4`

// findOldest fills in the earliest due time of the lanes that have open callbacks. No index leads to them: open callbacks of all lanes are
// looked at by due time, window by window, until all are found or so much was looked at that it must be enough (see listing). With dueBy it
// ends there, and has less to look at: lanes with nothing due yet would have it look at all it may, each time.
func (db *DB) findOldest(ctx context.Context, lanes []store.LaneBacklog, dueBy int64) error {
	missing := make(map[int64]*store.LaneBacklog)
	for i := range lanes {
		if lanes[i].Open > 0 {
			missing[lanes[i].ID] = &lanes[i]
		}
	}
	most, began, looked := db.counting, time.Now(), 0
	if dueBy == 0 {
		dueBy = store.Forever
	} else {
		most.rows, most.time = most.rows/4, most.time/4
	}
	after, err := db.fromLow(ctx, store.Cursor{DueAt: 1})
	if err != nil {
		return err
	}
	for size := most.few; size > 0 && len(missing) > 0; size = nextWindow(size, looked, time.Since(began), most) {
		end, more, err := db.windowEnd(ctx, windowOfDue, after.DueAt, after.ID, dueBy, size-1)
		if err != nil {
			return err
		}
		if !more {
			end = store.Cursor{DueAt: dueBy, ID: aboveAllIDs}
		}
		if err := db.findWithin(ctx, missing, after, end); err != nil || !more {
			return err
		}
		after, looked = end, looked+size
	}
	return nil
}

// findWithin takes the lanes that have open callbacks after the one place and up to the other from those that are missing.
func (db *DB) findWithin(ctx context.Context, missing map[int64]*store.LaneBacklog, after, end store.Cursor) error {
	ids := intColumn("lane", len(missing))
	for id := range missing {
		ids.ints = append(ids.ints, id)
	}
	columns := []column{ids}
	input, n := db.dialect.input(1, columns)
	args, err := db.dialect.args(columns)
	if err != nil {
		return err
	}
	// The rows of the window are few, and read as they lie in the index over due times: not by their lane.
	return queryEach(ctx, db.read, func(rows scanner) error {
		var lane, due int64
		err := rows.Scan(&lane, &due)
		missing[lane].OldestDue = due
		delete(missing, lane)
		return err
	}, fmt.Sprintf(`SELECT lane, MIN(due_at) FROM callbacks
		WHERE lane IN (SELECT i.lane FROM %s)
			AND state = 'scheduled' AND due_at >= $%d AND due_at <= $%d AND (due_at, id) > ($%[2]d, $%[4]d) AND (due_at, id) <= ($%[3]d, $%[5]d)
		GROUP BY lane`, input, n, n+1, n+2, n+3), append(args, after.DueAt, end.DueAt, after.ID, end.ID)...)
}
