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

// A script is one case of a file in testdata: what there is, what a viewer does, and what must be seen.
//
//	NAME ROWS…, fail METHOD WHAT   what the world has; see world.set
//	options JSON                   what the pages are made of
//	as KEY, anonymous, zone NAME      who looks; else the admin key, in UTC
//	from ADDRESS                   where the browser is
//	language CODE                  the language that was chosen
//	header NAME: VALUE             is sent with each request from now on
//	revoke KEY, wait D             a key ends; time passes
//	get PATH                       asks for a page, which must be there
//	post PATH FIELDS               sends a form; FIELDS are as in an address
//	submit FIELDS                  sends the form of the last page, with some of it typed anew
//	is STATUS, goes PATH           what the request before is answered with, where that is no page
//	has SELECTOR: TEXT             an element has the text
//	count N SELECTOR               so many match
//	ids SELECTOR: ID ID…           those that match have these ids, in this order; some may have none
//	order SELECTOR: TEXT | TEXT…   those that match have these texts in them, one each, in this order
//	no SELECTOR, hides TEXT        nothing matches; the answer has the text nowhere
//	says NAME: PATTERN             a header of the answer matches
//	body TEXT                      the whole answer
//	did METHOD…                    the change that was asked for; a script has them all, in their order
//	asked METHOD PART PART…        the last call of a method had these parts
//
// A name in braces stands for a value: {7} for the seventh id, {now-5m} for a moment, {24h} for a length of
// time in nanoseconds, {hostile} for a text that wants to be markup, and {x*300} for a long one. What the
// world has, what is sent and what is compared whole is expanded as transcript.Expand says.
type script struct {
	name  string
	lines []string
}

// scripts are the cases of files.
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

// path is the first page that the script asks for.
func (s script) path() string {
	for _, line := range s.lines {
		if path, ok := strings.CutPrefix(line, "get "); ok {
			return expandPlaceholders(path, url.QueryEscape)
		}
	}
	return ""
}

// refused says whether the first page is one that says no.
func (s script) refused() bool {
	i := slices.IndexFunc(s.lines, func(line string) bool { return strings.HasPrefix(line, "get ") })
	return i+1 < len(s.lines) && (strings.HasPrefix(s.lines[i+1], "is ") ||
		strings.HasPrefix(s.lines[i+1], "goes "))
}

// world is what the script begins with.
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

// expandPlaceholders puts values in the place of their names.
func expandPlaceholders(line string, escape func(string) string) string {
	return placeholder.ReplaceAllStringFunc(line, func(name string) string {
		name = strings.Trim(name, "{}")
		number := func(text string) int {
			n, _ := strconv.Atoi(text) // the expression takes digits only
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
	b := open(t, w)
	var res result
	asked, signed := false, false
	for i, line := range s.lines {
		word, rest, _ := strings.Cut(line, " ")
		step := fmt.Sprintf("%s: %s", s.name, line)
		expects := func() {
			t.Helper()
			if next := s.lines[min(i+1, len(s.lines)-1)]; i+1 == len(s.lines) ||
				!strings.HasPrefix(next, "is ") && !strings.HasPrefix(next, "goes ") {
				res.ok()
			}
			if res.status != http.StatusSeeOther &&
				strings.HasPrefix(res.header.Get("Content-Type"), "text/html") {
				checkPage(t, res)
				checkSize(t, res)
			}
		}
		request := word == "get" || word == "post" || word == "submit"
		if request && !signed {
			b.signIn(testKey)
			signed = true
		}
		asked = asked || request
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
		case "is":
			if got := strconv.Itoa(res.status); got != rest {
				t.Errorf("%s: status %s", step, got)
			}
		case "goes":
			res.leads(expandPlaceholders(rest, asItIs))
		case "has":
			selector, text, _ := strings.Cut(expandPlaceholders(rest, asItIs), ": ")
			res.has(selector, text)
		case "no":
			res.lacks(expandPlaceholders(rest, asItIs))
		case "count":
			number, selector, _ := strings.Cut(rest, " ")
			if got := strconv.Itoa(res.count(selector)); got != number {
				t.Errorf("%s: there are %s", step, got)
			}
		case "order":
			selector, want, _ := strings.Cut(rest, ": ")
			texts, found := strings.Split(want, " | "), find(res.doc, selector)
			if len(found) != len(texts) {
				t.Fatalf("%s: there are %d", step, len(found))
			}
			for i, n := range found {
				if !strings.Contains(textOf(n), texts[i]) {
					t.Errorf("%s: number %d is %q", step, i+1, textOf(n))
				}
			}
		case "ids":
			selector, want, _ := strings.Cut(rest, ": ")
			var ids []string
			for _, n := range find(res.doc, selector) {
				ids = append(ids, strings.Fields(attr(n, "id"))...)
			}
			if got := strings.Join(ids, " "); got != want {
				t.Errorf("%s: they are %s", step, got)
			}
		case "hides":
			if strings.Contains(res.body, rest) {
				t.Errorf("%s: it is there", step)
			}
		case "says":
			name, pattern, _ := strings.Cut(rest, ": ")
			if !slices.ContainsFunc(res.header.Values(name), regexp.MustCompile(pattern).MatchString) {
				t.Errorf("%s: the header is %q", step, res.header.Values(name))
			}
		case "body":
			if res.body != transcript.Expand(t, expandPlaceholders(rest, asItIs)) {
				t.Errorf("%s: the answer is %q", step, res.body)
			}
		case "did":
			did := ""
			if len(w.done) > 0 {
				did = w.done[0]
			}
			want := transcript.Expand(t, expandPlaceholders(rest, asItIs))
			if method, _, _ := strings.Cut(did, " "); did != want && method != rest {
				t.Errorf("%s: done was %q", step, w.done)
			}
			w.done = w.done[min(1, len(w.done)):]
		case "asked":
			method, parts, _ := strings.Cut(expandPlaceholders(rest, asItIs), " ")
			for part := range strings.SplitSeq(parts, " ") {
				if !strings.Contains(w.asked[method], part) {
					t.Errorf("%s: asked was%s", step, w.asked[method])
				}
			}
		default:
			if err := w.set(transcript.Expand(t, expandPlaceholders(line, inJSON))); asked && err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(w.done) > 0 {
		t.Errorf("%s: done was %q too", s.name, w.done)
	}
}

// fieldsOf reads the fields of a form.
func fieldsOf(t *testing.T, text string) url.Values {
	t.Helper()
	values, err := url.ParseQuery(transcript.Expand(t, expandPlaceholders(text, url.QueryEscape)))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return values
}

// TestActs: what forms do, and what they say where they cannot.
func TestActs(t *testing.T) {
	t.Parallel()
	for _, s := range scripts(t, "acts/*.txt") {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, s.run)
		})
	}
}
