package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A ScheduleChange is a schedule as a caller asks for it. Nil fields are not given.
type ScheduleChange struct {
	Name, Cron, Timezone, Missed *string
	Enabled                      *bool
	// Template is the body of a POST /v1/callbacks, as JSON.
	Template []byte
	Invalid  []store.FieldError
}

// CreateSchedule makes a schedule: store.ErrExists if there is one of that name. It is enabled unless it says
// otherwise.
func (ct *Controller) CreateSchedule(ctx context.Context, project string, ch ScheduleChange,
	by store.Actor) (store.Schedule, error) {
	now := ct.clock.Now()
	s := store.Schedule{
		ID: ct.ids.New(clock.TimeOf(now)), Project: project, Missed: store.MissedOnce, Enabled: true,
		CreatedAt: now, UpdatedAt: now,
	}
	f := accept.Findings(slices.Clone(ch.Invalid))
	for _, required := range []struct {
		field string
		given bool
	}{{"name", ch.Name != nil}, {"cron", ch.Cron != nil}, {"callback", len(ch.Template) > 0}} {
		if !required.given && !f.Names(required.field) {
			f.Add(required.field, "is required")
		}
	}
	credentials, err := ct.judgeTemplate(ctx, project, ch.Template, &f)
	if err != nil {
		return s, fmt.Errorf("create schedule: %w", err)
	}
	if err := ch.apply(&s, now, f); err != nil {
		return s, err
	}
	ct.sealTemplate(&s, credentials)
	s, err = ct.o.Store.CreateSchedule(ctx, s, by)
	if err != nil {
		return s, fmt.Errorf("create schedule: %w", err)
	}
	part.Wake(ct.scheduler.changed)
	ct.showTemplate(&s)
	return s, nil
}

// PatchSchedule changes what is given of a schedule, and nothing else. A new spec or time zone, and enabling
// it, count its next due time from now.
func (ct *Controller) PatchSchedule(ctx context.Context, project, id string, ch ScheduleChange,
	by store.Actor) (store.Schedule, error) {
	now := ct.clock.Now()
	f := accept.Findings(slices.Clone(ch.Invalid))
	credentials, err := ct.judgeTemplate(ctx, project, ch.Template, &f)
	if err != nil {
		return store.Schedule{}, fmt.Errorf("change schedule: %w", err)
	}
	s, err := ct.o.Store.ChangeSchedule(ctx, project, id, func(s *store.Schedule) error {
		if err := ch.apply(s, now, f); err != nil {
			return err
		}
		ct.sealTemplate(s, credentials)
		return nil
	}, now, by)
	if err != nil {
		return s, fmt.Errorf("change schedule: %w", err)
	}
	part.Wake(ct.scheduler.changed)
	ct.showTemplate(&s)
	return s, nil
}

// DeleteSchedule removes a schedule. Callbacks that it has made stay.
func (ct *Controller) DeleteSchedule(ctx context.Context, project, id string, by store.Actor) error {
	return ct.o.Store.DeleteSchedule(ctx, project, id, ct.clock.Now(), by)
}

// RunSchedule accepts a schedule's callback now, whether it is enabled or not. Its next due time stays. Where
// its template cannot be meant any more the error is a *store.InvalidError.
func (ct *Controller) RunSchedule(ctx context.Context, project, id string,
	by store.Actor) (store.Callback, error) {
	fail := func(err error) (store.Callback, error) {
		return store.Callback{}, fmt.Errorf("run schedule: %w", err)
	}
	s, err := ct.o.Store.Schedule(ctx, project, id)
	if err != nil {
		return fail(err)
	}
	now := ct.clock.Now()
	d, err := ct.scheduled(ctx, &s, now)
	if wrong, ok := errors.AsType[*store.InvalidError](err); ok {
		var f accept.Findings
		f.Under("callback", wrong.Fields)
		return fail(f.Err())
	} else if err != nil {
		return fail(err)
	}
	accepted, err := ct.o.Store.RanSchedule(ctx, project, id, d, now, by)
	if err == nil {
		err = accepted.Err
	}
	if err != nil {
		return fail(err)
	}
	ct.accept.Made(ctx, &accepted)
	return accepted.Callback, nil
}

// scheduled returns the draft of the callback that a schedule makes now: *store.InvalidError where its
// template is not valid any more, store.ErrOpenQuota where its project has no room.
func (ct *Controller) scheduled(ctx context.Context, s *store.Schedule, now int64) (store.Draft, error) {
	if err := ct.openTemplate(s); err != nil {
		return store.Draft{}, err
	}
	d, err := ct.accept.TemplateDraft(ctx, s.Project, []byte(s.Template), now)
	if err != nil {
		return d, err
	}
	p, err := ct.accept.Catalog.Project(ctx, s.Project)
	if err != nil {
		return d, err
	}
	return d, ct.accept.RoomFor(ctx, &p.Project, 1)
}

