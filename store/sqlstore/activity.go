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

// activityKey is the primary key of table activity: what a row of counts is about.
const activityKey = "project, lane, span, at"

// activityColumns are all columns of an activity.
func activityColumns(a *store.Activity) sqldb.Columns {
	return append(sqldb.Columns{
		col("project", &a.Project), col("lane", &a.LaneID),
		col("span", sqldb.Millis((*time.Duration)(&a.Span))), col("at", &a.At),
	}, activityCounts(a)...)
}

var sumFields = sqldb.Named[store.Activity](`accepted succeeded failed unknown dead unresolved`)

// activityCounts are the columns that are summed.
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

// AddActivity adds counts to the stored ones, in maintenance transactions of bounded size. If it returns an
// error, the caller must drop the counts: some may be stored already, and a second call would add those
// twice.
func (db *DB) AddActivity(ctx context.Context, rows []store.Activity) error {
	return inParts(ctx, db, "add activity", mergeActivity(rows), (*tx).addActivity)
}

// inParts writes rows in maintenance transactions of bounded size. Other transactions pass in between. After
// an error the earlier parts stay committed.
func inParts[R any](ctx context.Context, db *DB, operation string, rows []R,
	write func(*tx, []R) error) error {
	for part := range slices.Chunk(rows, db.sql.Dialect.MaintenanceBatch) {
		if err := db.maintain(ctx, operation, func(t *tx) error { return write(t, part) }); err != nil {
			return err
		}
	}
	return nil
}

// mergeActivity sums rows with the same key, and sorts them by key. All processes write in this order, so
// that their row locks cannot deadlock.
func mergeActivity(rows []store.Activity) []store.Activity {
	return merged(rows, func(a, b store.Activity) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.LaneID, b.LaneID),
			cmp.Compare(a.Span, b.Span), cmp.Compare(a.At, b.At))
	}, (*store.Activity).Add)
}

// merged sorts rows, and adds each row to an equal one before it.
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

// addActivity adds the rows to the stored counts with one upsert.
func (t *tx) addActivity(rows []store.Activity) error {
	var sums []string
	for _, c := range activityCounts(new(store.Activity)) {
		sums = append(sums, c.Name+" = activity."+c.Name+" + excluded."+c.Name)
	}
	return sqldb.InsertRows(t.Tx, "activity", activityColumns, rows,
		`ON CONFLICT (`+activityKey+`) DO UPDATE SET `+strings.Join(sums, ", "))
}

// The conditions of the reads. The primary key serves both, and their order.
const (
	ofSpan        = `project = $1 AND lane = $2 AND span = $3 AND at >= $4 AND at < $5`
	ofLanes       = `lane IN (SELECT i.lane FROM $i) AND project = $1 AND span = $2 AND at >= $3`
	activityOrder = ` ORDER BY project, lane, span, at`
)

// Activity returns the counts of the project, or of one lane of it, in spans of that length that began at
// from or later and before to, in order. Lane zero is the whole project. Spans without counts are left out.
func (db *DB) Activity(
	ctx context.Context, project string, lane int64, span store.Span, from, to int64,
) ([]store.Activity, error) {
	return db.readActivity(ctx, ofSpan, project, lane, span.Milliseconds(), from, to)
}

// LaneActivity returns the counts of lanes of the project in the hours that began at from or later, by lane
// and in order.
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

// PurgeActivity removes up to limit rows of each kind that are past their age (see store.Span), in
// maintenance transactions of bounded size. It returns how many rows it removed.
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

// oldActivity finds the oldest rows of a kind before a time.
func oldActivity(which string) string {
	return `SELECT ` + activityKey + ` FROM activity WHERE ` + which + ` AND at < $1 ORDER BY at LIMIT $2`
}

// An agedRange is a kind of activity, and the time before which its rows are removed. The kind is written
// into the SQL text, not passed, so that the partial indexes activity_age and activity_lanes_age serve it.
type agedRange struct {
	which  string
	before int64
}

// agedActivity returns the ages of all kinds at now.
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
