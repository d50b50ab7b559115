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
	// hour is one in milliseconds; hours are counted from 1970 on, up to maxHour.
	hour    = 3_600_000
	maxHour = 999_999
	// pastHours is how many hours that have passed are still counted: what is overdue by more waits for
	// something else than its time.
	pastHours = 24
)

// hourNumber is the number of the hour that the time is in.
func hourNumber(at int64) int64 { return min(max(at/hour, 0), maxHour) }

// hourOf is the key of the hour that the time is in, such that the order of keys is that of time.
func hourOf(at int64) string { return fmt.Sprintf("%06d", hourNumber(at)) }

// pastBefore is the key of the first hour that is counted at now.
func pastBefore(now int64) string { return hourOf(now - pastHours*hour) }

// forgetPast leaves out what is not counted any more: else whatever ends late would make counters anew that
// have been dropped.
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

// pastHour finds counters of hours that have passed, but for how many.
const pastHour = `SELECT project, kind, key FROM counters WHERE kind = 'due' AND key < $1 ORDER BY key LIMIT `

// dropPastHours drops a part of the counters of hours that have passed. Where there are none nothing is
// written.
func (db *DB) dropPastHours(ctx context.Context, now int64) error {
	some, err := sqldb.Exists(db.read(ctx, "look for them"), pastHour+`1`, pastBefore(now))
	if err != nil || !some {
		return err
	}
	return db.maintain(ctx, "", func(t *tx) error {
		_, err := t.Exec(`DELETE FROM counters WHERE (project, kind, key) IN (`+pastHour+`$2)`,
			pastBefore(now), t.db.sql.Dialect.MaintenanceBatch)
		return err
	})
}

// dueHours finds the counters of a project's hours. There is no other kind in its list; but with one kind
// alone PostgreSQL takes the index of hours that have passed, which has those of all projects.
const dueHours = `SELECT key, value FROM counters WHERE project = $1 AND kind IN ('due', '') AND key >= $2 AND key <= $3`

// DueHours counts the project's open callbacks by the hour in which they are due: those of the hours that
// begin from the one that from is in on, and before to, in order; hours with none are left out. It goes by
// the counters, which say nothing of hours that passed more than a day ago.
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
		if counts[key] <= 0 { // an older process may have ended what it had not counted
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

// dueNow counts what is due in a part of the index over due times. The project is compared such that no index
// that begins with it is taken.
const dueNow = `SELECT COUNT(*), COALESCE(MIN(callbacks.due_at), 0) FROM callbacks
	WHERE callbacks.state = 'scheduled'
		AND callbacks.due_at >= $1 AND (callbacks.due_at, callbacks.id) > ($1, $2)
		AND callbacks.due_at <= $3 AND (callbacks.due_at, callbacks.id) <= ($3, $4)
		AND callbacks.claim_until <= $5 AND callbacks.project || '' = $6`

// DueNow counts the project's callbacks that are overdue (see store.Filter), up to a thousand. No index leads
// to those of one project: what is due in all projects is looked at in the order of due times, window by
// window, until there are enough, or so much was looked at that it must be enough (see listing).
func (db *DB) DueNow(ctx context.Context, project string, now int64) (store.DueNow, error) {
	var sum store.DueNow
	read := db.read(ctx, "count what is due")
	ended, err := db.dueWindows(ctx, read, db.countBudget, now-1, func(after, end store.Cursor) (bool, error) {
		err := read.Each(func(r sqldb.Row) error {
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
	})
	if err != nil {
		return store.DueNow{}, err
	}
	sum.More = !ended
	sum.Count = min(sum.Count, maxCount)
	return sum, nil
}

// windowOfDue finds the last of so many open callbacks after a place and up to a due time, in the order of
// due times.
const windowOfDue = `FROM callbacks
	WHERE state = 'scheduled' AND due_at >= $1 AND (due_at, id) > ($1, $2) AND due_at <= $3
	ORDER BY due_at, id
	LIMIT 1 OFFSET $4`

// endOfDue is the end of such a window: more says that it has so many, else it ends with the due time.
func endOfDue(read sqldb.Read, after store.Cursor, until int64,
	size int) (end store.Cursor, more bool, err error) {
	end, more, err = sqldb.One(read, cursorColumns, windowOfDue, after.DueAt, after.ID, until, size-1)
	if !more {
		end = store.Cursor{DueAt: until, ID: aboveAllIDs}
	}
	return end, more, err
}

// dueWindows calls look for the open callbacks of all projects up to a due time, in the order of due times,
// window by window, until it has enough. It says whether it was called for all there are: not, if it had
// enough or so much was looked at that it must be.
func (db *DB) dueWindows(
	ctx context.Context, read sqldb.Read, budget pageBudget, until int64,
	look func(after, end store.Cursor) (enough bool, err error),
) (ended bool, err error) {
	after, err := db.fromLowWater(ctx, store.Cursor{DueAt: 1})
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
