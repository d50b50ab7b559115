package api_test

import (
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
	const one, byRef = "/v1/callbacks/" + oneID, "/v1/callbacks/cancel"
	long := `{"reason":"` + strings.Repeat("r", 1025) + `"}`
	refuses(t, "POST", one+"/cancel", map[string]string{
		`{"x":1}`: "x", `[]`: "request", `{"reason":"\u0000"}`: "reason", long: "reason",
	})
	refuses(t, "POST", byRef, map[string]string{
		`{}`: "ref", `{"ref":""}`: "ref", `{"topic":"t"}`: "ref", `{"ref":7}`: "ref", `{"ref":"a","ref":"a"}`: "ref",
		`{"ref":"a","include_terminal":"yes"}`: "include_terminal",
	})
	refuses(t, "POST", one+"/retry", map[string]string{
		`{"ladder":"twice"}`: "ladder", `{"ladder":1}`: "ladder", `{"url":1}`: "url", `{"headers":{}}`: "headers",
	})
	refuses(t, "POST", one+"/reschedule", map[string]string{
		`{}`: "due_at", `{"due_at":"2026-11-21T08:00:00Z","delay":"1s"}`: "due_at", `{"delay":"-1s"}`: "delay", `{"due_at":"now"}`: "due_at",
	})
	refuses(t, "POST", "/v1/index/rebuild", map[string]string{`{"x":1}`: "x"})
	f := newFace(t, &engine{})
	for path, empty := range map[string]int{byRef: 400, one + "/reschedule": 400, one + "/cancel": 200, one + "/retry": 200} {
		if rec := f.do("POST", path, ""); rec.Code != empty {
			t.Errorf("POST %s without a body: %d", path, rec.Code)
		}
		wantProblem(t, f.do("POST", path, "{"), 400, "bad_json")
	}
}
