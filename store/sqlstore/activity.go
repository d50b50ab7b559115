package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// activityKey are the columns that say what an activity is about.
const activityKey = "project, lane, span, at"

// activityColumns describe an activity.
func activityColumns(a *store.Activity) sqldb.Columns {
	return append(sqldb.Columns{
		col("project", &a.Project), col("lane", &a.LaneID),
		col("span", sqldb.Millis((*time.Duration)(&a.Span))), col("at", &a.At),
	}, activityCounts(a)...)
}

var sumFields = sqldb.Named[store.Activity](`accepted succeeded failed unknown dead`)

// activityCounts are the columns that are added up.
func activityCounts(a *store.Activity) sqldb.Columns {
	counts := sumFields(a)
	for i := range a.Lateness {
		counts = append(counts, col(fmt.Sprintf("lateness_%d", i), &a.Lateness[i]))
	}
	for i := range a.Took {
		counts = append(counts, col(fmt.Sprintf("took_%d", i), &a.Took[i]))
	}
	return counts
}

// AddActivity adds what was counted to what is there, in transactions of bounded size that let others pass.
// What has not been added when there is an error is lost: some may have been, and would be added twice.
func (db *DB) AddActivity(ctx context.Context, rows []store.Activity) error {
	return inParts(ctx, db, "add activity", mergeActivity(rows), (*tx).addActivity)
}

// inParts writes rows in transactions of bounded size that let others pass.
func inParts[R any](ctx context.Context, db *DB, operation string, rows []R,
	write func(*tx, []R) error) error {
	for part := range slices.Chunk(rows, db.sql.Dialect.MaintenanceBatch) {
		if err := db.maintain(ctx, operation, func(t *tx) error { return write(t, part) }); err != nil {
			return err
		}
	}
	return nil
}

// mergeActivity adds up what is about the same, and puts all in the order in which every process writes them,
// so that none waits for another that waits for it.
func mergeActivity(rows []store.Activity) []store.Activity {
	return merged(rows, func(a, b store.Activity) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.LaneID, b.LaneID),
			cmp.Compare(a.Span, b.Span), cmp.Compare(a.At, b.At))
	}, (*store.Activity).Add)
}

// merged puts rows in order, and adds those that are equal to the first of them.
func merged[R any](rows []R, compare func(a, b R) int, add func(to, from *R)) []R {
	sorted := slices.SortedStableFunc(slices.Values(rows), compare)
	var all []R
	for i := range sorted {
		if n := len(all); n > 0 && compare(all[n-1], sorted[i]) == 0 {
			add(&all[n-1], &sorted[i])
			continue
		}
		all = append(all, sorted[i])
	}
	return all
}

func (t *tx) addActivity(rows []store.Activity) error {
	var sums []string
	for _, c := range activityCounts(new(store.Activity)) {
		sums = append(sums, c.Name+" = activity."+c.Name+" + excluded."+c.Name)
	}
	return sqldb.InsertRows(t.Tx, "activity", activityColumns, rows,
		`ON CONFLICT (`+activityKey+`) DO UPDATE SET `+strings.Join(sums, ", "))
}

const (
	ofSpan        = `project = $1 AND lane = $2 AND span = $3 AND at >= $4 AND at < $5`
	ofLanes       = `lane IN (SELECT i.lane FROM $i) AND project = $1 AND span = $2 AND at >= $3`
	activityOrder = ` ORDER BY project, lane, span, at`
)

// Activity returns what happened in the project, or in one lane of it, in the spans of that length that began
// at from or later, and before to, in order. Spans in which nothing happened are left out.
func (db *DB) Activity(ctx context.Context, project string, lane int64, span store.Span, from,
	to int64) ([]store.Activity, error) {
	return db.readActivity(ctx, ofSpan, project, lane, span.Milliseconds(), from, to)
}

// LaneActivity returns what happened in lanes of the project in the hours that began at from or later, by
// lane, and in order.
func (db *DB) LaneActivity(ctx context.Context, project string, lanes []int64,
	from int64) ([]store.Activity, error) {
	if len(lanes) == 0 {
		return nil, nil
	}
	return db.readActivity(ctx, ofLanes, project, store.Hour.Milliseconds(), from, sqldb.Ints("lane", lanes))
}

func (db *DB) readActivity(ctx context.Context, which string, args ...any) ([]store.Activity, error) {
	return sqldb.Select(db.read(ctx, "read activity"), activityColumns,
		`FROM activity WHERE `+which+activityOrder, args...)
}

// PurgeActivity removes up to limit activities of each kind that are not kept any longer (see store.Span), in
// transactions of bounded size. It returns how many.
func (db *DB) PurgeActivity(ctx context.Context, now int64, limit int) (int, error) {
	purged := 0
	for _, old := range agedActivity(now) {
		n, err := db.deleteBatches(ctx, "purge activity", limit,
			`DELETE FROM activity WHERE (`+activityKey+`) IN (`+oldActivity(old.which)+`)`, old.before)
		purged += n
		if err != nil {
			return purged, err
		}
	}
	return purged, nil
}

func oldActivity(which string) string {
	return `SELECT ` + activityKey + ` FROM activity WHERE ` + which + ` AND at < $1 ORDER BY at LIMIT $2`
}

// An agedRange is what of one kind of activity is not kept any longer at some time. The kind is written out,
// not passed, so that the indexes over age are taken.
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
		aged = append(aged, agedRange{fmt.Sprintf("lane = 0 AND span = %d", kept.span.Milliseconds()),
			now - kept.age.Milliseconds()})
	}
	return aged
}
