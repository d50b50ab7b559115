package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// importLines writes a file of callbacks that stay scheduled.
func importLines(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"url": "http://127.0.0.1:1/%d", "ref": "order-%d",  "payload": {"paid" : %d}, "delay": "1h"}`+"\n", i, i, i)
	}
	return writeFile(t, "callbacks.ndjson", b.String())
}

// importing runs the command against a server and returns the exit code and the summary.
func importing(t *testing.T, r *running, path string, args ...string) (int, summary, *terminal) {
	t.Helper()
	term := newTerminal()
	code := term.invoke(append([]string{"import", path, "--json", "--server", r.cl.base, "--key", r.cl.key}, args...)...)
	var sum summary
	if text := term.stdout.String(); text != "" {
		if err := json.Unmarshal([]byte(text), &sum); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	return code, sum, term
}

func refusals(t *testing.T, path string) (list []map[string]any) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		list = append(list, r)
	}
	return list
}

func TestImportTellsEachLineApart(t *testing.T) {
	t.Parallel()
	r := startServer(t, testSettings(t))
	path := writeFile(t, "mixed.ndjson", "\xef\xbb\xbf"+`{"url":"http://127.0.0.1:1/","payload":{"a": 1},"delay":"1h"}`+"\r\n\n"+
		`not json`+"\n"+
		`{"url":"ftp://h/","payload":1}`+"\n"+
		`[1]`+"\n"+
		`{"url":"http://127.0.0.1:1/","body":"`+strings.Repeat("x", 600<<10)+`"}`+"\n"+
		`{"url":"http://127.0.0.1:1/","payload":{"b" : 2},"delay":"1h","idempotency_key":"mine"}`+"\n"+
		`{}`+"\n"+
		`{"url":"http://127.0.0.1:1/","payload":{"c":3},"delay":"1h","idempotency_key":null}`) // and no newline
	code, sum, term := importing(t, r, path)
	if code != exitFailed || sum.Lines != 8 || sum.Accepted != 3 || sum.Refused != 5 || sum.Replayed != 0 {
		t.Fatalf("exit code %d, %+v, %s", code, sum, term.stderr.String())
	}
	found := refusals(t, path+".errors.ndjson")
	var numbers, statuses []float64
	for _, f := range found {
		numbers, statuses = append(numbers, f["line"].(float64)), append(statuses, f["status"].(float64))
	}
	if !slices.Equal(numbers, []float64{3, 4, 5, 6, 8}) || !slices.Equal(statuses, []float64{400, 422, 422, 413, 422}) {
		t.Errorf("refused lines %v with %v", numbers, statuses)
	}
	if input := found[1]["input"].(map[string]any); input["url"] != "ftp://h/" {
		t.Errorf("input %v", input)
	}
	// The payload's bytes are those of the file.
	var page struct{ Data []shownCallback }
	if _, err := r.cl.call(t.Context(), http.MethodGet, "/v1/callbacks?limit=10", nil, &page); err != nil || len(page.Data) != 3 {
		t.Fatalf("%d callbacks, %v", len(page.Data), err)
	}
	var bodies []string
	for _, cb := range page.Data {
		body, err := r.cl.call(t.Context(), http.MethodGet, callbackPath(cb.ID)+"/payload", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, string(body))
	}
	slices.Sort(bodies)
	if !slices.Equal(bodies, []string{`{"a": 1}`, `{"b" : 2}`, `{"c":3}`}) {
		t.Errorf("payloads %q", bodies)
	}
	code, sum, _ = importing(t, r, path)
	if code != exitFailed || sum.Accepted != 0 || sum.Replayed != 3 || len(refusals(t, path+".errors.ndjson")) != 5 {
		t.Errorf("again: exit code %d, %+v", code, sum)
	}
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
}

// What POST /v1/callbacks accepted is not made a second time by an import of the same bytes with the same key.
func TestImportKnowsWhatWasSentAlone(t *testing.T) {
	t.Parallel()
	r := startServer(t, testSettings(t))
	line := `{"url":"http://127.0.0.1:1/","payload": 1,"delay":"1h","idempotency_key":"order-7"}`
	if _, err := r.cl.send(t.Context(), http.MethodPost, "/v1/callbacks", []byte(line), nil); err != nil {
		t.Fatal(err)
	}
	if code, sum, _ := importing(t, r, writeFile(t, "one.ndjson", line+"\n")); code != exitOK || sum.Replayed != 1 {
		t.Errorf("exit code %d, %+v", code, sum)
	}
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
}

// Resuming skips what is in the books; what was accepted after the last entry is a replay, not a second callback.
func TestImportGoesOn(t *testing.T) {
	t.Parallel()
	r := startServer(t, testSettings(t))
	path := importLines(t, 2500)
	if code, sum, term := importing(t, r, path); code != exitOK || sum.Accepted != 2500 {
		t.Fatalf("exit code %d, %+v, %s", code, sum, term.stderr.String())
	}
	content, err := os.ReadFile(path + ".progress")
	if err != nil {
		t.Fatal(err)
	}
	var mark waymark
	if err := json.Unmarshal(content, &mark); err != nil || mark.Line != 2500 || !mark.Finished {
		t.Fatalf("%+v, %v", mark, err)
	}
	if code, sum, _ := importing(t, r, path, "--resume"); code != exitOK || sum.Lines != 0 || sum.Skipped != 2500 {
		t.Errorf("resume of all that is done: exit code %d, %+v", code, sum)
	}
	// As a kill leaves it: accepted, and not in the books.
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	mark.Line, mark.Lines, mark.Finished = 1000, 1000, false
	mark.Offset = int64(len(strings.Join(strings.SplitAfter(string(text), "\n")[:1000], "")))
	content, err = json.Marshal(mark)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".progress", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, sum, _ := importing(t, r, path, "--resume"); code != exitOK || sum.Lines != 1500 || sum.Replayed != 1500 || sum.Accepted != 0 {
		t.Errorf("resume in the middle: exit code %d, %+v", code, sum)
	}
	if got := stats(t, r).Index.items(); got != 2500 {
		t.Errorf("%d callbacks, not 2500", got)
	}
	// An edited file is another one.
	if err := os.WriteFile(path, append(text, []byte("{}\n")...), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, term := importing(t, r, path, "--resume"); code != exitUsage || !strings.Contains(term.stderr.String(), "was changed since") {
		t.Errorf("resume of an edited file: exit code %d, %s", code, term.stderr.String())
	}
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
}

func TestImportFromTheStandardInput(t *testing.T) {
	t.Parallel()
	r := startServer(t, testSettings(t))
	for try, want := range []summary{{Lines: 3, Accepted: 2, Refused: 1}, {Lines: 3, Replayed: 2, Refused: 1}} {
		term := newTerminal()
		term.in = strings.NewReader(`{"url":"http://127.0.0.1:1/","payload":1,"delay":"1h"}` + "\nx\n" + `{"url":"http://127.0.0.1:1/","payload":1,"delay":"1h"}` + "\n")
		code := term.invoke("import", "-", "--json", "--server", r.cl.base, "--key", r.cl.key)
		var sum summary
		if err := json.Unmarshal(term.stdout.Bytes(), &sum); err != nil || code != exitFailed {
			t.Fatalf("exit code %d, %v", code, err)
		}
		sum.Took = ""
		if sum != want {
			t.Errorf("try %d: %+v", try, sum)
		}
		if !strings.Contains(term.stderr.String(), `{"line":2,"status":400,"code":"bad_json"`) {
			t.Errorf("said %s", term.stderr.String())
		}
	}
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
}

func TestImportDryRun(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "dry.ndjson", `{"endpoint":"merchant-7","payload":1,"policy":"our-own"}`+"\n"+`{"url":"https://h/","payload":1,"policy":{"tiers":["soon"]}}`+"\n"+`{`+"\n")
	term := newTerminal()
	if code := term.invoke("import", path, "--dry-run"); code != exitFailed || !strings.HasPrefix(term.stdout.String(), "3 lines: 1 could be sent, 2 could not; nothing was sent") {
		t.Errorf("exit code %d, said %s", code, term.stdout.String())
	}
	lines := term.lines()
	if len(lines) != 2 || !strings.Contains(lines[0], "line 2: ") || !strings.Contains(lines[0], "policy") || !strings.Contains(lines[1], "line 3: the line is not JSON") {
		t.Errorf("said %q", lines)
	}
	for _, file := range []string{path + ".progress", path + ".errors.ndjson"} {
		if _, err := os.Stat(file); err == nil {
			t.Errorf("it wrote %s", file)
		}
	}
}

func TestImportCommandLines(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "a.ndjson", "{}\n")
	for _, args := range [][]string{
		{"import", path, "--rate", "fast", "--key", "k"}, {"import", path, "--rate", "0/s", "--key", "k"}, {"import", path, "--rate", "5/", "--key", "k"},
		{"import", path, "--resume", "--key", "k"}, {"import", "-", "--resume", "--key", "k"}, {"import", path, "--resume", "--dry-run"}, {"import"},
	} {
		if code := newTerminal().invoke(args...); code != exitUsage {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
	if code := newTerminal().invoke("import", path+".missing", "--key", "k"); code != exitFailed {
		t.Errorf("a missing file: exit code %d", code)
	}
	for text, want := range map[string]float64{"": 0, "500": 500, "500/s": 500, "6000/m": 100, "3600/h": 1} {
		if got, err := parseRate(text); err != nil || got != want {
			t.Errorf("rate %q is %v, %v", text, got, err)
		}
	}
}

// Keys are made where there are none, and are the same whenever the file is read again.
func TestImportKeys(t *testing.T) {
	t.Parallel()
	s := &source{sum: strings.Repeat("ab", 32)}
	key := `"import-` + strings.Repeat("ab", 16) + `-7"`
	for text, want := range map[string]string{
		`{"url":"u"}`:                           `{"idempotency_key":` + key + `,"url":"u"}`,
		`{ }`:                                   `{"idempotency_key":` + key + ` }`,
		`{"a" : {"idempotency_key":"x"} }`:      `{"idempotency_key":` + key + `,"a" : {"idempotency_key":"x"} }`,
		`{"idempotency_key":"mine", "a":1e400}`: `{"idempotency_key":"mine", "a":1e400}`,
		`{"a":[1, 2], "idempotency_key" : null ,"b":1}`: `{"a":[1, 2], "idempotency_key" : ` + key + ` ,"b":1}`,
	} {
		got, err := s.keyed(&importLine{number: 7, text: []byte(text)})
		if err != nil || string(got) != want || !json.Valid(got) {
			t.Errorf("%s became %s, not %s (%v)", text, got, want, err)
		}
	}
}

// A server that cannot take a batch is asked again, as late as it says, and a batch that it cannot read is halved.
func TestImportAsksAgain(t *testing.T) {
	t.Parallel()
	var calls, accepted atomic.Int64
	var second time.Time
	began := time.Now()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch calls.Add(1) {
		case 1:
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusServiceUnavailable)
			io.WriteString(w, `{"title":"Service Unavailable","status":503,"detail":"the database cannot commit; try again later"}`)
			return
		case 2:
			second = time.Now()
			panic(http.ErrAbortHandler) // the connection breaks
		}
		var in struct{ Callbacks []struct{ URL string } }
		if err := json.Unmarshal(body, &in); err != nil {
			t.Error(err)
		}
		if strings.Contains(string(body), "unreadable") {
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"title":"Bad Request","status":400,"detail":"the body is not JSON","code":"bad_json"}`)
			return
		}
		var results []string
		for range in.Callbacks {
			if calls.Load() == 3 || accepted.Add(1) == 0 {
				results = append(results, `{"status":409,"problem":{"status":409,"code":"idempotency_in_progress"}}`)
				continue
			}
			results = append(results, `{"status":202,"callback":{}}`)
		}
		w.WriteHeader(http.StatusMultiStatus)
		fmt.Fprintf(w, `{"results":[%s]}`, strings.Join(results, ","))
	}))
	defer srv.Close()
	path := writeFile(t, "a.ndjson", `{"url":"a"}`+"\n"+`{"url":"b"}`+"\n"+`{"url":"c"}`+"\n")
	term := newTerminal()
	if code := term.invoke("import", path, "--server", srv.URL, "--key", "k", "--rate", "1000000"); code != exitOK {
		t.Errorf("exit code %d: %s", code, term.stderr.String())
	}
	if !strings.Contains(term.stdout.String(), "3 accepted, 0 were accepted before, 0 refused") || calls.Load() != 4 {
		t.Errorf("after %d calls said %s", calls.Load(), term.stdout.String())
	}
	if second.Sub(began) < 2*time.Second {
		t.Errorf("it asked again after %s although the server said 2 s", second.Sub(began))
	}
	if !strings.Contains(term.stderr.String(), "the database cannot commit") {
		t.Errorf("said %q", term.stderr.String())
	}
	path = writeFile(t, "b.ndjson", `{"url":"a"}`+"\n"+`{"url":"unreadable"}`+"\n"+`{"url":"c"}`+"\n")
	term = newTerminal()
	if code := term.invoke("import", path, "--server", srv.URL, "--key", "k"); code != exitFailed || !strings.Contains(term.stdout.String(), "2 accepted, 0 were accepted before, 1 refused") {
		t.Errorf("exit code %d, said %s", code, term.stdout.String())
	}
	if found := refusals(t, path+".errors.ndjson"); len(found) != 1 || found[0]["line"] != 2.0 {
		t.Errorf("refused %v", found)
	}
}

