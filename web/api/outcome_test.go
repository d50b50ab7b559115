package api_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func someOutcomes() []store.TerminalEvent {
	return []store.TerminalEvent{
		{
			Cursor: store.OutcomeCursor{Tx: nowMS, Group: 7, Item: 1}, ID: bareID, Project: store.DefaultProject, Kind: store.Notify, EndpointID: bareEndpoint,
			Topic: "payment.succeeded", Ref: "order-20261121-0001", Labels: map[string]string{"shop": "7", "channel": "alipay"},
			State: store.Dead, Reason: store.Exhausted, At: nowMS - 5, AttemptCount: 10, LastStatus: 503, LastClass: store.ClassHTTP5xx,
		},
		{
			Cursor: store.OutcomeCursor{Tx: nowMS + 1, Group: 8, Item: 300}, ID: bareID, State: store.Succeeded, At: nowMS,
			Labels: map[string]string{"shop": "7"}, AttemptCount: 11, LastStatus: 200, LastClass: store.ClassOK,
		},
		{Cursor: store.OutcomeCursor{Tx: nowMS + 2, Group: 8, Item: 301}, ID: bareID, Kind: store.Poll, State: store.Canceled, Reason: store.Requested, At: nowMS},
	}
}

func TestGoldenOutcomes(t *testing.T) {
	t.Parallel()
	golden(t, newFace(t, &engine{outcomes: someOutcomes()}), "outcomes.json", "GET", "/v1/outcomes", "")
}

// TestOutcomesAreFollowed: the cursor of a page begins the next one, and there is one at the end and before the first, too.
func TestOutcomesAreFollowed(t *testing.T) {
	t.Parallel()
	e := &engine{outcomes: someOutcomes()}
	f := newFace(t, e)
	cursor, seen := "", 0
	for i, want := range []asked{
		{limit: 2}, {after: someOutcomes()[1].Cursor, limit: 2}, {after: someOutcomes()[2].Cursor, limit: 2}, {after: someOutcomes()[2].Cursor, limit: 2},
	} {
		got := f.ask(t, 200, "GET", "/v1/outcomes?limit=2"+cursor, "")
		if diff := cmp.Diff(want, e.given.what, cmp.AllowUnexported(asked{})); diff != "" {
			t.Errorf("page %d (-want +got):\n%s", i, diff)
		}
		cursor, seen = "&cursor="+got["next_cursor"].(string), seen+len(got["data"].([]any))
	}
	if seen != 3 {
		t.Errorf("%d outcomes were seen, there are 3", seen)
	}
	got := newFace(t, &engine{}).ask(t, 200, "GET", "/v1/outcomes", "")
	f.ask(t, 200, "GET", "/v1/outcomes?cursor="+got["next_cursor"].(string), "")
	if diff := cmp.Diff(asked{limit: 50}, e.given.what, cmp.AllowUnexported(asked{})); diff != "" {
		t.Errorf("from before the first (-want +got):\n%s", diff)
	}
}

func TestOutcomesWait(t *testing.T) {
	t.Parallel()
	e := &engine{}
	f := newFace(t, e)
	for query, want := range map[string]time.Duration{"": 0, "wait=0s": 0, "wait=20s": 20 * time.Second, "wait=30s": 30 * time.Second, "wait=1500ms": 1500 * time.Millisecond} {
		f.ask(t, 200, "GET", "/v1/outcomes?"+query, "")
		if got := e.given.what.(asked).wait; got != want {
			t.Errorf("%s: waits %s", query, got)
		}
	}
	next := f.ask(t, 200, "GET", "/v1/outcomes", "")["next_cursor"].(string)
	list := f.ask(t, 200, "GET", "/v1/redrives?limit=1", "")["next_cursor"].(string)
	refuses(t, "GET", "/v1/outcomes?", map[string]string{
		"wait=31s": "wait", "wait=1h": "wait", "wait=-1s": "wait", "wait=20": "wait", "wait=": "wait", "wait=1s&wait=2s": "wait", "limit=0": "limit", "limit=501": "limit",
		"cursor=x": "cursor", "cursor=": "cursor", "cursor=" + next + "A": "cursor", "cursor=" + next[1:]: "cursor", "cursor=" + list: "cursor", "state=dead": "state",
	})
	wantProblem(t, f.do("GET", "/v1/callbacks?cursor="+next, ""), 422, "invalid")
	wantProblem(t, newFace(t, &engine{err: context.DeadlineExceeded}).do("GET", "/v1/outcomes", ""), 503, "unavailable")
}

// TestAReaderThatGoesAwayIsNoFailure of the server.
func TestAReaderThatGoesAwayIsNoFailure(t *testing.T) {
	t.Parallel()
	f := newFace(t, &engine{err: context.Canceled})
	wantProblem(t, f.do("GET", "/v1/outcomes?wait=1s", ""), 503, "unavailable") // this one was there
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req := httptest.NewRequest("GET", "/v1/outcomes?wait=1s", nil).WithContext(ctx)
	req.Header.Set("Authorization", "Bearer "+adminKey)
	rec := httptest.NewRecorder()
	if f.ServeHTTP(rec, req); rec.Code != 200 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}
