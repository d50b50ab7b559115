package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

const (
	// foldNotes is the maximum number of notes for one call of Fold. A call works in maintenance
	// transactions, between which others pass.
	foldNotes = 10_000
	// topLanes is how many lanes Counts lists.
	topLanes = 100
)

// Fold adds the notes that transactions appended to the counters and to the feed of outcomes, and drops
// counters of hours that passed more than a day ago. Both parts are bounded; what is left waits for the next
// call. Several processes may call Fold at once: lockFeed makes them take turns.
func (db *DB) Fold(ctx context.Context, now int64) error {
	if _, err := db.inBatches(ctx, "fold", foldNotes, func(t *tx, batch int) (int, error) {
		taken, last, err := t.fold(now, batch)
		if taken > 0 {
			t.OnCommit(func() { db.folded.saw(last, now) })
		}
		return taken, err
	}); err != nil {
		return err
	}
	return named("fold: drop counters of past hours", db.dropPastHours(ctx, now))
}

// fold handles up to batch notes in one transaction: it deletes them, adds them to the counters, and appends
// to the feed. So a note counts exactly once, whenever a process dies. It returns how many notes it took and
// the number of the last one.
func (t *tx) fold(now int64, batch int) (taken int, last int64, err error) {
	after := t.db.folded.from(now)
	// Without notes nothing is locked or written, so an idle system does not write each second.
	some, err := sqldb.Exists(t, `SELECT 1 FROM commit_notes WHERE id > $1 LIMIT 1`, after)
	if err != nil || !some {
		return 0, 0, err
	}
	number, at, err := t.lockFeed()
	if err != nil {
		return 0, 0, err
	}
	notes, err := t.takeNotes(after, batch)
	if err != nil || len(notes) == 0 {
		return 0, 0, err
	}
	sum := make(deltas)
	var ended endedByProject
	for _, n := range notes {
		if err := errors.Join(sum.merge(n.Deltas), ended.merge(n.Outcomes)); err != nil {
			return 0, 0, err
		}
	}
	sum.forgetPast(now)
	if err := t.addToCounters(sum); err != nil {
		return 0, 0, err
	}
	return len(notes), notes[len(notes)-1].ID, t.appendFeed(ended, number, at, now)
}

// oldestNotes finds the next notes by the primary key.
const oldestNotes = `SELECT id FROM commit_notes WHERE id > $1 ORDER BY id LIMIT $2`

// takeNotes deletes the oldest notes and returns them in the order of their numbers.
func (t *tx) takeNotes(after int64, batch int) ([]note, error) {
	notes, err := sqldb.Returning(t, noteColumns, `DELETE FROM commit_notes WHERE id IN (`+oldestNotes+`)`,
		after, batch)
	if err != nil {
		return nil, named("take notes", err)
	}
	slices.SortFunc(notes, func(a, b note) int { return cmp.Compare(a.ID, b.ID) })
	return notes, nil
}

// addToCounters adds the sums to table counters, and deletes counters that became zero. Counters of states
// stay, at most one for each state.
func (t *tx) addToCounters(sum deltas) error {
	type difference struct {
		Project, Kind, Key string
		Value              int64
	}
	var rows []difference
	for _, project := range sortedKeys(sum) {
		for _, name := range sortedKeys(sum[project]) {
			if n := sum[project][name]; n != 0 {
				kind, key, _ := strings.Cut(name, ":")
				rows = append(rows, difference{project, kind, key, n})
			}
		}
	}
	if len(rows) == 0 {
		return nil
	}
	input := sqldb.Rows(rows, sqldb.Named[difference](`project kind key value`))
	// "WHERE 1 = 1" keeps SQLite from parsing ON as part of a join.
	if _, err := t.Exec(`INSERT INTO counters (project, kind, key, value)
		SELECT i.project, i.kind, i.key, i.value FROM $i WHERE 1 = 1
		ON CONFLICT (project, kind, key) DO UPDATE SET value = counters.value + excluded.value`,
		input); err != nil {
		return named("add to counters", err)
	}
	_, err := t.Exec(`DELETE FROM counters
		WHERE value = 0 AND kind <> 'state'
			AND (project, kind, key) IN (SELECT i.project, i.kind, i.key FROM $i)`, input)
	return named("drop empty counters", err)
}

// counters calls fn with the notes that are not folded yet, in one snapshot. What fn reads from table
// counters plus pending is the exact count of one moment.
func (db *DB) counters(ctx context.Context, operation string,
	fn func(read sqldb.Read, pending deltas) error) error {
	return db.sql.Snapshot(ctx, operation, func(read sqldb.Read) error {
		notes, err := sqldb.Values[string](read, `SELECT deltas FROM commit_notes`)
		pending := make(deltas)
		for _, text := range notes {
			err = errors.Join(err, pending.merge(text))
		}
		if err != nil {
			return err
		}
		return fn(read, pending)
	})
}

