package browser

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A scene is a dispatcher with something to look at, and who looks. It plays the scripts of testdata: each
// line of one is a step, which fails the test if it cannot be done.
//
//	[WHO: ]VERB ARGUMENT [| TEXT]
//
// A line that begins with "N times" is done so often: $i is its number, from 0, $iii that in three digits,
// and ${a~b~c} one of several in turn.
//
// WHO is a window of the scene, or "both" or "all" for several; "keys", "plain" and "scripts" are for those
// who use the page so, and are left out otherwise. The verbs are those of act and looks. $NAME stands for
// what is in names.
type scene struct {
	*testing.T
	*harness.Process
	on      harness.Backend
	r       *harness.Receiver
	names   map[string]string
	windows map[string]hands // by name; the one without a name does what stands without a name
	does    map[string]func()
	refused []string // fields that took no hostile text
}

// newScene serves with nothing in it. Its receiver answers so; nil: by path, as testdata/answers.txt says.
func newScene(t *testing.T, c harness.Combination, answers harness.Script) *scene {
	t.Helper()
	if answers == nil {
		answers = harness.ScriptOf(t, "testdata/answers.txt")
	}
	r, on := harness.NewReceiver(t, answers), harness.NewBackend(t, c)
	return &scene{T: t, Process: harness.Serve(t, harness.Launch{On: on}), on: on, r: r,
		names:   map[string]string{"shop": r.URL, "admin": harness.AdminKey},
		windows: map[string]hands{}, does: map[string]func(){}}
}

// window opens a private window at the server, or what stands in front of it. It is returned signed in.
func (s *scene) window(name, base string) *tab {
	s.Helper()
	b := newTab(s, base)
	b.signIn(harness.AdminKey)
	s.windows[name] = hands{tab: b}
	return b
}

// lit is a scene on SQLite that is filled by scripts, and a window that is signed in.
func lit(t *testing.T, files ...string) (*scene, *tab) {
	t.Helper()
	s := newScene(t, harness.SQLiteEmbedded, nil)
	s.play(files...)
	return s, s.window("", s.Base)
}

// play plays scripts.
func (s *scene) play(files ...string) {
	s.Helper()
	for _, file := range files {
		for _, line := range linesOf(s, file) {
			s.repeat(line)
		}
	}
}

// repeat does a line as often as it says.
func (s *scene) repeat(line string) {
	s.Helper()
	times := 1
	if many, repeated, found := strings.Cut(line, " times "); found {
		if _, err := fmt.Sscan(many, &times); err == nil {
			line = repeated
		}
	}
	for i := range times {
		s.step(os.Expand(inTurn(line, i), func(name string) string { return s.names[name] }))
	}
}

// linesOf are the lines of a file of testdata.
func linesOf(tb testing.TB, file string) []string {
	tb.Helper()
	return harness.Lines(tb, "testdata/"+file)
}

// inTurn is what a line that is repeated says the i-th time.
func inTurn(line string, i int) string {
	return os.Expand(line, func(name string) string {
		choices := strings.Split(name, "~")
		switch {
		case strings.Trim(name, "i") == "":
			return fmt.Sprintf("%0*d", len(name), i)
		case len(choices) > 1:
			return choices[i%len(choices)]
		}
		return "$" + name
	})
}

// step does one line.
func (s *scene) step(line string) {
	s.Helper()
	who, rest, named := strings.Cut(line, ": ")
	if !named || strings.ContainsAny(who, ` {"`) {
		who, rest = "", line
	}
	verb, rest, _ := strings.Cut(rest, " ")
	if s.act(verb, rest) {
		return
	}
	look := looks[verb]
	if look == nil {
		s.Fatalf("%s: no verb %q", line, verb)
	}
	argument, text, _ := strings.Cut(rest, " | ")
	for _, h := range s.whose(who) {
		look(h, argument, text)
	}
}

// whose are the windows that a step is for.
func (s *scene) whose(who string) []hands {
	h := s.windows[""]
	switch who {
	case "keys", "plain", "scripts":
		if map[string]bool{"keys": h.keys, "plain": h.plain, "scripts": !h.plain}[who] {
			return []hands{h}
		}
		return nil
	case "both":
		return []hands{h, s.windows["two"]}
	case "all":
		return slices.Collect(maps.Values(s.windows))
	}
	named, open := s.windows[who]
	if !open {
		s.Fatalf("no window %q is open", who)
	}
	return []hands{named}
}

// act does a step that is done beside the pages, and says whether it is one.
func (s *scene) act(verb, rest string) bool {
	first, second, _ := strings.Cut(rest, " ")
	switch verb {
	case "make": // NAME PATH BODY: $NAME is its id
		path, body, _ := strings.Cut(second, " ")
		s.names[first] = s.Make(path, json.RawMessage(body))
	case "post": // PATH BODY
		s.Post(first, json.RawMessage(second), nil)
	case "plant":
		s.plant(first, second)
	case "await":
		s.await(rest)
	case "attempted":
		s.attempted()
	case "do":
		s.does[rest]()
	case "window":
		s.window(rest, s.Base)
	case "tab": // a second page of the window without a name
		h := s.windows[""]
		h.tab = h.pageIn(h.ctx)
		h.scripts(!h.plain)
		s.windows[rest] = h
	case "here":
		s.names[rest] = s.windows[""].where()
	default:
		return false
	}
	return true
}

