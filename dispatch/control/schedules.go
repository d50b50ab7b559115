package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A ScheduleChange creates or changes a schedule. Nil fields are not given.
type ScheduleChange struct {
	Name, Cron, Timezone, Missed *string
	Enabled                      *bool
	// Template is the JSON body of a POST /v1/callbacks.
	Template []byte
	Invalid  []store.FieldError
}

// CreateSchedule creates a schedule, enabled by default. Its error is store.ErrExists if the name is taken.
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
		if !required.given && !f.Has(required.field) {
			f.Add(required.field, "is required")
		}
	}
	credentials, err := ct.checkTemplate(ctx, project, ch.Template, &f)
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
	process.Wake(ct.scheduler.changed)
	ct.showTemplate(&s)
	return s, nil
}

// PatchSchedule changes the given fields of a schedule. A new spec or time zone, and enabling it, compute the
// next due time from now.
func (ct *Controller) PatchSchedule(ctx context.Context, project, id string, ch ScheduleChange,
	by store.Actor) (store.Schedule, error) {
	now := ct.clock.Now()
	f := accept.Findings(slices.Clone(ch.Invalid))
	credentials, err := ct.checkTemplate(ctx, project, ch.Template, &f)
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
	process.Wake(ct.scheduler.changed)
	ct.showTemplate(&s)
	return s, nil
}

// DeleteSchedule deletes a schedule. The callbacks that it created stay.
func (ct *Controller) DeleteSchedule(ctx context.Context, project, id string, by store.Actor) error {
	return ct.o.Store.DeleteSchedule(ctx, project, id, ct.clock.Now(), by)
}

// RunSchedule creates a schedule's callback now, even if the schedule is disabled. The next due time stays.
// Its error is a *store.InvalidError if the template is no longer valid.
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
	d, err := ct.draftScheduled(ctx, &s, now)
	if wrong, ok := errors.AsType[*store.InvalidError](err); ok {
		var f accept.Findings
		f.Under("callback", wrong.Fields)
		return fail(f.Err())
	} else if err != nil {
		return fail(err)
	}
	creation := ct.accept.Trace(ctx, &d)
	accepted, err := ct.o.Store.RunScheduleNow(ctx, project, id, d, now, by)
	if err == nil {
		err = accepted.Err
	}
	if err != nil {
		return fail(err)
	}
	creation.End([]store.Accepted{accepted})
	ct.accept.Enqueue(ctx, &accepted)
	return accepted.Callback, nil
}

// draftScheduled returns the draft of the callback that a schedule creates now. Its error is a
// *store.InvalidError if the template is no longer valid, and store.ErrOpenQuota if the project has reached
// its quota.
func (ct *Controller) draftScheduled(ctx context.Context, s *store.Schedule, now int64) (store.Draft, error) {
	if err := ct.openTemplate(s); err != nil {
		return store.Draft{}, err
	}
	d, err := ct.accept.TemplateDraft(ctx, s.Project, []byte(s.Template), now)
	if err != nil {
		return d, err
	}
	d.Callback.CreatedBy = store.SchedulePrefix + s.ID
	p, err := ct.accept.Catalog.Project(ctx, s.Project)
	if err != nil {
		return d, err
	}
	return d, ct.accept.RoomFor(ctx, &p.Project, 1)
}

// apply validates a change and makes it in s. f contains the errors that are known already. A transaction may
// call apply more than once, so it does not change f.
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
			f.Add("missed", `must be "once" or "skip"`)
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

// parseTimes parses a cron spec and a time zone, and adds what is wrong with either.
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

// MaxNextTimes is the most due times that NextTimes returns.
const MaxNextTimes = 100

// NextTimes returns the first n due times after from, at most MaxNextTimes, of a spec in a time zone. All
// times are Unix milliseconds. It returns fewer if the spec has no more. Its error is a *store.InvalidError
// that names cron, timezone or both.
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

// checkTemplate adds what is wrong with a template as if it were accepted now, and reports whether it
// contains credentials. Its error is the store's.
func (ct *Controller) checkTemplate(
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

// sealTemplate encrypts the template of a schedule if it contains credentials.
func (ct *Controller) sealTemplate(s *store.Schedule, credentials bool) {
	if credentials {
		s.Template = store.JSONText(ct.o.Keyring.SealText(secret.BindTemplate(s.Project, s.ID),
			string(s.Template)))
	}
}

// openTemplate decrypts the template of a schedule that was read from SQL.
func (ct *Controller) openTemplate(s *store.Schedule) error {
	if s.SealedKey() == "" {
		return nil
	}
	text, err := ct.o.Keyring.OpenText(secret.BindTemplate(s.Project, s.ID), string(s.Template))
	if ct.secret.RecordOpen(err) != nil {
		return fmt.Errorf("template of schedule %s%s: %w", store.SchedulePrefix, s.ID, err)
	}
	s.Template = store.JSONText(text)
	return nil
}

// Schedule returns a schedule of the project. Its error is store.ErrNotFound for an unknown one.
func (ct *Controller) Schedule(ctx context.Context, project, id string) (store.Schedule, error) {
	s, err := ct.o.Store.Schedule(ctx, project, id)
	if err != nil {
		return s, err
	}
	ct.showTemplate(&s)
	return s, nil
}

// showTemplate is openTemplate for people: a template that cannot be decrypted becomes empty, so that the
// rest of the schedule stays readable.
func (ct *Controller) showTemplate(s *store.Schedule) {
	if err := ct.openTemplate(s); err != nil {
		ct.log.Error("schedule template cannot be decrypted", "error", err)
		s.Template = ""
	}
}

// Schedules returns a page of the project's schedules, newest first.
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

// ScheduleRuns returns the latest callbacks of a schedule, newest first. Its error is store.ErrNotFound for
// an unknown schedule.
func (ct *Controller) ScheduleRuns(ctx context.Context, project, id string) ([]store.ScheduleRun, error) {
	return ct.o.Store.ScheduleRuns(ctx, project, id)
}
