package ui

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A script is one case of a file in testdata: the data, the viewer's requests and the expected responses.
//
//	NAME ROWS…, fail METHOD ERROR    data of the world; see world.set
//	options JSON                     the Options of the UI
//	as KEY, anonymous, zone NAME     the viewer; by default the admin key, in UTC
//	from ADDRESS                     the network address of the browser
//	language CODE                    the value of the language cookie
//	header NAME: VALUE               a request header from now on
//	revoke KEY, wait D               revokes a key; lets time pass
//	get PATH                         requests a page: 200, unless a line status or redirect follows
//	post PATH FIELDS                 sends a form; FIELDS are a URL query
//	submit FIELDS                    sends the form of the last page with changed fields
//	status CODE, redirect PATH       the status of the last response; the target of its redirect
//	has SELECTOR: TEXT               an element with the text exists
//	count N SELECTOR                 the number of matching elements
//	ids SELECTOR: ID ID…             the ids of the matching elements, in order
//	order SELECTOR: TEXT | TEXT…     the matching elements contain these texts, one each, in order
//	no SELECTOR, absent TEXT         no element matches; the body does not contain the text
//	response-header NAME: PATTERN    a response header matches
//	body TEXT                        the whole body
//	changed METHOD…                  the next change; a script lists all changes in order
//	called METHOD PART PART…         the last call of a method had these parts
//
// Placeholders: {7} is the seventh id, {now-5m} a time, {24h} a duration in nanoseconds, {hostile} a text
// that tries to be markup, and {x*300} a long text. Data, forms, bodies and changes are also expanded by
// transcript.Expand.
type script struct {
	name  string
	lines []string
	// chinese: the viewer chooses Chinese. Then the script checks the language of each page, not its texts.
	chinese bool
}

// scripts reads the cases of the files that match a pattern.
func scripts(t *testing.T, pattern string) (all []script) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no files: %v", pattern, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			line = strings.TrimRight(line, "\n")
			if name, begins := strings.CutPrefix(line, "== "); begins {
				all = append(all, script{name: name})
			} else if line != "" && line[0] != '#' {
				last := &all[len(all)-1]
				last.lines = append(last.lines, line)
			}
		}
	}
	return all
}

// path returns the first path that the script requests with get.
func (s script) path() string {
	for _, line := range s.lines {
		if path, ok := strings.CutPrefix(line, "get "); ok {
			return expandPlaceholders(path, url.QueryEscape)
		}
	}
	return ""
}

// refused reports whether the first get expects a redirect or an error status.
func (s script) refused() bool {
	i := slices.IndexFunc(s.lines, func(line string) bool { return strings.HasPrefix(line, "get ") })
	return i+1 < len(s.lines) && expectsNoPage(s.lines[i+1])
}

// expectsNoPage reports whether a line expects a response other than a page with the status 200.
func expectsNoPage(line string) bool {
	return strings.HasPrefix(line, "status ") || strings.HasPrefix(line, "redirect ")
}

