package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestFilters(t *testing.T) {
	t.Parallel()
	base := store.Filter{Now: nowMS, Limit: 50}
	for _, c := range []struct {
		query string
		want  func(*store.Filter)
	}{
		{"", func(*store.Filter) {}},
		{"limit=500", func(f *store.Filter) { f.Limit = 500 }},
		{"state=dead&state=attempting", func(f *store.Filter) { f.States = []store.State{store.Dead, store.Attempting} }},
		{"kind=poll", func(f *store.Filter) { f.Kind = store.Poll }},
		{"topic=a.b&ref=o%201&lane=https://h:443", func(f *store.Filter) { f.Topic, f.Ref, f.Lane = "a.b", "o 1", "https://h:443" }},
		{"class=http_5xx&status_code=503", func(f *store.Filter) { f.Class, f.Status = store.ClassHTTP5xx, 503 }},
		{"label.channel=alipay&label.a%20b=c", func(f *store.Filter) { f.Labels = map[string]string{"channel": "alipay", "a b": "c"} }},
		{"lock_key=k%201&reason=exhausted", func(f *store.Filter) { f.LockKey, f.Reason = "k 1", store.Exhausted }},
		{"min_attempts=3&overdue=true", func(f *store.Filter) { f.MinAttempts, f.Overdue = 3, true }},
		{"overdue=false", func(*store.Filter) {}},
		{"from=2026-11-21T08:00:00Z&to=2026-11-21t16:00:01.5%2B08:00", func(f *store.Filter) { f.From, f.To = nowMS, nowMS+1500 }},
		{"from=2026-11-21T16:00:00+08:00", func(f *store.Filter) { f.From = nowMS }},
		{"order=due", func(f *store.Filter) { f.ByDue = true }},
		{"format=json", func(*store.Filter) {}},
		{"endpoint=" + oneEndpoint, func(f *store.Filter) { f.EndpointID = bareEndpoint }},
		{"endpoint=merchant-7", func(f *store.Filter) { f.EndpointID = bareEndpoint }},
	} {
		e := &engine{endpoint: someEndpoint()}
		rec := newFace(t, e).do("GET", "/v1/callbacks?"+c.query, "")
		if got := rec.Body.String(); rec.Code != 200 || got != `{"data":[],"next_cursor":null}` {
			t.Fatalf("%s: %d %s", c.query, rec.Code, got)
		}
		want := base
		c.want(&want)
		if diff := cmp.Diff(want, e.given.what); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.query, diff)
		}
	}
}

func TestFiltersRefuse(t *testing.T) {
	t.Parallel()
	f := newFace(t, &engine{})
	if rec := f.do("GET", "/v1/callbacks?endpoint=nobody", ""); rec.Code != 200 || rec.Body.String() != `{"data":[],"next_cursor":null}` {
		t.Errorf("callbacks of an endpoint that is not there: %d %s", rec.Code, rec.Body)
	}
	refuses(t, "GET", "/v1/callbacks?", map[string]string{
		"limit=501": "limit", "limit=0": "limit", "limit=-1": "limit", "limit=x": "limit", "limit=5&limit=6": "limit", "cursor=x": "cursor", "cursor=": "cursor",
		"state=failed": "state", "state=": "state", "kind=x": "kind", "class=x": "class", "reason=x": "reason", "lock_key=": "lock_key",
		"status_code=99": "status_code", "status_code=1000": "status_code", "min_attempts=-1": "min_attempts", "overdue=yes": "overdue",
		"from=yesterday": "from", "to=2026": "to", "from=2026-11-22T00:00:00Z&to=2026-11-21T00:00:00Z": "from", "order=asc": "order",
		"format=xml": "format", "endpoint=": "endpoint", "endpoint=a&endpoint=b": "endpoint", "q=x": "q", "State=dead": "State", "label.=x": "label.", "label.a=": "label.a",
		"label.a=1&label.a=2": "label.a", "ref=a%00b": "ref", "ref=%ff": "ref", "topic=%0a": "topic", "label.%00=x": "label.\x00", "a;b": "query", "ref=%zz": "query",
		"ref=": "ref", "project=other": "project",
	})
	refuses(t, "GET", "/v1/audit?", map[string]string{"state=dead": "state"})
	refuses(t, "GET", "/v1/secret?", map[string]string{"": "lane", "lane=": "lane", "lane=a&lane=b": "lane", "lane=%00": "lane", "x=1": "x"})
}