// A tally sums the counters of one project.
type tally struct {
	store.Counts
	// lanes counts open callbacks by the lane's id.
	lanes map[int64]int64
}

// add adds n to the sum of one counter. Counters of due hours are not part of Counts.
func (y *tally) add(kind, key string, n int64) error {
	switch kind {
	case stateCounter:
		y.States[store.State(key)] += n
	case tierCounter, laneCounter:
		number, err := strconv.ParseInt(key, 10, 64)
		if err != nil {
			return fmt.Errorf("counter of %s %q: %w", kind, key, err)
		}
		if kind == laneCounter {
			y.lanes[number] += n
			return nil
		}
		y.Tiers[int(number)] += n
		if y.Tiers[int(number)] == 0 {
			delete(y.Tiers, int(number))
		}
	}
	return nil
}

// scan adds one row of table counters.
func (y *tally) scan(r sqldb.Row) error {
	var kind, key string
	var n int64
	if err := r.Scan(&kind, &key, &n); err != nil {
		return err
	}
	return y.add(kind, key, n)
}

// Counts returns the project's counters of one moment. Lanes are the largest, at most topLanes.
func (db *DB) Counts(ctx context.Context, project string) (store.Counts, error) {
	sum := tally{
		Counts: store.Counts{States: make(map[store.State]int64), Tiers: make(map[int]int64)},
		lanes:  make(map[int64]int64),
	}
	err := db.counters(ctx, "count", func(read sqldb.Read, all deltas) error {
		pending := all[project]
		if err := sum.readFolded(read, project, pending); err != nil {
			return err
		}
		for name, n := range pending {
			kind, key, _ := strings.Cut(name, ":")
			if err := sum.add(kind, key, n); err != nil {
				return err
			}
		}
		return sum.nameLanes(read)
	})
	if err != nil {
		return store.Counts{}, err
	}
	return sum.Counts, nil
}

// readFolded adds the project's rows of table counters: all states and tiers, and the lanes that may be among
// the largest. A lane with a pending change is read in any case, because the change may move it into or out
// of that list. Of the other lanes the largest are read, by the index counters_lanes.
func (y *tally) readFolded(read sqldb.Read, project string, pending map[string]int64) error {
	var keys []string
	for name := range pending {
		if kind, key, _ := strings.Cut(name, ":"); kind == laneCounter {
			keys = append(keys, key)
		}
	}
	moved := sqldb.Texts("key", keys)
	if err := read.Each(y.scan, `SELECT kind, key, value FROM counters
		WHERE project = $1 AND kind IN ('state', 'tier')`, project); err != nil {
		return err
	}
	if err := read.Each(y.scan, `SELECT kind, key, value FROM counters
		WHERE kind = 'lane' AND key IN (SELECT i.key FROM $i) AND project = $1`, project, moved); err != nil {
		return err
	}
	return read.Each(y.scan, `SELECT kind, key, value FROM counters
		WHERE kind = 'lane' AND key NOT IN (SELECT i.key FROM $i) AND project = $1
		ORDER BY value DESC
		LIMIT $2`, project, topLanes, moved)
}

// nameLanes fills in Lanes: the largest sums with the keys of their lanes.
func (y *tally) nameLanes(read sqldb.Read) error {
	var ids []int64
	for id, n := range y.lanes {
		if n > 0 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b int64) int {
		return cmp.Or(cmp.Compare(y.lanes[b], y.lanes[a]), cmp.Compare(a, b))
	})
	ids = ids[:min(len(ids), topLanes)]
	if len(ids) == 0 {
		return nil
	}
	keys, err := sqldb.Map[int64, string](read, `SELECT id, key FROM lanes WHERE id IN (SELECT i.id FROM $i)`,
		sqldb.Ints("id", ids))
	for _, id := range ids {
		y.Lanes = append(y.Lanes, store.LaneCount{Lane: keys[id], Open: y.lanes[id]})
	}
	return err
}

// OpenCallbacks returns how many open callbacks each of the projects has, in one snapshot.
func (db *DB) OpenCallbacks(ctx context.Context, projects []string) (map[string]int64, error) {
	var open map[string]int64
	err := db.counters(ctx, "count open callbacks", func(read sqldb.Read, pending deltas) (err error) {
		open, err = sqldb.Map[string, int64](read, `SELECT project, value FROM counters
			WHERE kind = 'state' AND key = 'scheduled' AND project IN (SELECT i.project FROM $i)`,
			sqldb.Texts("project", projects))
		for _, project := range projects {
			open[project] += pending[project][stateCounter+":"+string(store.Scheduled)]
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return open, nil
}
