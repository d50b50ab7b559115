package api_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestEndpointsThroughTheEngine(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	ep := f.ask(t, 201, "POST", "/v1/endpoints", `{"external_id":"merchant/7","name":"Tea shop","url":"https://shop.example/notify",
		"policy":"short","success":{"status":[200]},"headers":{"Authorization":"Basic x"},"rate":"600/m","concurrency":3}`)
	id := ep["id"].(string)
	if !strings.HasPrefix(ep["secret"].(string), "whsec_") || ep["lane"] != id || ep["url_override"] != "deny" || ep["enabled"] != true {
		t.Errorf("made: %v", ep)
	}
	wantProblem(t, f.do("POST", "/v1/endpoints", `{"external_id":"merchant/7","url":"https://shop.example/"}`), 409, "exists")
	got := f.ask(t, 200, "GET", "/v1/endpoints/by-external-id/merchant%2F7", "")
	if got["id"] != id || got["secret"] != nil || got["headers"].(map[string]any)["Authorization"] != "***" || got["rate"] != "600/m" {
		t.Errorf("read: %v", got)
	}
	if got := f.ask(t, 200, "GET", "/v1/endpoints/"+id+"/secret", ""); got["secret"] != ep["secret"] || got["endpoint_id"] != id {
		t.Errorf("its secret: %v", got)
	}

	cb := f.ask(t, 202, "POST", "/v1/callbacks", `{"endpoint":"merchant/7","payload":1}`)
	if cb["endpoint_id"] != id || cb["lane"] != id || cb["policy"] != "short" || cb["url"] != "https://shop.example/notify" || cb["signer"] != nil {
		t.Errorf("accepted by the external id: %v", cb)
	}
	f.settled(t, cb["id"].(string), "succeeded")
	f.ask(t, 202, "POST", "/v1/callbacks", `{"endpoint":"`+id+`","payload":1}`)
	for _, name := range []string{id, "merchant/7"} {
		if got := f.ask(t, 200, "GET", "/v1/callbacks?endpoint="+url.QueryEscape(name), ""); len(got["data"].([]any)) != 2 {
			t.Errorf("callbacks of %s: %v", name, got)
		}
	}

	if got := f.ask(t, 200, "POST", "/v1/endpoints/"+id+"/pause", `{"for":"1h","reason":"moving"}`); got["paused"] != true || got["pause_reason"] != "moving" {
		t.Errorf("paused: %v", got)
	}
	held := f.ask(t, 202, "POST", "/v1/callbacks", `{"endpoint":"merchant/7","payload":1}`)["id"].(string)
	if got := f.ask(t, 200, "GET", "/v1/callbacks/"+held+"/explain", ""); got["blocking"].([]any)[0].(map[string]any)["code"] != "endpoint_paused" {
		t.Errorf("explained: %v", got)
	}
	if got := f.ask(t, 200, "GET", "/v1/endpoints?held=true", ""); len(got["data"].([]any)) != 1 {
		t.Errorf("held endpoints: %v", got)
	}
	f.ask(t, 200, "POST", "/v1/endpoints/"+id+"/resume", `{"reason":"moved"}`)
	f.settled(t, held, "succeeded")
	f.settled(t, f.ask(t, 202, "POST", "/v1/endpoints/"+id+"/test", "")["id"].(string), "succeeded")

	// The bounds of an endpoint's lane are the endpoint's.
	if got := f.ask(t, 200, "PUT", "/v1/lanes/"+id+"/limits", `{"rate":"7/s"}`); got["endpoint_id"] != id || got["rate"] != "7/s" {
		t.Errorf("limits of its lane: %v", got)
	}
	if got := f.ask(t, 200, "GET", "/v1/endpoints/"+id, ""); got["rate"] != "7/s" {
		t.Errorf("after its lane was bounded: %v", got)
	}
	if got := f.ask(t, 200, "POST", "/v1/lanes/"+id+"/pause", ""); got["paused"] != true {
		t.Errorf("pause of its lane: %v", got)
	}
	f.ask(t, 200, "POST", "/v1/lanes/"+id+"/resume", "")
	if got := f.ask(t, 200, "PATCH", "/v1/endpoints/"+id, `{"policy":null,"rate":null,"name":null}`); got["policy"] != nil || got["rate"] != nil || got["name"] != nil || got["concurrency"] != 3.0 {
		t.Errorf("cleared: %v", got)
	}
	rotated := f.ask(t, 200, "POST", "/v1/endpoints/"+id+"/rotate_secret", `{"overlap":"1h","reason":"yearly"}`)
	if now := f.ask(t, 200, "GET", "/v1/secret?endpoint="+id, ""); now["secret"] != rotated["secret"] || rotated["secret"] == ep["secret"] {
		t.Errorf("rotated to %v, now %v", rotated, now)
	}
	if now := f.ask(t, 200, "GET", "/v1/secret?lane="+id, ""); now["secret"] != rotated["secret"] || now["endpoint_id"] != id || now["lane"] != id {
		t.Errorf("the secret of its lane is %v, want its own, %v", now, rotated)
	}
	pair := f.ask(t, 201, "POST", "/v1/endpoints", `{"url":"https://shop.example/","signer":"standard-v1a"}`)
	if now := f.ask(t, 200, "GET", "/v1/endpoints/"+pair["id"].(string)+"/secret", ""); pair["public"] == nil || now["public"] != pair["public"] {
		t.Errorf("made with the public key %v, shown with %v", pair["public"], now["public"])
	}
	for _, enabled := range []bool{false, true} {
		f.ask(t, 200, "PATCH", "/v1/endpoints/"+id, fmt.Sprintf(`{"enabled":%v}`, enabled))
		want := any("endpoint_disabled")
		if enabled {
			want = nil
		}
		if lane := f.ask(t, 200, "GET", "/v1/lanes?search="+id, "")["data"].([]any)[0].(map[string]any); lane["held"] != want {
			t.Errorf("with enabled %v its lane is held by %v", enabled, lane["held"])
		}
	}
	theirs := f.newProject(t, "theirs")
	sent := f.ask(t, 202, "POST", "/v1/callbacks", `{"endpoint":"merchant/7","payload":1,"delay":"1h"}`)
	if rec := f.do("DELETE", "/v1/endpoints/"+id, `{"reason":"closed"}`); rec.Code != 204 {
		t.Errorf("DELETE: %d %s", rec.Code, rec.Body)
	}
	wantProblem(t, f.do("GET", "/v1/endpoints/"+id, ""), 404, "not_found")
	wantProblem(t, f.do("DELETE", "/v1/endpoints/"+id, ""), 404, "not_found")
	if fields := f.refused(t, "POST", "/v1/callbacks", `{"endpoint":"merchant/7","payload":1}`); !slices.Equal(fields, []string{"endpoint"}) {
		t.Errorf("accepted for one that is deleted: %q", fields)
	}
	kept := f.ask(t, 200, "GET", "/v1/callbacks?endpoint="+id, "")["data"].([]any)
	if len(kept) == 0 || kept[0].(map[string]any)["id"] != sent["id"] {
		t.Errorf("callbacks of one that is deleted: %v, want %v the first", kept, sent["id"])
	}
	for path, header := range map[string][]string{id: theirs, "merchant/7": nil} {
		rec := f.do("GET", "/v1/callbacks?endpoint="+path, "", header...)
		if want := `{"data":[],"next_cursor":null}`; rec.Code != 200 || rec.Body.String() != want {
			t.Errorf("callbacks of %s: %d %s", path, rec.Code, rec.Body)
		}
	}
}

