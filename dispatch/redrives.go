package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// RedriveRows keeps redrives, and does them step by step.
type RedriveRows interface {
	CreateRedrive(ctx context.Context, r store.Redrive, by store.Actor) (store.Redrive, error)
	// GatherRedrive writes down one more page of what its filter picks.
	GatherRedrive(ctx context.Context, project, id string, now int64) (store.Redrive, error)
	// StepRedrive does it to up to limit callbacks, in one transaction that forgets them.
	StepRedrive(ctx context.Context, id string, limit int, now int64) (store.RedriveStep, error)
	// SetRedrive pauses, resumes or cancels one: store.ErrNotFound, store.ErrTerminal.
	SetRedrive(ctx context.Context, project, id string, to store.RedriveState, now int64, by store.Actor) (store.Redrive, error)
	Redrive(ctx context.Context, project, id string) (store.Redrive, error)
	OpenRedrives(ctx context.Context, limit int) ([]store.Redrive, error)
	// List is for a redrive that is only tried.
	List(ctx context.Context, project string, f store.Filter) (store.Page, error)
}

const (
	// redriveEvery is how often redrives go on: what one step makes due at once is little then, and what others send does not wait for it.
	// redriveLook is how often those are looked at that do not go on.
	redriveEvery = 50 * time.Millisecond
	redriveLook  = 200 * time.Millisecond
	redriveLease = "redrive"
	// redriveBatch is the most callbacks of a step, and maxRedrives the most redrives that are looked at.
	redriveBatch = 200
	maxRedrives  = 100
	// redriveRate is the rate of redrives that ask for none: live traffic goes first.
	redriveRate = 1000
)

// A RedriveRequest asks for one action over all that a filter picks.
type RedriveRequest struct {
	Action string
	// Filter picks; Shown is it as its caller wrote it. Without states it picks the dead for a retry, the scheduled for a cancel and a
	// reschedule, both for an address.
	Filter store.Filter
	Shown  store.JSONText
	// Rate is a rate as store.ParseRate reads it; empty: 1,000/s.
	Rate   string
	Ladder string
	URL    string
	// DueAt in Unix milliseconds or Delay, exactly one for a reschedule.
	DueAt *int64
	Delay *time.Duration
	// DryRun only counts: at most Most callbacks, if that is not zero, however many match.
	DryRun  bool
	Most    int64
	Invalid []store.FieldError
}

// Redrive begins one action over all callbacks that the filter picks now, or with DryRun counts them. Whatever is accepted, or comes to
// match, after that is not of it.
func (e *Engine) Redrive(ctx context.Context, project string, q RedriveRequest, by store.Actor) (store.Redrive, error) {
	now := e.clock.now()
	r, err := e.judgeRedrive(project, &q, by, now)
	if err != nil {
		return store.Redrive{}, err
	}
	if q.DryRun {
		r.ID, r.State = "", store.RedriveDone
		r.Matched, _, err = e.countRedrive(ctx, &r, q.Most)
		return r, err
	}
	if r, err = e.o.Store.CreateRedrive(ctx, r, by); err != nil {
		return r, fmt.Errorf("redrive: %w", err)
	}
	e.redrives.wake()
	return r, nil
}

func (e *Engine) judgeRedrive(project string, q *RedriveRequest, by store.Actor, now int64) (store.Redrive, error) {
	f := findings(slices.Clone(q.Invalid))
	r := store.Redrive{
		ID: e.ids.make(timeOf(now)), Project: project, Action: store.RedriveAction(q.Action), Filter: q.Filter, Shown: q.Shown,
		CreatedAt: now, Actor: by.Name, Reason: by.Reason,
	}
	if utf8.RuneCountInString(by.Reason) > MaxPauseReason {
		f.add("reason", "is longer than %d characters", MaxPauseReason)
	}
	if len(q.Shown) <= len("{}") {
		f.add("filter", "is needed, with at least one condition: what is to be redriven")
	}
	var states []store.State
	switch r.Action {
	case store.RedriveRetry:
		states = []store.State{store.Dead}
		switch r.Ladder = store.Ladder(q.Ladder); r.Ladder {
		case "":
			r.Ladder = store.Restart
		case store.Once, store.Restart:
		default:
			f.add("ladder", `is "once" or "restart"`)
		}
	case store.RedriveCancel:
		states = []store.State{store.Scheduled}
	case store.RedriveReschedule:
		states = []store.State{store.Scheduled}
		e.judgeMove(q, &r, now, &f)
	case store.RedriveSetURL:
		states = []store.State{store.Scheduled, store.Dead}
		var err error
		if r.Lane, err = LaneOf(q.URL); err == nil && e.o.CheckURL != nil {
			err = e.o.CheckURL(q.URL)
		}
		if err != nil {
			f.add("url", "%s", err)
		}
		r.URL = q.URL
	default:
		f.add("action", `is "retry", "cancel", "reschedule" or "set_url"`)
	}
	if len(r.Filter.States) == 0 {
		r.Filter.States = states
	}
	if q.Rate != "" {
		var err error
		if r.Rate, err = store.ParseRate(q.Rate); err != nil {
			f.add("rate", "%s", err)
		}
	}
	if r.Filter.To == 0 || r.Filter.To > now+1 {
		r.Filter.To = now + 1
	}
	if len(f) > 0 {
		return r, &store.InvalidError{Fields: f}
	}
	return r, nil
}

