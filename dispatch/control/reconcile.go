package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// ReconcileSpec and ReconcileLease are the cron spec and the lease of RunReconciles.
	ReconcileSpec  = "@every 30s"
	ReconcileLease = 10 * time.Minute
	// MaxExpected is the most items of one request, and MaxExpectedDay the most of one day.
	MaxExpected    = 10_000
	MaxExpectedDay = 500_000
	// MaxReportItems is the most items of each kind that a report keeps.
	MaxReportItems = 10_000
	// Lists are accepted for days from expectedPast days ago to expectedAhead days ahead. They are kept until
	// listsKept days after their day.
	expectedPast, expectedAhead, listsKept = 7, 2, 10
	// maxCatchUp is how many days after its time a daily run is made up.
	maxCatchUp = 31
	// A run takes at most reconcileTime, so a run that is too long leaves time for those of other projects. A
	// failed run is tried again after retryReconcile.
	reconcileTime  = 4 * time.Minute
	retryReconcile = 5 * time.Minute
	// reconcilePage is how many due projects one query reads.
	reconcilePage = 100
)

// zoneOf returns the time zone of a project's days: that of its daily reconciliation, else UTC.
func zoneOf(p *store.Project) *time.Location {
	if zone, err := time.LoadLocation(p.Reconcile.Timezone); err == nil {
		return zone
	}
	return time.UTC
}

// nextReconcile returns the first run after a time, in Unix milliseconds; zero without a daily run.
func nextReconcile(r *store.Reconciling, after int64) int64 {
	at, err := time.Parse("15:04", r.At)
	zone, zoneErr := time.LoadLocation(r.Timezone)
	if err != nil || zoneErr != nil {
		return 0
	}
	day := time.UnixMilli(after).In(zone)
	for i := range 3 {
		t := store.LocalTime(day.Year(), day.Month(), day.Day()+i, at.Hour(), at.Minute(), zone).UnixMilli()
		if t > after {
			return t
		}
	}
	return 0
}

// setReconciling changes the settings of the daily run. While it stays on, no day is left out: the next run
// remains that of the same day, and the error of its last try remains. If the run's new time has passed and
// its old one has not, it is due now.
func setReconciling(p *store.Project, to store.Reconciling, now int64) {
	due, stays := p.ReconcileNext, p.ReconcileNext != 0 && to.At != ""
	day := clock.TimeOf(due).In(zoneOf(p))
	p.Reconcile = to
	if !stays {
		p.ReconcileNext, p.ReconcileError = nextReconcile(&to, now), ""
		return
	}
	midnight := func(days int) int64 {
		return store.LocalTime(day.Year(), day.Month(), day.Day()+days, 0, 0, zoneOf(p)).UnixMilli()
	}
	at := nextReconcile(&to, midnight(0)-1)
	p.ReconcileNext = min(max(at, min(due, now)), midnight(1)-1)
}

// checkReconciling validates the settings of a daily reconciliation.
func checkReconciling(r *store.Reconciling, f *accept.Findings) {
	if _, err := time.Parse("15:04", r.At); err != nil || len(r.At) != len("15:04") {
		f.Add("reconcile.at", `must be a time of day, such as "02:00"`)
	}
	if _, err := time.LoadLocation(r.Timezone); err != nil || r.Timezone == "Local" || r.Timezone == "" {
		f.Add("reconcile.timezone", "is not a time zone; use a name such as Asia/Shanghai")
	}
}

// dayOf parses a day such as 2026-11-21 in a zone. The span is from its midnight to the next one.
func dayOf(text string, zone *time.Location) (from, to time.Time, err error) {
	d, err := time.ParseInLocation(time.DateOnly, text, time.UTC)
	if err != nil {
		return from, to, err
	}
	return store.LocalTime(d.Year(), d.Month(), d.Day(), 0, 0, zone),
		store.LocalTime(d.Year(), d.Month(), d.Day()+1, 0, 0, zone), nil
}

