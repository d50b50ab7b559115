package rule

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// parsers parse what a caller writes.
var parsers = map[string]func(raw []byte) (store.JSONText, []store.FieldError){
	"rule": Parse,
	"poll": ParsePoll,
	"predicates": func(raw []byte) (store.JSONText, []store.FieldError) {
		return canonicalText(raw, new(Predicates))
	},
}

// TestParse includes the limits of cases 71 and 72 of the security list.
func TestParse(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/parse.txt", func(line string) string {
		kind, raw, _ := strings.Cut(line, " ")
		text, wrong := parsers[kind]([]byte(raw))
		if text == "" {
			return problems(t, wrong)
		}
		if again, _ := parsers[kind]([]byte(text)); again != text {
			t.Errorf("%s becomes %s", text, again)
		}
		return string(text)
	})
}

// problems returns the errors as text, one a line.
func problems(t *testing.T, wrong []store.FieldError) string {
	t.Helper()
	var lines []string
	for _, w := range wrong {
		lines = append(lines, cmp.Or(w.Field, "the whole")+": "+w.Message)
		if w.Message == "" || !parse.IsPlain([]byte(w.Field+w.Message)) {
			t.Errorf("bad error %q", w)
		}
	}
	return strings.Join(lines, "\n")
}

var (
	conclusions = [...]string{
		Deferred: "deferred", Permanent: "permanent", WrongStatus: "wrong status", WrongBody: "wrong body",
		Successful: "successful",
	}
	truths = [...]string{isFalse: "false", isUnknown: "unknown", isTrue: "true"}
)

// A check returns the conclusion for an answer and its explanation.
type check func(d *Document) (string, *store.Rule)

// checks make a check from a line of the transcript.
var checks = map[string]func(t *testing.T, text string) check{
	"rule": func(t *testing.T, text string) check {
		r, isPreset := compiledPresets(t)[text]
		if !isPreset {
			return func(d *Document) (string, *store.Rule) { return concludes(compiled(t, text), d) }
		}
		return func(d *Document) (string, *store.Rule) {
			// A preset equals its rule text, except for the test of wechat-v3 that the language cannot
			// express.
			i := slices.Index(Names(), text)
			whole, _ := concludes(compiled(t, string(Presets()[i].Rule)), again(d))
			conclusion, why := concludes(r, d)
			if whole != conclusion && !(text == WeChatV3 && strings.Contains(string(d.Text), "de\":")) {
				t.Errorf("%s on %d %s: %s by its rule, not %s", text, d.Status, d.Seen, whole, conclusion)
			}
			return conclusion, why
		}
	},
	"poll": func(t *testing.T, text string) check {
		r, wrong := CompilePoll([]byte(text))
		if wrong != nil {
			t.Fatalf("%s: %v", text, wrong)
		}
		return func(d *Document) (string, *store.Rule) {
			state, why := r.Conclude("mine", d, hidden)
			checkState(t, r, state, why, again(d))
			return string(state), why
		}
	},
	"any": func(t *testing.T, text string) check {
		ps := predicatesOf(t, text)
		return func(d *Document) (string, *store.Rule) {
			truth := ps.evaluate(d)
			if ps.Match(d) != (truth == isTrue) {
				t.Errorf("%s on %s is %s, and Match says otherwise", text, d.Seen, truths[truth])
			}
			return truths[truth], &store.Rule{Name: "mine", Expected: ps.Expected(),
				Saw: ps.saw(d, d.Seen, hidden)}
		}
	},
}

// hidden is a credential that an answer may echo.
var hidden = []string{"hunter2-api-key"}

func concludes(r *Rule, d *Document) (string, *store.Rule) {
	c, why := r.Conclude("mine", d, hidden)
	return conclusions[c], why
}

func compiled(t *testing.T, text string) *Rule {
	t.Helper()
	r, wrong := Compile([]byte(text))
	if wrong != nil {
		t.Fatalf("%s: %v", text, wrong)
	}
	return r
}

