package api_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestCase49ListsShowNothingOfAnotherProject: what a project with nothing in it is answered does not depend
// on what another has, on any route without an id in its path. TestEveryRouteByIDsOfAnotherProject has those
// with one.
func TestCase49ListsShowNothingOfAnotherProject(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t, new(receiver))
	before := f.newProject(t, "before")
	routes, paths := routes(t), []string{
		"/v1/callbacks?format=csv", "/v1/callbacks?order=due", "/v1/callbacks?state=canceled", "/v1/callbacks?ref=order-theirs",
		"/v1/callbacks?lock_key=lock-theirs", "/v1/callbacks?lane=lane-theirs", "/v1/callbacks?endpoint=merchant-theirs",
		"/v1/callbacks?topic=topic-theirs", "/v1/callbacks?label.shop=theirs", "/v1/endpoints?search=theirs",
		"/v1/lanes?search=theirs", "/v1/schedules?search=theirs", "/v1/outcomes?limit=500",
		"/v1/reconcile?from=2020-01-01&to=2100-01-01&group_by=topic",
	}
	for _, r := range routes {
		// Keys, the audit and projects have what is the project's own; a secret is made when it is first
		// read.
		own := []string{"/v1/keys", "/v1/audit", "/v1/projects", "/v1/secret", "/v1/reconcile"}
		if r.Method == "GET" && !strings.ContainsAny(r.Path, ":*") && !slices.Contains(own, r.Path) &&
			!slices.Contains(rootRoutes, "GET "+r.Path) {
			paths = append(paths, r.Path)
		}
	}
	if len(paths) < 22 {
		t.Fatalf("%d paths", len(paths))
	}
	empty := make(map[string]string)
	for _, path := range paths {
		empty[path] = f.do("GET", path, "", before...).Body.String()
	}

	f.ask(t, 201, "POST", "/v1/endpoints",
		`{"external_id":"merchant-theirs","name":"theirs","url":"https://theirs.example/"}`)
	const body = `"payload":1,"delay":"1h","ref":"order-theirs","topic":"topic-theirs","lock_key":"lock-theirs",
		"labels":{"shop":"theirs"}`
	f.ask(t, 202, "POST", "/v1/callbacks", `{"endpoint":"merchant-theirs",`+body+`}`)
	ended := f.ask(t, 202, "POST", "/v1/callbacks", `{"url":"https://theirs.example/","lane":"lane-theirs",`+body+`}`)
	f.ask(t, 200, "POST", "/v1/callbacks/"+ended["id"].(string)+"/cancel", `{"reason":"theirs"}`)
	f.ask(t, 202, "POST", "/v1/redrives", `{"action":"retry","filter":{"ref":"none-of-theirs"},"ladder":"once"}`)
	f.ask(t, 201, "POST", "/v1/schedules",
		`{"name":"theirs","cron":"@daily","callback":{"url":"https://theirs.example/","payload":1}}`)
	f.ask(t, 200, "PUT", "/v1/policies/theirs", `{"tiers":[]}`)
	f.ask(t, 200, "PUT", "/v1/success_rules/theirs", `{"status":[200]}`)
	f.ask(t, 200, "PUT", "/v1/profiles/theirs", `{"policy":"short"}`)
	f.ask(t, 201, "POST", "/v1/keys", `{"name":"theirs","scopes":["send"]}`)

	after := f.newProject(t, "after")
	for _, path := range paths {
		if got := f.do("GET", path, "", before...); got.Code != 200 || got.Body.String() != empty[path] {
			t.Errorf("%s: %d %s, and before the other project had anything %s", path, got.Code, got.Body, empty[path])
		}
		// Cursors of another project are signed otherwise.
		if got := f.do("GET", path, "", after...).Body.String(); len(got) != len(empty[path]) || strings.Contains(got, "theirs") {
			t.Errorf("%s of a new project: %s, and before the other one had anything %s", path, got, empty[path])
		}
	}
	for _, path := range []string{"/v1/keys", "/v1/audit?limit=500", "/v1/projects"} {
		if got := f.do("GET", path, "", after...).Body.String(); strings.Contains(got, "theirs") {
			t.Errorf("%s: %s", path, got)
		}
	}
	got := f.ask(t, 200, "POST", "/v1/reconcile/compare", `{"from":"2020-01-01T00:00:00Z","refs":["order-theirs"]}`, after...)
	if got["matched"] != 0.0 || len(got["missing"].([]any)) != 1 || len(got["extra"].([]any)) != 0 {
		t.Errorf("compared: %v", got)
	}
}

