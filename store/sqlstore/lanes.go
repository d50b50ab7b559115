package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A laneKey identifies a lane by its project and its key.
type laneKey struct{ Project, Key string }

var laneKeyColumns = sqldb.Named[laneKey](`project key`)

// laneIDs returns the ids of the lanes, from the cache or from SQL, and makes the missing ones in this
// transaction. If two transactions make the same lane, the second waits for the first and uses its lane. A
// lane that its project's quota refuses is not in the result; its caller returns store.ErrLaneQuota.
func (t *tx) laneIDs(wanted []laneKey) (map[laneKey]int64, error) {
	ids := make(map[laneKey]int64)
	var missing []laneKey
	for _, k := range wanted {
		if _, ok := ids[k]; ok {
			continue
		}
		id, ok := t.db.lanes.get(k)
		if !ok {
			missing = append(missing, k)
		}
		ids[k] = id
	}
	if len(missing) == 0 {
		return ids, nil
	}
	// All transactions make lanes in this order, so that two of them cannot wait for each other.
	slices.SortFunc(missing, func(a, b laneKey) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Key, b.Key))
	})
	missing, bounded, err := t.findLanes(missing, ids)
	if err == nil && len(bounded) > 0 && !t.quotaExempt {
		missing, err = t.admitLanes(missing, bounded, ids)
	}
	if err != nil || len(missing) == 0 {
		return ids, err
	}
	input := sqldb.Rows(missing, func(k *laneKey) sqldb.Columns {
		return append(laneKeyColumns(k), calc("search", func() string { return store.Fold(k.Key) }))
	})
	_, err = t.Exec(`INSERT INTO lanes (project, key, search)
		SELECT i.project, i.key, i.search FROM $i WHERE 1 = 1
		ON CONFLICT (project, key) DO NOTHING`, input)
	if err != nil {
		return nil, named("make lanes", err)
	}
	if err := t.readNewLanes(missing, ids); err != nil {
		return nil, named("find lanes", err)
	}
	return ids, nil
}

// laneID is laneIDs for one lane. It returns store.ErrLaneQuota if the quota refuses the lane.
func (t *tx) laneID(project, key string) (int64, error) {
	k := laneKey{project, key}
	ids, err := t.laneIDs([]laneKey{k})
	if err != nil {
		return 0, err
	}
	id, ok := ids[k]
	if !ok {
		return 0, store.ErrLaneQuota
	}
	return id, nil
}

// A foundLane is a lane that lookUp searched for. If it does not exist, id is zero and bound is its project's
// lane quota. Otherwise bound is what the caller of lookUp asked for.
type foundLane struct {
	laneKey
	id, bound int64
}

var inputLane = sqldb.Named[laneKey](`i.project i.key`)

// lookUp searches for lanes by their key, and adds the ids of the existing ones to ids. They are cached after
// the commit. The SQL expression bound gives the bound of an existing lane.
func (t *tx) lookUp(wanted []laneKey, ids map[laneKey]int64, bound string) ([]foundLane, error) {
	columns := func(l *foundLane) sqldb.Columns {
		return append(inputLane(&l.laneKey), col("COALESCE(lanes.id, 0)", &l.id),
			col(`CASE WHEN lanes.id IS NULL
			THEN COALESCE((SELECT projects.lane_quota FROM projects WHERE projects.id = i.project), 0)
			ELSE `+bound+` END`, &l.bound))
	}
	found, err := sqldb.Select(t, columns, `FROM $i
		LEFT JOIN lanes ON lanes.project = i.project AND lanes.key = i.key`,
		sqldb.Rows(wanted, laneKeyColumns))
	for _, l := range found {
		if l.id != 0 {
			ids[l.laneKey] = l.id
			t.lanes = append(t.lanes, l)
		}
	}
	return found, err
}

