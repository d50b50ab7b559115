package control

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/trace"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// runBatch is the most schedules that one query reads and one transaction runs.
	runBatch = 100
	// schedulePoll is how often a process looks for schedules that others have created or changed. An
	// embedded process changes every schedule itself and is woken.
	schedulePoll         = time.Second
	schedulePollEmbedded = time.Minute
	// missedAfter is how late a due time may be before it counts as missed. A due time before this process
	// began counts as missed after missedBeforeStart: until then another process may be about to run it.
	missedAfter       = time.Minute
	missedBeforeStart = time.Second
)

// A scheduler creates the callbacks of schedules at their due times. Every process has one, and all of them
// try each due time. RunSchedules of the store raises the schedule's next due time and inserts the callback
// in one transaction. Only one process can raise it, so no due time creates two callbacks, and a crash before
// the commit leaves the due time to another process.
type scheduler struct {
	ct *Controller
	// changed receives a token when this process changed a schedule.
	changed chan struct{}
	// began is when this process began to look, in Unix milliseconds by the index's clock.
	began int64
}

func newScheduler(ct *Controller) *scheduler {
	return &scheduler{ct: ct, changed: make(chan struct{}, 1)}
}

// run runs schedules until ctx ends.
func (s *scheduler) run(ctx context.Context) {
	s.began = s.ct.clock.Now()
	process.Loop{
		Every: schedulePoll, AtOnce: true, Wake: s.changed, Log: s.ct.log,
		Failing:   "running schedules failed, due times are caught up later",
		Recovered: "schedules run again", Repeat: index.WarnEvery,
	}.Run(ctx, s.turn)
}

// turn runs due schedules and returns the pause until the next turn.
func (s *scheduler) turn(ctx context.Context) (time.Duration, error) {
	idle := schedulePoll
	if s.ct.o.Embedded {
		idle = schedulePollEmbedded
	}
	now := s.ct.clock.Now()
	list, err := s.ct.o.Store.NextSchedules(ctx, now, runBatch)
	if err != nil {
		return 0, err
	}
	var due []store.Schedule
	for i := range list {
		if list[i].NextAt > now {
			idle = min(idle, max(s.ct.clock.Until(list[i].NextAt), time.Millisecond))
			break
		}
		due = append(due, list[i])
	}
	if len(due) == 0 {
		return idle, nil
	}
	if err := s.runDue(ctx, due, now); err != nil {
		return 0, err
	}
	return time.Nanosecond, nil // more may be due: look again at once
}

// runDue runs schedules that are due. A schedule whose callback cannot be written skips this due time and
// records why, because a retry would fail again. runDue's error is the store's: then nothing is lost, and the
// next turn tries again.
func (s *scheduler) runDue(ctx context.Context, due []store.Schedule, now int64) error {
	plans := make([]store.PlannedRun, len(due))
	creations := make([]*trace.Creation, len(due))
	for i := range due {
		p, err := s.plan(ctx, &due[i], now)
		switch {
		case errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil:
			return err
		case err != nil: // an error of one project must not delay the others
			p.Draft, p.Why = nil, "its template or the project's settings cannot be read"
			s.ct.log.Error("schedule or project settings unreadable", "schedule_id",
				store.SchedulePrefix+due[i].ID, "project", due[i].Project, "error", err)
		}
		if p.Draft != nil {
			creations[i] = s.ct.accept.Trace(ctx, p.Draft)
		}
		plans[i] = p
	}
	results, err := s.ct.o.Store.RunSchedules(ctx, plans)
	if err != nil {
		return err
	}
	var skipped []store.PlannedRun
	for i := range results {
		p := &plans[i]
		if results[i].Err != nil {
			p.Draft, p.Why = nil, "its callback cannot be written: "+results[i].Err.Error()
			skipped = append(skipped, *p)
			continue
		}
		if results[i].Won && p.Draft != nil {
			creations[i].End([]store.Accepted{results[i].Accepted})
		}
		s.report(ctx, p, &results[i])
	}
	if len(skipped) == 0 {
		return nil
	}
	results, err = s.ct.o.Store.RunSchedules(ctx, skipped)
	if err != nil {
		return err
	}
	for i := range results {
		err = cmp.Or(err, results[i].Err)
		if results[i].Err == nil {
			s.report(ctx, &skipped[i], &results[i])
		}
	}
	return err
}

// report counts and logs the result of a run that this process won, and enqueues its callback.
func (s *scheduler) report(ctx context.Context, f *store.PlannedRun, out *store.PlannedRunResult) {
	if !out.Won {
		return
	}
	switch id := store.SchedulePrefix + f.Schedule.ID; {
	case f.Why != "":
		s.ct.metrics.runs.WithLabelValues(runFailed).Inc()
		s.ct.log.Error("schedule due, no callback created", "schedule_id", id, "project",
			f.Schedule.Project, "due_at", clock.Instant(f.Due), "error", f.Why)
	case f.Draft == nil:
		s.ct.metrics.runs.WithLabelValues(runSkipped).Inc()
		s.ct.log.Info("schedule skipped a missed due time", "schedule_id", id, "project", f.Schedule.Project,
			"due_at", clock.Instant(f.Due))
	default:
		s.ct.metrics.runs.WithLabelValues(runFired).Inc()
		s.ct.metrics.runLateness.Observe(float64(f.Now-f.Due) / 1000)
		s.ct.accept.Enqueue(ctx, &out.Accepted)
	}
}

// plan decides what a due schedule does: it creates a callback (Draft), skips a missed due time, or records
// why it fails (Why). If plan returns an error, everything but the draft is set.
func (s *scheduler) plan(ctx context.Context, sched *store.Schedule, now int64) (store.PlannedRun, error) {
	f := store.PlannedRun{Schedule: *sched, Due: sched.NextAt, Now: now}
	spec, err := schedule.ParseSpec(sched.Cron, sched.Timezone)
	if err != nil {
		// Next stays zero: the schedule rests until its spec is changed.
		f.Why = "its cron spec or time zone is no longer valid: " + err.Error()
		return f, nil
	}
	late := time.Duration(now-f.Due) * time.Millisecond
	missed := late > missedAfter || f.Due < s.began && late > missedBeforeStart
	next := spec.Next(clock.TimeOf(f.Due))
	if missed {
		next = spec.Resume(clock.TimeOf(f.Due), clock.TimeOf(now))
	}
	if !next.IsZero() {
		f.Next = next.UnixMilli()
	}
	if missed && sched.Missed == store.MissedSkip {
		return f, nil
	}
	d, err := s.ct.draftScheduled(ctx, sched, now)
	wrong, ok := errors.AsType[*store.InvalidError](err)
	switch {
	case ok:
		f.Why = wrong.Error()
		return f, nil
	case errors.Is(err, store.ErrOpenQuota):
		f.Why = "its callback is not accepted: " + err.Error()
		return f, nil
	case err != nil:
		return f, err
	}
	if !missed { // count from the schedule's due time, so that the delay until now shows in the metrics
		c := &d.Callback
		c.DueAt -= now - f.Due
		c.FirstDueAt = c.DueAt
		if c.ExpiresAt != 0 {
			c.ExpiresAt -= now - f.Due
		}
	}
	f.Draft = &d
	return f, nil
}
