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

// A scene is a dispatcher with data and the windows that show it. It plays the scripts in testdata. Each line
// of a script is a step, and a step that cannot be done fails the test:
//
//	[WHO: ]VERB ARGUMENT [| TEXT]
//
// A line with the prefix "N times" is repeated. In it, $i is the number from 0, $iii the same with three
// digits, and ${a~b~c} one of the words in turn.
//
// WHO is a window of the scene, or "both" or "all" for several. The steps of "keys", "plain" and "scripts"
// run only for users with keys alone, without scripts and with scripts. The verbs are those of act and
// pageVerbs. $NAME is an entry of names.
type scene struct {
	*testing.T
	*harness.Process
	on      harness.Backend
	r       *harness.Receiver
	names   map[string]string
	windows map[string]user // by name; steps without WHO use the one with an empty name
	does    map[string]func()
	refused []string // fields that refused a hostile text
}

// newScene starts an empty dispatcher. answers is the script of its receiver; nil: by path, from
// testdata/answers.txt.
func newScene(t *testing.T, c harness.Combination, answers harness.Script) *scene {
	t.Helper()
	return launchScene(t, harness.Launch{On: harness.NewBackend(t, c)}, answers)
}

// launchScene is newScene for a dispatcher with settings.
func launchScene(t *testing.T, l harness.Launch, answers harness.Script) *scene {
	t.Helper()
	if answers == nil {
		answers = harness.ScriptOf(t, "testdata/answers.txt")
	}
	r := harness.NewReceiver(t, answers)
	return &scene{T: t, Process: harness.Serve(t, l), on: l.On, r: r,
		names: map[string]string{"shop": r.URL, "admin": harness.AdminKey,
			"today": time.Now().UTC().Format(time.DateOnly)},
		windows: map[string]user{}, does: map[string]func(){}}
}

// window opens a private window at the server or a proxy of it, signs in, and returns it.
func (s *scene) window(name, base string) *tab {
	s.Helper()
	b := newTab(s, base)
	b.signIn(harness.AdminKey)
	s.windows[name] = user{tab: b}
	return b
}

// filledScene returns a scene on SQLite with the data of the scripts, and a signed-in window.
func filledScene(t *testing.T, files ...string) (*scene, *tab) {
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

// repeat runs a line as often as its prefix says.
func (s *scene) repeat(line string) {
	s.Helper()
	times := 1
	if many, repeated, found := strings.Cut(line, " times "); found {
		if _, err := fmt.Sscan(many, &times); err == nil {
			line = repeated
		}
	}
	for i := range times {
		s.step(os.Expand(expandFor(line, i), func(name string) string { return s.names[name] }))
	}
}

// linesOf returns the lines of a file in testdata.
func linesOf(tb testing.TB, file string) []string {
	tb.Helper()
	return harness.Lines(tb, "testdata/"+file)
}

// expandFor expands a repeated line for number i.
func expandFor(line string, i int) string {
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

// step runs one line.
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
	look := pageVerbs[verb]
	if look == nil {
		s.Fatalf("%s: no verb %q", line, verb)
	}
	argument, text, _ := strings.Cut(rest, " | ")
	for _, h := range s.windowsOf(who) {
		look(h, argument, text)
	}
}

// windowsOf returns the windows of a step.
func (s *scene) windowsOf(who string) []user {
	h := s.windows[""]
	switch who {
	case "keys", "plain", "scripts":
		if map[string]bool{"keys": h.keys, "plain": h.plain, "scripts": !h.plain}[who] {
			return []user{h}
		}
		return nil
	case "both":
		return []user{h, s.windows["two"]}
	case "all":
		return slices.Collect(maps.Values(s.windows))
	}
	named, open := s.windows[who]
	if !open {
		s.Fatalf("no window %q is open", who)
	}
	return []user{named}
}

// act runs a step that uses no page. It returns false for other verbs.
func (s *scene) act(verb, rest string) bool {
	first, second, _ := strings.Cut(rest, " ")
	switch verb {
	case "make": // NAME PATH BODY: $NAME is its id
		path, body, _ := strings.Cut(second, " ")
		s.names[first] = s.Create(path, json.RawMessage(body))
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
	case "tab": // a second page of the window with an empty name
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

// pageVerbs are the verbs of steps in a page.
var pageVerbs = map[string]func(h user, argument, text string){
	"open":    func(h user, path, _ string) { h.open(path) },
	"arrive":  one(user.arrive),
	"address": one(user.address),
	"see":     user.see,
	"unseen":  user.seeNot,
	"becomes": user.becomes,
	"use":     user.use,
	"click":   user.click,
	"write":   user.write,
	"fill":    user.fill,
	"choose":  user.choose,
	"unfold":  one(user.unfold),
	"press":   one(user.press),
	"streams": func(h user, _, _ string) { h.streams() },
	"allow":   func(h user, pattern, _ string) { h.allow(pattern) },
	"js":      func(h user, expression, _ string) { ask[bool](h.tab, expression) },
	"focused": func(h user, want, _ string) {
		if at := h.focused(); at != want && (want != "*" || at == "") {
			h.Errorf("the focus is at %q, want %s", at, want)
		}
	},
	"value": func(h user, selector, want string) {
		if is := ask[string](h.tab, js(`return document.querySelector(args[0]).value`, selector)); is !=
			want {
			h.Errorf("%s has %q, want %q", selector, is, want)
		}
	},
	// Without scripts every action loads a page.
	"mark": func(h user, _, _ string) {
		if !h.plain {
			h.mark()
		}
	},
	"marked": func(h user, what, _ string) {
		if !h.plain {
			h.marked(what)
		}
	},
}

// one adapts a verb without TEXT.
func one(do func(h user, argument string)) func(h user, argument, text string) {
	return func(h user, argument, _ string) { do(h, argument) }
}

// await waits until a field of the response at a path has a value: PATH FIELD VALUE.
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

// plant posts an object with hostile texts: PATH | BODY | PLAIN. Fields that the API refuses take their value
// from PLAIN, or are left out. The id becomes $NAME.
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
	s.Fatalf("%s: the API refuses every variant", rest)
}

// attempted waits until every due callback has been attempted, except $moving, whose lane is paused.
func (s *scene) attempted() {
	harness.Eventually(s, time.Minute, "every due callback is attempted", func() error {
		all, err := s.ListAll(client.Filter{})
		i := slices.IndexFunc(all, func(cb client.Callback) bool {
			return cb.AttemptCount == 0 && cb.FinishedAt.IsZero() && cb.ID != s.names["moving"] &&
				time.Until(cb.DueAt) < time.Minute
		})
		if i >= 0 {
			err = errors.New(all[i].ID + " has no attempt")
		}
		return err
	})
}

// shapeOf returns the shape of an address: without ids and numbers, and without query parameters that do not
// make it another page.
func shapeOf(address string) string {
	path, query, _ := strings.Cut(address, "?")
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if len(s) > 20 && strings.Contains(s, "_") || strings.Trim(s, "0123456789-") == "" && s != "" {
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