// dayBefore returns the day before that of a time, in the time's zone, and its span.
func dayBefore(at time.Time) (day string, from, to time.Time, err error) {
	day = time.Date(at.Year(), at.Month(), at.Day()-1, 0, 0, 0, 0, time.UTC).Format(time.DateOnly)
	from, to, err = dayOf(day, at.Location())
	return day, from, to, err
}

// DayBegin returns when a day such as 2026-11-21 begins for a project, in Unix milliseconds.
func DayBegin(p *store.Project, day string) (int64, error) {
	from, _, err := dayOf(day, zoneOf(p))
	return from.UnixMilli(), err
}

// ExpectItems adds items to the list of a project and day. The list is a set, so a repetition
// changes nothing.
func (ct *Controller) ExpectItems(ctx context.Context, project, day string, items []store.RefTopic,
	by store.Actor) (store.ExpectedDay, error) {
	if err := ct.checkList(ctx, project, day, items, by); err != nil {
		return store.ExpectedDay{}, err
	}
	return ct.o.Store.AddExpected(ctx, project, day, items, MaxExpectedDay, ct.clock.Now(), by)
}

// RemoveExpected removes items from the list of a project and day.
func (ct *Controller) RemoveExpected(ctx context.Context, project, day string, items []store.RefTopic,
	by store.Actor) (store.ExpectedDay, error) {
	if err := ct.checkList(ctx, project, day, items, by); err != nil {
		return store.ExpectedDay{}, err
	}
	return ct.o.Store.RemoveExpected(ctx, project, day, items, ct.clock.Now(), by)
}

// ClearExpected deletes the list of a project and day. Then it is as if none had been submitted.
func (ct *Controller) ClearExpected(ctx context.Context, project, day string,
	by store.Actor) (store.ExpectedDay, error) {
	if err := ct.checkList(ctx, project, day, nil, by); err != nil {
		return store.ExpectedDay{}, err
	}
	return ct.o.Store.ClearExpected(ctx, project, day, ct.clock.Now(), by)
}

// checkList validates the day and the items of a change of a list.
func (ct *Controller) checkList(ctx context.Context, project, day string, items []store.RefTopic,
	by store.Actor) error {
	v, err := ct.accept.Catalog.Project(ctx, project)
	if err != nil {
		return err
	}
	zone := zoneOf(&v.Project)
	from, _, err := dayOf(day, zone)
	today := clock.TimeOf(ct.clock.Now()).In(zone)
	var f accept.Findings
	checkReason(by, &f)
	switch {
	case err != nil:
		f.Add("date", `must be a date, such as "2026-11-21"`)
	case from.Before(today.AddDate(0, 0, -expectedPast-1)) || from.After(today.AddDate(0, 0, expectedAhead)):
		f.Add("date", "must be from %d days ago to %d days ahead", expectedPast, expectedAhead)
	}
	if len(items) > MaxExpected {
		f.Add("items", "has more than %d items; send them in several requests", MaxExpected)
		return f.Err()
	}
	for i := range items {
		if len(f) > 20 {
			break
		}
		if items[i].Ref == "" {
			f.Add(fmt.Sprintf("items[%d].ref", i), "must not be empty")
		}
		accept.CheckText(fmt.Sprintf("items[%d].ref", i), items[i].Ref, accept.MaxRef, &f)
		accept.CheckText(fmt.Sprintf("items[%d].topic", i), items[i].Topic, accept.MaxTopic, &f)
	}
	return f.Err()
}

