package ui

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// laneRows has lanes in the order of their keys, and remembers what was done to them.
type laneRows struct {
	diary
	all []control.LaneView
	err error
	// asked is the last filter.
	asked *store.LaneFilter
}

func (l laneRows) Lanes(_ context.Context, _ string, f store.LaneFilter) ([]control.LaneView, error) {
	if l.asked != nil {
		*l.asked = f
	}
	var found []control.LaneView
	for _, v := range l.all {
		if len(f.Keys) > 0 && !slices.Contains(f.Keys, v.Key) || v.Key <= f.After || !strings.Contains(v.Key, f.Search) || f.Held && v.PausedUntil <= testNow ||
			len(found) >= f.Limit {
			continue
		}
		found = append(found, v)
	}
	return found, l.err
}

func (l laneRows) SetLane(_ context.Context, _, key string, limit *int, rate *store.Rate, by store.Actor) (store.Lane, error) {
	text := "set " + key
	if limit != nil {
		text += fmt.Sprintf(" limit %d", *limit)
	}
	if rate != nil {
		text += fmt.Sprintf(" rate %q", rate.String())
	}
	l.note("%s %s", text, by.Reason)
	return store.Lane{}, l.err
}

func (l laneRows) PauseLane(_ context.Context, _, key string, until int64, by store.Actor) (store.Lane, error) {
	l.note("pause %s until %d %s", key, until, by.Reason)
	return store.Lane{}, l.err
}

// sampleLane is a lane with a backlog that is well.
func sampleLane(n int) control.LaneView {
	key := fmt.Sprintf("https://shop-%04d.example:443", n)
	return control.LaneView{
		LaneBacklog: store.LaneBacklog{Lane: store.Lane{ID: int64(n), Key: key, Rate: store.Rate{Count: 50, Per: time.Second}}, Open: int64(7 * n), OldestDue: testNow - 90_000},
		State:       &schedule.LaneState{InFlight: 3, Concurrency: 8, Limit: 32, Health: schedule.Answering},
	}
}

// heldLane is a lane that somebody has paused.
func heldLane(n int, because string) control.LaneView {
	v := sampleLane(n)
	v.OwnPause, v.PausedUntil, v.PauseReason = testNow+3_600_000, testNow+3_600_000, because
	return v
}

// brokenLane is a lane whose breaker is open.
func brokenLane(n int) control.LaneView {
	v := sampleLane(n)
	v.State.Breaker, v.State.Unanswered, v.State.UnansweredSince = schedule.BreakerOpen, 20, testNow-60_000
	v.State.OpenedAt, v.State.ProbeAt = testNow-50_000, testNow+9000
	return v
}

func laneCases() []pageCase {
	give := func(rows ...control.LaneView) func(o *fakes) {
		return func(o *fakes) { o.laneRows = laneRows{all: rows} }
	}
	var many []control.LaneView
	var counts store.Counts
	for n := 1; n <= 120; n++ {
		v := sampleLane(n)
		switch n % 5 {
		case 0:
			v = heldLane(n, "the merchant’s server is being moved")
		case 1:
			v = brokenLane(n)
		}
		many = append(many, v)
	}
	for n := 120; n > 20; n-- {
		counts.Lanes = append(counts.Lanes, store.LaneCount{Lane: many[n-1].Key, Open: many[n-1].Open})
	}
	ofEndpoint := sampleLane(1)
	ofEndpoint.Key, ofEndpoint.EndpointID, ofEndpoint.Disabled = "ep_"+testID(7), testID(7), true
	of := func(all ...store.Endpoint) func(o *fakes) {
		return func(o *fakes) {
			give(ofEndpoint)(o)
			o.endpointRows = endpointRows{all: all}
		}
	}
	blind := sampleLane(1)
	blind.State = nil
	evil := heldLane(1, hostile)
	evil.Key = hostile
	key := sampleLane(1).Key
	broken := func(o *fakes) { o.laneRows = laneRows{err: errBroken} }
	cases := []pageCase{
		{name: "lanes/empty", set: give(), want: wants{{".empty", "No lanes yet"}}, unwanted: []string{"table"}},
		{name: "lanes/one", set: give(sampleLane(1)), want: wants{{"td a", key}, {"td", "3 / 8"}, {"td .small", "at most 32"}, {"td", "50/s"}, {"td.act a", "Pause…"}}, unwanted: []string{".badge"}},
		{name: "lanes/many", set: give(many...), want: wants{{".badge.warn", "lane paused"}, {".badge.bad", "breaker open"}, {"q", "is being moved"}, {"td.act a", "Resume…"}, {".pager a", "Next page"}}},
		{name: "lanes/backlog-many", path: "/ui/lanes?sort=backlog", set: func(o *fakes) {
			give(many...)(o)
			o.callbackRows = callbackRows{counts: counts}
		}, want: wants{{"td", "840"}, {"p.small", "the most open callbacks"}, {".pager a", "Next page"}}},
		{name: "lanes/backlog-empty", path: "/ui/lanes?sort=backlog", set: func(o *fakes) {
			give()(o)
		}, want: wants{{".empty", "No lanes yet"}}},
		{name: "lanes/backlog-error", path: "/ui/lanes?sort=backlog", set: func(o *fakes) {
			give()(o)
			o.callbackRows = callbackRows{err: errBroken}
		}, status: http.StatusInternalServerError},
		{name: "lanes/endpoint", set: of(store.Endpoint{ID: testID(8), Name: "another"}), want: wants{{"td a[href=/ui/endpoints/ep_" + testID(7) + "]", "its endpoint"}, {".badge.bad", "disabled"}}},
		{name: "lanes/endpoint-named", set: of(store.Endpoint{ID: testID(7), Name: "Shop 7"}), want: wants{{"td a", "its endpoint: Shop 7"}}},
		{name: "lanes/endpoint-hostile", set: of(store.Endpoint{ID: testID(7), ExternalID: hostile}), want: wants{{"td a", "alert(1)"}}},
		{name: "lanes/endpoint-error", set: func(o *fakes) {
			of()(o)
			o.endpointRows = endpointRows{err: errBroken}
		}, status: http.StatusInternalServerError},
		{name: "lanes/noindex", set: give(blind), want: wants{{".banner.warn", "The index does not answer"}}},
		{name: "lanes/nomatch", path: "/ui/lanes?q=nothing&held=true", set: give(sampleLane(1)), want: wants{{".empty", "Nothing matches"}}},
		{name: "lanes/hostile", path: "/ui/lanes?q=" + queryEscape(hostile), set: give(evil), want: wants{{"td a", "alert(1)"}}},
		{name: "lanes/error", set: broken, want: wants{{"main", "Something went wrong"}}},
	}
	for name, says := range map[string]string{"pause": "Nothing more is sent", "resume": "ramping up", "limits": "An empty field takes a bound away"} {
		path := "/ui/lanes/" + name + "?key="
		cases = append(cases,
			pageCase{name: "form-lane-" + name + "/one", path: path + queryEscape(key), set: give(heldLane(1, "moved")), want: wants{{".act", says}, {"dd", key}}},
			pageCase{name: "form-lane-" + name + "/endpoint", path: path + "ep_" + testID(7), set: give(ofEndpoint), want: wants{{"dd a", "ep_" + testID(7)}}},
			pageCase{name: "form-lane-" + name + "/none", path: path + "other", set: give(sampleLane(1)), status: http.StatusNotFound},
			pageCase{name: "form-lane-" + name + "/hostile", path: path + queryEscape(hostile), set: give(evil)},
			pageCase{name: "form-lane-" + name + "/error", path: path + "x", set: broken})
	}
	return cases
}

