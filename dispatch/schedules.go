package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// ScheduleRows keeps schedules, and makes their callbacks.
type ScheduleRows interface {
	// CreateSchedule is store.ErrExists for a name that is taken, a *store.InvalidError for one schedule too many.
	CreateSchedule(ctx context.Context, s store.Schedule, by store.Actor) (store.Schedule, error)
	// ChangeSchedule changes it under its lock; an error of change is returned, and nothing is changed. change may be called again.
	ChangeSchedule(ctx context.Context, project, id string, change func(*store.Schedule) error, now int64, by store.Actor) (store.Schedule, error)
	DeleteSchedule(ctx context.Context, project, id string, now int64, by store.Actor) error
	Schedule(ctx context.Context, project, id string) (store.Schedule, error)
	Schedules(ctx context.Context, project string, f store.ScheduleFilter) ([]store.Schedule, error)
	ScheduleRuns(ctx context.Context, project, id string) ([]store.ScheduleRun, error)
	// NextSchedules returns those of all projects that are due next, the earliest first: with their templates only if they are due at now.
	NextSchedules(ctx context.Context, now int64, limit int) ([]store.Schedule, error)
	// Fire makes each firing that nobody has made yet, with its callback, and answers each in its place.
	Fire(ctx context.Context, firings []store.Firing) ([]store.Fired, error)
	// RanSchedule accepts a schedule's callback by hand.
	RanSchedule(ctx context.Context, project, id string, draft store.Draft, now int64, by store.Actor) (store.Accepted, error)
}

// A ScheduleChange is a schedule as a caller asks for it. Nil fields are not given.
type ScheduleChange struct {
	Name, Cron, Timezone, Missed *string
	Enabled                      *bool
	// Template is the body of a POST /v1/callbacks, as JSON.
	Template []byte
	Invalid  []store.FieldError
}

// errNoTemplates: the engine was not given a reader of templates.
var errNoTemplates = errors.New("schedules need a reader of templates")

// CreateSchedule makes a schedule: store.ErrExists if there is one of that name. It is enabled unless it says otherwise.
func (e *Engine) CreateSchedule(ctx context.Context, project string, ch ScheduleChange, by store.Actor) (store.Schedule, error) {
	now := e.clock.now()
	s := store.Schedule{
		ID: e.ids.make(timeOf(now)), Project: project, Missed: store.MissedOnce, Enabled: true, CreatedAt: now, UpdatedAt: now,
	}
	f := findings(slices.Clone(ch.Invalid))
	for _, required := range []struct {
		field string
		given bool
	}{{"name", ch.Name != nil}, {"cron", ch.Cron != nil}, {"callback", len(ch.Template) > 0}} {
		if !required.given && !f.names(required.field) {
			f.add(required.field, "is required")
		}
	}
	credentials, err := e.judgeTemplate(ctx, project, ch.Template, &f)
	if err != nil {
		return s, fmt.Errorf("create schedule: %w", err)
	}
	if err := ch.apply(&s, now, f); err != nil {
		return s, err
	}
	e.sealTemplate(&s, credentials)
	if s, err = e.o.Store.CreateSchedule(ctx, s, by); err != nil {
		return s, fmt.Errorf("create schedule: %w", err)
	}
	e.firer.wake()
	e.showTemplate(&s)
	return s, nil
}

// PatchSchedule changes what is given of a schedule, and nothing else. A new spec or time zone, and enabling it, count its next due time
// from now.
func (e *Engine) PatchSchedule(ctx context.Context, project, id string, ch ScheduleChange, by store.Actor) (store.Schedule, error) {
	now := e.clock.now()
	f := findings(slices.Clone(ch.Invalid))
	credentials, err := e.judgeTemplate(ctx, project, ch.Template, &f)
	if err != nil {
		return store.Schedule{}, fmt.Errorf("change schedule: %w", err)
	}
	s, err := e.o.Store.ChangeSchedule(ctx, project, id, func(s *store.Schedule) error {
		if err := ch.apply(s, now, f); err != nil {
			return err
		}
		e.sealTemplate(s, credentials)
		return nil
	}, now, by)
	if err != nil {
		return s, fmt.Errorf("change schedule: %w", err)
	}
	e.firer.wake()
	e.showTemplate(&s)
	return s, nil
}

