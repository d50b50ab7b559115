package api_test

import (
	"strings"
	"testing"
)

// TestScheduleThroughTheEngine: it is made, run by hand, changed and removed.
func TestScheduleThroughTheEngine(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	const body = `{"name":"daily-books","cron":"30 1 * * *","timezone":"Asia/Shanghai","callback":{"url":"https://books.example/close","headers":{"Authorization":"Basic cGFzcw==","X-A":"b"},
		"payload": { "kind" : "daily" , "n" : 1.0 }},"reason":"as agreed"}`
	s := f.ask(t, 201, "POST", "/v1/schedules", body)
	path := "/v1/schedules/" + s["id"].(string)
	if next, _ := s["next_at"].(string); s["enabled"] != true || s["missed"] != "once" || !strings.HasSuffix(next, "T17:30:00.000Z") || s["last_at"] != nil {
		t.Errorf("made: %v", s)
	}
	if headers := s["callback"].(map[string]any)["headers"].(map[string]any); headers["Authorization"] != "***" || headers["X-A"] != "b" {
		t.Errorf("its headers: %v", headers)
	}
	wantProblem(t, f.do("POST", "/v1/schedules", body), 409, "exists")

	made := f.ask(t, 202, "POST", path+"/run", `{"reason":"month's end"}`)["id"].(string)
	f.settled(t, made, "succeeded")
	if rec := f.do("GET", "/v1/callbacks/"+made+"/payload", ""); rec.Body.String() != `{ "kind" : "daily" , "n" : 1.0 }` {
		t.Errorf("its payload: %d %s", rec.Code, rec.Body)
	}
	runs := f.ask(t, 200, "GET", path+"/runs", "")["data"].([]any)
	if len(runs) != 1 || runs[0].(map[string]any)["callback_id"] != made || runs[0].(map[string]any)["trigger"] != "manual" {
		t.Errorf("runs: %v", runs)
	}
	if got := f.ask(t, 200, "GET", path, ""); got["last_callback_id"] != made || got["next_at"] != s["next_at"] || got["last_error"] != nil {
		t.Errorf("run: %v", got)
	}

	off := f.ask(t, 200, "PATCH", path, `{"enabled":false,"timezone":null,"cron":"@every 10m"}`)
	if off["enabled"] != false || off["next_at"] != nil || off["timezone"] != "UTC" || off["cron"] != "@every 10m" || off["name"] != "daily-books" {
		t.Errorf("changed: %v", off)
	}
	for query, n := range map[string]int{"": 1, "?enabled=true": 0, "?enabled=false": 1, "?search=BOOKS": 1, "?search=x": 0} {
		if list := f.ask(t, 200, "GET", "/v1/schedules"+query, "")["data"].([]any); len(list) != n {
			t.Errorf("list %s: %v", query, list)
		}
	}
	f.ask(t, 202, "POST", path+"/run", "") // enabled or not
	if rec := f.do("DELETE", path, `{"reason":"no more"}`); rec.Code != 204 {
		t.Fatalf("DELETE: %d %s", rec.Code, rec.Body)
	}
	for _, c := range [][2]string{{"GET", path}, {"GET", path + "/runs"}, {"POST", path + "/run"}, {"DELETE", path}} {
		wantProblem(t, f.do(c[0], c[1], ""), 404, "not_found")
	}
	wantProblem(t, f.do("PATCH", path, `{"enabled":true}`), 404, "not_found")
	f.ask(t, 200, "GET", "/v1/callbacks/"+made, "")
}