func TestLaneActs(t *testing.T) {
	t.Parallel()
	const key = "a lane/with ?any=&characters %41 #x"
	lane := sampleLane(1)
	lane.Key = key
	var done []string
	o := parts()
	o.laneRows = laneRows{all: []control.LaneView{lane}, diary: diary{&done}}
	b := signedIn(t, o)
	path := func(name string) string { return link("/lanes/"+name, "key", key) }
	for _, name := range []string{"pause", "resume", "limits"} {
		form := find(b.get(path(name)).ok().doc, "form[method=post]")
		if got := attr(form[len(form)-1], "action"); got != path(name) {
			t.Errorf("%s is sent to %q", name, got)
		}
	}
	back := link("/lanes", "q", key)
	b.post(path("pause"), "for", "2h", "reason", "moved").leads(back)
	b.get("/ui/lanes").ok().has(".flash.good", "The lane is paused")
	b.post(path("pause"), "until", "2026-11-21T10:00").leads(back)
	b.post(path("pause"), "back", "/ui/lanes?sort=backlog").leads("/ui/lanes?sort=backlog")
	b.post(path("resume")).leads(back)
	b.post(path("limits"), "concurrency", "5", "was.concurrency", "", "rate", "", "was.rate", "50/s", "reason", "less").leads(back)
	b.post(path("limits"), "concurrency", "5", "was.concurrency", "5", "rate", "300/m", "was.rate", "50/s").leads(back)
	b.post(path("limits"), "concurrency", "", "was.concurrency", "5").leads(back)
	want := []string{
		fmt.Sprintf("pause %s until %d moved", key, testNow+7_200_000),
		fmt.Sprintf("pause %s until %d ", key, time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC).UnixMilli()),
		fmt.Sprintf("pause %s until %d ", key, store.Forever),
		fmt.Sprintf("pause %s until 0 ", key),
		"set " + key + ` limit 5 rate "" less`, "set " + key + ` rate "300/m" `, "set " + key + " limit 0 ",
	}
	if !slices.Equal(done, want) {
		t.Errorf("done\n%s\nwant\n%s", strings.Join(done, "\n"), strings.Join(want, "\n"))
	}
	done = nil
	for _, c := range []struct {
		act, says string
		pairs     []string
	}{
		{"pause", "is not a duration", []string{"for", "soon"}},
		{"pause", "is not in the future", []string{"for", "0s"}},
		{"pause", "not both", []string{"for", "1h", "until", "2026-11-21T10:00"}},
		{"pause", "is not in the future", []string{"until", "2020-01-01T10:00"}},
		{"pause", "is not a time", []string{"until", "later"}},
		{"limits", "is not a whole number", []string{"concurrency", "many"}},
		{"limits", "is not a whole number", []string{"concurrency", "0"}},
		{"limits", "is not a rate", []string{"rate", "50"}},
	} {
		res := b.refuses(path(c.act), ".field .error", c.says, append(c.pairs, "reason", "typed")...)
		if got := attr(find(res.doc, "#f-reason")[0], "value"); got != "typed" {
			t.Errorf("what was typed is lost: %q", got)
		}
	}
	if len(done) > 0 {
		t.Errorf("something was done: %q", done)
	}
}

func TestLanesAreAskedForByKey(t *testing.T) {
	t.Parallel()
	var asked store.LaneFilter
	o := parts()
	o.laneRows = laneRows{asked: &asked}
	b := signedIn(t, o)
	b.get("/ui/lanes?q=shop&held=true").ok()
	if asked.Search != "shop" || !asked.Held {
		t.Errorf("asked for %+v", asked)
	}
	// What no key can be must not reach the database.
	for _, path := range []string{"/ui/lanes?q=a%00b%FF&cursor=%FF", "/ui/lanes/pause?key=%00"} {
		if res := b.get(path); res.status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", path, res.status)
		}
	}
}
