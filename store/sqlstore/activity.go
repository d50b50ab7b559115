package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// activityKey are the columns that say what an activity is about.
const activityKey = "project, lane, span, at"

// activityCounts names the columns that are added up, in the order of countsOf.
func activityCounts() []string {
	names := []string{"accepted", "succeeded", "failed", "unknown", "dead"}
	for _, histogram := range [...]string{"lateness", "took"} {
		for i := range store.HistogramBuckets {
			names = append(names, fmt.Sprintf("%s_%d", histogram, i))
		}
	}
	return names
}

// countsOf is where an activity has what is added up.
func countsOf(a *store.Activity) []*int64 {
	counts := []*int64{&a.Accepted, &a.Succeeded, &a.Failed, &a.Unknown, &a.Dead}
	for i := range a.Lateness {
		counts = append(counts, &a.Lateness[i])
	}
	for i := range a.Took {
		counts = append(counts, &a.Took[i])
	}
	return counts
}

// AddActivity adds what was counted to what is there, in transactions of bounded size that let others pass. What has not been added when
// there is an error is lost: some may have been, and would be added twice.
func (db *DB) AddActivity(ctx context.Context, rows []store.Activity) error {
	for part := range slices.Chunk(mergeActivity(rows), db.dialect.maintenanceBatch) {
		if err := db.maintain(ctx, func(t *tx) error { return t.addActivity(part) }); err != nil {
			return fmt.Errorf("add activity: %w", err)
		}
	}
	return nil
}

// mergeActivity adds up what is about the same, and puts all in the order in which every process writes them, so that none waits for another
// that waits for it.
func mergeActivity(rows []store.Activity) []store.Activity {
	sorted := slices.SortedStableFunc(slices.Values(rows), compareActivity)
	var merged []store.Activity
	for i := range sorted {
		if n := len(merged); n > 0 && compareActivity(merged[n-1], sorted[i]) == 0 {
			merged[n-1].Add(&sorted[i])
			continue
		}
		merged = append(merged, sorted[i])
	}
	return merged
}

func compareActivity(a, b store.Activity) int {
	return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.LaneID, b.LaneID), cmp.Compare(a.Span, b.Span), cmp.Compare(a.At, b.At))
}

func (t *tx) addActivity(rows []store.Activity) error {
	columns := []column{
		texts("project", rows, func(a store.Activity) string { return a.Project }),
		ints("lane", rows, func(a store.Activity) int64 { return a.LaneID }),
		ints("span", rows, func(a store.Activity) int64 { return a.Span.Milliseconds() }),
		ints("at", rows, func(a store.Activity) int64 { return a.At }),
	}
	names := activityCounts()
	counts := make([]column, len(names))
	for n, name := range names {
		counts[n] = intColumn(name, len(rows))
	}
	for i := range rows {
		for n, count := range countsOf(&rows[i]) {
			counts[n].ints = append(counts[n].ints, *count)
		}
	}
	input, args, _, err := t.input(append(columns, counts...))
	if err != nil {
		return err
	}
	sums := make([]string, len(names))
	for n, name := range names {
		sums[n] = name + " = activity." + name + " + excluded." + name
	}
	// "WHERE 1 = 1" keeps SQLite from reading ON as part of a join.
	_, err = t.exec(`INSERT INTO activity (`+activityKey+`, `+strings.Join(names, ", ")+`)
		SELECT i.project, i.lane, i.span, i.at, i.`+strings.Join(names, ", i.")+` FROM `+input+` WHERE 1 = 1
		ON CONFLICT (`+activityKey+`) DO UPDATE SET `+strings.Join(sums, ", "), args...)
	return err
}

const ofSpan = `project = $1 AND lane = $2 AND span = $3 AND at >= $4 AND at < $5`

// Activity returns what happened in the project, or in one lane of it, in the spans of that length that began at from or later, and before to,
// in order. Spans in which nothing happened are left out.
func (db *DB) Activity(ctx context.Context, project string, lane int64, span store.Span, from, to int64) ([]store.Activity, error) {
	return db.readActivity(ctx, ofSpan, project, lane, span.Milliseconds(), from, to)
}

// LaneActivity returns what happened in lanes of the project in the hours that began at from or later, by lane, and in order.
func (db *DB) LaneActivity(ctx context.Context, project string, lanes []int64, from int64) ([]store.Activity, error) {
	if len(lanes) == 0 {
		return nil, nil
	}
	which, args, err := db.laneActivity(project, lanes, from)
	if err != nil {
		return nil, err
	}
	return db.readActivity(ctx, which, args...)
}

func (db *DB) laneActivity(project string, lanes []int64, from int64) (which string, args []any, err error) {
	columns := []column{{name: "lane", ints: lanes}}
	input, n := db.dialect.input(1, columns)
	if args, err = db.dialect.args(columns); err != nil {
		return "", nil, err
	}
	return fmt.Sprintf(`lane IN (SELECT i.lane FROM %s) AND project = $%d AND span = $%d AND at >= $%d`, input, n, n+1, n+2),
		append(args, project, store.Hour.Milliseconds(), from), nil
}

func (db *DB) readActivity(ctx context.Context, which string, args ...any) ([]store.Activity, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var found []store.Activity
	into := make([]any, 0, 4+len(activityCounts()))
	err := queryEach(ctx, db.read, func(rows scanner) error {
		var a store.Activity
		var span int64
		into = append(into[:0], &a.Project, &a.LaneID, &span, &a.At)
		for _, count := range countsOf(&a) {
			into = append(into, count)
		}
		err := rows.Scan(into...)
		a.Span = store.Span(time.Duration(span) * time.Millisecond)
		found = append(found, a)
		return err
	}, activityQuery(which), args...)
	if err != nil {
		return nil, readError("read activity", err)
	}
	return found, nil
}

func activityQuery(which string) string {
	return `SELECT ` + activityKey + `, ` + strings.Join(activityCounts(), ", ") + ` FROM activity WHERE ` + which + ` ORDER BY project, lane, span, at`
}

// PurgeActivity removes up to limit activities of each kind that are not kept any longer (see store.Span), in transactions of bounded size. It
// returns how many.
func (db *DB) PurgeActivity(ctx context.Context, now int64, limit int) (int, error) {
	purged := 0
	for _, old := range agedActivity(now) {
		n, err := db.inBatches(ctx, limit, func(t *tx, batch int) (int, error) {
			n, err := t.exec(`DELETE FROM activity WHERE (`+activityKey+`) IN (`+oldActivity(old.which)+`)`, old.before, batch)
			return int(n), err
		})
		purged += n
		if err != nil {
			return purged, fmt.Errorf("purge activity: %w", err)
		}
	}
	return purged, nil
}

func oldActivity(which string) string {
	return `SELECT ` + activityKey + ` FROM activity WHERE ` + which + ` AND at < $1 ORDER BY at LIMIT $2`
}

// An agedRange is what of one kind of activity is not kept any longer at some time. The kind is written out, not passed, so that the
// indexes over age are taken.
type agedRange struct {
	which  string
	before int64
}

func agedActivity(now int64) []agedRange {
	const day = 24 * time.Hour
	aged := []agedRange{{"lane > 0", now - (2 * day).Milliseconds()}}
	for _, kept := range []struct {
		span store.Span
		age  time.Duration
	}{{store.Minute, 3 * time.Hour}, {store.Quarter, 3 * day}, {store.Hour, 31 * day}} {
		aged = append(aged, agedRange{fmt.Sprintf("lane = 0 AND span = %d", kept.span.Milliseconds()), now - kept.age.Milliseconds()})
	}
	return aged
}