func TestCursorsContinue(t *testing.T) {
	t.Parallel()
	e := &engine{page: store.Page{Callbacks: []store.Callback{sample()}, Next: &store.Cursor{DueAt: 7, ID: bareID}}}
	f := newFace(t, e)
	for _, order := range []string{"", "order=due&"} {
		rec := f.do("GET", "/v1/callbacks?"+order, "")
		body := rec.Body.String()
		_, rest, found := strings.Cut(body, `"next_cursor":"`)
		if !found || !strings.HasPrefix(body, `{"data":[{"id":"`+oneID) {
			t.Fatalf("%s", body)
		}
		cursor := strings.TrimSuffix(rest, `"}`)
		f.do("GET", "/v1/callbacks?"+order+"cursor="+cursor, "")
		if diff := cmp.Diff(&store.Cursor{DueAt: 7, ID: bareID}, e.given.what.(store.Filter).After); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		other := map[string]string{"": "order=due&", "order=due&": ""}[order]
		wantProblem(t, f.do("GET", "/v1/callbacks?"+other+"cursor="+cursor, ""), 422, "invalid")
	}
}

// forged is a cursor as anyone can make it: with the sum of its bytes, and no key.
func forged(list byte, id string, sum int) string {
	b := append(append([]byte{list}, make([]byte, 8)...), id...)
	all := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(append(b, all[:sum]...))
}

// TestForgedCursors: no text that a caller can make reaches SQL: PostgreSQL refuses a NUL and bad UTF-8,
// which was a 500.
func TestForgedCursors(t *testing.T) {
	t.Parallel()
	for path, list := range map[string]byte{
		"/v1/callbacks?": 'n', "/v1/callbacks?order=due&": 'd', "/v1/audit?": 'a', "/v1/endpoints?": 'e',
		"/v1/lanes?": 'l', "/v1/projects?": 'p', "/v1/keys?": 'k', "/v1/policies?": 't', "/v1/profiles?": 'f',
		"/v1/success_rules?": 's', "/v1/redrives?": 'r', "/v1/outcomes?": 'o', "/v1/schedules?": 'c',
		"/v1/callbacks/" + oneID + "/attempts?": 'm',
	} {
		for _, id := range []string{"\x00", "\xff\xfe", bareID[:25] + "\x00", bareID, strings.Repeat("\x00", 16)} {
			for _, sum := range []int{0, 6, 16, 32} {
				e := fullEngine()
				rec := newFace(t, e).do("GET", path+"cursor="+forged(list, id, sum), "")
				if fields := wantProblem(t, rec, 422, "invalid"); !slices.Equal(fields, []string{"cursor"}) {
					t.Errorf("%s with %q: refused for %q", path, id, fields)
				}
				if len(e.projects) > 0 {
					t.Errorf("%s with %q reached the store", path, id)
				}
			}
		}
	}
}

// TestListsNeedTheKeyOfCursors: while it cannot be read lists are answered as while SQL is away; it is read
// once.
func TestListsNeedTheKeyOfCursors(t *testing.T) {
	t.Parallel()
	e := fullEngine()
	f := newFace(t, e)
	for _, err := range []error{store.ErrUnavailable, errors.New("no key of the ring opens it")} {
		e.keyErr = err
		rec := f.do("GET", "/v1/callbacks", "")
		wantProblem(t, rec, 503, "unavailable")
		if rec.Header().Get("Retry-After") == "" || len(e.projects) > 0 {
			t.Errorf("with %v: %v, and the store was asked for %q", err, rec.Header(), e.projects)
		}
	}
	e.keyErr = nil
	f.ask(t, 200, "GET", "/v1/callbacks", "")
	e.keyErr = errors.New("asked again")
	f.ask(t, 200, "GET", "/v1/callbacks", "")
	o := optionsOf(fullEngine())
	o.Engine = withoutCursorKey{fullEngine()}
	wantProblem(t, newFaceOf(t, o).do("GET", "/v1/callbacks", ""), 503, "unavailable")
}

