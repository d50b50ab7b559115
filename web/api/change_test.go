package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestChangesArrive(t *testing.T) {
	t.Parallel()
	e := &engine{}
	f := newFace(t, e)
	const day = 24 * time.Hour
	for _, c := range []struct {
		call, body, reason string
		want               any
	}{
		{"Cancel", "", "", nil}, {"Cancel", " \n", "", nil}, {"Cancel", "{}", "", nil},
		{"Cancel", `{"reason":null}`, "", nil}, {"Cancel", `{"reason":"客户要求"}`, "客户要求", nil},
		{"CancelRef", `{"ref":"order-1"}`, "", control.CancelRefRequest{Ref: "order-1"}},
		{"CancelRef", `{"ref":"o","topic":"t","reason":"r"}`, "r", control.CancelRefRequest{Ref: "o", Topic: "t"}},
		{"CancelRef", `{"ref":"o","include_terminal":true}`, "", control.CancelRefRequest{Ref: "o", Terminal: true}},
		{"CancelRef", `{"ref":"o","include_terminal":false}`, "", control.CancelRefRequest{Ref: "o"}},
		{"CancelRef", `{"ref":"o","include_terminal":null}`, "", control.CancelRefRequest{Ref: "o"}},
		{"Retry", "", "", control.RetryRequest{}},
		{"Retry", `{"ladder":"restart","url":"https://b/","reason":"moved"}`, "moved",
			control.RetryRequest{Ladder: store.Restart, URL: "https://b/"}},
		{"Reschedule", `{"due_at":"2026-11-21T08:00:00Z"}`, "", moment{due: new(int64(nowMS))}},
		{"Reschedule", `{"delay":"1d","due_at":null,"reason":"later"}`, "later", moment{delay: new(day)}},
	} {
		id, path := bareID, oneID+"/"+strings.ToLower(c.call)
		if c.call == "CancelRef" {
			id, path = "", "cancel"
		}
		f.ask(t, 200, "POST", "/v1/callbacks/"+path, c.body)
		if diff := cmp.Diff(given{c.call, store.DefaultProject, id, c.want}, e.given, unexported); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.body, diff)
		}
		if e.actor != (store.Actor{Name: "admin key", Address: "192.0.2.1", Reason: c.reason}) {
			t.Errorf("%s %s: by %+v", c.call, c.body, e.actor)
		}
	}
	body := f.do("POST", "/v1/callbacks/cancel", `{"ref":"order-1"}`).Body.String()
	const first = `{"data":[{"result":"too_late","callback":{"id":"` + oneID
	if !strings.HasPrefix(body, first) || strings.Count(body, `"result"`) != 2 {
		t.Errorf("canceled by reference: %s", body)
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
