package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unaudited are the routes that change something and have no entry, or that change nothing.
var unaudited = []string{
	// Accepts: each is a row of its own.
	"POST /v1/callbacks", "POST /v1/callbacks/batch", "POST /v1/events", "POST /v1/polls",
	// What only looks.
	"POST /v1/reconcile/compare", "POST /v1/index/verify",
}

// A mutation is one request that changes something. Its path and body may name what earlier answers said.
type mutation struct {
	route, path, body string
	status            int
	// keeps names what the answer says, by what later ones call it.
	keeps map[string]string
}

// An auditWalk makes mutations one after the other.
type auditWalk struct {
	face
	known map[string]string
	// planted are credentials that must stand in no entry.
	planted []string
}

// fill puts what is known in the place of {name}.
func (w *auditWalk) fill(text string) string {
	for name, value := range w.known {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return text
}

// entries returns the newest entries, as the API shows them.
func (w *auditWalk) entries(t *testing.T) []any {
	t.Helper()
	return w.ask(t, 200, "GET", "/v1/audit?limit=500", "")["data"].([]any)
}

// make makes a mutation, and demands that the audit has it.
func (w *auditWalk) make(t *testing.T, m mutation) {
	t.Helper()
	known := w.entries(t)
	method, _, _ := strings.Cut(m.route, " ")
	rec := w.do(method, w.fill(m.path), w.fill(m.body))
	if rec.Code != m.status {
		t.Fatalf("%s %s: %d %s, want %d", method, w.fill(m.path), rec.Code, rec.Body, m.status)
	}
	for name, field := range m.keeps {
		var answer map[string]any
		if err := json.Unmarshal(rec.Body.Bytes(), &answer); err != nil {
			t.Fatal(err)
		}
		w.known[name] = fmt.Sprint(answer[field])
	}
	all := w.entries(t)
	if slices.Contains(unaudited, m.route) {
		return
	}
	added, changes := all[:len(all)-len(known)], 0
	for _, one := range added {
		e := one.(map[string]any)
		if e["actor"] == "dispatcher" {
			continue // it made a secret that had to be there
		}
		before, _ := e["before"].(map[string]any)
		after, _ := e["after"].(map[string]any)
		if e["address"] != "192.0.2.1" || e["actor"] != "admin key" {
			t.Errorf("%s: by %v from %v", m.route, e["actor"], e["address"])
		}
		if len(before)+len(after) > 0 {
			changes++
		}
		for name := range before {
			if _, both := after[name]; !both && len(after) > 0 {
				t.Errorf("%s: %s was %v, and is not said to be anything", m.route, name, before[name])
			}
		}
	}
	if changes == 0 {
		t.Errorf("%s: no entry says what it changed: %v", m.route, added)
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range w.planted {
		if strings.Contains(string(text), secret) {
			t.Fatalf("%s: %q stands in the audit: %s", m.route, secret, text)
		}
	}
}

// TestEveryMutationIsAudited: every route that changes something appends an entry with the caller's address,
// and with what was before and after. A route that is not in the walk, nor among those that need no entry,
// fails it.
func TestEveryMutationIsAudited(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "d.db")
	t.Run("by another master key", func(t *testing.T) {
		f := newEngineFaceWith(t, newDBAt(t, path), new(receiver), 1)
		f.ask(t, 201, "POST", "/v1/endpoints",
			`{"url":"https://a.example/","headers":{"Authorization":"Bearer S3cr3tOfAHeader"}}`)
	})
	w := &auditWalk{
		face: newEngineFaceWith(t, openDBAt(t, path), new(receiver), 2, 1), known: make(map[string]string),
		planted: []string{
			"S3cr3tOfAHeader", "V4lueOfAQuery", "B0dyOfACallback", "P4sswordOfAURL", "T3mplateSecret",
		},
	}
	walked := make(map[string]bool)
	for _, m := range auditedMutations() {
		w.make(t, m)
		walked[m.route] = true
	}
	// A new project has an audit of its own.
	w.ask(t, 201, "POST", "/v1/projects", `{"id":"b","name":"B","quotas":{"lanes":5}}`)
	e := w.askAs(t, 200, "GET", "/v1/audit", "",
		"Dispatcher-Project", "b")["data"].([]any)[0].(map[string]any)
	if after, _ := e["after"].(map[string]any); e["address"] != "192.0.2.1" || after["name"] != "B" ||
		e["before"] != nil {
		t.Errorf("made a project: %v", e)
	}
	walked["POST /v1/projects"] = true
	for _, r := range routes(t) {
		route := r.Method + " " + r.Path
		if r.Method != "GET" && !walked[route] && !slices.Contains(unaudited, route) {
			t.Errorf("%s is not audited in this test", route)
		}
		delete(walked, route)
	}
	for _, route := range slices.Sorted(maps.Keys(walked)) {
		t.Errorf("%s is no route", route)
	}
}

// auditedMutations are those of every route, in an order in which each has what it changes.
func auditedMutations() []mutation {
	const address = `"url":"https://u:P4sswordOfAURL@shop.example/x?token=V4lueOfAQuery"`
	const moved = `"url":"https://shop.example/x?token=V4lueOfAQuery2"`
	const credential = `"headers":{"Authorization":"Bearer S3cr3tOfAHeader","X-Note":"seen"}`
	made := mutation{"POST /v1/schedules", "/v1/schedules",
		`{"name":"nightly","cron":"@daily","callback":{` + moved +
			`,"payload":"B0dyOfACallback","headers":{"X-Token":"T3mplateSecret"}}}`,
		201, map[string]string{"sc": "id"}}
	return slices.Concat([]mutation{
		{"POST /v1/endpoints", "/v1/endpoints",
			`{"external_id":"m","name":"Tea",` + moved + `,` + credential + `}`, 201,
			map[string]string{"ep": "id"}},
		{"PATCH /v1/endpoints/:id", "/v1/endpoints/{ep}",
			`{"name":"Coffee","rate":"5/s","reason":"r"}`, 200, nil},
		{"PUT /v1/endpoints/by-external-id/*external_id", "/v1/endpoints/by-external-id/m",
			`{` + moved + `}`, 200, nil},
		{"POST /v1/endpoints/batch", "/v1/endpoints/batch",
			`{"endpoints":[{"external_id":"n",` + moved + `}]}`, 207, nil},
		{"POST /v1/endpoints/:id/pause", "/v1/endpoints/{ep}/pause", `{"for":"1h"}`, 200, nil},
		{"POST /v1/endpoints/:id/resume", "/v1/endpoints/{ep}/resume", ``, 200, nil},
		{"POST /v1/endpoints/:id/test", "/v1/endpoints/{ep}/test", ``, 202, nil},
		{"POST /v1/endpoints/:id/rotate_secret", "/v1/endpoints/{ep}/rotate_secret", ``, 200, nil},
		{"POST /v1/secret/rotate", "/v1/secret/rotate", ``, 200, nil},
		made,
		{"PATCH /v1/schedules/:id", "/v1/schedules/{sc}", `{"cron":"@hourly","callback":{` + moved +
			`,"payload":"B0dyOfACallback2"}}`, 200, nil},
		{"POST /v1/schedules/:id/run", "/v1/schedules/{sc}/run", ``, 202, nil},
		{"DELETE /v1/schedules/:id", "/v1/schedules/{sc}", ``, 204, nil},
		{"PUT /v1/policies/:name", "/v1/policies/ours", `{"tiers":["1s"]}`, 200, nil},
		{"PUT /v1/policies/:name", "/v1/policies/ours", `{"tiers":["1s","2s"]}`, 200, nil},
		{"PUT /v1/success_rules/:name", "/v1/success_rules/ours", `{"status":[200]}`, 200, nil},
		{"PUT /v1/profiles/:name", "/v1/profiles/ours", `{"policy":"ours"}`, 200, nil},
		{"DELETE /v1/policies/:name", "/v1/policies/ours", ``, 204, nil},
		{"DELETE /v1/success_rules/:name", "/v1/success_rules/ours", ``, 204, nil},
		{"DELETE /v1/profiles/:name", "/v1/profiles/ours", ``, 204, nil},
		{"POST /v1/keys", "/v1/keys", `{"name":"till","scopes":["send"]}`, 201,
			map[string]string{"key": "id"}},
		{"DELETE /v1/keys/:id", "/v1/keys/{key}", ``, 200, nil},
		{"PATCH /v1/projects/:id", "/v1/projects/default",
			`{"name":"Shop","policy":"short",` + credential +
				`,"header_hosts":["shop.example"],"quotas":{"lanes":500}}`, 200, nil},
		{"POST /v1/secret/reencrypt", "/v1/secret/reencrypt", `{}`, 200, nil},
		{"POST /v1/index/rebuild", "/v1/index/rebuild", `{}`, 200, nil},
	}, callbackMutations(address, credential), laneMutations(), []mutation{
		{"DELETE /v1/endpoints/:id", "/v1/endpoints/{ep}", ``, 204, nil},
	})
}

// laneMutations are those of lanes and of the project's pause.
func laneMutations() []mutation {
	lane := "/v1/lanes/" + url.PathEscape("https://shop.example:443")
	return []mutation{
		{"PUT /v1/lanes/:lane/limits", lane + "/limits", `{"concurrency":7}`, 200, nil},
		{"POST /v1/lanes/:lane/pause", lane + "/pause", `{"for":"1h"}`, 200, nil},
		{"POST /v1/lanes/:lane/resume", lane + "/resume", ``, 200, nil},
		{"POST /v1/pause", "/v1/pause", `{"for":"1h"}`, 200, nil},
		{"POST /v1/resume", "/v1/resume", ``, 200, nil},
	}
}

// callbackMutations are those of callbacks, polls and redrives.
func callbackMutations(address, credential string) []mutation {
	accept := func(as, more string) mutation {
		return mutation{"POST /v1/callbacks", "/v1/callbacks",
			`{` + address + `,"payload":"B0dyOfACallback","delay":"1h",` + credential + more + `}`, 202,
			map[string]string{as: "id"}}
	}
	redrive := func(as string) mutation {
		return mutation{"POST /v1/redrives", "/v1/redrives", `{"action":"set_url",
			"filter":{"state":"scheduled"},"rate":"1/d",
			"url":"https://other.example/?key=V4lueOfAQuery"}`, 202, map[string]string{as: "id"}}
	}
	const poll = `{"ref":"a","request":{"url":"https://bank.example/?key=V4lueOfAQuery"},"delay":"1h",
		"until":{"failure":[{"status":[404]}]}}`
	return []mutation{
		accept("cb", ""),
		{"PATCH /v1/callbacks/:id", "/v1/callbacks/{cb}",
			`{"url":"https://shop.example/y?token=V4lueOfAQuery2","policy":"short",
			"headers":{"Authorization":"Bearer S3cr3tOfAHeader2"}}`, 200, nil},
		{"POST /v1/callbacks/:id/reschedule", "/v1/callbacks/{cb}/reschedule", `{"delay":"2h"}`, 200, nil},
		{"POST /v1/callbacks/:id/cancel", "/v1/callbacks/{cb}/cancel", ``, 200, nil},
		{"POST /v1/callbacks/:id/retry", "/v1/callbacks/{cb}/retry",
			`{"url":"https://shop.example/z?token=V4lueOfAQuery"}`, 200, nil},
		accept("cb2", `,"ref":"order-1"`),
		{"POST /v1/callbacks/cancel", "/v1/callbacks/cancel", `{"ref":"order-1"}`, 200, nil},
		{"POST /v1/polls", "/v1/polls", poll, 202, map[string]string{"poll": "id"}},
		{"POST /v1/polls/:id/resolve", "/v1/polls/{poll}/resolve",
			`{"data":{"n":"B0dyOfACallback"}}`, 200, nil},
		accept("cb3", ""),
		redrive("rd"),
		{"POST /v1/redrives/:id/pause", "/v1/redrives/{rd}/pause", ``, 200, nil},
		{"POST /v1/redrives/:id/resume", "/v1/redrives/{rd}/resume", ``, 200, nil},
		{"POST /v1/redrives/:id/cancel", "/v1/redrives/{rd}/cancel", ``, 200, nil},
	}
}
