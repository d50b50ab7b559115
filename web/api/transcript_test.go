package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// TestTranscripts sends the requests of testdata/*.txt and compares the results with the files. A line begins
// with
//
//	@      a new server: over the stub with one of its worlds, or over a real engine
//	as     the key of the following requests: root, none, a key of the stub (SCOPE of PROJECT), or a key
//	       from a response
//	in     the project that the following requests name; empty: none
//	show   the members of a response to write; empty: all
//	GET …  method and path of the following requests. After two spaces each: headers; "until PATTERN" or
//	       "until no PATTERN", which repeats the request until the response matches, or no longer matches
//	       (for results that depend on timing, such as index_missing after an accept); "undocumented", which
//	       allows a request that the document does not allow
//	>      the body of a request; without it the request has no body
//	sealed texts that no file of the database may contain, nor the key of a secret among them
//	=      a call of the engine or the store, with its arguments
//	<      the response; the number refers to an equal body above
//	|      the body, as indented JSON or as it is
//	~      other results of the request: headers at a receiver, entries of the audit log
//
// go test ./web/api -run TestTranscripts -update writes the lines of the last four kinds. In a request <x*3>
// stands for xxx, <%ff> for the byte and {day} for the present day. Ids, keys, secrets and cursors have
// names: their kind and a number. ep:1 is ep_1 without its prefix.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) < 16 {
		t.Fatalf("%q, %v", paths, err)
	}
	for _, path := range paths {
		if path == "testdata/audit.txt" {
			continue // TestEveryMutationIsAudited
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			play(t, path)
		})
	}
}

// A player runs a transcript.
type player struct {
	t *testing.T
	testAPI
	stub *engine // nil with a real engine
	names
	// sites are receivers, pem is a caller's private key in JSON, file is the database.
	sites     map[string]*site
	pem, file string
	day       string // the present day in UTC, {day} in a transcript over a real engine
	key       []string
	in        []string
	show      []string
	out       strings.Builder
	// answers numbers the written bodies. audited is the number of audit entries so far; -1: entries are not
	// written.
	answers map[string]int
	audited int
}

// play runs the requests of a file and compares the results.
func play(t *testing.T, path string) *player {
	t.Helper()
	x := &player{
		t: t, answers: make(map[string]int), audited: -1, day: time.Now().UTC().Format(time.DateOnly),
	}
	transcript.File(t, path, func(_ *testing.T, text string) string {
		x.play(text)
		return x.out.String()
	})
	return x
}

// play runs the lines of a file. It skips the lines of earlier results and writes new ones.
func (x *player) play(text string) {
	x.t.Helper()
	x.serve("full")
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || !strings.ContainsRune("=<|~", rune(line[0])) {
			lines = append(lines, line)
		}
	}
	route := ""
	for i, line := range lines {
		x.out.WriteString(line + "\n")
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "", "#":
		case "@":
			x.serve(rest)
		case "as":
			x.key = x.keyed(rest)
		case "in":
			x.in = nil
			if rest != "" {
				x.in = []string{client.ProjectHeader, x.expand(rest)}
			}
		case "show":
			x.show = strings.Fields(rest)
		case "arrived":
			x.arrived(rest)
		case "sealed":
			x.sealed(strings.Fields(x.real(rest)))
		case ">":
			x.request(route, rest)
		default:
			route = line
			if i+1 == len(lines) || !strings.HasPrefix(lines[i+1], ">") {
				x.request(route, "")
			}
		}
	}
}

