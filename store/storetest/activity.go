package storetest

import (
	"fmt"
	"sync"

	"github.com/google/go-cmp/cmp"

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

func (f *fixture) wantActivity(what string, got []store.Activity, err error, want ...store.Activity) {
	f.Helper()
	if err != nil {
		f.Errorf("%s: %v", what, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		f.Errorf("%s (-want +got):\n%s", what, diff)
	}
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
	read := func(lane int64, span store.Span, from, to int64) ([]store.Activity, error) {
		return f.Activity(f.ctx(), project, lane, span, from, to)
	}
	got, err := read(0, store.Minute, at, at+2*minute)
	f.wantActivity("minutes", got, err, activity(0, store.Minute, at, 0), second)
	// Added to what is there, twice in one call.
	more := activity(0, store.Minute, at, 1000)
	f.addActivity(more, second, more)
	want := activity(0, store.Minute, at, 0)
	want.Add(&more)
	want.Add(&more)
	got, err = read(0, store.Minute, at, at+minute)
	f.wantActivity("a minute", got, err, want)
	second.Add(&second)
	got, err = read(0, store.Minute, at+1, at+minute+1)
	f.wantActivity("the next minute", got, err, second)
	got, err = read(0, store.Quarter, 0, store.Forever)
	f.wantActivity("quarters", got, err, quarter)
	got, err = read(7, store.Hour, 0, store.Forever)
	f.wantActivity("a lane", got, err, lane)
	got, err = read(0, store.Hour, 0, store.Forever)
	f.wantActivity("hours", got, err)
	got, err = f.Activity(f.ctx(), "other", 0, store.Minute, 0, store.Forever)
	f.wantActivity("another project", got, err, other)
	got, err = f.LaneActivity(f.ctx(), project, []int64{8, 7, 10}, at-2*hour)
	f.wantActivity("lanes", got, err, lane, activity(8, store.Hour, at-2*hour, 50))
	got, err = f.LaneActivity(f.ctx(), project, []int64{8, 7}, at-2*hour+1)
	f.wantActivity("lanes since", got, err, lane)
	got, err = f.LaneActivity(f.ctx(), "other", []int64{7}, 0)
	f.wantActivity("lanes of another project", got, err)
	got, err = f.LaneActivity(f.ctx(), project, nil, 0)
	f.wantActivity("no lanes", got, err)
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
		got, err := f.LaneActivity(f.ctx(), project, ids, at)
		f.ok(err)
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
	// How many of the ages each keeps.
	kept := map[string]int{fmt.Sprint(0, store.Minute): 2, fmt.Sprint(0, store.Quarter): 6, fmt.Sprint(0, store.Hour): 8, fmt.Sprint(3, store.Hour): 4}
	if n, err := f.PurgeActivity(f.ctx(), f.now, 1); err != nil || n != 4 {
		f.Errorf("purge of one of each kind: %d, %v", n, err)
	}
	if n, err := f.PurgeActivity(f.ctx(), f.now, 1000); err != nil || n != len(rows)-(2+6+8+4)-4 {
		f.Errorf("purge: %d, %v", n, err)
	}
	if n, err := f.PurgeActivity(f.ctx(), f.now, 1000); err != nil || n != 0 {
		f.Errorf("purge of nothing: %d, %v", n, err)
	}
	for _, of := range []struct {
		lane int64
		span store.Span
	}{{0, store.Minute}, {0, store.Quarter}, {0, store.Hour}, {3, store.Hour}} {
		got, err := f.Activity(f.ctx(), project, of.lane, of.span, 0, store.Forever)
		n := kept[fmt.Sprint(of.lane, of.span)]
		if err != nil || len(got) != n || got[0].At != f.now-ages[n-1] {
			f.Errorf("kept of lane %d, span %d: %v, %d, want %d", of.lane, of.span, err, len(got), n)
		}
	}
}