func TestUpsertsThroughTheEngine(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	first := f.ask(t, 201, "PUT", "/v1/endpoints/by-external-id/a", `{"url":"https://a.example/","name":"A"}`)
	if first["secret"] == nil {
		t.Errorf("made without a secret: %v", first)
	}
	again := f.ask(t, 200, "PUT", "/v1/endpoints/by-external-id/a", `{"url":"https://a.example/2"}`)
	if again["id"] != first["id"] || again["name"] != nil || again["url"] != "https://a.example/2" || again["secret"] != nil {
		t.Errorf("replaced: %v", again)
	}
	rec := f.do("POST", "/v1/endpoints/batch", `{"endpoints":[{"external_id":"a","url":"https://a.example/3"},{"external_id":"b","url":"https://b.example/"},
		{"external_id":"c","url":"ftp://c"},{"url":"https://d.example/"},{"external_id":"b","url":"https://b.example/"}]}`)
	results(t, rec, 200, 201, 422, 422, 422)
	if got := f.ask(t, 200, "GET", "/v1/endpoints?search=EXAMPLE", ""); len(got["data"].([]any)) != 2 {
		t.Errorf("listed: %v", got)
	}
}

func TestPresetsThroughTheEngine(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	f.ask(t, 200, "GET", "/v1/policies/exp(1s,%202,%201m,8,1h)", "")
	wantProblem(t, f.do("GET", "/v1/policies/exp(1s)", ""), 404, "not_found")
	f.ask(t, 200, "PUT", "/v1/policies/ours", `{"tiers":["1s","2s"],"timeout":"3s","reason":"new"}`)
	f.ask(t, 200, "PUT", "/v1/success_rules/ours", `{"status":[200],"body":{"equals":"done"}}`)
	if got := f.ask(t, 200, "PUT", "/v1/profiles/ours", `{"policy":"ours","success":"ours","signer":"none","timeout":"1s"}`); got["policy"] != "ours" || got["timeout"] != "1s" {
		t.Errorf("profile: %v", got)
	}
	cb := f.ask(t, 202, "POST", "/v1/callbacks", `{"url":"https://a.example/","payload":1,"profile":"ours","delay":"1h"}`)
	if cb["success"] != "ours" || cb["signer"] != "none" || len(cb["tiers"].([]any)) != 2 {
		t.Errorf("accepted with it: %v", cb)
	}
	cb = f.ask(t, 202, "POST", "/v1/callbacks", `{"url":"https://a.example/","payload":1,"policy":"ours","success":{"status":[204]},"signer":{"type":"t-v1"},"delay":"1h"}`)
	if cb["policy"] != "ours" || cb["success"].(map[string]any)["status"] == nil || cb["signer"] == nil {
		t.Errorf("accepted with objects: %v", cb)
	}
	for path, body := range map[string]string{
		"/v1/policies/payment": `{"tiers":[]}`, "/v1/success_rules/http-2xx": `{"status":[200]}`, "/v1/profiles/alipay": `{"policy":"short"}`, "/v1/policies/Not%20ours": `{"tiers":[]}`,
	} {
		if fields := f.refused(t, "PUT", path, body); !slices.Contains(fields, "name") {
			t.Errorf("PUT %s: %q", path, fields)
		}
	}
	for path, row := range map[string][2]string{"policies": {`{"tiers":[],"timeout":"61s"}`, "timeout"}, "success_rules": {`{"status":["2xx"]}`, "status[0]"}} {
		if fields := f.refused(t, "PUT", "/v1/"+path+"/ours", row[0]); !slices.Equal(fields, []string{row[1]}) {
			t.Errorf("%s that cannot be: %q", path, fields)
		}
	}
	for _, kind := range []string{"policies", "success_rules", "profiles"} {
		if rec := f.do("DELETE", "/v1/"+kind+"/ours", `{"reason":"over"}`); rec.Code != 204 {
			t.Errorf("DELETE %s: %d %s", kind, rec.Code, rec.Body)
		}
		for _, gone := range []string{"ours", "never"} {
			wantProblem(t, f.do("DELETE", "/v1/"+kind+"/"+gone, ""), 404, "not_found")
			wantProblem(t, f.do("GET", "/v1/"+kind+"/"+gone, ""), 404, "not_found")
		}
	}
	if fields := f.refused(t, "POST", "/v1/callbacks", `{"url":"https://a.example/","payload":1,"policy":"ours"}`); !slices.Equal(fields, []string{"policy"}) {
		t.Errorf("a policy that is gone: %q", fields)
	}
}

