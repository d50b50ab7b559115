package dispatch_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// reconcileDaily switches the daily reconciliation of the project on.
func (b *fixture) reconcileDaily(r store.Reconciling) {
	b.Helper()
	must(b.engine.PatchProject(b.Context(), project, control.ProjectChange{Reconcile: &r}, operator))
}

// reports returns the days of the project's reports with what is wrong with each, the newest first.
func (b *fixture) reports() (days []string) {
	b.Helper()
	for _, r := range must(b.db.ReconcileReports(b.Context(), project, "", 100)) {
		days = append(days, r.Day+" "+strings.Join(r.Wrong(), ","))
	}
	return days
}

// expect hands in a list for a day.
func (b *fixture) expect(day string, items ...store.RefTopic) {
	b.Helper()
	if _, err := b.engine.ExpectItems(b.Context(), project, day, items, operator); err != nil {
		b.Fatal(err)
	}
}

// Time begins at 2000-01-01T00:00:00Z, which is 08:00 in Shanghai. The daily run at 02:00 there covers the
// day before, once, whatever the number of processes, and subscribers get an event.
func TestTheDailyReconciliationFindsMissingCallbacks(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		b.reconcileDaily(store.Reconciling{At: "02:00", Timezone: "Asia/Shanghai", ExpectList: true})
		must(b.engine.CreateEndpoint(b.Context(), project, control.EndpointChange{
			URL: new("https://ops.example/alerts"), Topics: &[]string{"dispatcher.reconcile.*"}}, operator))
		b.accept(accept.Submission{Topic: "paid", Ref: "told"})
		b.accept(accept.Submission{Topic: "paid", Ref: "unlisted"})
		b.expect("2000-01-01", store.RefTopic{Ref: "told", Topic: "paid"},
			store.RefTopic{Ref: "lost", Topic: "paid"}, store.RefTopic{Ref: "told", Topic: "refunded"})
		b.stopRun() // an engine costs time, also virtual time
		time.Sleep(17*time.Hour + 58*time.Minute)
		b = b.restart(always(200, ""))
		time.Sleep(time.Minute)
		if days := b.reports(); len(days) != 0 {
			t.Fatalf("reports before 02:00: %q", days)
		}
		time.Sleep(2 * time.Minute)
		if days := b.reports(); !slices.Equal(days, []string{"2000-01-01 missing"}) {
			t.Fatalf("reports: %q", days)
		}
		r := must(b.db.ReconcileReport(b.Context(), project, "2000-01-01"))
		if r.Books.Accepted != 2 || r.Books.Succeeded != 2 || r.Listed != 3 ||
			r.Missing != 2 || r.Extra != 1 {
			t.Errorf("report: %+v", r)
		}
		time.Sleep(30 * time.Second)
		told := slices.DeleteFunc(b.hits(""), func(h hit) bool {
			return !strings.Contains(h.url, "ops.example")
		})
		if len(told) != 1 || !strings.Contains(told[0].body, `"missing":2`) {
			t.Errorf("events: %v", told)
		}
		// The next day has no list.
		b.stopRun()
		time.Sleep(24 * time.Hour)
		b = b.restart(always(200, ""))
		time.Sleep(time.Minute)
		if days := b.reports(); !slices.Equal(days, []string{"2000-01-02 no_list", "2000-01-01 missing"}) {
			t.Fatalf("reports: %q", days)
		}
		// The lost callbacks and the list of the next day, which is empty, are sent after all. Then both days
		// are good.
		b.accept(accept.Submission{Topic: "paid", Ref: "lost"})
		b.accept(accept.Submission{Topic: "refunded", Ref: "told"})
		must(b.engine.ReconcileDay(b.Context(), project, "2000-01-01", operator))
		b.expect("2000-01-02")
		must(b.engine.ReconcileDay(b.Context(), project, "2000-01-02", operator))
		if days := b.reports(); !slices.Equal(days, []string{"2000-01-02 ", "2000-01-01 "}) {
			t.Errorf("repeated: %q", days)
		}
		// A day of the future is not found, and neither is one whose list was removed.
		for _, day := range []string{"2000-02-01", "1999-12-20", "2000-02-30", "2000-1-1"} {
			_, err := b.engine.ReconcileDay(b.Context(), project, day, operator)
			if !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s: %v", day, err)
			}
		}
	})
}