// serve starts a new server.
func (x *player) serve(kind string) {
	x.t.Helper()
	x.key, x.in = nil, nil
	x.names = names{name: map[string]string{}, value: map[string]string{}, last: map[string]int{}}
	switch kind {
	case "engine", "engine that fails", "engine and receivers":
		to := new(receiver)
		to.fails.Store(kind == "engine that fails")
		x.stub = nil
		if kind != "engine and receivers" {
			x.testAPI = newEngineAPI(x.t, to)
			return
		}
		h := newSendingAPI(x.t)
		made, err := sign.NewSecret(sign.UseRSA)
		if err != nil {
			x.t.Fatal(err)
		}
		x.pem = strings.ReplaceAll(sign.FormatSecretFor(sign.UseRSA, made), "\n", `\n`)
		x.testAPI, x.file, x.sites = h.testAPI, h.file, map[string]*site{"mine": h.mine, "victim": h.victim}
	case "audited engine":
		x.stub, x.testAPI, x.audited = nil, newAuditedAPI(x.t), 0
	default:
		x.stub = newWorld(x.t, kind)
		x.testAPI = newTestAPI(x.t, x.stub)
		for name, bare := range map[string]string{
			"cb": bareID, "ep": bareEndpoint, "key": bareKey, "rd": bareRedrive, "sc": bareSchedule,
			"al": bareAlert,
			"au": bareEntry,
		} {
			x.put(name, bare, 1)
		}
	}
}

// keyed returns the header with a key.
func (x *player) keyed(name string) []string {
	scope, project, stub := strings.Cut(name, " of ")
	switch {
	case name == "root":
		return nil
	case name == "none":
		return []string{"Authorization", ""}
	case stub:
		name = "dk_" + project + "_" + scope
	}
	key := x.real(name)
	if key == name && !stub {
		x.t.Errorf("no response has the key %s", name)
	}
	return []string{"Authorization", "Bearer " + key}
}

var (
	repeated = regexp.MustCompile(`<([^<>*]+)\*(\d+)>`)
	anyByte  = regexp.MustCompile(`<%([0-9a-f]{2})>`)
)

// expand returns the text of a request as it is sent.
func (x *player) expand(text string) string {
	text = repeated.ReplaceAllStringFunc(text, func(s string) string {
		part := repeated.FindStringSubmatch(s)
		n, _ := strconv.Atoi(part[2])
		return strings.Repeat(part[1], n)
	})
	text = anyByte.ReplaceAllStringFunc(text, func(s string) string {
		b, _ := strconv.ParseUint(s[2:4], 16, 8)
		return string([]byte{byte(b)})
	})
	for name, s := range x.sites {
		text = strings.NewReplacer("{"+name+"}", s.URL, "{"+name+".host}", s.host()).Replace(text)
	}
	return x.real(strings.NewReplacer("{pem}", x.pem, "{day}", x.day).Replace(text))
}

// request sends a request and writes its results.
func (x *player) request(route, body string) {
	x.t.Helper()
	parts := strings.Split(route, "  ")
	method, path, _ := strings.Cut(x.expand(parts[0]), " ")
	header, until := slices.Concat(x.key, x.in), ""
	x.lenient = false
	for _, part := range parts[1:] {
		if text, waits := strings.CutPrefix(part, "until "); waits {
			until = text
		} else if part == "undocumented" {
			x.lenient = true
		} else {
			name, value, _ := strings.Cut(x.expand(part), ": ")
			header = append(header, name, value)
		}
	}
	if x.stub != nil {
		x.stub.calls = nil
	}
	var rec *httptest.ResponseRecorder
	until, without := strings.CutPrefix(until, "no ")
	matches := func() bool {
		rec = x.do(method, path, x.expand(body), header...)
		return regexp.MustCompile(until).MatchString(fmt.Sprint(rec.Code, " ", rec.Body)) != without
	}
	if until == "" {
		matches()
	} else {
		testserver.Until(x.t, route, matches)
	}
	if x.stub != nil {
		for _, call := range x.stub.calls {
			x.line("= " + call)
		}
	}
	x.answer(rec)
	if x.audited >= 0 && method != "GET" {
		x.audit()
	}
}

// line writes a line about the results of a request.
func (x *player) line(text string) {
	for name, s := range x.sites {
		text = strings.NewReplacer(s.URL, "{"+name+"}", s.host(), "{"+name+".host}").Replace(text)
	}
	text = x.hide(text, x.stub == nil)
	if x.stub == nil {
		text = strings.ReplaceAll(text, x.day, "{day}")
	}
	x.out.WriteString(strings.TrimRight(text, " ") + "\n")
}

