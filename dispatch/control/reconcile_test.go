package control

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A year has one run for each of its days, in order, also where clocks change at the time of the run or at
// midnight. The days have no gap and no overlap.
func TestDailyRunsOfAYear(t *testing.T) {
	for _, name := range []string{"America/Santiago", "Africa/Cairo", "America/Havana", "Europe/Berlin",
		"Asia/Shanghai", "Australia/Lord_Howe"} {
		for _, at := range []string{"00:00", "00:30", "02:30", "23:59"} {
			zone, err := time.LoadLocation(name)
			if err != nil {
				t.Fatal(err)
			}
			r := &store.Reconciling{At: at, Timezone: name}
			want := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			next := time.Date(2026, 1, 2, 0, 0, 0, 0, zone).UnixMilli() - 1
			var end time.Time
			for range 365 {
				next = nextReconcile(r, next)
				day, from, to, err := dayBefore(time.UnixMilli(next).In(zone))
				if err != nil || day != want.Format(time.DateOnly) || !end.IsZero() && !from.Equal(end) ||
					!from.Before(to) || to.UnixMilli() > next {
					t.Fatalf("%s %s: the run of %s is of %s, from %s to %s, want %s from %s: %v", name, at,
						time.UnixMilli(next).In(zone), day, from, to, want.Format(time.DateOnly), end, err)
				}
				want, end = want.AddDate(0, 0, 1), to
			}
		}
	}
}

// settingsOf parses settings such as "02:00 Asia/Shanghai"; empty: no daily run. A third word expects lists.
func settingsOf(text string) (r store.Reconciling) {
	if words := strings.Fields(text); len(words) > 1 {
		r = store.Reconciling{At: words[0], Timezone: words[1], ExpectList: len(words) > 2}
	}
	return r
}

// A change of the settings leaves out no day: the next run remains that of the same day.
func TestChangedSettingsLeaveOutNoDay(t *testing.T) {
	const two, nine, one = "02:00 Asia/Shanghai", "09:00 Asia/Shanghai", "01:00 Asia/Shanghai"
	for _, c := range []struct{ why, now, next, was, to, want, day string }{
		{"it failed, and stays", "21 08:00:00", "21 02:00:00", two, two, "21 02:00:00", "20"},
		{"it failed, and gets a list", "21 08:00:00", "21 02:00:00", two, two + " list", "21 02:00:00", "20"},
		{"it failed for days, and stays", "21 08:00:00", "18 02:00:00", two, two, "18 02:00:00", "17"},
		{"it failed, and moves ahead", "21 08:00:00", "21 02:00:00", two, nine, "21 09:00:00", "20"},
		{"it failed, and moves back", "21 08:00:00", "21 02:00:00", two, one, "21 02:00:00", "20"},
		{"it waits, and moves to a time that has passed", "21 01:30:00", "21 02:00:00", two, one,
			"21 01:30:00", "20"},
		{"it was made today, and moves ahead", "21 08:00:00", "22 02:00:00", two, nine, "22 09:00:00", "21"},
		{"it moves to a zone in the west", "21 01:30:00", "21 02:00:00", two, "02:00 Europe/Berlin",
			"21 02:00:00", "20"},
		{"it moves to a zone in the east, where its day has passed", "21 22:00:00", "21 23:00:00",
			"23:00 Europe/Berlin", two, "21 23:59:59.999", "20"},
		{"it is switched off", "21 08:00:00", "21 02:00:00", two, "", "", ""},
		{"it is switched on", "21 08:00:00", "", "", two, "22 02:00:00", "21"},
	} {
		// Texts are times of clocks in the zone of the settings.
		at := func(text string, r store.Reconciling) int64 {
			if text == "" {
				return 0
			}
			zone := zoneOf(&store.Project{Reconcile: r})
			d, err := time.ParseInLocation(time.DateTime, "2026-11-"+text, zone)
			if err != nil {
				t.Fatal(err)
			}
			return d.UnixMilli()
		}
		was, to := settingsOf(c.was), settingsOf(c.to)
		p := store.Project{Reconcile: was, ReconcileNext: at(c.next, was),
			ReconcileError: store.ReconcileFailed}
		clocks := was
		if c.was == "" {
			clocks = to
		}
		setReconciling(&p, to, at(c.now, clocks))
		if p.ReconcileNext != at(c.want, to) || p.Reconcile != to {
			t.Errorf("%s: next %s, want %s", c.why, time.UnixMilli(p.ReconcileNext).UTC(), c.want)
		}
		if kept := p.ReconcileError != ""; kept != (c.was != "" && c.to != "") {
			t.Errorf("%s: the error is kept: %t", c.why, kept)
		}
		if c.day != "" && p.NextReconciled() != "2026-11-"+c.day {
			t.Errorf("%s: the next run is of %s, want %s", c.why, p.NextReconciled(), c.day)
		}
	}
}

// A runStore has one project whose run fails, and one whose run succeeds.
type runStore struct {
	Store
	fails error
	runs  []string
	why   map[string]string
}

func (s *runStore) DueReconciles(context.Context, int64, int) ([]store.Project, error) {
	due := []store.Project{{ID: "bad", ReconcileNext: 1}}
	if !slices.Contains(s.runs, "good") {
		due = append(due, store.Project{ID: "good", ReconcileNext: 2})
	}
	return due, nil
}

func (s *runStore) RunReconcile(_ context.Context, run store.ReconcileRun, _ int, _ int64, _ store.Actor) (
	r store.ReconcileReport, err error) {
	s.runs = append(s.runs, run.Project)
	if run.Project == "bad" {
		err = s.fails
	}
	return r, err
}

func (s *runStore) FailReconcile(_ context.Context, project string, _ int64, why string) error {
	s.why[project] = why
	return nil
}

// A daily run that fails is recorded with the reason, delays no other project, and is tried again after some
// minutes, not at once.
func TestAFailedDailyRunIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &runStore{fails: context.DeadlineExceeded, why: make(map[string]string)}
		ct := &Controller{o: Options{Store: s}, clock: new(clock.Clock), log: slog.New(slog.DiscardHandler),
			retryRuns: make(map[string]int64)}
		for _, step := range []struct {
			wait  time.Duration
			fails error
			runs  []string
			why   string
		}{
			{0, context.DeadlineExceeded, []string{"bad", "good"}, store.ReconcileTooLong},
			{retryReconcile - time.Second, nil, []string{"bad", "good"}, store.ReconcileTooLong},
			{time.Second, errors.New("disk"), []string{"bad", "good", "bad"}, store.ReconcileFailed},
		} {
			time.Sleep(step.wait)
			s.fails = step.fails
			if err := ct.RunReconciles(t.Context()); (err == nil) != (step.fails == nil) {
				t.Errorf("after %s: %v", step.wait, err)
			}
			if !slices.Equal(s.runs, step.runs) || s.why["bad"] != step.why || len(s.why) != 1 {
				t.Errorf("after %s: runs %q, failures %q", step.wait, s.runs, s.why)
			}
		}
		// The end of the process is no failure.
		s.why = make(map[string]string)
		time.Sleep(retryReconcile)
		ctx, cancel := context.WithCancel(t.Context())
		s.fails = context.Canceled
		cancel()
		if err := ct.failReconcile(ctx, &store.Project{ID: "bad"}, s.fails); err != nil || len(s.why) > 0 {
			t.Errorf("at the end of the process: %v, failures %q", err, s.why)
		}
	})
}
