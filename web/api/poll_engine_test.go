package api_test

import (
	"encoding/json"
	"testing"

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
