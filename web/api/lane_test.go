package api_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const oneLane = "https://shop.example:443"

func someLanes() []control.LaneView {
	return []control.LaneView{
		{
			LaneBacklog: store.LaneBacklog{Lane: store.Lane{Key: oneLane, Limit: 8, Rate: store.Rate{Count: 50, Per: time.Second}}, Open: 12, OldestDue: nowMS - 5000},
			State: &schedule.LaneState{
				InFlight: 2, Concurrency: 4, Limit: 8, Health: schedule.TimingOut, Breaker: schedule.BreakerOpen, Unanswered: 20,
				UnansweredSince: nowMS - 30_000, OpenedAt: nowMS - 9000, ProbeAt: nowMS + 4000,
			},
		},
		{
			LaneBacklog: store.LaneBacklog{
				Lane: store.Lane{
					Key: oneEndpoint, EndpointID: bareEndpoint, PausedUntil: store.Forever,
					EndpointPause: store.Forever, EndpointPausedAt: nowMS - 70_000, PauseReason: "gone",
				},
				Open: 1, OldestDue: nowMS + 1,
			},
		},
		{
			LaneBacklog: store.LaneBacklog{Lane: store.Lane{Key: "m-1"}},
			State: &schedule.LaneState{
				HeldSince: nowMS - 5000, HeldUntil: nowMS + 60_000, Health: schedule.Answering,
			},
		},
	}
}

func TestGoldenLanes(t *testing.T) {
	t.Parallel()
	f := newFace(t, &engine{lanes: someLanes()})
	golden(t, f, "lanes.json", "GET", "/v1/lanes", "")
	golden(t, f, "lane_paused.json", "POST", "/v1/lanes/m-1/pause", `{"for":"2h","reason":"moving"}`)
	golden(t, f, "project_paused.json", "POST", "/v1/pause", `{"reason":"moving"}`)
}

func TestLaneFilters(t *testing.T) {
	t.Parallel()
	e := &engine{lanes: someLanes()}
	f := newFace(t, e)
	for query, want := range map[string]store.LaneFilter{
		"": {Now: nowMS, Limit: 51}, "search=shop&held=true&limit=3": {Now: nowMS, Limit: 4, Search: "shop", Held: true},
	} {
		f.arrives(t, e, 200, "GET", "/v1/lanes?"+query, "", want)
	}
	refuses(t, "GET", "/v1/lanes?", map[string]string{"held=1": "held", "lane=x": "lane"})
}

// TestLanesOfAnyKey are reached by their keys, escaped as they should be or not.
func TestLanesOfAnyKey(t *testing.T) {
	t.Parallel()
	e := &engine{}
	f := newFace(t, e)
	for _, key := range []string{oneLane, oneEndpoint, "http://[::1]:8080", "m-1", "商户/7", "a+b c%d", "x/pause", "pause", "a//b/"} {
		for _, path := range []string{url.PathEscape(key), key} {
			if path == key && key != (&url.URL{Path: key}).String() && key != oneLane && key != oneEndpoint {
				continue // only those that are paths as they stand can be sent as they stand
			}
			for action, method := range map[string]string{"pause": "POST", "resume": "POST", "limits": "PUT"} {
				e.given = given{}
				rec := f.do(method, "/v1/lanes/"+path+"/"+action, `{"reason":null`+map[string]string{"limits": `,"rate":null`}[action]+`}`)
				if rec.Code != 200 || e.given.id != key {
					t.Errorf("%s %s/%s: %d %s; the engine was asked for %q", method, path, action, rec.Code, rec.Body, e.given.id)
				}
			}
		}
	}
	for path, want := range map[string]int{
		"POST /v1/lanes/x/limits": 405, "PUT /v1/lanes/x/pause": 405, "POST /v1/lanes/x/stop": 404, "POST /v1/lanes/pause": 404, "POST /v1/lanes//pause": 404,
		"POST /v1/lanes/x/": 404,
	} {
		method, path, _ := strings.Cut(path, " ")
		rec := f.do(method, path, "{}")
		if rec.Code != want || want == 405 && rec.Header().Get("Allow") == "" {
			t.Errorf("%s %s: %d %s", method, path, rec.Code, rec.Body)
		}
	}
}

func TestLaneLimits(t *testing.T) {
	t.Parallel()
	e := &engine{}
	f := newFace(t, e)
	for body, want := range map[string]bounds{
		`{"rate":"300/m","concurrency":8}`:                 {new(8), &store.Rate{Count: 300, Per: time.Minute}},
		`{"rate":null,"concurrency":null,"reason":"over"}`: {new(0), &store.Rate{}},
		`{"rate":"1/d"}`:     {nil, &store.Rate{Count: 1, Per: 24 * time.Hour}},
		`{"concurrency":16}`: {new(16), nil},
	} {
		f.arrives(t, e, 200, "PUT", "/v1/lanes/m-1/limits", body, want)
	}
	refuses(t, "PUT", "/v1/lanes/m-1/limits", map[string]string{
		`{}`: "rate", `{"reason":"r"}`: "rate", `{"rate":"50"}`: "rate", `{"rate":50}`: "rate", `{"rate":"0/s"}`: "rate", `{"concurrency":0}`: "concurrency",
		`{"concurrency":"8"}`: "concurrency", `{"limit":8}`: "limit",
	})
}

func TestPauses(t *testing.T) {
	t.Parallel()
	const tomorrow = nowMS + dayMS
	for _, path := range []string{"/v1/endpoints/" + oneEndpoint, "/v1/lanes/m-1", "/v1"} {
		e := &engine{endpoint: someEndpoint()}
		f := newFace(t, e)
		for _, c := range []struct {
			body  string
			until int64
			shown any
		}{
			{"", store.Forever, nil}, {`{}`, store.Forever, nil}, {`{"until":null,"for":null}`, store.Forever, nil},
			{`{"for":"1d","reason":"moving"}`, tomorrow, "2026-11-22T08:00:00.000Z"}, {`{"until":"2026-11-22T16:00:00+08:00"}`, tomorrow, "2026-11-22T08:00:00.000Z"},
		} {
			got := f.ask(t, 200, "POST", path+"/pause", c.body)
			if e.given.what != c.until || got["paused"] != true || got["paused_until"] != c.shown {
				t.Errorf("%s/pause %s: until %v, answered %v", path, c.body, e.given.what, got)
			}
		}
		if got := f.ask(t, 200, "POST", path+"/resume", `{"reason":"moved"}`); e.given.what != int64(0) || got["paused"] != false || e.actor.Reason != "moved" {
			t.Errorf("%s/resume: until %v by %+v, answered %v", path, e.given.what, e.actor, got)
		}
		refuses(t, "POST", path+"/pause", map[string]string{
			`{"until":"2026-11-21T08:00:00Z"}`: "until", `{"until":"2026-11-22T08:00:00Z","for":"1d"}`: "for", `{"for":"0s"}`: "for",
			`{"for":"-1s"}`: "for", `{"for":60}`: "for", `{"until":"tomorrow"}`: "until", `{"x":1}`: "x",
		})
		refuses(t, "POST", path+"/resume", map[string]string{`{"until":null}`: "until"})
	}
}