func compiledPresets(t *testing.T) map[string]*Rule {
	t.Helper()
	all, err := CompilePresets()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// answered parses an answer: a status, a content type in brackets and a body.
func answered(text string) *Document {
	status, body, _ := strings.Cut(text, " ")
	contentType := ""
	rest, ok := strings.CutPrefix(body, "[")
	if ok && strings.Contains(rest, "] ") && strings.Contains(rest, "/") {
		contentType, body, _ = strings.Cut(rest, "] ")
	}
	number, _ := strconv.Atoi(status)
	d := NewDocument(number, contentType, []byte(body))
	d.Seen = strconv.Quote(parse.Scrub(parse.Cut(string(d.Text), SawBytes), hidden))
	return d
}

// again returns the answer before any check.
func again(d *Document) *Document {
	return &Document{Status: d.Status, Text: d.Text, Broken: d.Broken, Partial: d.Partial, Seen: d.Seen}
}

// TestConclusions has the conclusions of rules, their explanations, and cases 70, 73, 74 and 75 of the
// security list.
func TestConclusions(t *testing.T) {
	t.Parallel()
	var by check
	var answer *Document
	transcript.Run(t, "testdata/conclusions.txt", func(line string) string {
		command, rest, _ := strings.Cut(line, " ")
		d := answered(line)
		switch command {
		case "rule", "poll", "any":
			by = checks[command](t, rest)
			return ""
		case "answer":
			answer = answered(rest)
			return ""
		case "of":
			by, d = checks["any"](t, rest), answer
		case "large", "partial":
			d = answered(rest)
			d.Broken, d.Partial = "the body is not whole", command == "partial"
			d.Seen = d.Broken
		}
		conclusion, why := by(d)
		if why == nil && conclusion == conclusions[Successful] {
			return conclusion
		}
		if why == nil || why.Name != "mine" || max(len(why.Expected), len(why.Saw)) > maxSentence {
			t.Fatalf("%s: %s is explained by %+v", line, conclusion, why)
		}
		return fmt.Sprintf("%s: %s | %s", conclusion, why.Expected, why.Saw)
	})
}

func TestPresets(t *testing.T) {
	t.Parallel()
	all := compiledPresets(t)
	for i, p := range Presets() {
		text, wrong := Parse([]byte(p.Rule))
		if wrong != nil || text != p.Rule {
			t.Errorf("preset %d: %+v, parsed to %s, %v", i, p, text, wrong)
		}
		if p.Description == "" || p.Name != Names()[i] || all[p.Name] == nil {
			t.Errorf("preset %d: %+v", i, p)
		}
	}
	if len(Presets()) != len(Names()) || Names()[0] != Default || all[""] != all[Default] {
		t.Errorf("names %v; the default comes first", Names())
	}
}

func FuzzParseRule(f *testing.F) {
	for _, p := range Presets() {
		f.Add(string(p.Rule))
	}
	for _, line := range transcript.Inputs(f, "testdata/parse.txt") {
		if text, ok := strings.CutPrefix(line, "rule "); ok {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		rule := canonical(t, "rule", text)
		if rule == "" {
			return
		}
		r := compiled(t, rule)
		c, why := r.Conclude(CustomName, NewDocument(200, "", []byte(text)), nil)
		if why != nil && max(len(why.Expected), len(why.Saw)) > maxSentence {
			t.Fatalf("%s ends as %d %+v", rule, c, why)
		}
	})
}

// canonical parses a text. If it is valid, its canonical text must be parsed to itself.
func canonical(t *testing.T, kind, text string) string {
	t.Helper()
	rule, wrong := parsers[kind]([]byte(text))
	if (rule == "") != (len(wrong) > 0) {
		t.Fatalf("%q, %v", rule, wrong)
	}
	if again, wrong := parsers[kind]([]byte(rule)); rule != "" && again != rule {
		t.Fatalf("%s becomes %s %v", rule, again, wrong)
	}
	return string(rule)
}

func FuzzParsePollRule(f *testing.F) {
	f.Add(`{"until":{"success":[{"pointer":"/trade_state","in":["SUCCESS"]}],`+
		`"failure":[{"pointer":"/trade_state","in":["CLOSED"]}]}}`, `{"trade_state":"CLOSED"}`, "", 200)
	f.Add(`{"until":{"failure":[{"xml":"/a/b","gt":"1.5"}]},`+
		`"hold_if":[{"all":[{"status":[429]},{"pointer":"/code","matches":"LIMIT$"}]}],`+
		`"evaluate":["200-299",404],"error_budget":0}`, `<a><b>2</b></a>`, "text/xml; charset=gbk", 404)
	f.Add(`{"until":{"success":[{"status":["200-299"]}],"failure":[{"pointer":"/a","exists":false},`+
		`{"pointer":"","eq":1}]}}`, `{"a":1,"a":2}`, "", 204)
	f.Add(`{"until":{"success":[{"status":[1]}]},"until":1}`, "\xff", "", 500)
	f.Fuzz(func(t *testing.T, text, body, contentType string, status int) {
		rule := canonical(t, "poll", text)
		if rule == "" {
			return
		}
		r, wrong := CompilePoll([]byte(rule))
		if wrong != nil || *r.ErrorBudget < 0 || *r.ErrorBudget > 1000 {
			t.Fatalf("%s: %+v, %v", rule, r, wrong)
		}
		d := NewDocument(status, contentType, []byte(body))
		d.Seen = "a body"
		state, why := r.Conclude(PollName, d, nil)
		checkState(t, r, state, why, again(d))
	})
}

// checkState compares the state of a poll with the results of its predicates.
func checkState(t *testing.T, r *Poll, state PollState, why *store.Rule, d *Document) {
	t.Helper()
	match := func(ps Predicates) bool {
		d.steps = 0
		return ps.Match(d)
	}
	success, failure, hold := match(r.Until.Success), match(r.Until.Failure), match(r.HoldIf)
	final := state == StateSuccess || state == StateFailure
	switch {
	case state == "" || why == nil || why.Expected == "" || why.Saw == "",
		max(len(why.Expected), len(why.Saw)) > maxSentence,
		final && (hold || !r.Evaluate.has(d.Status)),
		final && (success == failure || success != (state == StateSuccess)),
		state == StateHold && !hold:
		t.Fatalf("on %d: success %v, failure %v, hold %v: state %s %+v", d.Status, success, failure, hold,
			state, why)
	}
}