// DeleteSchedule removes a schedule. Callbacks that it has made stay.
func (e *Engine) DeleteSchedule(ctx context.Context, project, id string, by store.Actor) error {
	return e.o.Store.DeleteSchedule(ctx, project, id, e.clock.now(), by)
}

// RunSchedule accepts a schedule's callback now, whether it is enabled or not. Its next due time stays. Where its template cannot be meant
// any more the error is a *store.InvalidError.
func (e *Engine) RunSchedule(ctx context.Context, project, id string, by store.Actor) (store.Callback, error) {
	fail := func(err error) (store.Callback, error) { return store.Callback{}, fmt.Errorf("run schedule: %w", err) }
	s, err := e.o.Store.Schedule(ctx, project, id)
	if err == nil {
		err = e.openTemplate(&s)
	}
	if err != nil {
		return fail(err)
	}
	now := e.clock.now()
	d, err := e.templateDraft(ctx, project, []byte(s.Template), now)
	if wrong, ok := errors.AsType[*store.InvalidError](err); ok {
		var f findings
		f.under("callback", wrong.Fields)
		return fail(&store.InvalidError{Fields: f})
	} else if err != nil {
		return fail(err)
	}
	p, err := e.catalog.project(ctx, project)
	if err == nil {
		err = e.roomFor(ctx, &p.Project, 1)
	}
	if err != nil {
		return fail(err)
	}
	accepted, err := e.o.Store.RanSchedule(ctx, project, id, d, now, by)
	if err == nil {
		err = accepted.Err
	}
	if err != nil {
		return fail(err)
	}
	e.made(ctx, &accepted)
	return accepted.Callback, nil
}

// apply changes a schedule, or says everything that is wrong with the change; f is what is known of that already.
func (ch *ScheduleChange) apply(s *store.Schedule, now int64, f findings) error {
	f = slices.Clone(f)
	spec, zone, enabled := s.Cron, s.Timezone, s.Enabled
	if ch.Name != nil {
		if s.Name = *ch.Name; s.Name == "" {
			f.add("name", "is empty")
		}
		checkText("name", s.Name, MaxName, &f)
	}
	if ch.Cron != nil {
		s.Cron = *ch.Cron
	}
	if ch.Timezone != nil {
		s.Timezone = *ch.Timezone
	}
	if ch.Missed != nil {
		switch s.Missed = store.MissedPolicy(*ch.Missed); s.Missed {
		case store.MissedOnce, store.MissedSkip:
		default:
			f.add("missed", `is "once" or "skip"`)
		}
	}
	if ch.Enabled != nil {
		s.Enabled = *ch.Enabled
	}
	if ch.Template != nil {
		s.Template = store.JSONText(ch.Template)
	}
	if s.Cron != "" || ch.Cron != nil {
		times, ok := parseTimes(s.Cron, s.Timezone, &f)
		switch {
		case !ok:
		case !s.Enabled:
			s.NextAt = 0
		case s.Cron != spec || s.Timezone != zone || !enabled || s.NextAt == 0:
			s.NextAt = times.Next(timeOf(now)).UnixMilli()
		}
	}
	if len(f) > 0 {
		return &store.InvalidError{Fields: f}
	}
	return nil
}

// parseTimes reads when a schedule is due, or adds what is wrong with its spec and with its time zone.
func parseTimes(cron, timezone string, f *findings) (times schedule.Spec, ok bool) {
	times, err := schedule.ParseSpec(cron, timezone)
	if _, zone := schedule.ParseZone(timezone); zone != nil {
		f.add("timezone", "%s", zone)
	}
	if err != nil && !errors.Is(err, schedule.ErrZone) {
		f.add("cron", "%s", err)
	}
	return times, err == nil
}

// MaxNextTimes is the most due times that NextTimes tells.
const MaxNextTimes = 100

// NextTimes returns the first n due times after from, at most MaxNextTimes, that a schedule with the spec in the time zone would have, all in
// Unix milliseconds; fewer, if there are no more. Its error is a *store.InvalidError that names cron, timezone or both.
func NextTimes(cron, timezone string, from int64, n int) ([]int64, error) {
	var f findings
	times, ok := parseTimes(cron, timezone, &f)
	if !ok {
		return nil, &store.InvalidError{Fields: f}
	}
	var next []int64
	for at := timeOf(from); len(next) < min(n, MaxNextTimes); {
		if at = times.Next(at); at.IsZero() {
			break
		}
		next = append(next, at.UnixMilli())
	}
	return next, nil
}

