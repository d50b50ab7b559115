package dispatch_test

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Each code of what keeps a callback has a course, in which it is what keeps one before all else.
func TestEveryHoldIsTold(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/courses/held.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range control.BlockCodes {
		_, course, _ := strings.Cut(string(text), "\n== "+code+"\n")
		course, _, _ = strings.Cut(course, "\n== ")
		if _, first, _ := strings.Cut(course, "\n  Code "); !strings.HasPrefix(first, code+", Since +") {
			t.Errorf("no course says since when %s keeps a callback", code)
		}
	}
}

// onlyAPI is an engine that others send for.
func onlyAPI(o *options) { o.Name, o.Alone, o.NoWorker = "api", false, true }

func (b *fixture) explain(id string) control.Explanation {
	b.Helper()
	synctest.Wait()
	return must(b.engine.Explain(b.Context(), project, id))
}

// first is what keeps a callback before all else.
func (b *fixture) first(id string) control.Block {
	b.Helper()
	if x := b.explain(id); len(x.Blocking) > 0 {
		return x.Blocking[0]
	}
	return control.Block{}
}

// codes are what keeps a callback, in order.
func (b *fixture) codes(id string) string {
	b.Helper()
	var codes []string
	for _, block := range b.explain(id).Blocking {
		codes = append(codes, block.Code)
	}
	return strings.Join(codes, " ")
}

// wantHold demands of the lane of a callback that it is held by what keeps that one.
func (b *fixture) wantHold(id string, want control.Block) {
	b.Helper()
	f := store.LaneFilter{Keys: []string{b.get(id).Lane}, Limit: 10}
	lanes := must(b.engine.Lanes(b.Context(), project, f))
	b.is("lanes", len(lanes), 1)
	holds := lanes[0].Holds(b.engine.Now())
	if len(holds) == 0 || lanes[0].Why(b.engine.Now()) != want.Code {
		b.Fatalf("the lane is held by %+v, want %s first", holds, want.Code)
	}
	if want.Code == control.BlockRate || want.Code == control.BlockConcurrency {
		want.Since = lanes[0].OldestDue // which may be that of one in flight
	}
	got := holds[0]
	b.check(got.Since == want.Since && got.Until == want.Until && got.Detail != "" && got.Cure != "",
		"the lane is held by %+v, want what explain says: %+v", got, want)
}

// A worker that died is missed since it was last seen; where there never was one, since the callback was
// accepted.
func TestWithoutAWorkerThatRuns(t *testing.T) {
	with(nil, onlyAPI).run(t, func(b *fixture) {
		time.Sleep(7 * time.Second)
		accepted := soon(0)
		id := b.accept(accept.Submission{}).ID
		missing := func(when string, since int64) control.Block {
			t.Helper()
			first := b.first(id)
			b.check(first.Code == control.BlockNoWorker && first.Since == since, "%s: %+v, want since %d",
				when, first, since)
			return first
		}
		time.Sleep(7 * time.Second)
		first := missing("of none that ever ran", accepted)
		b.check(strings.Contains(first.Detail, "ever"), "of none that ever ran: %+v", first)
		b.wantHold(id, first)
		seen := soon(0)
		b.ok(b.db.ReportDispatcher(b.Context(),
			store.Dispatcher{Name: "killed", Workers: 8, StartedAt: seen, SeenAt: seen}))
		b.is("with a worker that was just seen", b.codes(id), "")
		time.Sleep(control.DispatcherSilence + time.Millisecond)
		missing("of one that died", seen)
		// The purge removes rows of processes that are gone for a day.
		must(b.db.PurgeDispatchers(b.Context(), soon(3*24*time.Hour), 100))
		missing("of one that died long ago", seen)
		b.pause(store.Forever)
		b.is("paused, and without a worker", b.codes(id),
			control.BlockNoWorker+" "+control.BlockProjectPaused)
	})
}
