package report

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// ActivitySpec is how often what this process has counted is written, activityPage how many rows at once.
	ActivitySpec = "@every 5s"
	activityPage = 200
	// maxActivity bounds the rows that wait to be written. Beyond it what happens in further lanes is not
	// counted by lane.
	maxActivity = 20_000
)

// An activityBook counts what has happened by this process's hand since it was last written, for pictures and
// percentiles. What takes effect in SQL is counted, once: an accept that is no replay, at its commit; an
// attempt whose result was taken, at its end; an end as dead, each time that a callback comes to it. A result
// that was stale by then is no attempt here: where its claim had run out, whoever claimed next has found an
// attempt without a result, which counts as unknown; where the callback was ended from outside, nothing came
// of it. The row that a claim sets aside because it cannot be decoded is not counted: nobody knows its
// project.
//
// It is locked once for a batch. A project's minute and a lane's hour are all that is counted then: longer
// spans are added up from minutes when they are written.
type activityBook struct {
	mu      sync.Mutex
	minutes map[projectMinute]*store.Activity
	lanes   map[laneHour]*store.Activity
	// unwritten are rows of projects, of whatever span, that SQL did not take.
	unwritten map[projectSpan]*store.Activity
	// dropped counts what found no room since the last time that it was asked.
	dropped int64
}

type (
	projectMinute struct {
		project string
		at      int64
	}
	laneHour    struct{ lane, at int64 }
	projectSpan struct {
		project string
		span    store.Span
		at      int64
	}
)

func newActivityBook() *activityBook {
	return &activityBook{
		minutes: make(map[projectMinute]*store.Activity), lanes: make(map[laneHour]*store.Activity),
		unwritten: make(map[projectSpan]*store.Activity),
	}
}

// An activityPen writes into a book that is locked. It remembers the last project's row: most of a batch
// belongs there.
type activityPen struct {
	b    *activityBook
	last *store.Activity
}

// write calls f with the row of the project and that of the lane, as they are at a time.
func (p *activityPen) write(project string, lane, at int64, f func(*store.Activity)) {
	if minute := store.Minute.Begin(at); p.last == nil || p.last.At != minute || p.last.Project != project {
		p.last = p.b.project(project, minute)
	}
	for _, row := range [...]*store.Activity{p.last, p.b.lane(project, lane, store.Hour.Begin(at))} {
		if row == nil {
			p.b.dropped++
			continue
		}
		f(row)
	}
}

// project returns the row of a project's minute; nil: there is no room.
func (b *activityBook) project(project string, minute int64) *store.Activity {
	k := projectMinute{project, minute}
	row := b.minutes[k]
	if row == nil && b.makeRoom() {
		row = &store.Activity{Project: project, Span: store.Minute, At: minute}
		b.minutes[k] = row
	}
	return row
}

// lane returns the row of a lane's hour; nil: there is no room.
func (b *activityBook) lane(project string, lane, hour int64) *store.Activity {
	k := laneHour{lane, hour}
	row := b.lanes[k]
	if row == nil && b.size() < maxActivity {
		row = &store.Activity{Project: project, LaneID: lane, Span: store.Hour, At: hour}
		b.lanes[k] = row
	}
	return row
}

func (b *activityBook) size() int { return len(b.minutes) + len(b.lanes) + len(b.unwritten) }

// makeRoom says whether there is room for a row of a project. Where there is none a lane's row makes place.
func (b *activityBook) makeRoom() bool {
	if b.size() < maxActivity {
		return true
	}
	for k := range b.lanes {
		delete(b.lanes, k)
		b.dropped++
		return true
	}
	return false
}

// write has f write into the book.
func (b *activityBook) write(f func(pen *activityPen)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&activityPen{b: b})
}

// accepted counts callbacks that SQL has taken, unless they are replays.
func (b *activityBook) accepted(list []store.Accepted, now int64) {
	b.write(func(pen *activityPen) {
		for i := range list {
			if a := &list[i]; a.Err == nil && !a.Replayed {
				pen.write(a.Callback.Project, a.Callback.LaneID, now, countAccepted)
			}
		}
	})
}