// answer writes a response.
func (x *player) answer(rec *httptest.ResponseRecorder) {
	h, body := rec.Header().Clone(), rec.Body.Bytes()
	kind := h.Get("Content-Type")
	h.Del("Content-Length")
	if kind == "application/json; charset=utf-8" || kind == client.ProblemType {
		h.Del("Content-Type")
	}
	head := fmt.Sprintf("< %d", rec.Code)
	for _, name := range slices.Sorted(maps.Keys(h)) {
		head += fmt.Sprintf(" [%s: %s]", name, strings.Join(h[name], ", "))
	}
	var p client.Problem
	switch {
	case kind == client.ProblemType:
		if err := json.Unmarshal(body, &p); err != nil {
			x.t.Fatal(err)
		}
		x.line(head + " " + problemText(&p))
	case len(body) == 0:
		x.line(head)
	case !json.Valid(body):
		x.line(head)
		for line := range strings.Lines(string(body)) {
			x.line("| " + printable(strings.TrimSuffix(line, "\n")))
		}
	case len(x.show) > 0:
		x.line(head + " " + selected(x.t, body, x.show))
	default:
		x.whole(head, body)
	}
}

// whole writes a response in JSON.
func (x *player) whole(head string, body []byte) {
	const short = 100
	if len(body) <= short {
		x.line(head + " " + string(body))
		return
	}
	text := x.hide(string(body), x.stub == nil)
	if n, written := x.answers[text]; written {
		x.line(fmt.Sprintf("%s as (%d)", head, n))
		return
	}
	x.answers[text] = len(x.answers) + 1
	x.line(fmt.Sprintf("%s (%d)", head, len(x.answers)))
	var b bytes.Buffer
	if err := json.Indent(&b, body, "", " "); err != nil {
		x.t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		x.line("| " + strings.TrimSuffix(line, "\n"))
	}
}

// problemText formats a problem in one line. For invalid fields it has only the error of each field.
func problemText(p *client.Problem) string {
	if len(p.Errors) == 0 {
		return p.Code + ": " + p.Detail
	}
	slices.SortStableFunc(p.Errors, func(a, b client.FieldError) int {
		return strings.Compare(a.Field, b.Field)
	})
	wrong := make([]string, 0, len(p.Errors))
	for _, e := range p.Errors {
		if len(wrong) == 12 {
			wrong = append(wrong, fmt.Sprintf("… %d in all", len(p.Errors)))
			break
		}
		name := e.Field
		if len(name) > 100 {
			name = name[:100] + "…"
		}
		wrong = append(wrong, printable(name)+": "+e.Message)
	}
	return p.Code + "; " + strings.Join(wrong, "; ")
}

// printable returns text that fits in one line.
func printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return s
	}
	return strconv.Quote(s)
}

// selected returns the named members of an object, or of each object in its list.
func selected(t *testing.T, body []byte, names []string) string {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal(body, &all); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for _, list := range []string{"data", "results", "blocking"} {
		var rows []json.RawMessage
		if all[list] == nil || json.Unmarshal(all[list], &rows) != nil {
			continue
		}
		texts := make([]string, len(rows))
		for i, row := range rows {
			texts[i] = selected(t, row, names)
		}
		more := ""
		if next := all["next_cursor"]; next != nil && string(next) != "null" {
			more = ` "next_cursor":` + string(next)
		}
		return "[" + strings.Join(texts, " ") + "]" + more
	}
	var shown []string
	for _, name := range names {
		if value, given := all[name]; given {
			shown = append(shown, name+":"+string(value))
		}
	}
	if problem := all["problem"]; problem != nil {
		var p client.Problem
		if err := json.Unmarshal(problem, &p); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("{%d %s}", p.Status, problemText(&p))
	}
	if cb := all["callback"]; cb != nil && cb[0] == '{' {
		return "{" + strings.Join(append(shown, selected(t, cb, names)), " ") + "}"
	}
	return "{" + strings.Join(shown, " ") + "}"
}