// What no later try can mend ends the import, and says how to go on.
func TestImportStopsAtAWrongKey(t *testing.T) {
	t.Parallel()
	r := startServer(t, testSettings(t))
	path := importLines(t, 3)
	term := newTerminal()
	if code := term.invoke("import", path, "--server", r.cl.base, "--key", "wrong"); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	if said := term.stderr.String(); !strings.Contains(said, "401") || !strings.Contains(said, "go on with --resume") {
		t.Errorf("said %s", said)
	}
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
}

func TestImportKeepsToItsRate(t *testing.T) {
	t.Parallel()
	r := startServer(t, testSettings(t))
	path := importLines(t, 60)
	began := time.Now()
	if code, sum, _ := importing(t, r, path, "--rate", "40/s"); code != exitOK || sum.Accepted != 60 {
		t.Errorf("exit code %d, %+v", code, sum)
	}
	if took := time.Since(began); took < time.Second || took > 20*time.Second {
		t.Errorf("60 callbacks at 40/s took %s", took)
	}
	// Interrupted in the middle, it says so, and the books are right.
	cl := *r.cl
	source, err := openSource(&newTerminal().console, importLines(t, 1000))
	if err != nil {
		t.Fatal(err)
	}
	defer source.close()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	term := newTerminal()
	books, err := openBooks(&term.console, source, false)
	if err != nil {
		t.Fatal(err)
	}
	im := &importer{c: &term.console, cl: &cl, source: source, books: books, rate: 100, bar: newImportBar(&term.console, 1000, 0)}
	if err := im.run(ctx); err == nil || books.done.Line == 0 || books.done.Line >= 1000 || books.done.Lines != im.sum.Accepted {
		t.Errorf("%v, %+v, %+v", err, books.done, im.sum)
	}
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
}
