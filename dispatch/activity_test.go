package dispatch_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// counted expects that SQL has counted just that, in the project's spans of each length and in the hours of
// its lanes. It also expects how many attempts were timed with both histograms.
func (b *fixture) counted(want store.Activity, late, took int64) {
	b.t.Helper()
	ofLanes := make([]int64, 50)
	for i := range ofLanes {
		ofLanes[i] = int64(i + 1)
	}
	for _, span := range store.Spans {
		b.countedIn(span, []int64{0}, want, late, took)
	}
	b.countedIn(store.Hour, ofLanes, want, late, took)
}

func (b *fixture) countedIn(span store.Span, lanes []int64, want store.Activity, late, took int64) {
	b.t.Helper()
	var got store.Activity
	for _, lane := range lanes {
		rows, err := b.db.Activity(b.t.Context(), store.DefaultProject, lane, span, 0, store.Forever)
		if err != nil {
			b.t.Fatal(err)
		}
		for i := range rows {
			got.Add(&rows[i])
		}
	}
	for i := range got.Lateness {
		late, took = late-got.Lateness[i], took-got.Took[i]
	}
	if late != 0 || took != 0 {
		b.t.Errorf("%s, %d lanes: %d more were to be timed for lateness, %d for how long they took",
			time.Duration(span), len(lanes), late, took)
	}
	got.Lateness, got.Took = want.Lateness, want.Took
	if got != want {
		b.t.Errorf("%s, %d lanes: %+v, want %+v", time.Duration(span), len(lanes), got, want)
	}
}

// byPath answers as the path of the address says.
func byPath(_ context.Context, h hit, before int) (*http.Response, error) {
	if strings.Contains(h.url, "/good") || strings.Contains(h.url, "/second") && before > 0 {
		return answer(200, ""), nil
	}
	return answer(500, ""), nil
}

func at(path string, s accept.Submission) accept.Submission {
	s.URL, s.Body = "https://shop.example/"+path, []byte("{}")
	return s
}

// What is counted is what was done: each callback, each attempt and each end as dead once, whoever else tries, and in every span alike.
// What was counted last is written at the end.
func TestActivityIsWhatWasDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, byPath)
		minute := 40 * time.Second // so that what happens falls into many spans
		good := b.accept(at("good", accept.Submission{Lane: "one"}))
		second := b.accept(at("second", tiers(minute)))
		dead := b.accept(at("bad", tiers(minute, minute)))
		b.must(b.engine.PauseLane(t.Context(), store.DefaultProject, "held", time.Now().Add(5*time.Hour).UnixMilli(), operator))
		expired := b.accept(at("good", accept.Submission{ExpiresIn: new(30 * time.Minute), Lane: "held"}))
		time.Sleep(time.Hour)
		once := at("good", accept.Submission{IdempotencyKey: "k", Route: "r", Fingerprint: []byte("f")})
		first := b.accept(once)
		b.accept(once) // a replay
		for _, c := range []store.Callback{good, second, dead, expired, first} {
			b.await(c.ID, 2*time.Hour)
		}
		b.must(b.engine.Retry(t.Context(), store.DefaultProject, dead.ID, control.RetryRequest{}, operator))
		b.await(dead.ID, time.Minute)
		last := b.accept(at("bad", tiers()))
		b.await(last.ID, time.Minute)
		b.stopRun()
		// dead comes to its end twice, the second time by hand, which is no matter of lateness.
		b.counted(store.Activity{Accepted: 6, Succeeded: 3, Failed: 6, Dead: 4}, 8, 9)
	})
}

// While SQL takes nothing of it, what has happened gathers; afterwards it is all there, and an idle process writes nothing.
func TestActivityOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sql := new(faults)
		b := newFixture(t, byPath, faultySQL(sql))
		sql.set(fail(errDown), "AddActivity")
		for i := range 60 {
			b.await(b.accept(at("good", accept.Submission{Lane: fmt.Sprint("lane-", i%7)})).ID, time.Minute)
			time.Sleep(7 * time.Second)
		}
		sql.set(nil, "AddActivity")
		time.Sleep(6 * time.Second)
		want := store.Activity{Accepted: 60, Succeeded: 60}
		b.counted(want, 60, 60)
		writes := sql.count("AddActivity")
		time.Sleep(10 * time.Minute)
		if n := sql.count("AddActivity") - writes; n != 0 {
			t.Errorf("%d writes in ten minutes in which nothing happened", n)
		}
		b.stopRun()
		b.counted(want, 60, 60)
	})
}

// What nobody has accepted by a call counts as well: the result of a poll, and what a schedule makes.
func TestActivityOfWhatMakesItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, func(ctx context.Context, h hit, before int) (*http.Response, error) {
			if strings.HasPrefix(h.url, "https://bank.example/orders") {
				return bank("SUCCESS")(ctx, h, before)
			}
			return answer(200, ""), nil
		}, withTemplates)
		b.await(b.poll(paidPoll("o-1", time.Second)).ID, time.Minute)
		s := b.schedule(control.ScheduleChange{Name: new("sweep"), Cron: new("@every 1h"), Template: []byte(`{"url": "https://shop.example/sweep"}`)})
		time.Sleep(2*time.Hour + time.Minute)
		b.must(b.engine.RunSchedule(t.Context(), store.DefaultProject, s.ID, operator))
		time.Sleep(time.Minute)
		b.stopRun()
		// A poll and its result, two by the clock and one by hand.
		b.counted(store.Activity{Accepted: 5, Succeeded: 5}, 5, 5)
	})
}
