package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The kinds of counter.
const (
	stateCounter = "state"
	tierCounter  = "tier"
	laneCounter  = "lane"
	dueCounter   = "due"
)

const (
	// foldNotes is how many notes one call of Fold adds up, in transactions of a maintenance batch each, between which others pass.
	foldNotes = 10_000
	// topLanes is how many lanes Counts lists.
	topLanes = 100
)

// deltas are differences of counters by project.
type deltas map[string]differences

// differences are those of one project's counters, by "kind:key".
type differences map[string]int64

// add adds to one difference, and forgets it if that makes it none.
func (m differences) add(name string, n int64) {
	if n += m[name]; n == 0 {
		delete(m, name)
		return
	}
	m[name] = n
}

// merge adds what a note says of counters.
func (d *deltas) merge(text string) error {
	if text == "" {
		return nil
	}
	var more deltas
	if err := json.Unmarshal([]byte(text), &more); err != nil {
		return fmt.Errorf("decode counter deltas: %w", err)
	}
	if *d == nil {
		*d = more
		return nil
	}
	for project, m := range more {
		sum := (*d)[project]
		if sum == nil {
			(*d)[project] = m
			continue
		}
		for name, n := range m {
			sum.add(name, n)
		}
	}
	return nil
}

// A note is what one transaction appended.
type note struct {
	id               int64
	deltas, outcomes string
}

// fold takes a maintenance batch of notes at most, adds them to the counters and to the feed of outcomes, and says how many it took.
// It returns the number of the last one, too.
func (t *tx) fold(now int64) (taken int, last int64, err error) {
	after := t.db.folded.from(now)
	// Where nothing happens nothing is locked, and so nothing written.
	some := false
	if err := t.each(func(scanner) error { some = true; return nil },
		`SELECT 1 WHERE EXISTS (SELECT 1 FROM commit_notes WHERE id > $1)
			OR EXISTS (SELECT 1 FROM counter_deltas)`,
		after); err != nil || !some {
		return 0, 0, err
	}
	number, at, err := t.lockFeed()
	if err != nil {
		return 0, 0, err
	}
	notes, err := t.takeNotes(after)
	if err != nil || len(notes) == 0 {
		return 0, 0, err
	}
	var sum deltas
	var ended endings
	for _, n := range notes {
		if err := errors.Join(sum.merge(n.deltas), ended.merge(n.outcomes)); err != nil {
			return 0, 0, err
		}
	}
	sum.forgetPast(now)
	if err := t.addToCounters(sum); err != nil {
		return 0, 0, err
	}
	return len(notes), notes[len(notes)-1].id, t.feed(ended, number, at, now)
}

// oldestNotes finds the notes that a fold takes.
const oldestNotes = `SELECT id FROM commit_notes WHERE id > $1 ORDER BY id LIMIT $2`

// takeNotes takes the oldest notes away, at most a maintenance batch of this version's and as many of an older one's, which has none of
// outcomes.
func (t *tx) takeNotes(after int64) ([]note, error) {
	var notes []note
	for _, from := range []struct {
		table, columns string
		after          int64
	}{{"counter_deltas", "id, deltas, ''", 0}, {"commit_notes", "id, deltas, outcomes", after}} {
		first := len(notes)
		if err := t.each(func(rows scanner) error {
			var n note
			err := rows.Scan(&n.id, &n.deltas, &n.outcomes)
			notes = append(notes, n)
			return err
		}, `DELETE FROM `+from.table+`
			WHERE id IN (SELECT id FROM `+from.table+` WHERE id > $1 ORDER BY id LIMIT $2)
			RETURNING `+from.columns, from.after, t.db.dialect.maintenanceBatch); err != nil {
			return nil, fmt.Errorf("take notes: %w", err)
		}
		slices.SortFunc(notes[first:], func(a, b note) int { return cmp.Compare(a.id, b.id) })
	}
	return notes, nil
}

