package control

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// fireBatch is how many schedules one look takes in, and one transaction fires.
	fireBatch = 100
	// fireLook is how often a process looks for schedules that others have made or changed; one that is alone
	// hears of its own.
	fireLook      = time.Second
	fireLookAlone = time.Minute
	// lateFiring is how late a due time may be and still be fired by itself; what is later was missed.
	// lateStart is the same for due times from before this process began: another one may be about to fire
	// them.
	lateFiring = time.Minute
	lateStart  = time.Second
)

// A scheduler makes the callbacks of schedules at their due times. Every process has one and all of them try:
// who raises a schedule's next due time in SQL, which only one can, makes the callback in the same
// transaction. So there is no process whose end delays anything.
type scheduler struct {
	e *Controller
	// changed has a token when a schedule of this process has changed.
	changed chan struct{}
	// began is when this process began to look, by the index's clock.
	began int64
}

func newScheduler(e *Controller) *scheduler { return &scheduler{e: e, changed: make(chan struct{}, 1)} }

// run fires until ctx ends.
func (s *scheduler) run(ctx context.Context) {
	s.began = s.e.clock.Now()
	part.Loop{
		Every: fireLook, AtOnce: true, Wake: s.changed, Log: s.e.log,
		Failing:   "schedules cannot be fired; what comes due meanwhile is made up for",
		Recovered: "schedules are fired again", Repeat: index.WarnEvery,
	}.Run(ctx, s.turn)
}

// turn fires what is due, and returns after how long to look again.
func (s *scheduler) turn(ctx context.Context) (time.Duration, error) {
	idle := fireLook
	if s.e.o.Embedded {
		idle = fireLookAlone
	}
	now := s.e.clock.Now()
	list, err := s.e.o.Store.NextSchedules(ctx, now, fireBatch)
	if err != nil {
		return 0, err
	}
	var due []store.Schedule
	for i := range list {
		if list[i].NextAt > now {
			idle = min(idle, max(s.e.clock.Until(list[i].NextAt), time.Millisecond))
			break
		}
		due = append(due, list[i])
	}
	if len(due) == 0 {
		return idle, nil
	}
	if err := s.fire(ctx, due, now); err != nil {
		return 0, err
	}
	return time.Nanosecond, nil // there may be more
}

// fire makes the callbacks of schedules that are due. Its error is the store's.
func (s *scheduler) fire(ctx context.Context, due []store.Schedule, now int64) error {
	firings := make([]store.PlannedRun, len(due))
	for i := range due {
		f, err := s.firing(ctx, &due[i], now)
		switch {
		case errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil:
			return err
		case err != nil: // one project's trouble is none of the others'
			f.Draft, f.Why = nil, "what it is judged by cannot be read"
			s.e.log.Error("a schedule cannot be judged", "schedule_id", store.SchedulePrefix+due[i].ID,
				"project", due[i].Project, "error", err)
		}
		firings[i] = f
	}
	fired, err := s.e.o.Store.RunSchedules(ctx, firings)
	if err != nil {
		return err
	}
	var again []store.PlannedRun
	for i := range fired {
		f := &firings[i]
		if fired[i].Err != nil {
			// What keeps this one from being made will do so again: it goes on to its next due time, and says
			// why.
			f.Draft, f.Why = nil, "its callback cannot be written: "+fired[i].Err.Error()
			again = append(again, *f)
			continue
		}
		s.fired(ctx, f, &fired[i])
	}
	if len(again) == 0 {
		return nil
	}
	fired, err = s.e.o.Store.RunSchedules(ctx, again)
	if err != nil {
		return err
	}
	for i := range fired {
		err = cmp.Or(err, fired[i].Err)
		if fired[i].Err == nil {
			s.fired(ctx, &again[i], &fired[i])
		}
	}
	return err
}

// fired says what became of a firing.
func (s *scheduler) fired(ctx context.Context, f *store.PlannedRun, out *store.PlannedRunResult) {
	if !out.Won {
		return
	}
	switch id := store.SchedulePrefix + f.Schedule.ID; {
	case f.Why != "":
		s.e.metrics.firings.WithLabelValues("failed").Inc()
		s.e.log.Error("a schedule came due and made no callback", "schedule_id", id, "project",
			f.Schedule.Project, "due_at", clock.Instant(f.Due), "error", f.Why)
	case f.Draft == nil:
		s.e.metrics.firings.WithLabelValues("skipped").Inc()
		s.e.log.Info("a schedule skips what it has missed", "schedule_id", id, "project", f.Schedule.Project,
			"due_at", clock.Instant(f.Due))
	default:
		s.e.metrics.firings.WithLabelValues("fired").Inc()
		s.e.metrics.firingLateness.Observe(float64(f.Now-f.Due) / 1000)
		s.e.accept.Made(ctx, &out.Accepted)
	}
}

// firing is what is to become of a schedule that is due. Its error is the store's; the rest is complete but
// for the draft then.
func (s *scheduler) firing(ctx context.Context, sched *store.Schedule, now int64) (store.PlannedRun, error) {
	f := store.PlannedRun{Schedule: *sched, Due: sched.NextAt, Now: now}
	spec, err := schedule.ParseSpec(sched.Cron, sched.Timezone)
	if err != nil {
		// it stands still until somebody changes it
		f.Why = "its spec cannot be read any more: " + err.Error()
		return f, nil
	}
	late := time.Duration(now-f.Due) * time.Millisecond
	missed := late > lateFiring || f.Due < s.began && late > lateStart
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
	d, err := s.e.scheduled(ctx, sched, now)
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
	if !missed { // It runs from the due time, so that what was lost on the way to here is seen.
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