// TestEveryRouteByIDsOfAnotherProject, case 49: what the settings' admin key made in one project is not found
// by the admin key of another, on every route that has an id in its path, and is answered like what is
// nowhere.
func TestEveryRouteByIDsOfAnotherProject(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t, new(receiver))
	ids := map[string]string{
		"/v1/callbacks": f.ask(t, 202, "POST", "/v1/callbacks", `{"url":"https://shop.example/","payload":1,"delay":"1h"}`)["id"].(string),
		"/v1/endpoints": f.ask(t, 201, "POST", "/v1/endpoints", `{"external_id":"merchant-7","url":"https://shop.example/"}`)["id"].(string),
		"/v1/keys":      f.ask(t, 201, "POST", "/v1/keys", `{"name":"till","scopes":["send"]}`)["id"].(string),
		"/v1/polls": f.ask(t, 202, "POST", "/v1/polls", `{"ref":"o-1",
			"request":{"url":"https://shop.example/"},"delay":"1h","until":{"success":[{"status":[200]}]}}`)["id"].(string),
		"/v1/schedules": f.ask(t, 201, "POST", "/v1/schedules",
			`{"name":"a","cron":"@daily","callback":{"url":"https://shop.example/","payload":1}}`)["id"].(string),
		"/v1/projects": store.DefaultProject,
		"/v1/redrives": f.ask(t, 202, "POST", "/v1/redrives", `{"action":"retry","filter":{"ref":"nobody"},"ladder":"once"}`)["id"].(string),
	}
	f.ask(t, 200, "PUT", "/v1/policies/ours", `{"tiers":[]}`)
	f.ask(t, 200, "PUT", "/v1/success_rules/ours", `{"status":[200]}`)
	f.ask(t, 200, "PUT", "/v1/profiles/ours", `{"policy":"short"}`)
	f.ask(t, 201, "POST", "/v1/projects", `{"id":"b"}`)
	text := f.ask(t, 201, "POST", "/v1/keys", `{"name":"b's","scopes":["admin"]}`, "Dispatcher-Project", "b")["key"].(string)
	bodies := map[string]string{"retry": "{}", "reschedule": `{"delay":"1s"}`}
	seen := 0
	for _, r := range routes(t) {
		named := strings.Contains(r.Path, ":name") && r.Method != "PUT"
		if !strings.Contains(r.Path, ":id") && !strings.Contains(r.Path, "*external_id") && !named || r.Method == "PUT" {
			continue // a PUT makes what is not there
		}
		seen++
		path := strings.NewReplacer(":name", "ours", "*external_id", "merchant-7").Replace(r.Path)
		none := strings.NewReplacer(":name", "never", "*external_id", "nobody").Replace(r.Path)
		for prefix, id := range ids {
			if strings.HasPrefix(path, prefix) {
				path = strings.Replace(path, ":id", id, 1)
				if kind, _, found := strings.Cut(id, "_"); found {
					id = kind + "_" + bareID
				} else {
					id = "c"
				}
				none = strings.Replace(none, ":id", id, 1)
			}
		}
		body := bodies[path[strings.LastIndexByte(path, '/')+1:]]
		if r.Method == "PATCH" {
			body = `{"expires_in":null}`
			if !strings.HasPrefix(path, "/v1/callbacks") {
				body = `{"name":"mine"}`
			}
		}
		theirs := f.do(r.Method, path, body, "Authorization", "Bearer "+text)
		nothing := f.do(r.Method, none, body, "Authorization", "Bearer "+text)
		same := maps.EqualFunc(theirs.Header(), nothing.Header(), slices.Equal)
		if !same || theirs.Body.String() != nothing.Body.String() {
			t.Errorf("%s is answered with %s, and %s with %s", path, theirs.Body, none, nothing.Body)
		}
		wantProblem(t, theirs, 404, "not_found")
	}
	if seen < 24 {
		t.Errorf("%d routes have an id in their path", seen)
	}
	for _, ep := range []string{ids["/v1/endpoints"], "merchant-7"} {
		f.refused(t, []string{"endpoint"}, "POST", "/v1/callbacks", `{"endpoint":"`+ep+`","payload":1}`, "Authorization", "Bearer "+text)
		wantProblem(t, f.do("GET", "/v1/secret?endpoint="+ep, "", "Authorization", "Bearer "+text), 404, "not_found")
		if got := f.ask(t, 200, "GET", "/v1/callbacks?endpoint="+ep, "", "Authorization", "Bearer "+text); len(got["data"].([]any)) != 0 {
			t.Errorf("callbacks of another's endpoint: %v", got)
		}
	}
	testserver.Until(t, "the redrive of nothing is done", func() bool {
		return f.ask(t, 200, "GET", "/v1/redrives/"+ids["/v1/redrives"], "")["state"] == "done"
	})
	wantProblem(t, f.do("POST", "/v1/redrives/"+ids["/v1/redrives"]+"/pause", ""), 409, "terminal")
	wantProblem(t, f.do("POST", "/v1/redrives/"+"rd_"+bareRedrive+"/pause", ""), 404, "not_found")
	// Nothing was changed by any of it.
	if got := f.ask(t, 200, "GET", "/v1/callbacks/"+ids["/v1/callbacks"], ""); got["state"] != "scheduled" || got["expires_at"] != nil {
		t.Errorf("the callback: %v", got)
	}
	if got := f.ask(t, 200, "GET", "/v1/endpoints/"+ids["/v1/endpoints"], ""); got["paused"] != false || got["name"] != nil {
		t.Errorf("the endpoint: %v", got)
	}
}