// Runs that were missed while no process ran are made up, and two processes make each only once.
func TestMissedReconciliationsAreMadeUp(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		b.reconcileDaily(store.Reconciling{At: "00:30", Timezone: "UTC"})
		b.stopRun()
		time.Sleep(3*24*time.Hour + time.Hour)
		again := b.restart(always(200, ""))
		again.join("other")
		time.Sleep(5 * time.Minute)
		want := []string{"2000-01-03 ", "2000-01-02 ", "2000-01-01 ", "1999-12-31 "}
		if days := again.reports(); !slices.Equal(days, want) {
			t.Errorf("reports: %q, want %q", days, want)
		}
		if p := must(again.db.Project(again.Context(),
			project)); p.ReconcileNext != time.Date(2000, 1, 5, 0, 30,
			0, 0, time.UTC).UnixMilli() {
			t.Errorf("next run at %s", time.UnixMilli(p.ReconcileNext).UTC())
		}
	})
}

// Settings that are saved while a run is late or waits do not skip its day, and keep its failure until it is
// made.
func TestSavedSettingsKeepTheDayOfTheNextRun(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		daily := store.Reconciling{At: "00:30", Timezone: "UTC"}
		b.reconcileDaily(daily)
		b.stopRun()
		due := must(b.db.Project(b.Context(), project)).ReconcileNext
		b.ok(b.db.FailReconcile(b.Context(), project, due, store.ReconcileTooLong))
		time.Sleep(8 * time.Hour)
		b.reconcileDaily(daily)
		p := must(b.db.Project(b.Context(), project))
		if p.ReconcileNext != due || p.ReconcileError != store.ReconcileTooLong {
			t.Errorf("saved without a change: %+v", p)
		}
		b = b.restart(always(200, ""))
		time.Sleep(time.Minute)
		if days := b.reports(); !slices.Equal(days, []string{"1999-12-31 "}) {
			t.Fatalf("reports: %q", days)
		}
		b.stopRun()
		time.Sleep(16*time.Hour + 10*time.Minute)
		b = b.restart(always(200, ""))
		b.reconcileDaily(store.Reconciling{At: "00:05", Timezone: "UTC"})
		if p := must(b.db.Project(b.Context(), project)); p.LateReconcile(b.engine.Now()) != "" {
			t.Errorf("late by the change: %+v", p)
		}
		time.Sleep(time.Minute)
		if days := b.reports(); !slices.Equal(days, []string{"2000-01-01 ", "1999-12-31 "}) {
			t.Errorf("reports: %q", days)
		}
		p = must(b.db.Project(b.Context(), project))
		if p.NextReconciled() != "2000-01-02" || p.ReconcileError != "" {
			t.Errorf("afterwards: %+v", p)
		}
	})
}

// Lists are refused for days far away and for items that no callback can have.
func TestExpectedItemsAreChecked(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		for day, item := range map[string]store.RefTopic{
			"1999-12-20": {Ref: "a"}, "2000-01-09": {Ref: "a"}, "yesterday": {Ref: "a"},
			"2000-1-1":   {Ref: "a"},
			"2000-01-01": {Topic: "paid"}, "1999-12-31": {Ref: strings.Repeat("a", 257)},
		} {
			_, err := b.engine.ExpectItems(b.Context(), project, day, []store.RefTopic{item},
				operator)
			if _, refused := errors.AsType[*store.InvalidError](err); !refused {
				t.Errorf("%s %v: %v", day, item, err)
			}
		}
		many := make([]store.RefTopic, control.MaxExpected+1)
		if _, err := b.engine.ExpectItems(b.Context(), project, "2000-01-01", many,
			operator); err == nil {
			t.Error("too many items were taken")
		}
	})
}