// addToCounters adds differences to the counters.
func (t *tx) addToCounters(sum deltas) error {
	columns := []column{textColumn("project", 0), textColumn("kind", 0), textColumn("key", 0), intColumn("value", 0)}
	for _, project := range sortedKeys(sum) {
		for _, name := range sortedKeys(sum[project]) {
			kind, key, _ := strings.Cut(name, ":")
			columns[0].texts = append(columns[0].texts, project)
			columns[1].texts = append(columns[1].texts, kind)
			columns[2].texts = append(columns[2].texts, key)
			columns[3].ints = append(columns[3].ints, sum[project][name])
		}
	}
	if len(columns[0].texts) == 0 {
		return nil
	}
	input, args, _, err := t.input(columns)
	if err != nil {
		return err
	}
	// "WHERE 1 = 1" keeps SQLite from reading ON as part of a join.
	if _, err := t.exec(`INSERT INTO counters (project, kind, key, value)
		SELECT i.project, i.kind, i.key, i.value FROM `+input+` WHERE 1 = 1
		ON CONFLICT (project, kind, key) DO UPDATE SET value = counters.value + excluded.value`, args...); err != nil {
		return fmt.Errorf("add to counters: %w", err)
	}
	if _, err := t.exec(`DELETE FROM counters
		WHERE value = 0 AND kind <> 'state'
			AND (project, kind, key) IN (SELECT i.project, i.kind, i.key FROM `+input+`)`, args...); err != nil {
		return fmt.Errorf("drop empty counters: %w", err)
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// A tally adds up the counters of one project.
type tally struct {
	store.Counts
	// lanes counts open callbacks by the lane's number.
	lanes map[string]int64
}

func (y *tally) add(kind, key string, n int64) error {
	switch kind {
	case stateCounter:
		y.States[store.State(key)] += n
	case tierCounter:
		tier, err := strconv.Atoi(key)
		if err != nil {
			return fmt.Errorf("counter of tier %q: %w", key, err)
		}
		if y.Tiers[tier] += n; y.Tiers[tier] == 0 {
			delete(y.Tiers, tier)
		}
	case laneCounter:
		y.lanes[key] += n
	}
	return nil
}

func (y *tally) scan(rows scanner) error {
	var kind, key string
	var n int64
	if err := rows.Scan(&kind, &key, &n); err != nil {
		return err
	}
	return y.add(kind, key, n)
}

// Counts returns the project's counters: those folded and the deltas since, of one moment.
func (db *DB) Counts(ctx context.Context, project string) (store.Counts, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	stx, err := db.read.BeginTx(ctx, &sql.TxOptions{Isolation: db.dialect.snapshot})
	if err != nil {
		return store.Counts{}, readError("count", err)
	}
	defer func() { _ = stx.Rollback() }() // It has written nothing.
	pending, err := readDeltas(ctx, stx)
	if err != nil {
		return store.Counts{}, readError("count", err)
	}
	sum := tally{
		Counts: store.Counts{States: make(map[store.State]int64), Tiers: make(map[int]int64)},
		lanes:  make(map[string]int64),
	}
	if err := db.readFolded(ctx, stx, project, pending[project], &sum); err != nil {
		return store.Counts{}, readError("count", err)
	}
	for name, n := range pending[project] {
		kind, key, _ := strings.Cut(name, ":")
		if err := sum.add(kind, key, n); err != nil {
			return store.Counts{}, err
		}
	}
	sum.Lanes, err = db.nameLanes(ctx, stx, sum.lanes)
	return sum.Counts, err
}

// readDeltas adds up what is not folded yet.
func readDeltas(ctx context.Context, from Querier) (deltas, error) {
	var pending deltas
	err := queryEach(ctx, from, func(rows scanner) error {
		var text string
		if err := rows.Scan(&text); err != nil {
			return err
		}
		return pending.merge(text)
	}, `SELECT deltas FROM commit_notes UNION ALL SELECT deltas FROM counter_deltas`)
	return pending, err
}

// readFolded adds the project's folded counters: all states and tiers, and the lanes that may be among the largest. A
// lane with a pending delta may have moved into that list or out of it, so it is read whatever it counts, and the
// largest of the others beside it.
func (db *DB) readFolded(ctx context.Context, stx *sql.Tx, project string, pending map[string]int64, sum *tally) error {
	moved := textColumn("key", len(pending))
	for name := range pending {
		if kind, key, _ := strings.Cut(name, ":"); kind == laneCounter {
			moved.texts = append(moved.texts, key)
		}
	}
	input, next := db.dialect.input(1, []column{moved})
	args, err := db.dialect.args([]column{moved})
	if err != nil {
		return err
	}
	args = append(args, project)
	if err := queryEach(ctx, stx, sum.scan, `SELECT kind, key, value FROM counters
		WHERE project = $1 AND kind IN ('state', 'tier')`, project); err != nil {
		return err
	}
	if err := queryEach(ctx, stx, sum.scan, fmt.Sprintf(`SELECT kind, key, value FROM counters
		WHERE kind = 'lane' AND key IN (SELECT i.key FROM %s) AND project = $%d`, input, next), args...); err != nil {
		return err
	}
	return queryEach(ctx, stx, sum.scan, fmt.Sprintf(`SELECT kind, key, value FROM counters
		WHERE kind = 'lane' AND key NOT IN (SELECT i.key FROM %s) AND project = $%d
		ORDER BY value DESC
		LIMIT $%d`, input, next, next+1), append(args, topLanes)...)
}

// nameLanes picks the largest lanes and puts their keys in the place of their numbers.
func (db *DB) nameLanes(ctx context.Context, stx *sql.Tx, open map[string]int64) ([]store.LaneCount, error) {
	ids := intColumn("id", len(open))
	for key, n := range open {
		id, err := strconv.ParseInt(key, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("counter of lane %q: %w", key, err)
		}
		if n > 0 {
			ids.ints = append(ids.ints, id)
		}
	}
	count := func(id int64) int64 { return open[strconv.FormatInt(id, 10)] }
	slices.SortFunc(ids.ints, func(a, b int64) int { return cmp.Or(cmp.Compare(count(b), count(a)), cmp.Compare(a, b)) })
	ids.ints = ids.ints[:min(len(ids.ints), topLanes)]
	if len(ids.ints) == 0 {
		return nil, nil
	}
	columns := []column{ids}
	input, _ := db.dialect.input(1, columns)
	args, err := db.dialect.args(columns)
	if err != nil {
		return nil, err
	}
	keys := make(map[int64]string, len(ids.ints))
	if err := queryEach(ctx, stx, func(rows scanner) error {
		var id int64
		var key string
		if err := rows.Scan(&id, &key); err != nil {
			return err
		}
		keys[id] = key
		return nil
	}, `SELECT id, key FROM lanes WHERE id IN (SELECT i.id FROM `+input+`)`, args...); err != nil {
		return nil, readError("name lanes", err)
	}
	lanes := make([]store.LaneCount, len(ids.ints))
	for i, id := range ids.ints {
		lanes[i] = store.LaneCount{Lane: keys[id], Open: count(id)}
	}
	return lanes, nil
}