// ReconcileDay repeats the reconciliation of a day, and returns its report. A day whose list may have been
// removed keeps its report, which had the list: such a day is not found, and neither is one of the future.
func (ct *Controller) ReconcileDay(ctx context.Context, project, day string,
	by store.Actor) (store.ReconcileReport, error) {
	p, err := ct.o.Store.Project(ctx, project)
	if err != nil {
		return store.ReconcileReport{}, err
	}
	var f accept.Findings
	checkReason(by, &f)
	zone := zoneOf(&p)
	from, to, err := dayOf(day, zone)
	now := ct.clock.Now()
	if err != nil || from.UnixMilli() > now || day < oldestList(now) {
		return store.ReconcileReport{}, fmt.Errorf("reconciliation of %q: %w", day, store.ErrNotFound)
	}
	if len(f) > 0 {
		return store.ReconcileReport{}, f.Err()
	}
	return ct.o.Store.RunReconcile(ctx, store.ReconcileRun{
		Project: project, Day: day, Timezone: zone.String(), From: from.UnixMilli(), To: to.UnixMilli(),
		ExpectList: p.Reconcile.ExpectList,
	}, MaxReportItems, now, by)
}

// RunReconciles makes the daily reconciliations that are due, one after the other. A missed day is made up. A
// project whose run fails delays no other; its run is tried again after retryReconcile.
func (ct *Controller) RunReconciles(ctx context.Context) error {
	var failed error
	maps.DeleteFunc(ct.retryRuns, func(_ string, at int64) bool { return at <= ct.clock.Now() })
	for ctx.Err() == nil {
		due, err := ct.o.Store.DueReconciles(ctx, ct.clock.Now(), reconcilePage)
		if err != nil {
			return errors.Join(failed, err)
		}
		ran := 0
		for i := range due {
			p := &due[i]
			if _, waits := ct.retryRuns[p.ID]; waits || ctx.Err() != nil {
				continue
			}
			ran++
			if err := ct.runReconcile(ctx, p); err != nil {
				failed = errors.Join(failed, fmt.Errorf("reconcile project %s: %w", p.ID, err),
					ct.failReconcile(ctx, p, err))
			}
		}
		if ran == 0 {
			break
		}
	}
	return failed
}

// failReconcile records that the due run of a project failed. A run that ends with the process
// or with the task's lease did not.
func (ct *Controller) failReconcile(ctx context.Context, p *store.Project, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	ct.retryRuns[p.ID] = ct.clock.Now() + retryReconcile.Milliseconds()
	why := store.ReconcileFailed
	if errors.Is(err, context.DeadlineExceeded) {
		why = store.ReconcileTooLong
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return ct.o.Store.FailReconcile(ctx, p.ID, p.ReconcileNext, why)
}

// runReconcile makes the due run of a project: over the day before the day of the run.
func (ct *Controller) runReconcile(ctx context.Context, p *store.Project) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileTime)
	defer cancel()
	zone, now := zoneOf(p), ct.clock.Now()
	at := clock.TimeOf(p.ReconcileNext).In(zone)
	if earliest := clock.TimeOf(now).In(zone).AddDate(0, 0, -maxCatchUp); at.Before(earliest) {
		at = earliest
	}
	day, from, to, err := dayBefore(at)
	if err != nil {
		return err
	}
	next := nextReconcile(&p.Reconcile, max(p.ReconcileNext, at.UnixMilli()))
	r, err := ct.o.Store.RunReconcile(ctx, store.ReconcileRun{
		Project: p.ID, Day: day, Timezone: zone.String(), From: from.UnixMilli(), To: to.UnixMilli(),
		ExpectList: p.Reconcile.ExpectList, Due: p.ReconcileNext, Next: next,
	}, MaxReportItems, now, store.Actor{})
	if err != nil {
		return err
	}
	if wrong := r.Wrong(); len(wrong) > 0 {
		ct.log.Warn("daily reconciliation found differences", "project", p.ID, "day", day, "wrong", wrong,
			"missing", r.Missing)
	}
	return nil
}

// oldestList returns the oldest day whose list is kept.
func oldestList(now int64) string {
	return clock.TimeOf(now).UTC().AddDate(0, 0, -listsKept).Format(time.DateOnly)
}

// purgeReconciles removes reports, items and lists whose retention has ended.
func (ct *Controller) purgeReconciles(ctx context.Context, now int64, limit int) (int, error) {
	return ct.o.Store.PurgeReconciles(ctx, now, ct.retention(now).Callbacks, oldestList(now), limit)
}
