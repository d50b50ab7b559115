package sqlstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// maxGroups is the most groups that are listed.
	maxGroups = 200
	// maxCount is up to how many callbacks are counted one by one; fewCount, once groups have taken groupsTime.
	maxCount   = 1000
	fewCount   = 10
	groupsTime = 50 * time.Millisecond
)

// deadGroup finds the group after the one named, and its first and last callback, each by one step into the index of the dead; and counts it.
// The id is compared, too, for SQLite takes such a bound as if it were not strict: it would step over each callback of the group named.
const (
	deadGroup = `SELECT g.reason, g.last_class, g.last_status,
			(SELECT c.id FROM callbacks AS c WHERE ` + ofGroup + ` ORDER BY c.id LIMIT 1),
			(SELECT c.id FROM callbacks AS c WHERE ` + ofGroup + ` ORDER BY c.id DESC LIMIT 1),
			(SELECT COUNT(*) FROM (SELECT 1 FROM callbacks AS c WHERE ` + ofGroup + ` LIMIT $5) AS counted)
		FROM (
			SELECT reason, last_class, last_status FROM callbacks
			WHERE project = $1 AND state = 'dead' AND (reason, last_class, last_status, id) > ($2, $3, $4, '` + aboveAllIDs + `')
			ORDER BY reason, last_class, last_status, id
			LIMIT 1
		) AS g`
	ofGroup = `c.project = $1 AND c.state = 'dead' AND c.reason = g.reason AND c.last_class = g.last_class AND c.last_status = g.last_status`
)

// DeadGroups returns the project's dead callbacks by what they died of: the largest groups first, then those with the newest callback; at most
// 200. It counts up to a thousand of each, and once that has taken long, up to ten of the others.
func (db *DB) DeadGroups(ctx context.Context, project string) ([]store.DeadGroup, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var groups []store.DeadGroup
	var last store.DeadGroup
	last.Status = -1
	began := time.Now()
	for len(groups) < maxGroups {
		most := maxCount
		if time.Since(began) > groupsTime {
			most = fewCount
		}
		found := false
		err := queryEach(ctx, db.read, func(rows scanner) error {
			found = true
			var g store.DeadGroup
			var oldest string
			if err := rows.Scan(&g.Reason, &g.Class, &g.Status, &oldest, &g.NewestID, &g.Count); err != nil {
				return err
			}
			g.OldestAt, g.NewestAt = store.IDTime(oldest), store.IDTime(g.NewestID)
			if g.More = g.Count > most; g.More {
				g.Count = most
			}
			last = g
			groups = append(groups, g)
			return nil
		}, deadGroup, project, string(last.Reason), string(last.Class), last.Status, most+1)
		if err != nil {
			return nil, readError("group dead callbacks", err)
		}
		if !found {
			break
		}
	}
	slices.SortStableFunc(groups, func(a, b store.DeadGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(b.NewestID, a.NewestID))
	})
	return groups, nil
}
