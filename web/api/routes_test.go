package api_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
)

// TestEveryFieldOfEveryRequest sends every documented field to its route. Null counts as not given, except in
// a PATCH. The route rejects a value of another type, a duplicate field and an undocumented field, by name,
// and does not call the engine.
func TestEveryFieldOfEveryRequest(t *testing.T) {
	t.Parallel()
	for _, r := range routes(t) {
		item := strictDocument().Paths.Value(documented(r.Path))
		body := item.GetOperation(r.Method).RequestBody
		if body == nil || strings.HasSuffix(r.Path, "/batch") || r.Path == "/v1/success_rules/:name" {
			continue // a batch has the fields of a single request; the engine reads those of a rule
		}
		schema := body.Value.Content["application/json"].Schema.Value
		everyField(t, r, "", schema)
		for name, property := range schema.Properties {
			s := nested(property.Value)
			// The engine reads the members of the first four. A report needs a holder: see relay.txt.
			left := []string{"callback", "until", "success", "signer", "report"}
			if s != nil && !slices.Contains(left, name) {
				everyField(t, r, name, s)
			}
		}
	}
}

// nested returns the schema of an object whose members the API reads, or nil.
func nested(s *openapi3.Schema) *openapi3.Schema {
	for _, one := range append(openapi3.SchemaRefs{{Value: s}}, s.AnyOf...) {
		if has := one.Value.AdditionalProperties.Has; has != nil && !*has {
			return one.Value
		}
	}
	return nil
}

// everyField checks the fields of a request, or of the object in its field within.
func everyField(t *testing.T, r api.Route, within string, schema *openapi3.Schema) {
	t.Helper()
	send := func(members ...string) (*engine, testAPI, string) {
		body := "{" + strings.Join(members, ",") + "}"
		if within != "" {
			body = fmt.Sprintf("{%q:%s}", within, body)
		}
		e := fullEngine()
		f := newTestAPI(t, e)
		f.lenient = true
		return e, f, body
	}
	prefix := ""
	if within != "" {
		prefix = within + "."
	}
	refused := func(field string, members ...string) {
		t.Helper()
		e, f, body := send(members...)
		rec := f.do(r.Method, pathOf(r), body)
		if rec.Code < 300 {
			t.Errorf("%s %.100s: %d", name(r), body, rec.Code)
			return
		}
		got := wantProblem(t, rec, 422, "invalid")
		if !strings.Contains(strings.Join(got, " ")+" ", prefix+field+" ") || len(e.calls) > 0 {
			t.Errorf("%s %.100s: rejected for %q, want %q; calls %q", name(r), body, got, prefix+field,
				e.calls)
		}
	}
	const reschedule = "/v1/callbacks/:id/reschedule"
	needed := map[string]string{
		"ref": `"a"`, "tiers": `[]`, "from": `"2026-11-20T00:00:00Z"`, "refs": `[]`, "delay": `"1s"`,
		"all": "true", "since": `"2026-11-20T00:00:00Z"`,
	}
	switch {
	case r.Path == "/v1/lanes/:lane/limits":
		needed["rate"] = "null"
	case r.Path == "/v1/reconcile/expected":
		needed["date"], needed["items"] = `"2026-11-20"`, `[]`
	case within == "reconcile":
		needed["at"], needed["timezone"] = `"02:00"`, `"UTC"`
	}
	var all, none []string
	for field, property := range schema.Properties {
		value, given := needed[field]
		isNeeded := given && len(schema.Required) > 0
		if field == "delay" {
			isNeeded = r.Path == reschedule
		}
		if field == "all" {
			isNeeded = r.Path == "/v1/relay/:source/drop"
		}
		if isNeeded {
			none = append(none, fmt.Sprintf("%q:%s", field, value))
		} else {
			all = append(all, fmt.Sprintf("%q:null", field))
		}
		wrong := "true"
		if property.Value.Type != nil && property.Value.Type.Permits("boolean") {
			wrong = `"yes"`
		}
		if len(property.Value.Type.Slice()) < 4 { // not a field of any type
			refused(field, fmt.Sprintf("%q:%s", field, wrong))
		}
		refused(field, fmt.Sprintf("%q:null", field), fmt.Sprintf("%q:null", field))
	}
	refused("unheard_of", append(all, `"unheard_of":null`)...)
	nullRemoves := r.Method == "PATCH" || r.Path == "/v1/lanes/:lane/limits" || within == "quotas"
	notGiven, f, body := send(none...)
	f.do(r.Method, pathOf(r), body)
	nulls, f, body := send(append(all, none...)...)
	if rec := f.do(r.Method, pathOf(r), body); rec.Code >= 300 {
		t.Errorf("%s %s: %d %s", name(r), body, rec.Code, rec.Body)
	}
	if diff := cmp.Diff(notGiven.calls, nulls.calls); diff != "" && !nullRemoves {
		t.Errorf("%s: null differs from not given (-not given +null):\n%s", name(r), diff)
	}
	for _, body := range []string{`[]`, `7`} { // only an object is accepted
		field := "request"
		if within != "" {
			field, body = within, fmt.Sprintf("{%q:%s}", within, body)
		}
		got := wantProblem(t, f.do(r.Method, pathOf(r), body), 422, "invalid")
		if !slices.Contains(got, field) {
			t.Errorf("%s %s: rejected for %q, want %q", name(r), body, got, field)
		}
	}
	wantProblem(t, f.do(r.Method, pathOf(r), "{"), 400, "bad_json")
}

