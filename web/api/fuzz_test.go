package api_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// FuzzRequests sends any body and any query to any route. The answer is never a fault of ours, and one that
// refuses is a problem in JSON with its status.
func FuzzRequests(f *testing.F) {
	all := routes(f)
	for i, r := range all {
		f.Add(byte(i), bodyOf(r), "")
		if i%8 != 0 {
			continue // the fuzzer tries the other seeds on other routes, and begins only when it has run all
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
	server := newFace(panics{f}, e)
	server.lenient = true
	f.Fuzz(func(t *testing.T, which byte, body, query string) {
		r := all[int(which)%len(all)]
		path, own, _ := strings.Cut(pathOf(r), "?")
		if query == "" {
			query = own
		}
		if _, err := url.ParseRequestURI(path + "?" + query); err != nil ||
			strings.ContainsAny(query, " #\r\n\t") || strings.Contains(query, "wait") {
			return // no client can send it, or it would be waited for
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
		if err := json.Unmarshal(rec.Body.Bytes(), &problem); err != nil || problem.Status != rec.Code ||
			problem.Code == "" {
			t.Errorf("%s %s?%s with %q: %d %s", r.Method, path, query, body, rec.Code, rec.Body)
		}
	})
}
