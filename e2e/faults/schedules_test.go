package faults

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// Of three dispatchers that all fire the same schedule one is killed in the midst of it: one callback comes
// of each due time, no more and no fewer, however it is counted, and none of the others waits for the end of
// the dead one.
func TestThreeDispatchersFireASchedule(t *testing.T) {
	harness.BlackBox(t)
	t.Parallel()
	harness.OnEach(t, onlyPostgresRedis, func(t *testing.T, b harness.Backend) {
		mostlyWaits(t)
		r := harness.NewReceiver(t, harness.Always(200, ""))
		var processes []*harness.Process
		for range 3 {
			processes = append(processes, harness.Serve(t, harness.Launch{On: b, Times: harness.QuickTimes}))
		}
		ctx := t.Context()
		var s client.Schedule
		processes[0].Post("/v1/schedules", harness.Submission{
			"name": "books", "cron": "@every 1s", "callback": harness.Submission{"url": r.URL + "/tick",
				"topic": "tick.books", "payload": harness.Submission{"of": "books"},
				"policy": harness.AskAfter("200ms", "1s", "1s")},
		}, &s, http.StatusCreated)
		if s.NextAt.IsZero() {
			t.Fatalf("%+v", s)
		}
		first := s.NextAt
		want := sized(20, 30, 90) // seconds; the last hundred runs are kept
		stalled := harness.Stalls(t)
		fired := func(p *harness.Process, n int) {
			t.Helper()
			harness.Eventually(t, 3*time.Minute, fmt.Sprintf("%d due times are fired", n), func() error {
				runs, err := p.RunsOf(s.ID)
				if err == nil && len(runs) < n {
					err = fmt.Errorf("%d are", len(runs))
				}
				return err
			})
		}
		fired(processes[1], want/2)
		processes[0].Kill() // who made it, and whose wake-ups the others had
		killed := time.Now()
		p := processes[1]
		fired(p, want)
		if err := p.Call(ctx, http.MethodPatch, "/v1/schedules/"+s.ID, harness.Submission{"enabled": false}, nil,
			http.StatusOK); err != nil {
			t.Fatal(err)
		}
		stopped := time.Now()
		stall := stalled()
		harness.Await(t, p.Client, 2*time.Minute) // what the dead one had claimed waits until its lease has run out
		runs, err := p.RunsOf(s.ID)
		if err != nil {
			t.Fatal(err)
		}
		// The last due time is the one before the stop, which was at some moment of the call.
		if n := len(runs); n < want || runs[n-1].DueAt.After(stopped) || n > int(stopped.Sub(first)/time.Second)+1 {
			t.Errorf("%d runs, the last due at %s, stopped at %s; want %d or a moment's more", n, runs[n-1].DueAt,
				stopped, want)
		}
		for i, run := range runs {
			if due := first.Add(time.Duration(i) * time.Second); !run.DueAt.Equal(due) || run.Trigger != "schedule" {
				t.Fatalf("run %d was due at %s by %s; want %s, each second once", i+1, run.DueAt, run.Trigger, due)
			}
		}
		judgeFired(t, p, r, runs, killed, stall)
	})
}

// judgeFired holds the runs of a schedule against the callbacks of its topic and what arrived, and prints how
// late it all was. A stall is the longest that the disk had meanwhile.
func judgeFired(t *testing.T, p *harness.Process, r *harness.Receiver, runs []client.ScheduleRun,
	killed time.Time, stall time.Duration) {
	t.Helper()
	made, err := p.ListAll(client.Filter{Topic: "tick.books"})
	if err != nil {
		t.Fatal(err)
	}
	byID := map[string]client.Callback{}
	for _, cb := range made {
		byID[cb.ID] = cb
	}
	arrived := map[string]int{}
	for _, a := range r.All() {
		arrived[a.ID]++
	}
	if len(made) != len(runs) || len(arrived) != len(runs) {
		t.Errorf("%d runs, %d callbacks of the topic, of which %d arrived", len(runs), len(made), len(arrived))
	}
	var making, starting []time.Duration
	cut := 0
	for _, run := range runs {
		cb := byID[run.CallbackID]
		attempts, err := p.AttemptsOf(run.CallbackID)
		if err != nil {
			t.Fatal(err)
		}
		again := len(attempts) > 1 // the kill found it in flight
		if again {
			cut++
		}
		if cb.State != "succeeded" || arrived[cb.ID] < 1 || arrived[cb.ID] > 1 && !again {
			t.Errorf("the callback of %s is %s, and arrived %d times", run.DueAt, cb.State, arrived[cb.ID])
			continue
		}
		making = append(making, cb.CreatedAt.Sub(run.DueAt))
		if late := attempts[0].StartedAt.Sub(run.DueAt); late >= 0 {
			starting = append(starting, late)
		} else {
			t.Errorf("the callback of %s was attempted %s before", run.DueAt, -late)
		}
		if cb.CreatedAt.Before(run.DueAt) {
			t.Errorf("the callback of %s was made at %s, before", run.DueAt, cb.CreatedAt)
		}
	}
	t.Logf("%d due times, one dispatcher killed at %s: made after %s (the goal is 100 ms); attempted after %s; "+
		"%d cut by the kill", len(runs), killed.UTC().Format("05.000"), judge.QuantilesOf(making),
		judge.QuantilesOf(starting), cut)
	if p99 := judge.Quantile(making, 0.99); p99 > time.Second+commits*stall {
		t.Errorf("callbacks are made %s after their due times at p99", p99)
	}
	// Only what the dead one had claimed waits until its lease has run out.
	if p75 := judge.Quantile(starting, 0.75); p75 > time.Second+commits*stall {
		t.Errorf("callbacks are attempted %s after their due times at p75", p75)
	}
}