// TestEveryListHasPages checks that a page ends with the cursor of the next page, and that no other list
// accepts the cursor.
func TestEveryListHasPages(t *testing.T) {
	t.Parallel()
	f := newTestAPI(t, fullEngine())
	cursors := make(map[string]string)
	for path, key := range map[string]string{
		"/v1/endpoints": "id", "/v1/lanes": "lane", "/v1/redrives": "id", "/v1/schedules": "id",
		"/v1/alerts":   "id",
		"/v1/projects": "id", "/v1/keys": "id", "/v1/audit": "id",
		"/v1/policies": "name", "/v1/success_rules": "name", "/v1/profiles": "name",
	} {
		// read reads the whole list in pages of limit rows.
		read := func(limit int) (keys []any) {
			for cursor := ""; len(keys) < 100; {
				got := f.call(t, 200, "GET", fmt.Sprintf("%s?limit=%d%s", path, limit, cursor), "")
				data := got["data"].([]any)
				if len(data) > limit {
					t.Errorf("%s: a page of %d has %d", path, limit, len(data))
				}
				for _, one := range data {
					keys = append(keys, one.(map[string]any)[key])
				}
				next, more := got["next_cursor"].(string)
				if !more {
					return keys
				}
				cursors[path], cursor = next, "&cursor="+next
			}
			t.Fatalf("%s: the pages do not end", path)
			return nil
		}
		whole := read(500)
		for _, limit := range []int{1, 2} {
			if diff := cmp.Diff(whole, read(limit)); diff != "" || len(whole) < 2 {
				t.Errorf("%s by %d (-whole +pages):\n%s", path, limit, diff)
			}
		}
	}
	for path := range cursors {
		queries := map[string]string{
			"limit=0": "limit", "limit=501": "limit", "limit=x": "limit", "limit=5&limit=6": "limit",
			"cursor=x": "cursor", "cursor=": "cursor", "cursor=" + cursors[path] + "A": "cursor",
			"unheard_of=1": "unheard_of",
		}
		for other, cursor := range cursors {
			if other != path {
				queries["cursor="+cursor] = "cursor"
			}
		}
		for query, field := range queries {
			f.refused(t, []string{field}, "GET", path+"?"+query, "")
		}
	}
}

// forged returns a cursor that anyone can create: it ends with a hash of its bytes, without the key.
func forged(list byte, id string, sum int) string {
	b := append(append([]byte{list}, make([]byte, 8)...), id...)
	all := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(append(b, all[:sum]...))
}

