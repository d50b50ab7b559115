package storetest

import (
	"fmt"
	"slices"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// activity is one in which every count is another, n of them more.
func activity(lane int64, span store.Span, at, n int64) store.Activity {
	a := store.Activity{
		Project: project, LaneID: lane, Span: span, At: at, Accepted: n + 1, Succeeded: n + 2, Failed: n + 3, Unknown: n + 4, Dead: n + 5,
	}
	for i := range a.Lateness {
		a.Lateness[i], a.Took[i] = n+6+int64(i), n+100+int64(i)
	}
	return a
}

func (f *fixture) addActivity(rows ...store.Activity) {
	f.Helper()
	f.ok(f.AddActivity(f.ctx(), rows))
}

func testActivityAdd(f *fixture) {
	at := store.Hour.Begin(f.now)
	minute := store.Minute.Milliseconds()
	f.addActivity()
	other := activity(0, store.Minute, at, 9)
	other.Project = "other"
	second, lane := activity(0, store.Minute, at+minute, 20), activity(7, store.Hour, at, 30)
	quarter := activity(0, store.Quarter, at, 40)
	f.addActivity(lane, second, activity(0, store.Minute, at, 0), other, quarter, activity(8, store.Hour, at-2*hour, 50), activity(9, store.Hour, at, 60))
	read := func(project string, lane int64, span store.Span, from, to int64) []store.Activity {
		return must(f.Activity(f.ctx(), project, lane, span, from, to))
	}
	lanes := func(project string, lanes []int64, from int64) []store.Activity {
		return must(f.LaneActivity(f.ctx(), project, lanes, from))
	}
	same(f, "minutes", []store.Activity{activity(0, store.Minute, at, 0), second},
		read(project, 0, store.Minute, at, at+2*minute))
	// Added to what is there, twice in one call.
	more := activity(0, store.Minute, at, 1000)
	f.addActivity(more, second, more)
	want := activity(0, store.Minute, at, 0)
	want.Add(&more)
	want.Add(&more)
	same(f, "a minute", []store.Activity{want}, read(project, 0, store.Minute, at, at+minute))
	second.Add(&second)
	same(f, "the next minute", []store.Activity{second}, read(project, 0, store.Minute, at+1, at+minute+1))
	same(f, "quarters", []store.Activity{quarter}, read(project, 0, store.Quarter, 0, store.Forever))
	same(f, "a lane", []store.Activity{lane}, read(project, 7, store.Hour, 0, store.Forever))
	none(f, "hours", read(project, 0, store.Hour, 0, store.Forever))
	same(f, "another project", []store.Activity{other}, read("other", 0, store.Minute, 0, store.Forever))
	eighth := activity(8, store.Hour, at-2*hour, 50)
	same(f, "lanes", []store.Activity{lane, eighth}, lanes(project, []int64{8, 7, 10}, at-2*hour))
	same(f, "lanes since", []store.Activity{lane}, lanes(project, []int64{8, 7}, at-2*hour+1))
	none(f, "lanes of another project", lanes("other", []int64{7}, 0))
	none(f, "no lanes", lanes(project, nil, 0))
}

// testActivityMany: more rows than one transaction takes, from several processes at once, in any order.
func testActivityMany(f *fixture) {
	const writers, lanes = 4, 2300
	at := store.Hour.Begin(f.now)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			var rows []store.Activity
			for i := range lanes {
				lane := int64(1 + (i*(w+1))%lanes) // of an order of its own
				rows = append(rows, store.Activity{Project: project, LaneID: lane, Span: store.Hour, At: at, Accepted: 1, Dead: lane})
			}
			if err := f.AddActivity(f.ctx(), rows); err != nil {
				f.Errorf("add activity: %v", err)
			}
		})
	}
	wg.Wait()
	var accepted int64
	for from := int64(1); from <= lanes; from += 500 {
		var ids []int64
		for lane := from; lane < from+500; lane++ {
			ids = append(ids, lane)
		}
		got := must(f.LaneActivity(f.ctx(), project, ids, at))
		for _, a := range got {
			accepted += a.Accepted
			if a.Dead != a.Accepted*a.LaneID {
				f.Errorf("of lane %d: %+v", a.LaneID, a)
			}
		}
	}
	if accepted != writers*lanes {
		f.Errorf("%d were added, %d are there", writers*lanes, accepted)
	}
}

func testActivityPurge(f *fixture) {
	ages := []int64{0, 3 * hour, 3*hour + 1, 2 * day, 2*day + 1, 3 * day, 3*day + 1, 31 * day, 31*day + 1}
	var rows []store.Activity
	for _, age := range ages {
		for _, span := range store.Spans {
			rows = append(rows, activity(0, span, f.now-age, 0))
		}
		rows = append(rows, activity(3, store.Hour, f.now-age, 0))
	}
	f.addActivity(rows...)
	purge := func(limit, want int) {
		f.Helper()
		same(f, "purged", want, must(f.PurgeActivity(f.ctx(), f.now, limit)))
	}
	purge(1, 4) // one of each kind
	purge(1000, len(rows)-(2+6+8+4)-4)
	purge(1000, 0)
	for _, of := range []struct {
		lane int64
		span store.Span
		kept int // how many of the ages
	}{{0, store.Minute, 2}, {0, store.Quarter, 6}, {0, store.Hour, 8}, {3, store.Hour, 4}} {
		got := must(f.Activity(f.ctx(), project, of.lane, of.span, 0, store.Forever))
		if len(got) != of.kept || got[0].At != f.now-ages[of.kept-1] {
			f.Errorf("%d are kept of lane %d, span %d, want %d", len(got), of.lane, of.span, of.kept)
		}
	}
}