// findLanes adds the ids of the existing lanes to ids. It returns the missing lanes, in order, and which of
// their projects have a lane quota.
func (t *tx) findLanes(wanted []laneKey, ids map[laneKey]int64) ([]laneKey, map[string]bool, error) {
	found, err := t.lookUp(wanted, ids, `0`)
	bounded := make(map[string]bool)
	for _, l := range found {
		if l.id == 0 && l.bound > 0 {
			bounded[l.Project] = true
		}
	}
	missing := slices.DeleteFunc(slices.Clone(wanted), func(k laneKey) bool { return ids[k] != 0 })
	return missing, bounded, named("find lanes", err)
}

// admitLanes removes the lanes from missing and from ids for which the quotas have no room. It locks the
// projects until the commit. So a second transaction that makes lanes waits, and counts those of the first.
func (t *tx) admitLanes(
	missing []laneKey, bounded map[string]bool, ids map[laneKey]int64,
) ([]laneKey, error) {
	room, err := sqldb.Map[string, int64](t, `SELECT id, lane_quota FROM projects
		WHERE id IN (SELECT i.id FROM $i) AND lane_quota > 0
		ORDER BY id FOR UPDATE`, sqldb.Texts("id", sortedKeys(bounded)))
	if err != nil {
		return nil, named("lock projects", err)
	}
	// Another transaction may have made some of them before this one got the lock.
	missing, _, err = t.findLanes(missing, ids)
	if err != nil {
		return nil, err
	}
	for _, project := range sortedKeys(room) {
		n, _, err := sqldb.Value[int64](t,
			`SELECT COUNT(*) FROM (SELECT 1 AS one FROM lanes WHERE project = $1 LIMIT $2) AS l`,
			project, room[project])
		if err != nil {
			return nil, named("count lanes", err)
		}
		room[project] -= n
	}
	return slices.DeleteFunc(missing, func(k laneKey) bool {
		left, ok := room[k.Project]
		if !ok || left > 0 {
			room[k.Project] = left - 1
			return false
		}
		delete(ids, k)
		return true
	}), nil
}

// readNewLanes reads the ids of lanes that were just inserted. A new lane of a paused project gets the pause
// and a version, since the engine reads only lanes with a version. The projects are locked until the commit:
// otherwise a pause at the same time would not see the new lane.
func (t *tx) readNewLanes(made []laneKey, ids map[laneKey]int64) error {
	if !t.db.sql.Embedded() {
		err := t.Later(`SELECT id FROM projects WHERE id IN (SELECT i.project FROM $i) ORDER BY id FOR SHARE`,
			sqldb.Rows(made, laneKeyColumns))
		if err != nil {
			return named("lock projects", err)
		}
	}
	found, err := t.lookUp(made, ids,
		`COALESCE((SELECT projects.paused_until FROM projects WHERE projects.id = i.project), 0)`)
	if err != nil {
		return err
	}
	var paused []laneWrite
	for _, l := range found {
		switch {
		case l.id == 0:
			return errors.New("a lane that was just inserted was not found")
		case l.bound > 0:
			paused = append(paused, laneWrite{ID: l.id, Pause: l.bound})
		}
	}
	return t.pauseNewLanes(paused)
}

// LaneList returns a page of the project's lanes by key, each with its open callbacks and the earliest due
// time.
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

// pageOfLanes reads the lanes of the page, by the unique index over project and key.
func (db *DB) pageOfLanes(ctx context.Context, operation, project string,
	f store.LaneFilter) ([]store.LaneBacklog, error) {
	var q query
	q.add("FROM lanes WHERE lanes.project = ? AND lanes.key > ?", project, f.After)
	q.andIf(f.Search != "", "strpos(lanes.search, ?) > 0", store.Fold(f.Search))
	q.andIf(f.EndpointID != "", "lanes.key = ? AND lanes.endpoint_id = ?", store.EndpointPrefix+f.EndpointID,
		f.EndpointID)
	q.andIf(f.Paused, "lanes.paused_until > ?", f.Now)
	q.andIf(len(f.Keys) > 0, "lanes.key IN (SELECT i.key FROM $i)")
	q.add("\n\tORDER BY lanes.key LIMIT ?", min(max(f.Limit, 1), maxList+1))
	if len(f.Keys) > 0 {
		q.args = append(q.args, sqldb.Texts("key", f.Keys))
	}
	found, err := sqldb.Select(db.read(ctx, operation), laneColumns, q.text, q.args...)
	lanes := make([]store.LaneBacklog, len(found))
	for i := range found {
		lanes[i].Lane = found[i]
	}
	return lanes, err
}

