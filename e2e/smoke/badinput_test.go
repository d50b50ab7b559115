package smoke

import (
	"net/http"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// good is a submission that is accepted and not due for an hour.
func good() harness.Submission {
	return harness.Submission{
		"url": "http://127.0.0.1:9/notify", "payload": harness.Submission{"paid": 1}, "delay": "1h",
	}
}

// Bad input gets its status and a problem that names the field. The tables of every field and route are in web/api.
func TestBadInputGetsAProblem(t *testing.T) {
	harness.BlackBox(t)
	p := harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded)})
	const url = `"url": "https://shop.example/notify"`
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		field                    string
	}{
		{"broken JSON", "POST", "/v1/callbacks", `{"url": `, 400, ""},
		{"no address", "POST", "/v1/callbacks", `{"payload": 1}`, 422, "url"},
		{"unknown field", "POST", "/v1/callbacks", `{` + url + `, "payload": 1, "sate": "dead"}`, 422, "sate"},
		{"same key twice", "POST", "/v1/callbacks", `{` + url + `, "payload": 1, "ref": "a", "ref": "b"}`, 422, "ref"},
		{"negative tier", "POST", "/v1/callbacks", `{` + url + `, "payload": 1, "policy": {"tiers": ["-1s"]}}`, 422, "policy"},
		{"body too large", "POST", "/v1/callbacks", `{` + url + `, "payload": "` + strings.Repeat("x", 256<<10) + `"}`, 413, ""},
		{"unknown id", "GET", "/v1/callbacks/cb_01ARZ3NDEKTSV4RRFFQ69G5FAV", "", 404, ""},
		{"unknown filter", "GET", "/v1/callbacks?stat=dead", "", 422, "stat"},
		{"foreign cursor", "GET", "/v1/callbacks?cursor=zzz", "", 422, "cursor"},
		{"empty batch", "POST", "/v1/callbacks/batch", `{"callbacks": []}`, 422, "callbacks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkProblem(t, raw(t, p, c.method, c.path, c.body, nil), c.status, c.field)
		})
	}
	t.Run("wrong key", func(t *testing.T) {
		wrong := http.Header{"Authorization": {"Bearer nonsense"}}
		checkProblem(t, raw(t, p, http.MethodGet, "/v1/callbacks", "", wrong), http.StatusUnauthorized, "")
	})
}

// raw sends a body as it is.
func raw(t *testing.T, p *harness.Process, method, path, body string, header http.Header) harness.Answer {
	t.Helper()
	got, err := p.Raw(t.Context(), method, path, []byte(body), header)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Every address that something can be sent to is checked when it is given: case 29 of the security list. A
// test send goes to an endpoint's address.
func TestInternalAddressesAreRefusedWhereverTheyAreGiven(t *testing.T) {
	harness.BlackBox(t)
	p := harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded)})
	accepted, err := p.Accept(t.Context(), good())
	if err != nil {
		t.Fatal(err)
	}
	const (
		inside = `"url": "http://169.254.169.254/latest/meta-data/"`
		until  = `"until": {"success": [{"status": [200]}]}`
	)
	callback := "/v1/callbacks/" + accepted.ID
	for _, c := range []struct{ name, method, path, body, field string }{
		{"callback", "POST", "/v1/callbacks", `{` + inside + `, "payload": 1}`, "url"},
		{"retry", "POST", callback + "/retry", `{` + inside + `}`, "url"},
		{"change", "PATCH", callback, `{` + inside + `}`, "url"},
		{"redrive", "POST", "/v1/redrives", `{"action": "set_url", "filter": {}, ` + inside + `}`, "url"},
		{"endpoint and its test send", "POST", "/v1/endpoints", `{` + inside + `}`, "url"},
		{"poll", "POST", "/v1/polls", `{"ref": "a", "request": {` + inside + `}, ` + until + `}`, "request"},
		{"on_result", "POST", "/v1/polls", `{"ref": "a", "request": {"url": "https://shop.example/"}, ` +
			until + `, "on_result": {` + inside + `}}`, "on_result"},
		{"schedule", "POST", "/v1/schedules", `{"name": "a", "cron": "@every 1h", "callback": {` + inside +
			`, "payload": 1}}`, "callback"},
	} {
		t.Run("case 29: "+c.name, func(t *testing.T) {
			checkProblem(t, raw(t, p, c.method, c.path, c.body, nil), http.StatusUnprocessableEntity, c.field)
		})
	}
}

// checkProblem fails unless the answer is a problem of that status which names the field, if there is one.
func checkProblem(t *testing.T, got harness.Answer, status int, field string) {
	t.Helper()
	var p client.Problem
	if got.Status != status || got.Decode(&p) != nil || p.Status != status || p.Title == "" || p.Code == "" ||
		!strings.HasPrefix(got.Header.Get("Content-Type"), "application/problem+json") {
		t.Fatalf("answered %d %s: %.400s; want a problem with status %d", got.Status, got.Header.Get("Content-Type"), got.Body, status)
	}
	if field == "" {
		return
	}
	for _, e := range p.Errors {
		if strings.HasPrefix(e.Field, field) && strings.Contains(e.Message, " ") {
			return
		}
	}
	t.Errorf("no error names %q with a sentence: %.400s", field, got.Body)
}

// The same idempotency key with the same bytes is the same callback. With other bytes it is refused.
func TestIdempotencyKeyIsKept(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		p := harness.Serve(t, harness.Launch{On: b})
		post := func(ref string) harness.Answer {
			s := good()
			s["idempotency_key"], s["ref"] = "key-1", ref
			got, err := p.Send(t.Context(), http.MethodPost, "/v1/callbacks", s)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		var first, again client.Callback
		if err := post("one").Decode(&first); err != nil {
			t.Fatal(err)
		}
		got := post("one")
		if err := got.Decode(&again); err != nil {
			t.Fatal(err)
		}
		if got.Status != http.StatusOK || again.ID != first.ID || !again.Replayed {
			t.Errorf("the replay was answered %d with %s, replayed %v; want 200, %s, true", got.Status, again.ID, again.Replayed, first.ID)
		}
		checkProblem(t, post("other"), http.StatusUnprocessableEntity, "")
	})
}