// withoutCursorKey answers with a key that is none.
type withoutCursorKey struct{ *engine }

func (withoutCursorKey) CursorKey(context.Context) ([]byte, error) { return nil, nil }

// TestCSV: among the rest that no cell is a formula, case 59.
func TestCSV(t *testing.T) {
	t.Parallel()
	formula := sample()
	formula.Ref, formula.Topic, formula.LockKey, formula.Lane = `=cmd()`, "+1", "-1", "@x\n\""
	done := sample()
	done.State, done.DueAt, done.Policy.RepeatLast = store.Succeeded, nowMS, true
	e := &engine{page: store.Page{Callbacks: []store.Callback{formula, done}, Next: &store.Cursor{ID: bareID}}}
	rec := newFace(t, e).do("GET", "/v1/callbacks?format=csv&ref=a&limit=2", "")
	if ct := rec.Header().Get("Content-Type"); rec.Code != 200 || ct != "text/csv; charset=utf-8" {
		t.Fatalf("%d %s %s", rec.Code, ct, rec.Body)
	}
	rows, err := csv.NewReader(rec.Body).ReadAll()
	if err != nil || len(rows) != 3 {
		t.Fatalf("%v %v", rows, err)
	}
	cell := func(row int, column string) string { return rows[row][slices.Index(rows[0], column)] }
	for column, want := range map[string]string{
		"id": oneID, "ref": "'=cmd()", "topic": "'+1", "lock_key": "'-1", "lane": "'@x\n\"", "due_at": "2026-11-21T08:00:01.500Z", "max_attempts": "4",
	} {
		if got := cell(1, column); got != want {
			t.Errorf("%s: %q, want %q", column, got, want)
		}
	}
	if cell(2, "due_at") != "" || cell(2, "max_attempts") != "" || cell(2, "state") != "succeeded" {
		t.Errorf("the second row: %q", rows[2])
	}
	link := rec.Header().Get("Link")
	target, ok := strings.CutSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
	u, err := url.Parse(target)
	if !ok || err != nil || u.Path != "/v1/callbacks" || u.Query().Get("ref") != "a" || u.Query().Get("cursor") == "" {
		t.Errorf("Link: %q", link)
	}
}

func TestPayloadIsRaw(t *testing.T) {
	t.Parallel()
	for body, contentType := range map[string]string{
		`{ "a":1 }<script>`: "text/plain; charset=utf-8", "\x00\xff\xfe": "text/plain", "": "text/plain; charset=utf-8",
	} {
		rec := newFace(t, &engine{body: []byte(body)}).do("GET", "/v1/callbacks/"+oneID+"/payload", "")
		h := rec.Header()
		if rec.Code != 200 || rec.Body.String() != body || h.Get("Content-Type") != contentType || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%q: %d %q %v", body, rec.Code, rec.Body, h)
		}
		if !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") {
			t.Errorf("a browser may show it: %q", h.Get("Content-Disposition"))
		}
	}
}

// TestStatsOfTheInstallation: the sizes of the index are those of all projects, so that no project's key is
// shown them.
func TestStatsOfTheInstallation(t *testing.T) {
	t.Parallel()
	f := newFace(t, &engine{})
	for _, scope := range []store.Scope{store.ScopeRead, store.ScopeOperate, store.ScopeAdmin} {
		got := f.askAs(t, 200, "GET", "/v1/stats", "", "Authorization", "Bearer "+keyOf("b", scope))
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, []string{"lanes", "states", "tiers"}) {
			t.Errorf("a key of scope %s is shown %q", scope, names)
		}
	}
	if got := f.ask(t, 200, "GET", "/v1/stats", ""); got["index"] == nil {
		t.Errorf("the admin key of the settings is shown %v", got)
	}
}

func TestStatsWithoutIndex(t *testing.T) {
	t.Parallel()
	rec := newFace(t, &engine{statsErr: store.ErrUnavailable}).do("GET", "/v1/stats", "")
	if rec.Code != 200 || !strings.Contains(rec.Body.String(), `"index":null`) {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}
