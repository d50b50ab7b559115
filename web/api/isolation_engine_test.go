package api_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestCase49ListsShowNothingOfAnotherProject covers the routes without an id in the path. It checks that the
// responses to an empty project do not depend on the contents of another project.
// TestEveryRouteByIDsOfAnotherProject covers the routes with an id.
func TestCase49ListsShowNothingOfAnotherProject(t *testing.T) {
	t.Parallel()
	f := newEngineAPI(t, new(receiver))
	before := f.newProject(t, "before")
	routes, paths := routes(t), []string{
		"/v1/callbacks?format=csv", "/v1/callbacks?order=due", "/v1/callbacks?state=canceled",
		"/v1/callbacks?ref=order-theirs", "/v1/callbacks?lock_key=lock-theirs",
		"/v1/callbacks?lane=lane-theirs", "/v1/callbacks?endpoint=merchant-theirs",
		"/v1/callbacks?topic=topic-theirs", "/v1/callbacks?label.shop=theirs", "/v1/endpoints?search=theirs",
		"/v1/lanes?search=theirs", "/v1/schedules?search=theirs", "/v1/alerts?search=theirs",
		"/v1/outcomes?limit=500",
		"/v1/reconcile?from=2020-01-01&to=2100-01-01&group_by=topic",
	}
	for _, r := range routes {
		// Keys, the audit log and projects contain the project itself. Reading a secret creates it.
		own := []string{"/v1/keys", "/v1/audit", "/v1/projects", "/v1/secret", "/v1/reconcile"}
		isList := r.Method == "GET" && !strings.ContainsAny(r.Path, ":*")
		if isList && !slices.Contains(own, r.Path) && !wants()[name(r)].root {
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

	ended := f.createOfEach(t)["/v1/callbacks"]
	f.call(t, 200, "POST", "/v1/callbacks/"+ended+"/cancel", `{"reason":"theirs"}`)
	report := f.reconcileToday(t)
	after := f.newProject(t, "after")
	for _, path := range paths {
		if got := f.do("GET", path, "", before...); got.Code != 200 || got.Body.String() != empty[path] {
			t.Errorf("%s: %d %s, but %s while the other project was empty", path, got.Code, got.Body,
				empty[path])
		}
		// The signatures of cursors differ between projects, so only the length is compared.
		got := f.do("GET", path, "", after...).Body.String()
		if len(got) != len(empty[path]) || strings.Contains(got, "theirs") {
			t.Errorf("%s of a new project: %s, but %s while the other project was empty", path, got,
				empty[path])
		}
	}
	for _, path := range []string{"/v1/keys", "/v1/audit?limit=500", "/v1/projects"} {
		if got := f.do("GET", path, "", after...).Body.String(); strings.Contains(got, "theirs") {
			t.Errorf("%s: %s", path, got)
		}
	}
	for _, path := range []string{report, report + "?kind=missing", report + "?format=csv"} {
		if got := f.do("GET", path, "", after...); got.Code != 404 {
			t.Errorf("%s: %d %s", path, got.Code, got.Body)
		}
	}
	got := f.call(t, 200, "POST", "/v1/reconcile/compare",
		`{"from":"2020-01-01T00:00:00Z","refs":["order-theirs"]}`, after...)
	if got["matched"] != 0.0 || len(got["missing"].([]any)) != 1 || len(got["extra"].([]any)) != 0 {
		t.Errorf("compared: %v", got)
	}
}

// reconcileToday makes a report of the default project, and returns its path.
func (f testAPI) reconcileToday(t *testing.T) string {
	t.Helper()
	day := time.Now().UTC().Format(time.DateOnly)
	f.call(t, 200, "POST", "/v1/reconcile/expected",
		`{"date":"`+day+`","items":[{"ref":"order-theirs","topic":"lost-theirs"}]}`)
	report := "/v1/reconcile/reports/" + day
	f.call(t, 200, "POST", report+"/run", `{"reason":"theirs"}`)
	f.call(t, 200, "GET", report, "")
	return report
}

// createOfEach creates one object of each kind in the default project, and returns their ids by path.
func (f testAPI) createOfEach(t *testing.T) map[string]string {
	t.Helper()
	ids := map[string]string{"/v1/projects": store.DefaultProject}
	for _, one := range []struct {
		status             int
		method, path, body string
	}{
		{
			201, "POST", "/v1/endpoints",
			`{"external_id":"merchant-theirs","name":"theirs","url":"https://theirs.example/"}`,
		},
		{202, "POST", "/v1/callbacks", `{"endpoint":"merchant-theirs",` + theirFields},
		{
			202, "POST", "/v1/callbacks",
			`{"url":"https://theirs.example/","lane":"lane-theirs",` + theirFields,
		},
		{202, "POST", "/v1/redrives", `{"action":"retry","filter":{"ref":"none-of-theirs"},"ladder":"once"}`},
		{
			201, "POST", "/v1/schedules",
			`{"name":"theirs","cron":"@daily","callback":{"url":"https://theirs.example/","payload":1}}`,
		},
		{
			201, "POST", "/v1/alerts",
			`{"name":"theirs","when":{"kind":"dead_rate"},` +
				`"sink":{"type":"webhook","url":"https://theirs.example/"}}`,
		},
		{200, "PUT", "/v1/policies/theirs", `{"tiers":[]}`},
		{200, "PUT", "/v1/success_rules/theirs", `{"status":[200]}`},
		{200, "PUT", "/v1/profiles/theirs", `{"policy":"short"}`},
		{201, "POST", "/v1/keys", `{"name":"theirs","scopes":["send"]}`},
		{
			202, "POST", "/v1/polls",
			`{"ref":"poll-theirs","request":{"url":"https://theirs.example/"},"delay":"1h",` +
				`"until":{"success":[{"status":[200]}]}}`,
		},
	} {
		made := f.call(t, one.status, one.method, one.path, one.body)
		if one.method == "POST" {
			ids[one.path] = made["id"].(string)
		}
	}
	return ids
}

const theirFields = `"payload":1,"delay":"1h","ref":"order-theirs","topic":"topic-theirs",
	"lock_key":"lock-theirs","labels":{"shop":"theirs"}}`

// TestEveryRouteByIDsOfAnotherProject (case 49) covers the routes with an id in the path. It checks that an
// admin key of another project does not find the objects of the default project: the response is the same as
// for an id that does not exist. testdata/engine_projects.txt covers endpoints that a body or a query names.
func TestEveryRouteByIDsOfAnotherProject(t *testing.T) {
	t.Parallel()
	f := newEngineAPI(t, new(receiver))
	ids := f.createOfEach(t)
	other := f.newProject(t, "b")
	bodies := map[string]string{"retry": "{}", "reschedule": `{"delay":"1s"}`}
	seen := 0
	for _, r := range routes(t) {
		named := strings.Contains(r.Path, ":name") && r.Method != "PUT"
		byID := strings.Contains(r.Path, ":id") || strings.Contains(r.Path, "*external_id")
		if !byID && !named || r.Method == "PUT" {
			continue // a PUT creates a missing object
		}
		seen++
		path := strings.NewReplacer(":name", "theirs", "*external_id", "merchant-theirs").Replace(r.Path)
		none := strings.NewReplacer(":name", "never", "*external_id", "no-merchant").Replace(r.Path)
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
		theirs := f.do(r.Method, path, body, other...)
		missing := f.do(r.Method, none, body, other...)
		same := maps.EqualFunc(theirs.Header(), missing.Header(), slices.Equal)
		if !same || theirs.Body.String() != missing.Body.String() {
			t.Errorf("%s gets %s, but %s gets %s", path, theirs.Body, none, missing.Body)
		}
		wantProblem(t, theirs, 404, "not_found")
	}
	if seen < 24 {
		t.Errorf("%d routes have an id in their path", seen)
	}
	// No request changed anything.
	got := f.call(t, 200, "GET", "/v1/callbacks/"+ids["/v1/callbacks"], "")
	if got["state"] != "scheduled" || got["expires_at"] != nil {
		t.Errorf("the callback: %v", got)
	}
	got = f.call(t, 200, "GET", "/v1/endpoints/"+ids["/v1/endpoints"], "")
	if got["paused"] != false || got["name"] != "theirs" {
		t.Errorf("the endpoint: %v", got)
	}
}

// sender creates a key with the scope send, and returns its header.
func (f testAPI) sender(t *testing.T) []string {
	t.Helper()
	key := f.call(t, 201, "POST", "/v1/keys", `{"name":"send","scopes":["send"]}`)["key"].(string)
	return []string{"Authorization", "Bearer " + key}
}

// TestNoSignerSignsForAnother checks that in a named lane the signature of one signer is not valid for
// another, because each signer has its own secret.
func TestNoSignerSignsForAnother(t *testing.T) {
	t.Parallel()
	h := newSendingAPI(t)
	const lane = "merchant-7"
	body := "msg_1.1700000000.{}"
	id := h.call(t, 202, "POST", "/v1/callbacks", fmt.Sprintf(`{"url":%q,"lane":%q,"body":%q,
		"signer":{"type":"hmac-sha256-body","encoding":"base64","prefix":"v1,"}}`, h.mine.URL, lane, body),
		h.sender(t)...)["id"].(string)
	header := h.arrived(t, h.mine, id)
	secret := func(signer string) []byte {
		t.Helper()
		text := h.call(t, 200, "GET", "/v1/secret?lane="+lane+signer, "")["secret"].(string)
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
		t.Error("a signature of hmac-sha256-body is valid for Standard Webhooks")
	}
	own := []sign.Secret{{Key: secret("&signer=hmac-sha256-body")}}
	if err := sign.Verify("", own, forged, nil, []byte("{}"), -1); err != nil {
		t.Errorf("the API returns another secret than the one that signs bodies: %v", err)
	}
}

// TestAKeysHashIsNoKey (case 45) checks that the hash of a key, which SQL contains, is not accepted as a key.
func TestAKeysHashIsNoKey(t *testing.T) {
	t.Parallel()
	f := newEngineAPI(t, new(receiver))
	hash := sha256.Sum256([]byte(strings.TrimPrefix(f.sender(t)[1], "Bearer ")))
	for _, stolen := range []string{
		hex.EncodeToString(hash[:]), base64.StdEncoding.EncodeToString(hash[:]), string(hash[:]),
	} {
		wantProblem(t, f.do("GET", "/v1/callbacks", "", "Authorization", "Bearer "+stolen), 401,
			"unauthorized")
	}
}
