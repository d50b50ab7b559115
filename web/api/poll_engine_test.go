package api_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const aPoll = `{"ref":"o-1","request":{"url":"https://upstream.example/orders/1","headers":{"Accept":"application/json"}},"policy":{"tiers":["1h"],"repeat_last":true,"deadline":"3d"},
	"until": { "success":[{"pointer":"/trade_state","in":["SUCCESS"]}] },"context": {"channel" : "alipay"} ,"topic":"payment",
	"on_result":{"url":"https://shop.example/result","topic":"payment.result"}}`

// result reads what a poll's result callback tells.
func (f face) result(t *testing.T, poll map[string]any) map[string]any {
	t.Helper()
	id, _ := poll["poll"].(map[string]any)["result_callback_id"].(string)
	if cb := f.settled(t, id, "succeeded"); cb["kind"] != "notify" || cb["topic"] != "payment.result" || cb["ref"] != "o-1" {
		t.Errorf("the result callback: %v", cb)
	}
	var told map[string]any
	if rec := f.do("GET", "/v1/callbacks/"+id+"/payload", ""); json.Unmarshal(rec.Body.Bytes(), &told) != nil {
		t.Fatalf("the result: %d %s", rec.Code, rec.Body)
	}
	return told
}

// asked waits until a poll has been asked once, in vain.
func (f face) asked(t *testing.T, id string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		poll := f.ask(t, 200, "GET", "/v1/polls/"+id, "")
		if poll["attempt_count"] == 1.0 && poll["state"] == "scheduled" && poll["poll"].(map[string]any)["errors"] == 1.0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the poll was not asked within 20 s: %v", poll)
		}
	}
}

// TestPollThroughTheEngine: it is asked, ends, and tells its result.
func TestPollThroughTheEngine(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	accepted := f.ask(t, 202, "POST", "/v1/polls", aPoll)
	id := accepted["id"].(string)
	if accepted["kind"] != "poll" || accepted["method"] != "GET" {
		t.Errorf("accepted: %v", accepted)
	}
	f.settled(t, id, "succeeded")
	poll := f.ask(t, 200, "GET", "/v1/polls/"+id, "")
	detail := poll["poll"].(map[string]any)
	if poll["reason"] != "success" || detail["outcome"] != "success" || detail["errors"] != 0.0 || detail["data"] != nil || detail["hold_if"] != nil {
		t.Errorf("ended: %v", poll)
	}
	want := map[string]any{"url": "https://shop.example/result", "endpoint_id": nil, "topic": "payment.result", "ref": "o-1"}
	if diff := cmp.Diff(want, detail["on_result"]); diff != "" {
		t.Errorf("on_result (-want +got):\n%s", diff)
	}
	told := f.result(t, poll)
	if told["poll_id"] != id || told["outcome"] != "success" || told["context"].(map[string]any)["channel"] != "alipay" {
		t.Errorf("told: %v", told)
	}
	if list := f.ask(t, 200, "GET", "/v1/callbacks?kind=poll", "")["data"].([]any); len(list) != 1 || list[0].(map[string]any)["id"] != id {
		t.Errorf("polls: %v", list)
	}
	other := poll["poll"].(map[string]any)["result_callback_id"].(string)
	wantProblem(t, f.do("GET", "/v1/polls/"+other, ""), 404, "not_found")
	wantProblem(t, f.do("POST", "/v1/polls/"+other+"/resolve", ""), 404, "not_found")
}

