package dispatch_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// counted expects that SQL has counted just that, in the project's spans of each length and in the hours of
// its lanes. It also expects how many attempts were timed with both histograms.
func (b *fixture) counted(want store.Activity, late, took int64) {
	b.Helper()
	lanes := make([]int64, 50)
	for i := range lanes {
		lanes[i] = int64(i + 1)
	}
	for _, span := range store.Spans {
		b.countedIn(span, []int64{0}, want, late, took)
	}
	b.countedIn(store.Hour, lanes, want, late, took)
}

func (b *fixture) countedIn(span store.Span, lanes []int64, want store.Activity, late, took int64) {
	b.Helper()
	var got store.Activity
	for _, lane := range lanes {
		rows := must(b.db.Activity(b.Context(), project, lane, span, 0, store.Forever))
		for i := range rows {
			got.Add(&rows[i])
		}
	}
	for i := range got.Lateness {
		late, took = late-got.Lateness[i], took-got.Took[i]
	}
	what := fmt.Sprintf("%s, %d lanes: ", time.Duration(span), len(lanes))
	b.is(what+"more that were to be timed for lateness and for how long they took", []int64{late, took},
		[]int64{0, 0})
	got.Lateness, got.Took = want.Lateness, want.Took
	b.is(what+"counted", got, want)
}

// What is counted is what was done: each callback, each attempt and each end as dead once, whoever else
// tries, and in every span alike. What was counted last is written at the end.
func TestActivityIsWhatWasDone(t *testing.T) {
	with(func(ctx context.Context, h hit, before int) (*http.Response, error) {
		if strings.HasSuffix(h.url, "/second") {
			return inTurn(500, 200)(ctx, h, before)
		}
		return failing("/bad")(ctx, h, before)
	}).run(t, func(b *fixture) {
		minute := 40 * time.Second // so that what happens falls into many spans
		send := func(path string, s accept.Submission) string {
			s.URL = "https://shop.example/" + path
			return b.accept(s).ID
		}
		good, twice, dead := send("good", accept.Submission{Lane: "one"}), send("second", tiers(minute)),
			send("bad", tiers(minute, minute))
		b.pauseLane("held", soon(5*time.Hour))
		expired := send("good", accept.Submission{ExpiresIn: new(30 * time.Minute), Lane: "held"})
		time.Sleep(time.Hour)
		once := accept.Submission{IdempotencyKey: "k", Route: "r", Fingerprint: []byte("f")}
		first := send("good", once)
		b.is("a replay", send("good", once), first)
		b.ends("succeeded", 2*time.Hour, good, twice, first)
		b.ends("dead", 2*time.Hour, dead, expired)
		b.retryAt(dead, "")
		b.await(dead, time.Minute)
		b.await(send("bad", tiers()), time.Minute)
		b.stopRun()
		// dead comes to its end twice, the second time by hand, which is no matter of lateness.
		b.counted(store.Activity{Accepted: 6, Succeeded: 3, Failed: 6, Dead: 4}, 8, 9)
	})
}

// While SQL takes nothing of it, what has happened gathers; afterwards it is all there, and an idle process
// writes nothing.
func TestActivityOutlivesAnOutage(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		b.set(fail(errDown), "AddActivity")
		for i := range 60 {
			b.await(b.accept(accept.Submission{Lane: fmt.Sprint("lane-", i%7)}).ID, time.Minute)
			time.Sleep(7 * time.Second)
		}
		b.set(nil, "AddActivity")
		time.Sleep(6 * time.Second)
		want := store.Activity{Accepted: 60, Succeeded: 60}
		b.counted(want, 60, 60)
		writes := b.count("AddActivity")
		time.Sleep(10 * time.Minute)
		b.is("writes in ten minutes in which nothing happened", b.count("AddActivity")-writes, 0)
		b.stopRun()
		b.counted(want, 60, 60)
	})
}

// What was not accepted by a call counts as well: the result of a poll, and what a schedule makes.
func TestActivityOfWhatMakesItself(t *testing.T) {
	with(bank("SUCCESS"), withTemplates).run(t, func(b *fixture) {
		b.await(b.poll(paidPoll("o-1", time.Second)).ID, time.Minute)
		s := b.schedule(control.ScheduleChange{Name: new("sweep"), Cron: new("@every 1h"),
			Template: []byte(`{"url": "https://shop.example/sweep"}`)})
		time.Sleep(2*time.Hour + time.Minute)
		must(b.runSchedule(s.ID))
		time.Sleep(time.Minute)
		b.stopRun()
		// A poll and its result, two by the clock and one by hand.
		b.counted(store.Activity{Accepted: 5, Succeeded: 5}, 5, 5)
	})
}
