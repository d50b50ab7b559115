package sqlstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

const (
	// hour is an hour in milliseconds. Hours are numbered from 1970 on, up to maxHour, which has six digits.
	hour    = 3_600_000
	maxHour = 999_999
	// pastHours is how many past hours are counted. A callback that is overdue by more than that waits for
	// something other than its due time.
	pastHours = 24
)

// hourNumber returns the number of the hour of a time in Unix milliseconds.
func hourNumber(at int64) int64 { return min(max(at/hour, 0), maxHour) }

// hourOf returns the key of the hour's counter. Six digits make the order of keys the order of time.
func hourOf(at int64) string { return fmt.Sprintf("%06d", hourNumber(at)) }

// pastBefore returns the key of the earliest hour that is counted at now.
func pastBefore(now int64) string { return hourOf(now - pastHours*hour) }

// forgetPast removes changes of hours that are not counted any more. Otherwise a callback that ends late
// would make a counter again that was dropped.
func (d deltas) forgetPast(now int64) {
	first := pastBefore(now)
	for _, m := range d {
		for name := range m {
			if key, ok := strings.CutPrefix(name, dueCounter+":"); ok && key < first {
				delete(m, name)
			}
		}
	}
}

// pastHour finds counters of past hours by the index counters_due. The caller appends the limit.
const pastHour = `SELECT project, kind, key FROM counters WHERE kind = 'due' AND key < $1 ORDER BY key LIMIT `

// dropPastHours deletes one batch of counters of past hours. It writes nothing if there are none.
func (db *DB) dropPastHours(ctx context.Context, now int64) error {
	some, err := sqldb.Exists(db.read(ctx, "find past hours"), pastHour+`1`, pastBefore(now))
	if err != nil || !some {
		return err
	}
	return db.maintain(ctx, "", func(t *tx) error {
		_, err := t.Exec(`DELETE FROM counters WHERE (project, kind, key) IN (`+pastHour+`$2)`,
			pastBefore(now), t.db.sql.Dialect.MaintenanceBatch)
		return err
	})
}

// dueHours finds the due counters of a project by the primary key. No counter has an empty kind. It is there
// because with 'due' alone PostgreSQL takes counters_due, which has the hours of all projects.
const dueHours = `SELECT key, value FROM counters
	WHERE project = $1 AND kind IN ('due', '') AND key >= $2 AND key <= $3`

// DueHours counts the project's open callbacks by the hour in which they are due, in order. It begins with
// the hour of from and ends before to. Hours without callbacks are left out. So are hours that passed more
// than a day ago: their counters are dropped.
func (db *DB) DueHours(ctx context.Context, project string, from, to int64) ([]store.DueHour, error) {
	first, last := hourOf(from), hourOf(to-1)
	var counts map[string]int64
	err := db.counters(ctx, "count due callbacks", func(read sqldb.Read, pending deltas) (err error) {
		counts, err = sqldb.Map[string, int64](read, dueHours, project, first, last)
		for name, n := range pending[project] {
			if key, ok := strings.CutPrefix(name, dueCounter+":"); ok && first <= key && key <= last {
				counts[key] += n
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var hours []store.DueHour
	for _, key := range sortedKeys(counts) {
		if counts[key] <= 0 { // an older program may have ended callbacks that it had not counted
			continue
		}
		n, err := strconv.ParseInt(key, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("counter of hour %q: %w", key, err)
		}
		hours = append(hours, store.DueHour{At: n * hour, Count: counts[key]})
	}
	return hours, nil
}

// dueNow counts due callbacks of a project in one window of the index callbacks_due. The project is compared
// as an expression, so that no index that begins with the project is taken.
const dueNow = `SELECT COUNT(*), COALESCE(MIN(callbacks.due_at), 0) FROM callbacks
	WHERE callbacks.state = 'scheduled'
		AND callbacks.due_at >= $1 AND (callbacks.due_at, callbacks.id) > ($1, $2)
		AND callbacks.due_at <= $3 AND (callbacks.due_at, callbacks.id) <= ($3, $4)
		AND callbacks.claim_until <= $5 AND callbacks.project || '' = $6`

// DueNow counts the project's overdue callbacks (see store.Filter), up to a thousand. No index has the due
// callbacks of one project. So it scans those of all projects in windows, by due time, until it has a
// thousand or countBudget is used up. More is set if it did not reach the end.
func (db *DB) DueNow(ctx context.Context, project string, now int64) (store.DueNow, error) {
	var sum store.DueNow
	read := db.read(ctx, "count due callbacks")
	countWindow := func(after, end store.Cursor) (enough bool, err error) {
		err = read.Each(func(r sqldb.Row) error {
			var n int
			var oldest int64
			err := r.Scan(&n, &oldest)
			if sum.OldestAt == 0 {
				sum.OldestAt = oldest
			}
			sum.Count += n
			return err
		}, dueNow, after.DueAt, after.ID, end.DueAt, end.ID, now, project)
		return sum.Count > maxCount, err
	}
	ended, err := db.dueWindows(ctx, read, db.countBudget, now-1, countWindow)
	if err != nil {
		return store.DueNow{}, err
	}
	sum.More = !ended
	sum.Count = min(sum.Count, maxCount)
	return sum, nil
}

// windowOfDue finds the last row of a window: the open callback that is OFFSET rows after a position and due
// by $3. The index callbacks_due serves it.
const windowOfDue = `FROM callbacks
	WHERE state = 'scheduled' AND due_at >= $1 AND (due_at, id) > ($1, $2) AND due_at <= $3
	ORDER BY due_at, id
	LIMIT 1 OFFSET $4`

// endOfDue returns the end of the next window of size rows. more is false if fewer rows are left; then the
// window ends at until.
func endOfDue(read sqldb.Read, after store.Cursor, until int64,
	size int) (end store.Cursor, more bool, err error) {
	end, more, err = sqldb.One(read, cursorColumns, windowOfDue, after.DueAt, after.ID, until, size-1)
	if !more {
		end = store.Cursor{DueAt: until, ID: aboveAllIDs}
	}
	return end, more, err
}

// dueWindows walks over the open callbacks of all projects by due time, from the low-water mark to until,
// which is included. It calls look once for each window (after, end]; look selects its project. It stops when
// look has enough or the budget is used up. ended is true if look saw the last window and has not enough.
// Each window is a read without a common snapshot, so a callback that moves may be seen twice or not at all.
func (db *DB) dueWindows(
	ctx context.Context, read sqldb.Read, budget pageBudget, until int64,
	look func(after, end store.Cursor) (enough bool, err error),
) (ended bool, err error) {
	after, err := db.fromLowWater(ctx, store.Cursor{DueAt: 1}) // zero is the due time of terminal callbacks
	if err != nil {
		return false, err
	}
	err = budget.scan(budget.sortable, func(size int) (bool, error) {
		end, more, err := endOfDue(read, after, until, size)
		if err != nil {
			return false, err
		}
		enough, err := look(after, end)
		after, ended = end, !more && !enough
		return more && !enough, err
	})
	return ended, err
}