// TestForgedCursors checks that no text that a caller invents reaches SQL. PostgreSQL rejects NUL and invalid
// UTF-8, which would become a 500.
func TestForgedCursors(t *testing.T) {
	t.Parallel()
	for path, list := range map[string]byte{
		"/v1/callbacks?": 'n', "/v1/callbacks?order=due&": 'd', "/v1/audit?": 'a', "/v1/endpoints?": 'e',
		"/v1/lanes?": 'l', "/v1/projects?": 'p', "/v1/keys?": 'k', "/v1/policies?": 't', "/v1/profiles?": 'f',
		"/v1/success_rules?": 's', "/v1/redrives?": 'r', "/v1/outcomes?": 'o', "/v1/schedules?": 'c',
		"/v1/alerts?":                           'w',
		"/v1/callbacks/" + oneID + "/attempts?": 'm',
	} {
		for _, id := range []string{
			"\x00", "\xff\xfe", bareID[:25] + "\x00", bareID, strings.Repeat("\x00", 16),
		} {
			for _, sum := range []int{0, 6, 16, 32} {
				e := fullEngine()
				cursor := forged(list, id, sum)
				newTestAPI(t, e).refused(t, []string{"cursor"}, "GET", path+"cursor="+cursor, "")
				if len(e.calls) > 0 {
					t.Errorf("%s with %q reached the store", path, id)
				}
			}
		}
	}
}

// TestListsNeedTheKeyOfCursors checks that lists get a 503 while the cursor key cannot be read, and that it
// is read only once.
func TestListsNeedTheKeyOfCursors(t *testing.T) {
	t.Parallel()
	e := fullEngine()
	f := newTestAPI(t, e)
	for _, err := range []error{store.ErrUnavailable, errors.New("no key of the ring opens it")} {
		e.keyErr = err
		rec := f.do("GET", "/v1/callbacks", "")
		wantProblem(t, rec, 503, "unavailable")
		if rec.Header().Get("Retry-After") == "" || len(e.calls) > 0 {
			t.Errorf("with %v: %v, calls of the store %q", err, rec.Header(), e.calls)
		}
	}
	e.keyErr = nil
	f.call(t, 200, "GET", "/v1/callbacks", "")
	e.keyErr = errors.New("read again")
	f.call(t, 200, "GET", "/v1/callbacks", "")
	other := fullEngine()
	other.cursorKey = []byte{} // too short
	wantProblem(t, newTestAPI(t, other).do("GET", "/v1/callbacks", ""), 503, "unavailable")
}

// FuzzRequests sends any body and any query to any route. The response is never a 5xx, and every error is a
// problem in JSON with its status.
func FuzzRequests(f *testing.F) {
	all := routes(f)
	for i, r := range all {
		f.Add(byte(i), bodyOf(r), "")
		if i%8 != 0 {
			continue // the fuzzer combines seeds and routes anyway, and runs all seeds before it starts
		}
		f.Add(byte(i), `{"a":1,"a":2}`, "limit=1&cursor=x")
		f.Add(byte(i),
			`{"name":"n","url":"https://shop.example","topics":["a"],"rate":"5/s","tiers":["1s"],`+
				`"cron":"@daily","hosts":["*"],`+
				`"scopes":["send"],"until":"2026-11-22","filter":{"state":["dead"]},`+
				`"secret":"whsec_AAAA","callback":{"payload":{}},"signer":{"name":"x"}}`,
			"from=2026-11-20&to=2026-11-21&label.shop=7&state=dead&state=scheduled&wait=0s")
		f.Add(byte(i), `[null]`, "a=%zz")
		f.Add(byte(i), ``, "from=0000-01-01T00:00:00Z&to=9999-12-31T23:59:59.9999Z")
	}
	e := fullEngine()
	server := newTestAPI(panics{f}, e)
	server.lenient = true
	f.Fuzz(func(t *testing.T, which byte, body, query string) {
		r := all[int(which)%len(all)]
		path, own, _ := strings.Cut(pathOf(r), "?")
		if query == "" {
			query = own
		}
		_, err := url.ParseRequestURI(path + "?" + query)
		if err != nil || strings.ContainsAny(query, " #\r\n\t") || strings.Contains(query, "wait") {
			return // no client can send it, or the request would wait
		}
		server.log.Reset()
		e.calls = nil
		rec := server.do(r.Method, path+"?"+query, body, "Content-Type", "application/json")
		if rec.Code >= 500 {
			t.Fatalf("%s %s?%s with %q: %d %s %s", r.Method, path, query, body, rec.Code, rec.Body,
				server.log)
		}
		if rec.Code < 400 {
			return
		}
		var problem struct {
			Status int    `json:"status"`
			Code   string `json:"code"`
		}
		err = json.Unmarshal(rec.Body.Bytes(), &problem)
		if err != nil || problem.Status != rec.Code || problem.Code == "" {
			t.Errorf("%s %s?%s with %q: %d %s", r.Method, path, query, body, rec.Code, rec.Body)
		}
	})
}