// TestPollIsResolvedThroughTheEngine: there is one open poll of an order, which ends by what was learned in another way.
func TestPollIsResolvedThroughTheEngine(t *testing.T) {
	t.Parallel()
	to := &receiver{}
	to.shut.Store(true)
	f := newEngineFaceFor(t, to)
	id := f.ask(t, 202, "POST", "/v1/polls", aPoll)["id"].(string)
	if again := f.ask(t, 200, "POST", "/v1/polls", aPoll); again["id"] != id || again["replayed"] != true {
		t.Errorf("a second one: %v", again)
	}
	f.asked(t, id)
	to.shut.Store(false) // the result's receiver answers; the poll itself waits for its hour
	resolved := f.ask(t, 200, "POST", "/v1/polls/"+id+"/resolve", `{"data": {"trade_state" : "SUCCESS"} ,"reason":"the notification came"}`)
	if resolved["result"] != "resolved" || resolved["callback"].(map[string]any)["reason"] != "resolved" {
		t.Errorf("resolved: %v", resolved)
	}
	if again := f.ask(t, 200, "POST", "/v1/polls/"+id+"/resolve", ""); again["result"] != "already_terminal" || again["callback"].(map[string]any)["state"] != "succeeded" {
		t.Errorf("resolved again: %v", again)
	}
	poll := f.ask(t, 200, "GET", "/v1/polls/"+id, "")
	if told := f.result(t, poll); told["outcome"] != "resolved" || poll["poll"].(map[string]any)["outcome"] != "resolved" || told["data"].(map[string]any)["trade_state"] != "SUCCESS" {
		t.Errorf("told: %v of %v", told, poll)
	}
	if next := f.ask(t, 202, "POST", "/v1/polls", aPoll); next["id"] == id {
		t.Errorf("the next one is the one that has ended: %v", next)
	}
}

// TestTheEngineNamesFieldsOfPolls as they stand in the request.
func TestTheEngineNamesFieldsOfPolls(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	for body, want := range map[string][]string{
		`{}`: {"ref", "request.url", "until"},
		`{"ref":"a","request":{"url":"ftp://x","headers":{"Host":"h"}},"until":{"success":[{"pointer":7}]}}`:                               {"request.headers.Host", "request.url", "until.success[0]", "until.success[0].pointer"},
		`{"ref":"a","request":{"url":"https://u.example/"},"until":{},"on_result":{}}`:                                                     {"on_result.url", "until"},
		`{"ref":"a","request":{"url":"https://u.example/"},"until":{"failure":[{"status":[404]}]},"error_budget":1001,"evaluate":["300"]}`: {"error_budget", "evaluate"},
		`{"ref":"a","request":{"url":"https://u.example/"},"until":{"failure":[{"status":[404]}]},"on_result":{"payload":1,"x":1}}`:        {"on_result.payload", "on_result.url", "on_result.x"},
	} {
		fields := wantProblem(t, f.do("POST", "/v1/polls", body), 422, "invalid")
		slices.Sort(fields)
		if diff := cmp.Diff(want, slices.Compact(fields)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
}

// TestCancelByRefThroughTheEngine answers what had ended already, if it is asked to.
func TestCancelByRefThroughTheEngine(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	sent := f.ask(t, 202, "POST", "/v1/callbacks", `{"url":"https://shop.example/","payload":1,"ref":"timer-1"}`)["id"].(string)
	f.settled(t, sent, "succeeded")
	f.ask(t, 202, "POST", "/v1/callbacks", `{"url":"https://shop.example/","payload":1,"ref":"timer-1","delay":"1h"}`)
	results := func(body string) (results []any) {
		for _, one := range f.ask(t, 200, "POST", "/v1/callbacks/cancel", body)["data"].([]any) {
			results = append(results, one.(map[string]any)["result"])
		}
		return results
	}
	for _, c := range []struct {
		body string
		want []any
	}{
		{`{"ref":"timer-1","include_terminal":true}`, []any{"canceled", "already_terminal"}},
		{`{"ref":"timer-1"}`, nil},
		{`{"ref":"timer-1","include_terminal":true}`, []any{"already_terminal", "already_terminal"}},
		{`{"ref":"timer-2","include_terminal":true}`, nil},
	} {
		if diff := cmp.Diff(c.want, results(c.body)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.body, diff)
		}
	}
}
