package dispatch_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// activityLog remembers what is written of what happens. While it is down nothing is.
type activityLog struct {
	dispatch.Store
	down   atomic.Bool
	mu     sync.Mutex
	rows   []store.Activity
	writes int
}

func (l *activityLog) AddActivity(ctx context.Context, rows []store.Activity) error {
	if l.down.Load() {
		return fmt.Errorf("add activity: %w", store.ErrUnavailable)
	}
	if err := l.Store.AddActivity(ctx, rows); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows, l.writes = append(l.rows, rows...), l.writes+1
	return nil
}

// watchActivity has an engine write what happens into the log.
func watchActivity(l *activityLog) tweak {
	return func(o *dispatch.Options) { l.Store, o.Store = o.Store, l }
}

func (l *activityLog) written() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writes
}

// sums adds up what was written of the spans of that length, of lanes or of projects. Each row must begin with its span.
func (l *activityLog) sums(t *testing.T, span store.Span, lanes bool) (sum store.Activity) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.rows {
		r := &l.rows[i]
		if r.Project != store.DefaultProject || r.At != r.Span.Begin(r.At) || r.LaneID != 0 && r.Span != store.Hour {
			t.Errorf("a row of %q, lane %d, %s at %d", r.Project, r.LaneID, time.Duration(r.Span), r.At)
		}
		if r.Span == span && (r.LaneID != 0) == lanes {
			sum.Add(r)
		}
	}
	return sum
}

// expect compares the sums of every span, and of lanes, with what has happened; how many attempts were timed with both histograms.
func (l *activityLog) expect(t *testing.T, want store.Activity, late, took int64) {
	t.Helper()
	for _, span := range store.Spans {
		l.expectOf(t, want, late, took, span, false)
	}
	l.expectOf(t, want, late, took, store.Hour, true)
}

func (l *activityLog) expectOf(t *testing.T, want store.Activity, late, took int64, span store.Span, lanes bool) {
	t.Helper()
	got := l.sums(t, span, lanes)
	var nLate, nTook int64
	for i := range got.Lateness {
		nLate, nTook = nLate+got.Lateness[i], nTook+got.Took[i]
	}
	if nLate != late || nTook != took {
		t.Errorf("%s, lanes %t: %d were timed for lateness and %d for how long they took, want %d and %d", time.Duration(span), lanes, nLate, nTook, late, took)
	}
	got.Lateness, got.Took = want.Lateness, want.Took
	if got != want {
		t.Errorf("%s, lanes %t: %+v, want %+v", time.Duration(span), lanes, got, want)
	}
}

// byPath answers as the path of the address says.
func byPath(_ context.Context, h hit, before int) (*http.Response, error) {
	switch {
	case strings.Contains(h.url, "/good"), strings.Contains(h.url, "/second") && before > 0:
		return answer(200, ""), nil
	}
	return answer(500, ""), nil
}

func at(path string, s dispatch.Submission) dispatch.Submission {
	s.URL, s.Body = "https://shop.example/"+path, []byte("{}")
	return s
}

// What is counted is what was done: each callback, each attempt and each end as dead once, whoever else tries, and in every span alike.
// What was counted last is written at the end.
func TestActivityIsWhatWasDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := new(activityLog)
		b := newBench(t, byPath, watchActivity(l))
		minute := 40 * time.Second // so that what happens falls into many spans
		good := b.accept(at("good", dispatch.Submission{Lane: "one"}))
		second := b.accept(at("second", tiers(minute)))
		dead := b.accept(at("bad", tiers(minute, minute)))
		b.must(b.engine.PauseLane(t.Context(), store.DefaultProject, "held", time.Now().Add(5*time.Hour).UnixMilli(), operator))
		expired := b.accept(at("good", dispatch.Submission{ExpiresIn: new(30 * time.Minute), Lane: "held"}))
		time.Sleep(time.Hour)
		once := at("good", dispatch.Submission{IdempotencyKey: "k", Route: "r", Fingerprint: []byte("f")})
		first := b.accept(once)
		b.accept(once) // a replay
		for _, c := range []store.Callback{good, second, dead, expired, first} {
			b.await(c.ID, 2*time.Hour)
		}
		b.must(b.engine.Retry(t.Context(), store.DefaultProject, dead.ID, dispatch.RetryRequest{}, operator))
		b.await(dead.ID, time.Minute)
		last := b.accept(at("bad", tiers()))
		b.await(last.ID, time.Minute)
		b.stop()
		// dead comes to its end twice, the second time by hand, which is no matter of lateness.
		l.expect(t, store.Activity{Accepted: 6, Succeeded: 3, Failed: 6, Dead: 4}, 8, 9)
	})
}

// While SQL takes nothing of it, what has happened gathers; afterwards it is all there, and an idle process writes nothing.
func TestActivityOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := new(activityLog)
		b := newBench(t, byPath, watchActivity(l))
		l.down.Store(true)
		for i := range 60 {
			b.await(b.accept(at("good", dispatch.Submission{Lane: fmt.Sprint("lane-", i%7)})).ID, time.Minute)
			time.Sleep(7 * time.Second)
		}
		if l.sums(t, store.Minute, false) != (store.Activity{}) {
			t.Error("something was written while SQL was away")
		}
		l.down.Store(false)
		time.Sleep(6 * time.Second)
		want := store.Activity{Accepted: 60, Succeeded: 60}
		l.expect(t, want, 60, 60)
		kept, err := b.db.Activity(t.Context(), store.DefaultProject, 0, store.Minute, 0, b.engine.Now())
		var sum store.Activity
		for i := range kept {
			sum.Add(&kept[i])
		}
		if err != nil || len(kept) < 7 || sum.Accepted != 60 || sum.Succeeded != 60 {
			t.Errorf("SQL has %d minutes with %+v, %v", len(kept), sum, err)
		}
		writes := l.written()
		time.Sleep(10 * time.Minute)
		if n := l.written() - writes; n != 0 {
			t.Errorf("%d writes in ten minutes in which nothing happened", n)
		}
		b.stop()
		l.expect(t, want, 60, 60)
	})
}

// What nobody has accepted by a call counts as well: the result of a poll, and what a schedule makes.
func TestActivityOfWhatMakesItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := new(activityLog)
		b := newBench(t, func(ctx context.Context, h hit, before int) (*http.Response, error) {
			if strings.HasPrefix(h.url, "https://bank.example/orders") {
				return bank("SUCCESS")(ctx, h, before)
			}
			return answer(200, ""), nil
		}, watchActivity(l), withTemplates)
		b.await(b.poll(paidPoll("o-1", time.Second)).ID, time.Minute)
		s := b.schedule(dispatch.ScheduleChange{Name: new("sweep"), Cron: new("@every 1h"), Template: []byte(`{"url": "https://shop.example/sweep"}`)})
		time.Sleep(2*time.Hour + time.Minute)
		b.must(b.engine.RunSchedule(t.Context(), store.DefaultProject, s.ID, operator))
		time.Sleep(time.Minute)
		b.stop()
		l.expect(t, store.Activity{Accepted: 5, Succeeded: 5}, 5, 5) // a poll and its result, two by the clock and one by hand
	})
}