// judgeMove judges where to a reschedule moves.
func (e *Engine) judgeMove(q *RedriveRequest, r *store.Redrive, now int64, f *findings) {
	switch {
	case (q.DueAt == nil) == (q.Delay == nil):
		f.add("due_at", "give exactly one of due_at and delay")
	case q.DueAt != nil:
		if r.DueAt = max(*q.DueAt, now); r.DueAt > now+MaxDelay.Milliseconds() {
			f.add("due_at", "is more than 400 days away")
		}
	case *q.Delay < 0 || *q.Delay > MaxDelay:
		f.add("delay", "is 0s to 400d")
	default:
		r.Delay = q.Delay.Milliseconds()
	}
}

// SetRedrive pauses a redrive, resumes it or cancels what it has not done yet: store.ErrNotFound, store.ErrTerminal.
func (e *Engine) SetRedrive(ctx context.Context, project, id string, to store.RedriveState, by store.Actor) (store.Redrive, error) {
	r, err := e.o.Store.SetRedrive(ctx, project, id, to, e.clock.now(), by)
	if err != nil {
		return r, fmt.Errorf("redrive %s: %w", id, err)
	}
	e.redrives.wake()
	return r, nil
}

// A redriver does redrives, in one process at a time.
type redriver struct {
	e     *Engine
	woken chan struct{}
	// credit is how many callbacks of each redrive may be done now, by its rate.
	credit map[string]float64
	last   time.Time
	leased time.Time
}

func newRedriver(e *Engine) *redriver {
	return &redriver{e: e, woken: make(chan struct{}, 1), credit: make(map[string]float64)}
}

