package storetest

import (
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// activity is one in which every count is another, n of them more.
func activity(lane int64, span store.Span, at, n int64) store.Activity {
	a := store.Activity{
		Project: project, LaneID: lane, Span: span, At: at,
		Accepted: n + 1, Succeeded: n + 2, Failed: n + 3, Unknown: n + 4, Dead: n + 5,
	}
	for i := range a.Lateness {
		a.Lateness[i], a.Took[i] = n+6+int64(i), n+100+int64(i)
	}
	return a
}

func (f *fixture) addActivity(rows ...store.Activity) { f.ok(f.AddActivity(f.ctx(), rows)) }

func testActivityAdd(f *fixture) {
	at, minute := store.Hour.Begin(f.now), store.Minute.Milliseconds()
	f.addActivity()
	first, second := activity(0, store.Minute, at, 0), activity(0, store.Minute, at+minute, 20)
	lane, eighth := activity(7, store.Hour, at, 30), activity(8, store.Hour, at-2*hour, 50)
	quarter, other := activity(0, store.Quarter, at, 40), activity(0, store.Minute, at, 9)
	other.Project = "other"
	f.addActivity(lane, second, first, other, quarter, eighth, activity(9, store.Hour, at, 60))
	read := func(what string, lane int64, span store.Span, from, to int64, want ...store.Activity) {
		same(f, what, want, must(f.Activity(f.ctx(), project, lane, span, from, to)))
	}
	lanes := func(what, project string, lanes []int64, from int64, want ...store.Activity) {
		same(f, what, want, must(f.LaneActivity(f.ctx(), project, lanes, from)))
	}
	read("minutes", 0, store.Minute, at, at+2*minute, first, second)
	// Added to what is there, twice in one call.
	more := activity(0, store.Minute, at, 1000)
	f.addActivity(more, second, more)
	first.Add(&more)
	first.Add(&more)
	read("a minute", 0, store.Minute, at, at+minute, first)
	second.Add(&second)
	read("the next minute", 0, store.Minute, at+1, at+minute+1, second)
	read("quarters", 0, store.Quarter, 0, store.Forever, quarter)
	read("a lane", 7, store.Hour, 0, store.Forever, lane)
	read("hours", 0, store.Hour, 0, store.Forever)
	same(f, "another project", []store.Activity{other},
		must(f.Activity(f.ctx(), "other", 0, store.Minute, 0, store.Forever)))
	lanes("lanes", project, []int64{8, 7, 10}, at-2*hour, lane, eighth)
	lanes("lanes since", project, []int64{8, 7}, at-2*hour+1, lane)
	lanes("lanes of another project", "other", []int64{7}, 0)
	lanes("no lanes", project, nil, 0)
}

// testActivityMany: more rows than one transaction takes, from several processes at once, in any order.
func testActivityMany(f *fixture) {
	const writers, lanes = 4, 2300
	at := store.Hour.Begin(f.now)
	crowd(f, writers, func(w int) (_ error) {
		var rows []store.Activity
		for i := range lanes {
			lane := int64(1 + (i*(w+1))%lanes) // of an order of its own
			rows = append(rows, store.Activity{
				Project: project, LaneID: lane, Span: store.Hour, At: at, Accepted: 1, Dead: lane,
			})
		}
		f.addActivity(rows...)
		return nil
	})
	var accepted int64
	for from := int64(1); from <= lanes; from += 500 {
		ids := make([]int64, 500)
		for i := range ids {
			ids[i] = from + int64(i)
		}
		for _, a := range must(f.LaneActivity(f.ctx(), project, ids, at)) {
			accepted += a.Accepted
			f.check(a.Dead == a.Accepted*a.LaneID, "of lane %d: %+v", a.LaneID, a)
		}
	}
	same(f, "added", writers*lanes, accepted)
}

func testActivityPurge(f *fixture) {
	ages := []int64{0, 3 * hour, 3*hour + 1, 2 * day, 2*day + 1, 3 * day, 3*day + 1, 31 * day, 31*day + 1}
	kinds := []struct {
		lane int64
		span store.Span
		kept int // how many of the ages
	}{{0, store.Minute, 2}, {0, store.Quarter, 6}, {0, store.Hour, 8}, {3, store.Hour, 4}}
	for _, of := range kinds {
		for _, age := range ages {
			f.addActivity(activity(of.lane, of.span, f.now-age, 0))
		}
	}
	for _, step := range []struct{ limit, want int }{
		{1, 4}, {1000, 4*len(ages) - (2 + 6 + 8 + 4) - 4}, {1000, 0},
	} {
		same(f, "purged", step.want, must(f.PurgeActivity(f.ctx(), f.now, step.limit)))
	}
	for _, of := range kinds {
		got := must(f.Activity(f.ctx(), project, of.lane, of.span, 0, store.Forever))
		f.check(len(got) == of.kept && got[0].At == f.now-ages[of.kept-1], "%d are kept of %+v", len(got), of)
	}
}

func (f *fixture) report(d store.Dispatcher) { f.ok(f.ReportDispatcher(f.ctx(), d)) }

func (f *fixture) purgeDispatchers(now int64, limit, want int) {
	same(f, "purged", want, must(f.PurgeDispatchers(f.ctx(), now, limit)))
}

// testDispatchersMany: what starts and dies again and again is listed up to a bound, those that were seen
// last.
func testDispatchersMany(f *fixture) {
	const n = 1003
	for i := range int64(n) {
		f.report(store.Dispatcher{Name: fmt.Sprint(i), StartedAt: f.now - i, SeenAt: f.now + i})
	}
	got := must(f.Dispatchers(f.ctx(), f.now))
	f.check(len(got) == 1000 && got[0].Name == fmt.Sprint(n-1) && got[999].Name == "3" &&
		slices.IsSortedFunc(got, func(a, b store.Dispatcher) int { return int(a.StartedAt - b.StartedAt) }),
		"%d are listed", len(got))
	f.purgeDispatchers(f.now+2*day, 500, 500)
	f.purgeDispatchers(f.now+2*day, 5000, 503)
}