// world returns the world of the script before its first request.
func (s script) world(t *testing.T) *world {
	t.Helper()
	w := newWorld()
	for _, line := range s.lines {
		word, _, _ := strings.Cut(line, " ")
		if slices.Contains(strings.Fields("as anonymous from zone language header get post"), word) {
			break
		}
		if err := w.set(transcript.Expand(t, expandPlaceholders(line, inJSON))); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

var (
	placeholder = regexp.MustCompile(`\{(\d+|now[-+]?[\dhms]*|\d+[hms]|hostile|forever|x\*\d+)\}`)
	inJSON      = func(s string) string { return strings.Trim(jsonText(s), `"`) }
	asItIs      = func(s string) string { return s }
)

// expandPlaceholders replaces placeholders. escape escapes their values for the line's format.
func expandPlaceholders(line string, escape func(string) string) string {
	return placeholder.ReplaceAllStringFunc(line, func(name string) string {
		name = strings.Trim(name, "{}")
		number := func(text string) int {
			n, _ := strconv.Atoi(text) // the pattern matches only digits
			return n
		}
		if length, isLong := strings.CutPrefix(name, "x*"); isLong {
			return strings.Repeat("x", number(length))
		}
		if after, isMoment := strings.CutPrefix(name, "now"); isMoment {
			d, _ := time.ParseDuration(after)
			return strconv.FormatInt(testNow+d.Milliseconds(), 10)
		}
		if d, err := time.ParseDuration(name); err == nil {
			return strconv.FormatInt(int64(d), 10)
		}
		switch name {
		case "hostile":
			return escape(hostile)
		case "forever":
			return strconv.FormatInt(store.Forever, 10)
		}
		return testID(number(name))
	})
}

// run plays the script in a browser.
func (s script) run(t *testing.T) {
	t.Helper()
	w := s.world(t)
	b := newBrowser(t, w)
	var res result
	requested, signed := false, false
	for i, line := range s.lines {
		word, rest, _ := strings.Cut(line, " ")
		step := fmt.Sprintf("%s: %s", s.name, line)
		expects := func() {
			t.Helper()
			if i+1 == len(s.lines) || !expectsNoPage(s.lines[i+1]) {
				res.ok()
			}
			isHTML := strings.HasPrefix(res.header.Get("Content-Type"), "text/html")
			if isHTML && res.status != http.StatusSeeOther {
				checkPage(t, res)
				checkSize(t, res)
				if s.chinese {
					checkChinese(t, res)
				}
			}
		}
		if s.chinese {
			b.cookies[languageCookie] = "zh-CN"
			switch word {
			case "has", "order", "body", "language":
				continue
			case "changed":
				w.changes = w.changes[min(1, len(w.changes)):]
				continue
			}
		}
		request := word == "get" || word == "post" || word == "submit"
		if request && !signed {
			b.signIn(testKey)
			signed = true
		}
		requested = requested || request
		switch word {
		case "as":
			b.signIn(rest)
			signed = true
		case "anonymous":
			signed = true
		case "zone":
			b.cookies[zoneCookie] = url.QueryEscape(rest)
		case "from":
			b.address = rest
		case "host":
			b.host = rest
		case "language":
			b.cookies[languageCookie] = rest
		case "header":
			name, value, _ := strings.Cut(rest, ":")
			b.headers.Set(name, strings.TrimSpace(value))
		case "revoke":
			w.revoke(rest)
		case "wait":
			d, err := time.ParseDuration(rest)
			if err != nil {
				t.Fatalf("%s: %v", step, err)
			}
			time.Sleep(d)
		case "get":
			res = b.get(expandPlaceholders(rest, url.QueryEscape))
			expects()
		case "post":
			path, fields, _ := strings.Cut(rest, " ")
			res = b.send(expandPlaceholders(path, url.QueryEscape), fieldsOf(t, fields))
			expects()
		case "submit":
			values := res.form()
			maps.Copy(values, fieldsOf(t, rest))
			res = b.send(res.path, values)
			expects()
		case "status":
			if got := strconv.Itoa(res.status); got != rest {
				t.Errorf("%s: status %s", step, got)
			}
		case "redirect":
			res.redirects(expandPlaceholders(rest, asItIs))
		case "has":
			selector, text, _ := strings.Cut(expandPlaceholders(rest, asItIs), ": ")
			res.has(selector, text)
		case "no":
			res.hasNot(expandPlaceholders(rest, asItIs))
		case "count":
			number, selector, _ := strings.Cut(rest, " ")
			if got := strconv.Itoa(res.count(selector)); got != number {
				t.Errorf("%s: %s elements match", step, got)
			}
		case "order":
			selector, want, _ := strings.Cut(rest, ": ")
			texts, found := strings.Split(want, " | "), find(res.doc, selector)
			if len(found) != len(texts) {
				t.Fatalf("%s: %d elements match, want %d", step, len(found), len(texts))
			}
			for i, n := range found {
				if !strings.Contains(textOf(n), texts[i]) {
					t.Errorf("%s: element %d has the text %q", step, i+1, textOf(n))
				}
			}
		case "ids":
			selector, want, _ := strings.Cut(rest, ": ")
			var ids []string
			for _, n := range find(res.doc, selector) {
				ids = append(ids, strings.Fields(attr(n, "id"))...)
			}
			if got := strings.Join(ids, " "); got != want {
				t.Errorf("%s: the ids are %s", step, got)
			}
		case "absent":
			if strings.Contains(res.body, rest) {
				t.Errorf("%s: the body contains the text", step)
			}
		case "response-header":
			name, pattern, _ := strings.Cut(rest, ": ")
			if !slices.ContainsFunc(res.header.Values(name), regexp.MustCompile(pattern).MatchString) {
				t.Errorf("%s: the header is %q", step, res.header.Values(name))
			}
		case "body":
			if res.body != transcript.Expand(t, expandPlaceholders(rest, asItIs)) {
				t.Errorf("%s: the body is %q", step, res.body)
			}
		case "changed":
			change := ""
			if len(w.changes) > 0 {
				change = w.changes[0]
			}
			want := transcript.Expand(t, expandPlaceholders(rest, asItIs))
			if method, _, _ := strings.Cut(change, " "); change != want && method != rest {
				t.Errorf("%s: the changes are %q", step, w.changes)
			}
			w.changes = w.changes[min(1, len(w.changes)):]
		case "called":
			method, parts, _ := strings.Cut(expandPlaceholders(rest, asItIs), " ")
			for part := range strings.SplitSeq(parts, " ") {
				if !strings.Contains(w.lastCall[method], part) {
					t.Errorf("%s: the last call was%s", step, w.lastCall[method])
				}
			}
		default:
			// world has read the lines before the first request already.
			if err := w.set(transcript.Expand(t, expandPlaceholders(line, inJSON))); requested && err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(w.changes) > 0 {
		t.Errorf("%s: unexpected changes %q", s.name, w.changes)
	}
}

// fieldsOf parses the fields of a form.
func fieldsOf(t *testing.T, text string) url.Values {
	t.Helper()
	values, err := url.ParseQuery(transcript.Expand(t, expandPlaceholders(text, url.QueryEscape)))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return values
}

// TestActs runs the scripts of testdata/acts: what forms do and how they report errors.
func TestActs(t *testing.T) {
	t.Parallel()
	for _, s := range scripts(t, "acts/*.txt") {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, s.run)
			s.chinese = true
			synctest.Test(t, s.run)
		})
	}
}
