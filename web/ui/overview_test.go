package ui

import (
	"context"
	"fmt"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// overviewRows say what happened and what is due.
type overviewRows struct {
	activity []store.Activity
	due      store.DueNow
	hours    []store.DueHour
	err      error
}

func (s overviewRows) Activity(_ context.Context, _ string, _ int64, span store.Span, from, to int64) ([]store.Activity, error) {
	var rows []store.Activity
	for _, a := range s.activity {
		if a.Span == span && a.At >= from && a.At < to {
			rows = append(rows, a)
		}
	}
	return rows, s.err
}
func (s overviewRows) DueNow(context.Context, string, int64) (store.DueNow, error) {
	return s.due, s.err
}
func (s overviewRows) DueHours(context.Context, string, int64, int64) ([]store.DueHour, error) {
	return s.hours, s.err
}

// busy is an hour, a day and a week in which something happened.
func busy() []store.Activity {
	var all []store.Activity
	for _, r := range timeRanges {
		for i := range r.n {
			a := store.Activity{Span: r.span, At: r.span.Begin(testNow) - i*r.span.Milliseconds(), Accepted: 600 + 5*(i%17), Succeeded: 580 + 4*(i%13), Failed: 20 + i%11, Unknown: i % 3}
			for n := range 100 {
				a.Lateness.Observe(float64(n%7) * float64(1+i%5))
			}
			all = append(all, a)
		}
	}
	return all
}

func overviewCases() []pageCase {
	set := func(rows overviewRows, callbacks callbackRows, lanes laneRows, index indexEngine) func(o *fakes) {
		return func(o *fakes) {
			o.overviewRows, o.callbackRows, o.laneRows, o.indexEngine = rows, callbacks, lanes, index
			o.endpointRows = endpointRows{all: []store.Endpoint{{ID: testID(7), Name: "Shop 7 " + hostile}}}
		}
	}
	alive := indexEngine{processes: []store.Dispatcher{
		{Name: "a", Host: "pay-1", Version: "1.0", Roles: "api,ui,worker", Workers: 512, InFlight: 17, SeenAt: testNow - 1000, StartedAt: testNow - 1e7},
		{Name: "b", Host: "pay-2", Roles: "worker", Workers: 512, SeenAt: testNow - 300_000},
		{Name: "c", Host: "pay-3", Roles: "worker", Workers: 512, SeenAt: testNow - 1000, Draining: true},
	}, status: index.Status{Prefix: "dispatcher", Shards: 1, Generation: 3, Present: 3, BuiltAt: testNow - 86_400_000}, stats: schedule.Stats{Delayed: 120_000, Ready: 40, Leased: 17, OpenBreakers: 2}}
	many := callbackRows{counts: store.Counts{States: map[store.State]int64{store.Scheduled: 120_057, store.Dead: 12}, Tiers: map[int]int64{0: 99_000, 1: 800, 2: 90, 3: 4, 9: 1, 40: 2}}}
	lanes := laneRows{}
	for n := range 12 {
		key := fmt.Sprintf("https://shop-%d.example:443", n)
		many.counts.Lanes = append(many.counts.Lanes, store.LaneCount{Lane: key, Open: int64(100 * n)})
		v := control.LaneView{LaneBacklog: store.LaneBacklog{Lane: store.Lane{Key: key}, Open: int64(100 * n), OldestDue: testNow - int64(n)*7_000}}
		if n == 9 {
			v.OwnPause, v.EndpointID = store.Forever, testID(7)
		}
		lanes.all = append(lanes.all, v)
		many.all = append(many.all, sample(50-n))
	}
	full := overviewRows{activity: busy(), due: store.DueNow{Count: 1000, More: true, OldestAt: testNow - 84_000}}
	for h := range int64(24) {
		full.hours = append(full.hours, store.DueHour{At: store.Hour.Begin(testNow) + h*3_600_000, Count: 5000 - h*h*7})
	}
	begun := full
	begun.activity = begun.activity[:20]
	evil := laneRows{all: []control.LaneView{{LaneBacklog: store.LaneBacklog{Lane: store.Lane{Key: hostile}, Open: 5, OldestDue: testNow - 9000}}}}
	spoiled := indexEngine{processes: []store.Dispatcher{{Name: hostile, Host: hostile, Version: hostile, Roles: hostile, SeenAt: testNow}}}
	return []pageCase{
		{name: "overview/empty", path: "/ui/", set: set(overviewRows{}, callbackRows{}, laneRows{}, indexEngine{}), want: wants{{".empty", "Nothing waits"}, {".empty", "No callbacks yet"}, {".kpi", "0/s"}}},
		{name: "overview/one", path: "/ui/?range=24h", set: set(overviewRows{}, callbackRows{all: []store.Callback{sample(1)}}, laneRows{}, alive), want: wants{{"td a", "order-0001"}, {".badge.bad", "gone"}, {".chips [aria-current]", "24 hours"}}},
		{name: "overview/many", path: "/ui/", set: set(full, many, lanes, alive), want: wants{
			{".kpi.warn dd", "1,000+"}, {".kpi.bad dd", "12"}, {"td a", "https://shop-11.example:443"}, {".badge.warn", "Its lane is paused"}, {"td .small", "Shop 7"}, {"td", "17 / 512"},
		}},
		{name: "overview/minutes", path: "/ui/", set: set(begun, many, lanes, alive)},
		{name: "overview/week", path: "/ui/?range=7d", set: set(full, many, lanes, alive)},
		{name: "overview/down", path: "/ui/", set: func(o *fakes) {
			set(full, many, lanes, indexEngine{status: index.Status{Down: true}})(o)
			o.stillClock = stillClock{dispatch.Health{Degraded: []string{"redis", "redis_unsafe", "held"}}}
			o.projectRows = projectRows{paused: store.Forever, because: hostile}
		}, want: wants{{".banner.bad", "cannot commit"}, {".banner.warn", "index does not answer"}, {".banner.warn", "paused"}, {".badge.bad", "does not answer"}}},
		{name: "overview/hostile", path: "/ui/?range=" + queryEscape(hostile), set: set(full, callbackRows{all: []store.Callback{spoil(sample(1))}, counts: store.Counts{Lanes: []store.LaneCount{{Lane: hostile, Open: 5}}}}, evil, spoiled)},
		{name: "overview/error", path: "/ui/", set: set(overviewRows{err: errBroken}, many, lanes, alive)},
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	o := parts()
	begin := store.Minute.Begin(testNow)
	o.overviewRows = overviewRows{activity: []store.Activity{
		{Span: store.Minute, At: begin - 60_000, Accepted: 600, Succeeded: 300, Failed: 100},
		{Span: store.Minute, At: begin - 120_000, Accepted: 99_999, Succeeded: 1, Failed: 0},
	}}
	res := signedIn(t, o).get("/ui/").ok()
	seconds := float64(testNow-begin+60_000) / 1000
	res.has(".kpi", rate(600/seconds))
	res.has(".kpi", rate(300/seconds))
	res.has(".kpi", "75.1 %")
}
