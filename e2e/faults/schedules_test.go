package faults

import (
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
	runOn(t, "a schedule of three dispatchers", quick, onlyPostgresRedis, fireASchedule)
}

func fireASchedule(tr *trial) {
	maker, p := tr.Serve(), tr.Serve()
	tr.Serve()
	const ref = "tick"
	var s client.Schedule
	maker.Post("/v1/schedules", harness.Submission{"name": "books", "cron": "@every 1s",
		"callback": harness.Submission{"url": tr.Receiver.URL + "/plain/tick", "ref": ref, "topic": "tick.books",
			"payload": harness.Payload(ref), "policy": harness.AskAfter("200ms", "1s", "1s")}}, &s)
	want := sized(20, 30, 90) // seconds; the last hundred runs are kept
	var runs []client.ScheduleRun
	fired := func(n int) {
		tr.AtLeast(3*time.Minute, "due times are fired", n, func() (have int) {
			var err error
			runs, err = p.ScheduleRuns(tr.Context(), s.ID)
			tr.Check(err)
			return len(runs)
		})
	}
	stalled := harness.Stalls(tr)
	fired(want / 2)
	tr.Kill(maker, 2*time.Second) // it has the wake-ups of the others; their own attempts end within a second
	fired(want)
	off := false
	_, err := p.PatchSchedule(tr.Context(), s.ID, client.ScheduleChange{Enabled: &off})
	tr.Check(err)
	stopped, stall := time.Now(), stalled()
	tr.Settle(2 * time.Minute) // what the dead one had claimed waits until its lease has run out
	fired(want)
	// The last due time is the one before the stop, which was at some moment of the call.
	if most := int(stopped.Sub(s.NextAt)/time.Second) + 1; len(runs) > most || runs[0].DueAt.After(stopped) {
		tr.Errorf("%d runs, at most %d are allowed; the last is due at %s, stopped at %s", len(runs), most, runs[0].DueAt,
			stopped)
	}
	made, err := p.ListAll(client.Filter{Topic: "tick.books"})
	tr.Check(err)
	created := map[string]time.Time{}
	for _, cb := range made {
		created[cb.ID] = cb.CreatedAt
	}
	var making []time.Duration
	for i, run := range runs { // the latest first
		due := s.NextAt.Add(time.Duration(len(runs)-1-i) * time.Second)
		late := created[run.CallbackID].Sub(due)
		if !run.DueAt.Equal(due) || run.Trigger != "schedule" || late < 0 {
			tr.Fatalf("a run was due at %s by %s, its callback made %s later; want %s, each second once", run.DueAt,
				run.Trigger, late, due)
		}
		making = append(making, late)
		tr.NoteAccepted(run.CallbackID, ref)
	}
	if len(made) != len(runs) {
		tr.Errorf("%d runs have made %d callbacks", len(runs), len(made))
	}
	tr.Account()
	bounds := tr.Bounds(0)
	bounds.SharedRefs = true
	tr.Verdict(bounds)
	starting := tr.lateness(ref)
	tr.Remark("%d due times, one dispatcher killed: made after %s (the goal is 100 ms); attempted after %s; %s",
		len(runs), judge.QuantilesOf(making), judge.QuantilesOf(starting), &tr.Claims)
	limit := time.Second + commits*stall
	if p99 := judge.Quantile(making, 0.99); p99 > limit {
		tr.Errorf("callbacks are made %s after their due times at p99, at most %s is allowed", p99, limit)
	}
	// Only what the dead one had claimed waits until its lease has run out.
	if p75 := judge.Quantile(starting, 0.75); p75 > limit {
		tr.Errorf("callbacks are attempted %s after their due times at p75, at most %s is allowed", p75, limit)
	}
}