// sender makes a key of the scope send and returns the header for it.
func (f face) sender(t *testing.T) []string {
	t.Helper()
	key := f.ask(t, 201, "POST", "/v1/keys", `{"name":"send","scopes":["send"]}`)["key"].(string)
	return []string{"Authorization", "Bearer " + key}
}

// In a lane of its own a signer cannot make the signature of another: each has a secret of its own.
func TestNoSignerSignsForAnother(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	const lane = "merchant-7"
	body := "msg_1.1700000000.{}"
	id := h.ask(t, 202, "POST", "/v1/callbacks", fmt.Sprintf(`{"url":%q,"lane":%q,"body":%q,
		"signer":{"type":"hmac-sha256-body","encoding":"base64","prefix":"v1,"}}`, h.mine.URL, lane, body), h.sender(t)...)["id"].(string)
	header := h.arrived(t, h.mine, id)
	secret := func(signer string) []byte {
		t.Helper()
		text := h.ask(t, 200, "GET", "/v1/secret?lane="+lane+signer, "")["secret"].(string)
		key, err := sign.ParseSecret(text)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	forged := http.Header{}
	forged.Set("webhook-id", "msg_1")
	forged.Set("webhook-timestamp", "1700000000")
	for name := range header {
		if strings.HasPrefix(header.Get(name), "v1,") && name != "Webhook-Signature" {
			forged.Set("webhook-signature", header.Get(name))
		}
	}
	if forged.Get("webhook-signature") == "" {
		t.Fatalf("no signature of the body among %v", header)
	}
	if err := sign.Verify("", []sign.Secret{{Key: secret("")}}, forged, nil, []byte("{}"), -1); err == nil {
		t.Error("the signature of a body is a valid one of Standard Webhooks")
	}
	if err := sign.Verify("", []sign.Secret{{Key: secret("&signer=hmac-sha256-body")}}, forged, nil, []byte("{}"), -1); err != nil {
		t.Errorf("what signs bodies is not what the API shows: %v", err)
	}
}

// Case 39: no file of the database has a secret, a credential or an API key in clear; and what is sealed
// arrives in clear.
func TestCase39NoCredentialInSQL(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	const secret = "hunter2-"
	send := h.sender(t)
	key := strings.TrimPrefix(send[1], "Bearer ")
	headers := func(name, value string) string { return `"headers":{"` + name + `":"` + secret + value + `"}` }
	victim := h.victim.URL
	root := h.ask(t, 200, "GET", "/v1/secret?lane=m", "")["secret"].(string)
	h.ask(t, 200, "PATCH", "/v1/projects/default", `{`+headers("X-Project-Token", "project")+`,"header_hosts":["`+h.victim.host()+`"]}`)
	h.ask(t, 200, "POST", "/v1/secret/rotate", `{"use":"text","secret":"`+secret+`bearer","hosts":["`+h.victim.host()+`"]}`)
	ep := h.ask(t, 201, "POST", "/v1/endpoints", `{"url":"`+victim+`","signer":"basic","secret":"user:`+secret+`basic",`+headers("X-Endpoint-Token", "endpoint")+`}`)["id"].(string)
	first := h.ask(t, 202, "POST", "/v1/callbacks", `{"endpoint":"`+ep+`","payload":1,`+headers("Cookie", "callback")+`}`)["id"].(string)
	second := h.ask(t, 202, "POST", "/v1/callbacks", `{"url":"`+victim+`","signer":"bearer","payload":1}`)["id"].(string)
	sched := h.ask(t, 201, "POST", "/v1/schedules", `{"name":"s","cron":"@daily","callback":{"url":"`+victim+`","payload":{"a":1},`+headers("X-Password", "schedule")+`}}`)
	if text := fmt.Sprint(sched); strings.Contains(text, secret) || !strings.Contains(text, "***") {
		t.Errorf("the schedule is shown as %s", text)
	}
	run := h.ask(t, 202, "POST", "/v1/schedules/"+sched["id"].(string)+"/run", "")["id"].(string)
	poll := h.ask(t, 202, "POST", "/v1/polls", `{"ref":"r","request":{"url":"`+victim+`",`+headers("X-Api-Key", "poll")+`},
		"until":{"success":[{"status":[200]}]},"on_result":{"url":"`+victim+`",`+headers("Authorization", "result")+`}}`)["id"].(string)
	h.arrived(t, h.victim, poll)
	result := h.ask(t, 200, "GET", "/v1/polls/"+poll, "")["poll"].(map[string]any)["result_callback_id"].(string)
	for id, want := range map[string]string{first: "callback", second: "bearer", run: "schedule", poll: "poll", result: "result"} {
		got := h.arrived(t, h.victim, id)
		if text := fmt.Sprint(got); !strings.Contains(text, secret+want) || !strings.Contains(text, secret+"project") {
			t.Errorf("%s arrived with %s", want, text)
		}
	}
	if got := h.victim.of(first); got.Get("X-Endpoint-Token") != secret+"endpoint" || !strings.HasPrefix(got.Get("Authorization"), "Basic ") {
		t.Errorf("to the endpoint: %v", got)
	}
	rootKey, err := sign.ParseSecret(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(h.file + suffix)
		if err != nil && suffix == "" {
			t.Fatal(err)
		}
		for _, clear := range []string{secret, key, root, string(rootKey)} {
			if strings.Contains(string(content), clear) {
				t.Errorf("d.db%s has %.12q in clear", suffix, clear)
			}
		}
	}
}

// TestAKeysHashIsNoKey, case 45.
func TestAKeysHashIsNoKey(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t, new(receiver))
	hash := sha256.Sum256([]byte(strings.TrimPrefix(f.sender(t)[1], "Bearer ")))
	for _, stolen := range []string{
		hex.EncodeToString(hash[:]), base64.StdEncoding.EncodeToString(hash[:]), string(hash[:]),
	} {
		wantProblem(t, f.do("GET", "/v1/callbacks", "", "Authorization", "Bearer "+stolen), 401, "unauthorized")
	}
}