// settled counts the attempts whose results SQL has taken, at the times at which they ended, and what they
// have made dead.
func (b *activityBook) settled(results []store.Result, committed []store.Committed, now int64) {
	b.write(func(pen *activityPen) {
		for i := range results {
			r, c := &results[i], &committed[i]
			if c.Err != nil || !c.Won {
				continue
			}
			if a := r.Attempt; a != nil {
				pen.write(r.Stamped.Project, r.Stamped.LaneID, a.EndedAt, func(row *store.Activity) {
					countAttempt(row, a)
				})
			}
			if c.State == store.Dead {
				pen.write(r.Stamped.Project, r.Stamped.LaneID, now, countDead)
			}
		}
	})
}

func countAccepted(row *store.Activity) { row.Accepted++ }

func countUnknown(row *store.Activity) { row.Unknown++ }

func countDead(row *store.Activity) { row.Dead++ }

func countAttempt(row *store.Activity, a *store.Attempt) {
	switch a.Outcome {
	case store.AttemptSucceeded:
		row.Succeeded++
	case store.AttemptFailed:
		row.Failed++
	default:
		row.Unknown++
	}
	if a.Trigger == store.BySchedule {
		row.Lateness.Observe(max(a.Lateness, 0))
	}
	row.Took.Observe(a.Timings.Total)
}

// take empties the book: projects before lanes, and else in one order for all processes. It returns how much
// found no room, too.
func (b *activityBook) take() (rows []store.Activity, dropped int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	projects := b.unwritten
	for _, minute := range b.minutes {
		for _, span := range store.Spans {
			addActivity(projects, minute, span)
		}
	}
	rows = make([]store.Activity, 0, len(projects)+len(b.lanes))
	for _, row := range projects {
		rows = append(rows, *row)
	}
	for _, row := range b.lanes {
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, func(x, y store.Activity) int {
		return cmp.Or(cmp.Compare(x.LaneID, y.LaneID), cmp.Compare(x.Project, y.Project),
			cmp.Compare(x.Span, y.Span), cmp.Compare(x.At, y.At))
	})
	dropped, b.dropped = b.dropped, 0
	clear(b.minutes)
	clear(b.lanes)
	clear(b.unwritten)
	return rows, dropped
}

// addActivity adds a row of a project to that of a span.
func addActivity(to map[projectSpan]*store.Activity, row *store.Activity, span store.Span) {
	k := projectSpan{row.Project, span, span.Begin(row.At)}
	sum := to[k]
	if sum == nil {
		sum = &store.Activity{Project: k.project, Span: k.span, At: k.at}
		to[k] = sum
	}
	sum.Add(row)
}

// restore puts back what could not be written, as far as there is room beside what has happened since.
func (b *activityBook) restore(rows []store.Activity) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range rows {
		row := &rows[i]
		if row.LaneID != 0 {
			if sum := b.lane(row.Project, row.LaneID, row.At); sum != nil {
				sum.Add(row)
			} else {
				b.dropped++
			}
			continue
		}
		if _, known := b.unwritten[projectSpan{row.Project, row.Span, row.At}]; known || b.makeRoom() {
			addActivity(b.unwritten, row, row.Span)
		} else {
			b.dropped++
		}
	}
}

// WriteActivity writes what this process has counted since the last time. What SQL does not take is written
// the next time, with what comes to it until then; where it took it and its answer was lost, that is counted
// twice.
func (rp *Reporter) WriteActivity(ctx context.Context) error {
	rows, dropped := rp.counts.activity.take()
	rp.counts.metrics.uncounted.Add(float64(dropped))
	for len(rows) > 0 {
		n := min(len(rows), activityPage)
		if err := rp.o.Store.AddActivity(ctx, rows[:n]); err != nil {
			rp.counts.activity.restore(rows)
			return fmt.Errorf("write what has happened: %w", err)
		}
		rows = rows[n:]
	}
	return nil
}