// judgeTemplate adds what is wrong with a template as it would be accepted now, and says whether it has
// credentials. Its error is the store's.
func (e *Engine) judgeTemplate(
	ctx context.Context, project string, template []byte, f *findings,
) (credentials bool, err error) {
	if len(template) == 0 {
		return false, nil
	}
	d, err := e.templateDraft(ctx, project, template, e.clock.now())
	if wrong, ok := errors.AsType[*store.InvalidError](err); ok {
		f.under("callback", wrong.Fields)
		return false, nil
	}
	return store.SealedKey(d.Callback.Headers) != "", err
}

// templateDraft makes a callback out of a template. Its error is a *store.InvalidError, or the store's.
func (e *Engine) templateDraft(ctx context.Context, project string, template []byte, now int64) (store.Draft, error) {
	if e.o.ReadTemplate == nil {
		return store.Draft{}, errNoTemplates
	}
	sub, err := e.o.ReadTemplate(template)
	if err != nil {
		return store.Draft{}, err
	}
	v, err := e.view(ctx, project, []Submission{sub})
	if err != nil {
		return store.Draft{}, err
	}
	d, err := e.draft(v, project, &sub, timeOf(now))
	if err != nil {
		return d, err
	}
	return d, e.secure(ctx, &d)
}

// sealTemplate returns a template as it is stored: sealed, if its draft has credentials.
func (e *Engine) sealTemplate(s *store.Schedule, credentials bool) {
	if credentials {
		s.Template = store.JSONText(e.o.Keyring.sealText(bindTemplate(s.Project, s.ID), string(s.Template)))
	}
}

// openTemplate gives a schedule that was read its template in clear.
func (e *Engine) openTemplate(s *store.Schedule) error {
	if s.SealedKey() == "" {
		return nil
	}
	text, err := e.o.Keyring.openText(bindTemplate(s.Project, s.ID), string(s.Template))
	if e.opened(err) != nil {
		return fmt.Errorf("template of schedule %s%s: %w", store.SchedulePrefix, s.ID, err)
	}
	s.Template = store.JSONText(text)
	return nil
}

// Schedule returns one of the project's schedules: store.ErrNotFound.
func (e *Engine) Schedule(ctx context.Context, project, id string) (store.Schedule, error) {
	s, err := e.o.Store.Schedule(ctx, project, id)
	if err != nil {
		return s, err
	}
	e.showTemplate(&s)
	return s, nil
}

// showTemplate is openTemplate for people: what cannot be opened is shown as no template, and the rest can
// still be seen.
func (e *Engine) showTemplate(s *store.Schedule) {
	if err := e.openTemplate(s); err != nil {
		e.log.Error("a template cannot be shown", "error", err)
		s.Template = ""
	}
}

// Schedules returns a part of the project's list of schedules, newest first.
func (e *Engine) Schedules(ctx context.Context, project string, f store.ScheduleFilter) ([]store.Schedule, error) {
	list, err := e.o.Store.Schedules(ctx, project, f)
	if err != nil {
		return nil, err
	}
	for i := range list {
		e.showTemplate(&list[i])
	}
	return list, nil
}

// ScheduleRuns returns the last callbacks that a schedule has made, newest first; store.ErrNotFound.
func (e *Engine) ScheduleRuns(ctx context.Context, project, id string) ([]store.ScheduleRun, error) {
	return e.o.Store.ScheduleRuns(ctx, project, id)
}

// made tells the index of a callback that was accepted by a schedule.
func (e *Engine) made(ctx context.Context, a *store.Accepted) {
	e.wrote.Store(true)
	e.metrics.accepted.Inc()
	e.activity.accepted([]store.Accepted{*a}, e.clock.now())
	if len(a.Superseded) > 0 {
		e.metrics.terminal.WithLabelValues(string(store.Canceled), string(store.Superseded)).Add(float64(len(a.Superseded)))
		e.takeOut(ctx, a.Superseded)
	}
	if a.Callback.State == store.Scheduled {
		e.tellPause(ctx, a.Callback.Project, a.Callback.LaneID)
		e.enqueue.add(item(&a.Callback))
	}
}
