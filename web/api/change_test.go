package api_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestChangesArrive(t *testing.T) {
	t.Parallel()
	e := &engine{}
	f := newFace(t, e)
	ok := func(path, body string) {
		t.Helper()
		if rec := f.do("POST", "/v1/callbacks/"+path, body); rec.Code != 200 {
			t.Fatalf("%s %s: %d %s", path, body, rec.Code, rec.Body)
		}
	}
	for _, body := range []string{"", " \n", "{}", `{"reason":null}`} {
		ok(oneID+"/cancel", body)
		if e.actor != (store.Actor{Name: "admin key"}) {
			t.Errorf("cancel with %q: by %+v", body, e.actor)
		}
	}
	ok(oneID+"/cancel", `{"reason":"客户要求"}`)
	if e.actor != (store.Actor{Name: "admin key", Reason: "客户要求"}) {
		t.Errorf("cancel: by %+v", e.actor)
	}
	ok("cancel", `{"ref":"order-1"}`)
	ok("cancel", `{"ref":"order-1","topic":"refund","reason":"r"}`)
	if e.canceled != (dispatch.CancelRefRequest{Ref: "order-1", Topic: "refund"}) || e.actor.Reason != "r" {
		t.Errorf("cancel by ref: %+v by %+v", e.canceled, e.actor)
	}
	for body, terminal := range map[string]bool{"true": true, "false": false, "null": false} {
		ok("cancel", `{"ref":"order-1","include_terminal":`+body+`}`)
		if e.canceled != (dispatch.CancelRefRequest{Ref: "order-1", Terminal: terminal}) {
			t.Errorf("cancel by ref with %s: %+v", body, e.canceled)
		}
	}
	ok(oneID+"/retry", "")
	if e.retried != (dispatch.RetryRequest{}) {
		t.Errorf("retry: %+v", e.retried)
	}
	ok(oneID+"/retry", `{"ladder":"restart","url":"https://b/","reason":"moved"}`)
	if e.retried != (dispatch.RetryRequest{Ladder: store.Restart, URL: "https://b/"}) || e.actor.Reason != "moved" {
		t.Errorf("retry: %+v by %+v", e.retried, e.actor)
	}
	ok(oneID+"/reschedule", `{"due_at":"2026-11-21T08:00:00Z"}`)
	if e.due == nil || *e.due != nowMS || e.delay != nil {
		t.Errorf("reschedule to a time: %v %v", e.due, e.delay)
	}
	ok(oneID+"/reschedule", `{"delay":"1d","due_at":null,"reason":"later"}`)
	if e.due != nil || e.delay == nil || *e.delay != 24*time.Hour || e.actor.Reason != "later" {
		t.Errorf("reschedule by a delay: %v %v by %+v", e.due, e.delay, e.actor)
	}
}

func TestCancelByRefAnswersEach(t *testing.T) {
	t.Parallel()
	rec := newFace(t, &engine{}).do("POST", "/v1/callbacks/cancel", `{"ref":"order-1"}`)
	body := rec.Body.String()
	if !strings.HasPrefix(body, `{"data":[{"result":"too_late","callback":{"id":"`+oneID) || strings.Count(body, `"result"`) != 2 {
		t.Errorf("got %s", body)
	}
}

