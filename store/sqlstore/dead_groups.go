package sqlstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

const (
	// maxGroups is the maximum number of groups in the list.
	maxGroups = 200
	// maxCount is up to how many callbacks of a group are counted. Once the groups have taken groupsTime, it
	// is fewCount for the others.
	maxCount   = 1000
	fewCount   = 10
	groupsTime = 50 * time.Millisecond
)

var deadGroupFields = sqldb.Named[store.DeadGroup](`g.reason g.last_class=Class g.last_status=Status`)

// deadGroupColumns read the oldest and the newest callback of a group by one step into the index
// callbacks_dead each, and count the group up to $2.
func deadGroupColumns(g *store.DeadGroup) sqldb.Columns {
	const of = `FROM callbacks AS c WHERE c.project = $1 AND c.state = 'dead' AND c.reason = g.reason
		AND c.last_class = g.last_class AND c.last_status = g.last_status`
	return append(deadGroupFields(g),
		col(`(SELECT c.id `+of+` ORDER BY c.id LIMIT 1)`, &g.OldestID),
		col(`(SELECT c.id `+of+` ORDER BY c.id DESC LIMIT 1)`, &g.NewestID),
		col(`(SELECT COUNT(*) FROM (SELECT 1 `+of+` LIMIT $2) AS counted)`, &g.Count))
}

// nextDeadGroup finds the next group after ($3, $4, $5). The bound includes an id above all ids: SQLite
// treats such a bound as inclusive, and would step over every callback of the last group.
const nextDeadGroup = `FROM (
		SELECT reason, last_class, last_status FROM callbacks
		WHERE project = $1 AND state = 'dead'
			AND (reason, last_class, last_status, id) > ($3, $4, $5, '` + aboveAllIDs + `')
		ORDER BY reason, last_class, last_status, id
		LIMIT 1
	) AS g`

// maxDied is up to how many callbacks DiedSince counts.
const maxDied = 10_000

// diedSince reads the index callbacks_died.
const diedSince = `SELECT died.last_class, COUNT(*) FROM (
		SELECT callbacks.last_class FROM callbacks
		WHERE callbacks.project = $1 AND callbacks.state = 'dead' AND callbacks.finished_at >= $2
		ORDER BY callbacks.finished_at DESC
		LIMIT $3
	) AS died
	GROUP BY died.last_class`

// DiedSince counts the project's dead callbacks that died at or after a time, by class.
func (db *DB) DiedSince(ctx context.Context, project string, from int64) (store.Died, error) {
	counts, err := sqldb.Map[string, int64](db.read(ctx, "count dead callbacks"), diedSince, project, from,
		maxDied+1)
	died, total := store.Died{Classes: make(map[store.Class]int64)}, int64(0)
	for class, n := range counts {
		died.Classes[store.Class(class)] = n
		total += n
	}
	died.More = total > maxDied
	return died, err
}

// DeadGroups groups the project's dead callbacks by reason, class and status. The largest group comes first,
// and among equal ones that with the newest callback; at most 200 are returned. It counts up to a thousand
// callbacks of each group. After groupsTime it counts up to ten of each further group.
func (db *DB) DeadGroups(ctx context.Context, project string) ([]store.DeadGroup, error) {
	ctx, cancel := context.WithTimeout(ctx, db.sql.Limits.Read)
	defer cancel()
	read := db.read(ctx, "group dead callbacks")
	var groups []store.DeadGroup
	last := store.DeadGroup{Status: -1}
	began := time.Now()
	for len(groups) < maxGroups {
		most := maxCount
		if time.Since(began) > groupsTime {
			most = fewCount
		}
		g, found, err := sqldb.One(read, deadGroupColumns, nextDeadGroup,
			project, most+1, string(last.Reason), string(last.Class), last.Status)
		if err != nil {
			return nil, err
		}
		if !found {
			break
		}
		g.OldestAt, g.NewestAt = store.IDTime(g.OldestID), store.IDTime(g.NewestID)
		g.More = g.Count > most
		if g.More {
			g.Count = most
		}
		last = g
		groups = append(groups, last)
	}
	slices.SortStableFunc(groups, func(a, b store.DeadGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(b.NewestID, a.NewestID))
	})
	return groups, nil
}