// looks are the verbs of a script for what is done with a page, and seen of it.
var looks = map[string]func(h hands, argument, text string){
	"open":    func(h hands, path, _ string) { h.open(path) },
	"arrive":  one(hands.arrive),
	"address": one(hands.address),
	"see":     hands.see,
	"unseen":  hands.seeNot,
	"becomes": hands.becomes,
	"use":     hands.use,
	"click":   hands.click,
	"write":   hands.write,
	"fill":    hands.fill,
	"choose":  hands.choose,
	"unfold":  one(hands.unfold),
	"press":   one(hands.press),
	"streams": func(h hands, _, _ string) { h.streams() },
	"forgive": func(h hands, pattern, _ string) { h.forgive(pattern) },
	"js":      func(h hands, expression, _ string) { ask[bool](h.tab, expression) },
	"focused": func(h hands, want, _ string) {
		if at := h.focused(); at != want && (want != "*" || at == "") {
			h.Errorf("the focus is at %q, want %s", at, want)
		}
	},
	"value": func(h hands, selector, want string) {
		if is := ask[string](h.tab, js(`return document.querySelector(args[0]).value`, selector)); is !=
			want {
			h.Errorf("%s has %q, want %q", selector, is, want)
		}
	},
	// Where no scripts run every act loads a page.
	"mark": func(h hands, _, _ string) {
		if !h.plain {
			h.mark()
		}
	},
	"marked": func(h hands, what, _ string) {
		if !h.plain {
			h.marked(what)
		}
	},
}

// one is a verb that takes no text.
func one(do func(h hands, argument string)) func(h hands, argument, text string) {
	return func(h hands, argument, _ string) { do(h, argument) }
}

// await waits until a field of what stands at a path has a value: PATH FIELD VALUE.
func (s *scene) await(rest string) {
	words := strings.Fields(rest)
	harness.Eventually(s, time.Minute, rest, func() error {
		var got map[string]any
		_, err := s.Call(s.Context(), http.MethodGet, words[0], nil, &got)
		if is := fmt.Sprint(got[words[1]]); err == nil && is != words[2] {
			err = fmt.Errorf("it is %s", is)
		}
		return err
	})
}

// plant posts something with hostile texts in its fields: PATH | BODY | PLAIN. The fields that the program
// refuses are set to what they are in plain, or left out. Its id is $NAME.
func (s *scene) plant(name, rest string) {
	parts := strings.Split(rest, " | ")
	var body, plain map[string]any
	if err := errors.Join(json.Unmarshal([]byte(parts[1]), &body),
		json.Unmarshal([]byte(parts[2]), &plain)); err != nil {
		s.Fatalf("%s: %v", rest, err)
	}
	for range 20 {
		var made struct{ ID string }
		_, err := s.Call(s.Context(), http.MethodPost, parts[0], body, &made)
		refusal := harness.Refusal(err)
		if err == nil {
			s.names[name] = made.ID
			return
		}
		if refusal == nil || len(refusal.Errors) == 0 {
			s.Fatalf("%s: %v", rest, err)
		}
		for _, wrong := range refusal.Errors {
			field := strings.FieldsFunc(wrong.Field, func(r rune) bool { return r == '.' || r == '[' })[0]
			if _, set := body[field]; !set {
				s.Fatalf("%s: %v", rest, err)
			}
			s.refused = append(s.refused, name+"."+field)
			if value, ok := plain[field]; ok {
				body[field] = value
			} else {
				delete(body, field)
			}
		}
	}
	s.Fatalf("%s: it takes nothing", rest)
}

// attempted waits until what is due is attempted.
func (s *scene) attempted() {
	harness.Eventually(s, time.Minute, "what is due is attempted", func() error {
		all, err := s.ListAll(client.Filter{})
		i := slices.IndexFunc(all, func(cb client.Callback) bool {
			return cb.AttemptCount == 0 && cb.FinishedAt.IsZero() && time.Until(cb.DueAt) < time.Minute
		})
		if i >= 0 {
			err = errors.New(all[i].ID + " is not")
		}
		return err
	})
}

// shapeOf names a page by the shape of its address: ids and numbers are left out, and of what is asked for
// all that does not make it another page.
func shapeOf(address string) string {
	path, query, _ := strings.Cut(address, "?")
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if len(s) > 20 && strings.Contains(s, "_") || strings.Trim(s, "0123456789") == "" && s != "" {
			segments[i] = "id"
		}
	}
	shape, filtered := strings.Join(segments, "/"), false
	for pair := range strings.SplitSeq(query, "&") {
		if strings.HasPrefix(pair, "action=") && strings.HasSuffix(path, "/new") {
			return shape + "?" + pair
		}
		filtered = filtered || pair != ""
	}
	if filtered {
		shape += "?"
	}
	return shape
}