func (d *redriver) wake() {
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

// run does redrives until ctx ends. Between two looks it sleeps longer while there is none.
func (d *redriver) run(ctx context.Context) {
	var failing complaint
	for pace := redriveLook; ; {
		var again <-chan time.Time
		var timer *time.Timer
		if wait := d.rest(pace); wait > 0 {
			timer = time.NewTimer(wait)
			again = timer.C
		}
		select {
		case <-ctx.Done():
		case <-d.woken:
		case <-again:
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return
		}
		var err error
		if pace, err = d.round(ctx); err != nil {
			pace = redriveLook
		}
		switch {
		case err == nil && failing.over():
			d.e.log.Info("redrives go on")
		case err != nil && ctx.Err() == nil && failing.due(time.Now()):
			d.e.log.Warn("redrives are put off", "error", err)
		}
	}
}

// rest is how long until the next look; zero: until somebody asks for a redrive, for whoever is alone does so here.
func (d *redriver) rest(pace time.Duration) time.Duration {
	switch {
	case pace > 0:
		return pace
	case d.e.o.Alone:
		return 0
	}
	return 5 * time.Second
}

// round takes every redrive a step further, and says when to go on; zero: none is open.
func (d *redriver) round(ctx context.Context) (pace time.Duration, err error) {
	open, err := d.e.o.Store.OpenRedrives(ctx, maxRedrives)
	if err != nil || len(open) == 0 {
		d.last = time.Time{}
		return 0, err
	}
	if leads, err := d.lead(ctx); err != nil || !leads {
		d.last = time.Time{}
		return redriveLook, err
	}
	elapsed := redriveEvery
	if !d.last.IsZero() {
		elapsed = min(time.Since(d.last), 2*time.Second)
	}
	d.last = time.Now()
	d.forget(open)
	var errs []error
	for i := range open {
		if ctx.Err() != nil {
			break
		}
		errs = append(errs, d.advance(ctx, &open[i], elapsed))
	}
	pace = redriveLook
	if slices.ContainsFunc(open, func(r store.Redrive) bool { return r.State != store.RedrivePaused }) {
		pace = redriveEvery
	}
	return pace, errors.Join(errs...)
}

// forget drops the credit of redrives that are not open any more.
func (d *redriver) forget(open []store.Redrive) {
	for id := range d.credit {
		if !slices.ContainsFunc(open, func(r store.Redrive) bool { return r.ID == id }) {
			delete(d.credit, id)
		}
	}
}

// lead takes or renews the lease of the redrives.
func (d *redriver) lead(ctx context.Context) (bool, error) {
	if d.e.o.Alone || time.Since(d.leased) < d.e.times.leader/4 {
		return true, nil
	}
	leads, err := d.e.o.Store.TryLease(ctx, redriveLease, d.e.o.Name, d.e.clock.now(), d.e.times.leader)
	if err != nil {
		return false, fmt.Errorf("lease of the redrives: %w", err)
	}
	if leads {
		d.leased = time.Now()
	}
	return leads, nil
}

// advance gathers a page of a redrive, or does as many as its rate has room for.
func (d *redriver) advance(ctx context.Context, r *store.Redrive, elapsed time.Duration) error {
	switch r.State {
	case store.RedriveGathering:
		for range 20 {
			now, err := d.e.o.Store.GatherRedrive(ctx, r.Project, r.ID, d.e.clock.now())
			if err != nil || now.State != store.RedriveGathering {
				return err
			}
		}
		return nil
	case store.RedriveRunning:
	default:
		return nil
	}
	if d.e.crowded() {
		return nil // live traffic goes first
	}
	perSecond := float64(redriveRate)
	if every := r.Rate.Every(); every > 0 {
		perSecond = float64(time.Second) / float64(every)
	}
	d.credit[r.ID] = min(d.credit[r.ID]+perSecond*elapsed.Seconds(), max(perSecond, 1))
	for began := time.Now(); d.credit[r.ID] >= 1 && time.Since(began) < redriveEvery && !d.e.crowded(); {
		n := min(int(d.credit[r.ID]), redriveBatch)
		step, err := d.e.o.Store.StepRedrive(ctx, r.ID, n, d.e.clock.now())
		if err != nil {
			return err
		}
		d.credit[r.ID] -= float64(n)
		d.e.redriven(ctx, &step)
		if step.Redrive.State != store.RedriveRunning {
			return nil
		}
	}
	return nil
}

// crowded says whether this process has so much to do that redrives wait.
func (e *Engine) crowded() bool {
	return e.settler.stuck.Load() || len(e.settler.results) > settleQueue/2 || e.slots.inUse() > e.o.Workers*3/4
}

// redriven tells the index what a step of a redrive changed.
func (e *Engine) redriven(ctx context.Context, step *store.RedriveStep) {
	e.wrote.Store(true)
	if len(step.Canceled) > 0 {
		e.metrics.terminal.WithLabelValues(string(store.Canceled), string(store.Requested)).Add(float64(len(step.Canceled)))
		e.takeOut(ctx, step.Canceled)
	}
	if len(step.Left) > 0 {
		e.removeRows(ctx, step.Left)
		e.settingsChanged(ctx) // a lane that was just made may be paused with its project
	}
	if len(step.Placed) == 0 {
		return
	}
	items := make([]schedule.Item, len(step.Placed))
	for i := range step.Placed {
		items[i] = item(&step.Placed[i])
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), indexTimeout)
	defer cancel()
	positions, err := e.o.Schedule.Ensure(ctx, items)
	var movements []schedule.Movement
	for i := range positions {
		if positions[i].Place != schedule.Absent {
			movements = append(movements, schedule.Movement{Ref: items[i].Ref(), Due: items[i].Due})
		}
	}
	if err == nil && len(movements) > 0 {
		_, err = e.o.Schedule.Move(ctx, movements)
	}
	if err != nil {
		e.trouble.indexFailed("move", err)
		e.trouble.missed(items)
		return
	}
	e.hintAll()
}
