package storetest

import (
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// activity is one in which every count is another, n of them more.
func activity(a store.Activity, n int64) store.Activity {
	a.Accepted, a.Succeeded, a.Failed, a.Unknown, a.Dead = n+1, n+2, n+3, n+4, n+5
	for i := range a.Lateness {
		a.Lateness[i], a.Took[i] = n+6+int64(i), n+100+int64(i)
	}
	return a
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
		f.ok(f.AddActivity(f.ctx(), rows))
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