// apply changes a schedule, or says everything that is wrong with the change; f is what is known of that
// already.
func (ch *ScheduleChange) apply(s *store.Schedule, now int64, f accept.Findings) error {
	f = slices.Clone(f)
	spec, zone, enabled := s.Cron, s.Timezone, s.Enabled
	if ch.Name != nil {
		s.Name = *ch.Name
		if s.Name == "" {
			f.Add("name", "is empty")
		}
		accept.CheckText("name", s.Name, MaxName, &f)
	}
	if ch.Cron != nil {
		s.Cron = *ch.Cron
	}
	if ch.Timezone != nil {
		s.Timezone = *ch.Timezone
	}
	if ch.Missed != nil {
		s.Missed = store.MissedPolicy(*ch.Missed)
		switch s.Missed {
		case store.MissedOnce, store.MissedSkip:
		default:
			f.Add("missed", `is "once" or "skip"`)
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
			s.NextAt = times.Next(clock.TimeOf(now)).UnixMilli()
		}
	}
	return f.Err()
}

// parseTimes reads when a schedule is due, or adds what is wrong with its spec and with its time zone.
func parseTimes(cron, timezone string, f *accept.Findings) (times schedule.Spec, ok bool) {
	times, err := schedule.ParseSpec(cron, timezone)
	if _, zone := schedule.ParseZone(timezone); zone != nil {
		f.Add("timezone", "%s", zone)
	}
	if err != nil && !errors.Is(err, schedule.ErrZone) {
		f.Add("cron", "%s", err)
	}
	return times, err == nil
}

// MaxNextTimes is the most due times that NextTimes tells.
const MaxNextTimes = 100

// NextTimes returns the first n due times after from, at most MaxNextTimes, that a schedule with the spec in
// the time zone would have, all in Unix milliseconds; fewer, if there are no more. Its error is a
// *store.InvalidError that names cron, timezone or both.
func NextTimes(cron, timezone string, from int64, n int) ([]int64, error) {
	var f accept.Findings
	times, ok := parseTimes(cron, timezone, &f)
	if !ok {
		return nil, f.Err()
	}
	var next []int64
	for at := clock.TimeOf(from); len(next) < min(n, MaxNextTimes); {
		at = times.Next(at)
		if at.IsZero() {
			break
		}
		next = append(next, at.UnixMilli())
	}
	return next, nil
}

// judgeTemplate adds what is wrong with a template as it would be accepted now, and says whether it has
// credentials. Its error is the store's.
func (ct *Controller) judgeTemplate(
	ctx context.Context, project string, template []byte, f *accept.Findings,
) (credentials bool, err error) {
	if len(template) == 0 {
		return false, nil
	}
	d, err := ct.accept.TemplateDraft(ctx, project, template, ct.clock.Now())
	if wrong, ok := errors.AsType[*store.InvalidError](err); ok {
		f.Under("callback", wrong.Fields)
		return false, nil
	}
	return store.SealedKey(d.Callback.Headers) != "", err
}

// sealTemplate returns a template as it is stored: sealed, if its draft has credentials.
func (ct *Controller) sealTemplate(s *store.Schedule, credentials bool) {
	if credentials {
		s.Template = store.JSONText(ct.o.Keyring.SealText(secret.BindTemplate(s.Project, s.ID),
			string(s.Template)))
	}
}

// openTemplate gives a schedule that was read its template in clear.
func (ct *Controller) openTemplate(s *store.Schedule) error {
	if s.SealedKey() == "" {
		return nil
	}
	text, err := ct.o.Keyring.OpenText(secret.BindTemplate(s.Project, s.ID), string(s.Template))
	if ct.secret.Opened(err) != nil {
		return fmt.Errorf("template of schedule %s%s: %w", store.SchedulePrefix, s.ID, err)
	}
	s.Template = store.JSONText(text)
	return nil
}

// Schedule returns one of the project's schedules: store.ErrNotFound.
func (ct *Controller) Schedule(ctx context.Context, project, id string) (store.Schedule, error) {
	s, err := ct.o.Store.Schedule(ctx, project, id)
	if err != nil {
		return s, err
	}
	ct.showTemplate(&s)
	return s, nil
}

// showTemplate is openTemplate for people: what cannot be opened is shown as no template, and the rest can
// still be seen.
func (ct *Controller) showTemplate(s *store.Schedule) {
	if err := ct.openTemplate(s); err != nil {
		ct.log.Error("a template cannot be shown", "error", err)
		s.Template = ""
	}
}

// Schedules returns a part of the project's list of schedules, newest first.
func (ct *Controller) Schedules(ctx context.Context, project string,
	f store.ScheduleFilter) ([]store.Schedule, error) {
	list, err := ct.o.Store.Schedules(ctx, project, f)
	if err != nil {
		return nil, err
	}
	for i := range list {
		ct.showTemplate(&list[i])
	}
	return list, nil
}

// ScheduleRuns returns the last callbacks that a schedule has made, newest first; store.ErrNotFound.
func (ct *Controller) ScheduleRuns(ctx context.Context, project, id string) ([]store.ScheduleRun, error) {
	return ct.o.Store.ScheduleRuns(ctx, project, id)
}
