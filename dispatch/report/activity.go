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
	// ActivitySpec is the cron spec of WriteActivity. activityPage is how many rows one transaction writes.
	ActivitySpec = "@every 5s"
	activityPage = 200
	// maxActivity bounds the buffered rows. Beyond it the activity of further lanes is not counted by lane.
	maxActivity = 20_000
)

// An activityBuffer counts what this process did since the last write, for charts and percentiles. It counts
// what took effect in SQL, once: an accept without replays at its commit, an attempt at its end if its result
// was taken, and each transition to dead.
//
// A stale result is not counted as an attempt. If its claim had expired, the next claim counts an attempt
// without a result as unknown. If the callback was ended by a request, the result had no effect. A row that
// cannot be decoded is not counted, because its project is unknown.
//
// The lock is taken once for a batch. Only minutes of projects and hours of lanes are counted; drain adds up
// the longer spans.
type activityBuffer struct {
	mu      sync.Mutex
	minutes map[projectMinute]*store.Activity
	lanes   map[laneHour]*store.Activity
	// unwritten are rows of projects, of any span, that could not be written.
	unwritten map[projectSpan]*store.Activity
	// dropped counts the events without a row since the last drain.
	dropped int64
	// sinks are the lanes of messages of alerts.
	sinks map[int64]bool
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

func newActivityBuffer() *activityBuffer {
	return &activityBuffer{
		minutes: make(map[projectMinute]*store.Activity), lanes: make(map[laneHour]*store.Activity),
		unwritten: make(map[projectSpan]*store.Activity),
	}
}

// An activityWriter counts events in a buffer that is locked. It remembers the last project's row, because
// most events of a batch belong to it.
type activityWriter struct {
	b    *activityBuffer
	last *store.Activity
}

// count calls f with the rows of the project's minute and of the lane's hour.
func (p *activityWriter) count(project string, lane, at int64, f func(*store.Activity)) {
	if minute := store.Minute.Begin(at); p.last == nil || p.last.At != minute || p.last.Project != project {
		p.last = p.b.project(project, minute)
	}
	p.apply(p.last, f)
	p.apply(p.b.lane(project, lane, store.Hour.Begin(at)), f)
}

func (p *activityWriter) apply(row *store.Activity, f func(*store.Activity)) {
	if row == nil {
		p.b.dropped++
		return
	}
	f(row)
}

// countDead counts a dead callback. A message of an alert counts for its lane only: otherwise an alert about
// dead callbacks would fire for its own messages.
func (p *activityWriter) countDead(project string, lane, at int64, poll bool) {
	f := func(row *store.Activity) {
		row.Dead++
		if poll { // a dead poll has no final result, whatever its reason
			row.Unresolved++
		}
	}
	if p.b.sinks[lane] {
		p.apply(p.b.lane(project, lane, store.Hour.Begin(at)), f)
		return
	}
	p.count(project, lane, at, f)
}

// project returns the row of a project's minute; nil: the buffer is full.
func (b *activityBuffer) project(project string, minute int64) *store.Activity {
	k := projectMinute{project, minute}
	row := b.minutes[k]
	if row == nil && b.makeRoom() {
		row = &store.Activity{Project: project, Span: store.Minute, At: minute}
		b.minutes[k] = row
	}
	return row
}

// lane returns the row of a lane's hour; nil: the buffer is full.
func (b *activityBuffer) lane(project string, lane, hour int64) *store.Activity {
	k := laneHour{lane, hour}
	row := b.lanes[k]
	if row == nil && b.size() < maxActivity {
		row = &store.Activity{Project: project, LaneID: lane, Span: store.Hour, At: hour}
		b.lanes[k] = row
	}
	return row
}

func (b *activityBuffer) size() int { return len(b.minutes) + len(b.lanes) + len(b.unwritten) }

// makeRoom reports whether there is room for a row of a project. In a full buffer it drops a row of a lane.
func (b *activityBuffer) makeRoom() bool {
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

// write calls f while the buffer is locked.
func (b *activityBuffer) write(f func(w *activityWriter)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&activityWriter{b: b})
}

// accepted counts accepted callbacks, without replays.
func (b *activityBuffer) accepted(list []store.Accepted, now int64) {
	b.write(func(w *activityWriter) {
		for i := range list {
			if a := &list[i]; a.Err == nil && !a.Replayed {
				w.count(a.Callback.Project, a.Callback.LaneID, now, countAccepted)
			}
		}
	})
}

// settled counts the attempts whose results were committed, at the times when they ended, and the callbacks
// that died by them.
func (b *activityBuffer) settled(results []store.Result, committed []store.Committed, now int64) {
	b.write(func(w *activityWriter) {
		for i := range results {
			r, c := &results[i], &committed[i]
			if c.Err != nil || !c.Won {
				continue
			}
			if a := r.Attempt; a != nil {
				w.count(r.Stamped.Project, r.Stamped.LaneID, a.EndedAt, func(row *store.Activity) {
					countAttempt(row, a)
				})
			}
			if c.State == store.Dead {
				w.countDead(r.Stamped.Project, r.Stamped.LaneID, now,
					r.Stamped.Kind == store.Poll)
			}
		}
	})
}

func countAccepted(row *store.Activity) { row.Accepted++ }

func countUnknown(row *store.Activity) { row.Unknown++ }

// countAttempt counts an attempt. Lateness covers only attempts that were due, not manual ones.
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

// drain empties the buffer. The rows of projects come before those of lanes, so that a failed write loses
// lanes first. All processes write in the same order, which prevents deadlocks. It also returns the number of
// dropped events.
func (b *activityBuffer) drain() (rows []store.Activity, dropped int64) {
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

// addActivity adds a row of a project to the row of a span.
func addActivity(to map[projectSpan]*store.Activity, row *store.Activity, span store.Span) {
	k := projectSpan{row.Project, span, span.Begin(row.At)}
	sum := to[k]
	if sum == nil {
		sum = &store.Activity{Project: k.project, Span: k.span, At: k.at}
		to[k] = sum
	}
	sum.Add(row)
}

// restore puts back rows that could not be written, as far as there is room.
func (b *activityBuffer) restore(rows []store.Activity) {
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

// maxSinks bounds the lanes of messages of alerts that ReadSinks reads.
const maxSinks = 10_000

// ReadSinks reads which lanes have messages of alerts. Dead ones do not count for their project.
func (rp *Reporter) ReadSinks(ctx context.Context) error {
	lanes, err := rp.o.Store.SinkLanes(ctx, maxSinks)
	if err != nil {
		return fmt.Errorf("read the lanes of alerts: %w", err)
	}
	sinks := make(map[int64]bool, len(lanes))
	for _, lane := range lanes {
		sinks[lane] = true
	}
	rp.counts.activity.mu.Lock()
	defer rp.counts.activity.mu.Unlock()
	rp.counts.activity.sinks = sinks
	return nil
}

// WriteActivity writes what was counted since the last call. A failed write is repeated by the next call. If
// SQL committed it but the reply was lost, those events count twice.
func (rp *Reporter) WriteActivity(ctx context.Context) error {
	rows, dropped := rp.counts.activity.drain()
	rp.counts.metrics.uncounted.Add(float64(dropped))
	for len(rows) > 0 {
		n := min(len(rows), activityPage)
		if err := rp.o.Store.AddActivity(ctx, rows[:n]); err != nil {
			rp.counts.activity.restore(rows)
			return fmt.Errorf("write activity: %w", err)
		}
		rows = rows[n:]
	}
	return nil
}