func TestChangesRefuse(t *testing.T) {
	t.Parallel()
	f := newFace(t, &engine{})
	for _, c := range []struct{ path, body, field string }{
		{oneID + "/cancel", `{"x":1}`, "x"}, {oneID + "/cancel", `[]`, "request"}, {oneID + "/cancel", `{"reason":"\u0000"}`, "reason"},
		{oneID + "/cancel", `{"reason":"` + strings.Repeat("r", 1025) + `"}`, "reason"},
		{"cancel", `{}`, "ref"}, {"cancel", `{"ref":"a","include_terminal":"yes"}`, "include_terminal"}, {"cancel", `{"ref":""}`, "ref"}, {"cancel", `{"topic":"t"}`, "ref"}, {"cancel", `{"ref":7}`, "ref"}, {"cancel", `{"ref":"a","ref":"a"}`, "ref"},
		{oneID + "/retry", `{"ladder":"twice"}`, "ladder"}, {oneID + "/retry", `{"ladder":1}`, "ladder"}, {oneID + "/retry", `{"url":1}`, "url"}, {oneID + "/retry", `{"headers":{}}`, "headers"},
		{oneID + "/reschedule", `{}`, "due_at"}, {oneID + "/reschedule", `{"due_at":"2026-11-21T08:00:00Z","delay":"1s"}`, "due_at"},
		{oneID + "/reschedule", `{"delay":"-1s"}`, "delay"}, {oneID + "/reschedule", `{"due_at":"now"}`, "due_at"},
	} {
		if fields := wantProblem(t, f.do("POST", "/v1/callbacks/"+c.path, c.body), 422, "invalid"); !slices.Contains(fields, c.field) {
			t.Errorf("%s %.60s: %q, want %q", c.path, c.body, fields, c.field)
		}
	}
	for _, path := range []string{"cancel", oneID + "/reschedule"} {
		wantProblem(t, f.do("POST", "/v1/callbacks/"+path, ""), 400, "bad_json")
	}
	for _, path := range []string{"cancel", oneID + "/reschedule", oneID + "/cancel", oneID + "/retry"} {
		wantProblem(t, f.do("POST", "/v1/callbacks/"+path, "{"), 400, "bad_json")
	}
	for _, path := range []string{"/v1/secret/rotate", "/v1/index/rebuild"} {
		wantProblem(t, f.do("POST", path, `{"x":1}`), 422, "invalid")
	}
}

func TestEveryErrorOfAChange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{store.ErrNotFound, 404, "not_found"},
		{store.ErrAttempting, 409, "attempting"},
		{store.ErrPayloadPurged, 409, "payload_purged"},
		{store.ErrTerminal, 409, "terminal"},
		{store.ErrUnavailable, 503, "unavailable"},
		{&store.InvalidError{Fields: []store.FieldError{{Field: "url", Message: "is blocked"}}}, 422, "invalid"},
	} {
		f := newFace(t, &engine{err: c.err})
		wantProblem(t, f.do("POST", "/v1/callbacks/"+oneID+"/retry", ""), c.status, c.code)
		wantProblem(t, f.do("POST", "/v1/callbacks/"+oneID+"/reschedule", `{"delay":"1s"}`), c.status, c.code)
		wantProblem(t, f.do("POST", "/v1/callbacks/"+oneID+"/cancel", ""), c.status, c.code)
		wantProblem(t, f.do("GET", "/v1/callbacks/"+oneID+"/payload", ""), c.status, c.code)
	}
}

func TestWhatCannotBeAnIDIsNotFound(t *testing.T) {
	t.Parallel()
	e := &engine{}
	f := newFace(t, e)
	for _, id := range []string{
		"x", bareID, "cb_", "cb_" + bareID[1:], oneID + "0", "cb_8" + bareID[1:], "CB_" + bareID, "cb_" + strings.ToLower(bareID[:3]) + "o" + bareID[4:],
		"cb_" + strings.Replace(bareID, "J", "I", 1), "%00", "'%20or%201=1--", "cb_..%2f..%2fetc", strings.Repeat("A", 10_000), "cb_01JD6QZ000000000000000000%00",
	} {
		for _, path := range []string{"", "/attempts", "/payload"} {
			if rec := f.do("GET", "/v1/callbacks/"+id+path, ""); rec.Code != 404 {
				t.Errorf("GET %.40s%s: %d", id, path, rec.Code)
			}
		}
		for _, path := range []string{"/cancel", "/retry", "/reschedule"} {
			if rec := f.do("POST", "/v1/callbacks/"+id+path, "{}"); rec.Code != 404 {
				t.Errorf("POST %.40s%s: %d", id, path, rec.Code)
			}
		}
	}
	if e.actor.Name != "" {
		t.Error("an id that is none reached the engine")
	}
}