func testDispatchers(f *fixture) {
	want := func(since int64, want ...store.Dispatcher) {
		f.Helper()
		same(f, fmt.Sprint("since ", since), want, must(f.Dispatchers(f.ctx(), since)))
	}
	want(0)
	a := store.Dispatcher{
		Name: "a", Host: "machine-1", Version: "v1.2.3", Roles: "api,worker", Workers: 64, InFlight: 7, Held: true, ClockOffset: -12,
		StartedAt: f.now - 100, SeenAt: f.now,
	}
	b := store.Dispatcher{Name: "b", Host: "machine-2", Draining: true, StartedAt: f.now - 200, SeenAt: f.now - 50}
	c := store.Dispatcher{Name: "0", StartedAt: f.now - 100, SeenAt: f.now - 1}
	f.ok(f.ReportDispatcher(f.ctx(), a))
	f.ok(f.ReportDispatcher(f.ctx(), b))
	f.ok(f.ReportDispatcher(f.ctx(), c))
	want(f.now-50, b, c, a)
	want(f.now-49, c, a)
	a = store.Dispatcher{
		Name: "a", Host: "machine-3", Version: "v2", Roles: "ui", Workers: 1, InFlight: 0, Draining: true, ClockOffset: 3, StartedAt: f.now - 300,
		SeenAt: f.now + 1,
	}
	f.ok(f.ReportDispatcher(f.ctx(), a))
	want(0, a, b, c)
	for range 2 {
		f.ok(f.WithdrawDispatcher(f.ctx(), "b", f.now+2))
	}
	want(0, a, c)
	purge := func(now int64, limit, want int) {
		f.Helper()
		same(f, "purged", want, must(f.PurgeDispatchers(f.ctx(), now, limit)))
	}
	purge(f.now-1+day, 10, 0)
	purge(f.now+day, 10, 1)
	want(0, a)
}

// testLastWorker: a process with workers is known after it has ended, or died, for as long as none has come
// after it.
func testLastWorker(f *fixture) {
	want := func(what string, want int64) {
		f.Helper()
		same(f, "the last worker, "+what, want, must(f.LastWorker(f.ctx())))
	}
	want("of none", 0)
	f.ok(f.ReportDispatcher(f.ctx(), store.Dispatcher{Name: "api", SeenAt: f.now + 90}))
	want("with none but an API", 0)
	f.ok(f.ReportDispatcher(f.ctx(), store.Dispatcher{Name: "a", Workers: 8, SeenAt: f.now}))
	f.ok(f.ReportDispatcher(f.ctx(), store.Dispatcher{Name: "b", Workers: 8, SeenAt: f.now + 10}))
	want("of two", f.now+10)
	f.ok(f.WithdrawDispatcher(f.ctx(), "b", f.now+20))
	f.ok(f.WithdrawDispatcher(f.ctx(), "b", f.now+30))
	want("when one has ended", f.now+20)
	same(f, "purged", 2, must(f.PurgeDispatchers(f.ctx(), f.now+9*day, 10)))
	want("after the purge", f.now+20)
	if list := must(f.Dispatchers(f.ctx(), 0)); len(list) != 0 {
		f.Errorf("one that has ended is listed: %+v", list)
	}
	f.ok(f.ReportDispatcher(f.ctx(), store.Dispatcher{Name: "c", Workers: 1, SeenAt: f.now + 40}))
	same(f, "purged", 1, must(f.PurgeDispatchers(f.ctx(), f.now+9*day, 10)))
	want("when another has come", f.now+40)
}

// testDispatchersMany: what starts and dies again and again is listed up to a bound, those that were seen last.
func testDispatchersMany(f *fixture) {
	const n = 1003
	for i := range n {
		d := store.Dispatcher{Name: fmt.Sprint(i), StartedAt: f.now - int64(i), SeenAt: f.now + int64(i)}
		f.ok(f.ReportDispatcher(f.ctx(), d))
	}
	got, err := f.Dispatchers(f.ctx(), f.now)
	if err != nil || len(got) != 1000 || got[0].Name != fmt.Sprint(n-1) || got[999].Name != "3" ||
		!slices.IsSortedFunc(got, func(a, b store.Dispatcher) int { return int(a.StartedAt - b.StartedAt) }) {
		f.Errorf("%v, %d are listed", err, len(got))
	}
	same(f, "purged", 500, must(f.PurgeDispatchers(f.ctx(), f.now+2*day, 500)))
	same(f, "purged with the rest", 503, must(f.PurgeDispatchers(f.ctx(), f.now+2*day, 5000)))
}