func TestLanesThroughTheEngine(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	const lane = "https://shop.example:443"
	secret := func() any { return f.ask(t, 200, "GET", "/v1/secret?lane="+lane, "")["secret"] }
	first := secret()
	f.ask(t, 200, "POST", "/v1/secret/rotate", `{"reason":"leaked"}`)
	if again := secret(); first == again || again != secret() {
		t.Errorf("the secrets are %v, after a rotation %v", first, again)
	}
	id := f.ask(t, 202, "POST", "/v1/callbacks", `{"url":"https://shop.example/","payload":1,"delay":"1h"}`)["id"].(string)
	path := "/v1/lanes/" + url.PathEscape(lane)
	if got := f.ask(t, 200, "PUT", path+"/limits", `{"rate":"50/s","concurrency":8}`); got["lane"] != lane || got["rate"] != "50/s" || got["concurrency"] != 8.0 {
		t.Errorf("limits: %v", got)
	}
	if got := f.ask(t, 200, "PUT", path+"/limits", `{"rate":null}`); got["rate"] != nil || got["concurrency"] != 8.0 {
		t.Errorf("without a rate: %v", got)
	}
	f.ask(t, 200, "POST", "/v1/lanes/"+lane+"/pause", `{"reason":"moving"}`)
	list := f.ask(t, 200, "GET", "/v1/lanes?held=true&search=shop", "")["data"].([]any)
	if len(list) != 1 || list[0].(map[string]any)["held"] != "lane_paused" || list[0].(map[string]any)["open"] != 1.0 || list[0].(map[string]any)["breaker"] == nil {
		t.Errorf("held lanes: %v", list)
	}
	explained := f.ask(t, 200, "GET", "/v1/callbacks/"+id+"/explain", "")
	if block := explained["blocking"].([]any)[0].(map[string]any); block["code"] != "lane_paused" || block["until"] != nil || explained["next_at"] != nil {
		t.Errorf("explained: %v", explained)
	}
	f.ask(t, 200, "POST", path+"/resume", "")
	f.ask(t, 200, "POST", "/v1/pause", `{"for":"1h","reason":"night"}`)
	if got := f.ask(t, 200, "GET", "/v1/callbacks/"+id+"/explain", ""); got["blocking"].([]any)[0].(map[string]any)["code"] != "project_paused" {
		t.Errorf("explained: %v", got)
	}
	f.ask(t, 200, "POST", "/v1/resume", "")
	explained = f.ask(t, 200, "GET", "/v1/callbacks/"+id+"/explain", "")
	if block := explained["blocking"].([]any)[0].(map[string]any); block["code"] != "not_due" || block["until"] == nil || explained["next_at"] == nil {
		t.Errorf("explained: %v", explained)
	}
	rec := f.do("GET", "/v1/callbacks/"+id+"/evidence", "")
	if rec.Code != 200 || !strings.Contains(rec.Body.String(), id) || rec.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("evidence: %d %s", rec.Code, rec.Body)
	}
	if got := f.ask(t, 200, "PATCH", "/v1/callbacks/"+id, `{"url":"https://other.example/x","policy":"short","expires_in":"2h","reason":"moved"}`); got["url"] != "https://other.example/x" ||
		got["lane"] != "https://other.example:443" || got["policy"] != "short" || got["expires_at"] == nil {
		t.Errorf("mended: %v", got)
	}
	if got := f.ask(t, 200, "PATCH", "/v1/callbacks/"+id, `{"expires_in":null}`); got["expires_at"] != nil {
		t.Errorf("without an end: %v", got)
	}
	if fields := f.refused(t, "POST", "/v1/lanes/"+strings.Repeat("x", 400)+"/pause", ""); !slices.Equal(fields, []string{"lane"}) {
		t.Errorf("a lane that cannot be: %q", fields)
	}
}