// maxBusyLanes is how many lanes with open callbacks HeldLanes looks at, those with the most first.
const maxBusyLanes = 10_000

// heldLanes finds lanes among those with open callbacks, by the index counters_lanes.
const heldLanes = `SELECT lanes.key FROM (
		SELECT counters.key AS number, counters.value FROM counters
		WHERE counters.project = $1 AND counters.kind = 'lane' AND counters.value > 0
		ORDER BY counters.value DESC
		LIMIT $2
	) AS busy
	JOIN lanes ON lanes.id = CAST(busy.number AS BIGINT)
	WHERE lanes.project = $1
		AND (lanes.own_paused_until > $3 OR lanes.endpoint_paused_until > $3
			OR lanes.id IN (SELECT i.id FROM $i))
	ORDER BY busy.value DESC
	LIMIT $4`

// HeldLanes returns the keys of up to limit lanes of the project that have open callbacks and are paused,
// have a paused or disabled endpoint, or are among others. Those with the most open callbacks come first.
func (db *DB) HeldLanes(ctx context.Context, project string, others []int64, now int64, limit int,
) ([]string, error) {
	return sqldb.Values[string](db.read(ctx, "read held lanes"), heldLanes, project, maxBusyLanes, now, limit,
		sqldb.Ints("id", others))
}

// countOpen fills in the number of open callbacks of each lane, from the counters.
func (db *DB) countOpen(ctx context.Context, operation, project string, lanes []store.LaneBacklog) error {
	keys := make([]string, len(lanes))
	for i := range lanes {
		keys[i] = strconv.FormatInt(lanes[i].ID, 10)
	}
	return db.counters(ctx, operation, func(read sqldb.Read, pending deltas) error {
		folded, err := sqldb.Map[string, int64](read, `SELECT key, value FROM counters
			WHERE kind = 'lane' AND key IN (SELECT i.key FROM $i) AND project = $1`, project,
			sqldb.Texts("key", keys))
		for i, key := range keys {
			lanes[i].Open = folded[key] + pending[project][laneCounter+":"+key]
		}
		return err
	})
}

// findOldest fills in the earliest due time of the lanes that have open callbacks. No index has the due times
// of one lane. So it scans open callbacks of all lanes in windows, by due time, until each lane has one or
// countBudget is used up. With dueBy the scan ends there, and has a quarter of the budget. Otherwise lanes
// without a due callback would cost the whole budget each time.
func (db *DB) findOldest(ctx context.Context, operation string, lanes []store.LaneBacklog,
	dueBy int64) error {
	missing := make(map[int64]*store.LaneBacklog)
	for i := range lanes {
		if lanes[i].Open > 0 {
			missing[lanes[i].ID] = &lanes[i]
		}
	}
	if len(missing) == 0 {
		return nil
	}
	budget := db.countBudget
	if dueBy == 0 {
		dueBy = store.Forever
	} else {
		budget.rows, budget.time = budget.rows/4, budget.time/4
	}
	read := db.read(ctx, operation)
	_, err := db.dueWindows(ctx, read, budget, dueBy, func(after, end store.Cursor) (bool, error) {
		// A window has few rows. They are read by the index callbacks_due, and then filtered by lane.
		oldest, err := sqldb.Map[int64, int64](read, `SELECT lane, MIN(due_at) FROM callbacks
			WHERE lane IN (SELECT i.lane FROM $i)
				AND state = 'scheduled' AND due_at >= $1 AND due_at <= $2
				AND (due_at, id) > ($1, $3) AND (due_at, id) <= ($2, $4)
			GROUP BY lane`, after.DueAt, end.DueAt, after.ID, end.ID,
			sqldb.Ints("lane", slices.Collect(maps.Keys(missing))))
		for lane, due := range oldest {
			missing[lane].OldestDue = due
			delete(missing, lane)
		}
		return len(missing) == 0, err
	})
	return err
}
