package api_test

import (
	"fmt"
	"testing"
)

// bury accepts n callbacks that die with their first attempt.
func (f face) bury(t *testing.T, n int) (ids []string) {
	t.Helper()
	for i := range n {
		got := f.ask(t, 202, "POST", "/v1/callbacks", fmt.Sprintf(
			`{"url":"https://shop.example/","payload":%d,"policy":{"tiers":[]},"topic":"payment","ref":"o-%d","labels":{"even":"%t"}}`, i, i, i%2 == 0))
		ids = append(ids, got["id"].(string))
	}
	for _, id := range ids {
		f.settled(t, id, "dead")
	}
	return ids
}

// redriven polls a redrive until it is in the state.
func (f face) redriven(t *testing.T, id, state string) (got map[string]any) {
	t.Helper()
	until(t, "the redrive is "+state, func() bool {
		got = f.ask(t, 200, "GET", "/v1/redrives/"+id, "")
		return got["state"] == state
	})
	return got
}

// TestRedriveThroughTheEngine: what died while its receiver was shut is tried, counted and sent again.
func TestRedriveThroughTheEngine(t *testing.T) {
	t.Parallel()
	const n = 7
	to := &receiver{}
	to.shut.Store(true)
	f := newEngineFace(t, to)
	ids := f.bury(t, n)
	f.ask(t, 202, "POST", "/v1/callbacks", `{"url":"https://shop.example/","payload":1,"delay":"1h","topic":"payment"}`) // none of it: it is not dead
	to.shut.Store(false)

	tried := f.ask(t, 200, "POST", "/v1/redrives", `{"action":"retry","filter":{"topic":"payment","label":{"even":"true"}},"dry_run":true}`)
	if tried["matched"] != 4.0 || tried["dry_run"] != true || tried["ladder"] != "restart" {
		t.Errorf("tried: %v", tried)
	}
	if list := f.ask(t, 200, "GET", "/v1/redrives", "")["data"].([]any); len(list) != 0 {
		t.Errorf("what was only tried is in the list: %v", list)
	}
	asked := f.ask(t, 202, "POST", "/v1/redrives", `{"action":"retry","filter": {"topic":"payment"},"rate":"1000/s","ladder":"restart","reason":"they are back"}`)
	id := asked["id"].(string)
	if asked["state"] != "gathering" || asked["actor"] != "admin key" || asked["reason"] != "they are back" || asked["rate"] != "1000/s" || asked["filter"].(map[string]any)["topic"] != "payment" {
		t.Errorf("begun: %v", asked)
	}
	if done := f.redriven(t, id, "done"); done["matched"] != float64(n) || done["done"] != float64(n) || done["failed"] != 0.0 || done["finished_at"] == nil {
		t.Errorf("done: %v", done)
	}
	for _, id := range ids {
		if got := f.settled(t, id, "succeeded"); got["attempt_count"] != 2.0 {
			t.Errorf("redriven: %v", got)
		}
	}
	for _, action := range []string{"pause", "resume", "cancel"} {
		wantProblem(t, f.do("POST", "/v1/redrives/"+id+"/"+action, ""), 409, "terminal")
		wantProblem(t, f.do("POST", "/v1/redrives/"+oneRedrive+"/"+action, ""), 404, "not_found")
	}
}
