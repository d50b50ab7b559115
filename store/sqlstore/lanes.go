package sqlstore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A laneKey finds a lane as a caller knows it.
type laneKey struct{ project, key string }

type laneKeyID struct {
	laneKey
	id int64
}

func laneIDColumns(l *laneKeyID) sqldb.Columns {
	return sqldb.Columns{col("id", &l.id), col("project", &l.project), col("key", &l.key)}
}

// A laneCache remembers the numbers of lanes. A lane's number never changes and lanes are never removed, so an entry
// cannot be wrong; when there are too many it starts anew.
type laneCache struct {
	max  int
	mu   sync.RWMutex
	ids  map[laneKey]int64
	keys map[int64]string
}

func (c *laneCache) get(k laneKey) (int64, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	id, ok := c.ids[k]
	return id, ok
}

// key returns the key of the lane with that number.
func (c *laneCache) key(id int64) (string, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	key, ok := c.keys[id]
	return key, ok
}

// add remembers lanes whose transaction has been committed.
func (c *laneCache) add(lanes []laneKeyID) {
	if len(lanes) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids == nil || len(c.ids)+len(lanes) > c.max {
		c.ids, c.keys = make(map[laneKey]int64), make(map[int64]string)
	}
	for _, l := range lanes {
		c.ids[l.laneKey], c.keys[l.id] = l.id, l.key
	}
}

// laneIDs finds the numbers of the lanes, and makes those that do not exist yet. A lane that is not to be
// made, because its project has as many as it may, is left out: store.ErrLaneQuota.
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
	// Every process makes lanes in the same order, so that two of them never wait for each other.
	slices.SortFunc(missing, func(a, b laneKey) int {
		return cmp.Or(cmp.Compare(a.project, b.project), cmp.Compare(a.key, b.key))
	})
	missing, bounded, err := t.findLanes(missing, ids)
	if err == nil && len(bounded) > 0 && !t.telling {
		missing, err = t.admitLanes(missing, bounded, ids)
	}
	if err != nil || len(missing) == 0 {
		return ids, err
	}
	if _, err := t.Exec(`INSERT INTO lanes (project, key, search)
		SELECT i.project, i.key, i.search FROM $i WHERE 1 = 1
		ON CONFLICT (project, key) DO NOTHING`, sqldb.Rows(missing, func(k *laneKey) sqldb.Columns {
		return append(laneKeyColumns(k), calc("search", func() string { return store.Fold(k.key) }))
	})); err != nil {
		return nil, fmt.Errorf("make lanes: %w", err)
	}
	if err := t.findNew(missing, ids); err != nil {
		return nil, fmt.Errorf("find lanes: %w", err)
	}
	return ids, nil
}

// laneID is laneIDs of one lane.
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

func laneKeyColumns(k *laneKey) sqldb.Columns {
	return sqldb.Columns{col("project", &k.project), col("key", &k.key)}
}

// findLanes adds the numbers of those of the lanes that exist to ids. It returns the others, in their order,
// and which of their projects have a quota of lanes.
func (t *tx) findLanes(wanted []laneKey, ids map[laneKey]int64) ([]laneKey, map[string]bool, error) {
	bounded := make(map[string]bool)
	if err := t.Each(func(rows sqldb.Row) error {
		var l laneKeyID
		var quota int64
		if err := rows.Scan(&l.project, &l.key, &l.id, &quota); err != nil {
			return err
		}
		if l.id != 0 {
			ids[l.laneKey] = l.id
			t.lanes = append(t.lanes, l)
			return nil
		}
		if quota > 0 {
			bounded[l.project] = true
		}
		return nil
	}, `SELECT i.project, i.key, COALESCE(lanes.id, 0),
			CASE WHEN lanes.id IS NULL
				THEN COALESCE((SELECT projects.lane_quota FROM projects WHERE projects.id = i.project), 0)
				ELSE 0 END
		FROM $i
		LEFT JOIN lanes ON lanes.project = i.project AND lanes.key = i.key`, sqldb.Rows(wanted, laneKeyColumns)); err != nil {
		return nil, nil, fmt.Errorf("find lanes: %w", err)
	}
	missing := slices.DeleteFunc(slices.Clone(wanted), func(k laneKey) bool { return ids[k] != 0 })
	return missing, bounded, nil
}

// admitLanes leaves those of the lanes out, of ids too, for which the quotas of their projects have no room.
// Their projects are locked: of two transactions that make lanes the second counts those of the first.
func (t *tx) admitLanes(
	missing []laneKey, bounded map[string]bool, ids map[laneKey]int64,
) ([]laneKey, error) {
	room, err := sqldb.Map[string, int64](t, `SELECT id, lane_quota FROM projects
		WHERE id IN (SELECT i.id FROM $i) AND lane_quota > 0
		ORDER BY id FOR UPDATE`, sqldb.Texts("id", sortedKeys(bounded)))
	if err != nil {
		return nil, fmt.Errorf("lock projects: %w", err)
	}
	// Some may have been made before the lock was had.
	if missing, _, err = t.findLanes(missing, ids); err != nil {
		return nil, err
	}
	for _, project := range sortedKeys(room) {
		n, _, err := sqldb.Value[int64](t, `SELECT COUNT(*) FROM (SELECT 1 AS one FROM lanes WHERE project = $1 LIMIT $2) AS l`,
			project, room[project])
		if err != nil {
			return nil, fmt.Errorf("count lanes: %w", err)
		}
		room[project] -= n
	}
	return slices.DeleteFunc(missing, func(k laneKey) bool {
		left, ok := room[k.project]
		if !ok || left > 0 {
			room[k.project] = left - 1
			return false
		}
		delete(ids, k)
		return true
	}), nil
}

// findNew finds the numbers of lanes that were just made. Those of a project that is paused are given its pause, and a version: nobody
// would hear of them otherwise. Their project is kept from being paused until they are committed, for that would not see them.
func (t *tx) findNew(made []laneKey, ids map[laneKey]int64) error {
	if !t.db.sql.Embedded() {
		if err := t.Later(`SELECT id FROM projects WHERE id IN (SELECT i.project FROM $i) ORDER BY id FOR SHARE`,
			sqldb.Rows(made, laneKeyColumns)); err != nil {
			return fmt.Errorf("lock projects: %w", err)
		}
	}
	found := 0
	var held []laneWrite
	if err := t.Each(func(rows sqldb.Row) error {
		var l laneKeyID
		var pause int64
		if err := rows.Scan(&l.project, &l.key, &l.id, &pause); err != nil {
			return err
		}
		found++
		ids[l.laneKey] = l.id
		t.lanes = append(t.lanes, l)
		if pause > 0 {
			held = append(held, laneWrite{id: l.id, pause: pause})
		}
		return nil
	}, `SELECT lanes.project, lanes.key, lanes.id,
			COALESCE((SELECT projects.paused_until FROM projects WHERE projects.id = lanes.project), 0)
		FROM $i
		JOIN lanes ON lanes.project = i.project AND lanes.key = i.key`, sqldb.Rows(made, laneKeyColumns)); err != nil {
		return err
	}
	if found != len(made) {
		return errors.New("a lane that was just made is not there")
	}
	return t.holdNew(held)
}
