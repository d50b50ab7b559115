package control

import (
	"context"
	"errors"
	"log/slog"
	"slices"
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
