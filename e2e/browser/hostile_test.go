package browser

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// hostile are texts that a sender, a receiver or an operator may write, and that must never be more than text.
var hostile = []struct{ name, text string }{
	{"markup", `<script>window.__pwned=1</script><img src=x onerror=window.__pwned=2>`},
	{"quotes", `"'><svg/onload=window.__pwned=3> onfocus="window.__pwned=4" autofocus`},
	{"ends", `</textarea></title></style></script><!--<script>__pwned=5</script>`},
	{"address", `javascript:window.__pwned=6//%0d%0aX: y`},
	{"template", "{{.}}{{7*7}}${7*7}<%= 7*7 %>`__pwned=7`"},
	{"stream", "event: reload data: {} </div><!--/region--><div data-region=\"banner\">gone"},
	{"directions", "order\u202egnp.exe\u2066\u200f\u200b\u0301\u0301 fine"},
	{"one word", strings.Repeat("Donaudampfschifffahrt", 12)[:240]},
	{"wide word", strings.Repeat("訂單編號", 30)},
}

// answerWith answers with a text in every part of an answer that takes it, the reason phrase among them.
func answerWith(text string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		conn, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return // the dispatcher has gone
		}
		defer conn.Close()
		line := strings.Map(func(r rune) rune {
			if r < ' ' {
				return ' '
			}
			return r
		}, text)
		fmt.Fprintf(buffer, "HTTP/1.1 500 %s\r\nX-Said: %s\r\nServer: %s\r\nContent-Type: text/html; x=%s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", line, line, line, line, len(text), text)
		buffer.Flush()
	}
}

// plant makes something with hostile texts in its fields. Those that the program refuses are set to what it takes; it returns the id, and the
// names of what was refused.
func (s *scene) plant(path string, body, plain harness.Submission, statuses ...int) (id string, refused []string) {
	s.t.Helper()
	body = maps.Clone(body)
	for range 20 {
		var made struct {
			ID string `json:"id"`
			client.Problem
		}
		got, err := s.send(path, body)
		if err != nil {
			s.t.Fatal(err)
		}
		if err := got.Decode(&made); err != nil {
			s.t.Fatal(err)
		}
		if slices.Contains(statuses, got.Status) {
			return made.ID, refused
		}
		if got.Status != http.StatusUnprocessableEntity || len(made.Errors) == 0 {
			s.t.Fatalf("POST %s answered %d: %s", path, got.Status, got.Body)
		}
		for _, wrong := range made.Errors {
			name, _, _ := strings.Cut(wrong.Field, ".")
			name, _, _ = strings.Cut(name, "[")
			if _, set := body[name]; !set {
				s.t.Fatalf("POST %s: %s %s", path, wrong.Field, wrong.Message)
			}
			refused = append(refused, name)
			if value, ok := plain[name]; ok {
				body[name] = value
			} else {
				delete(body, name)
			}
		}
	}
	s.t.Fatalf("POST %s: it takes none of %v", path, body)
	return "", nil
}

// plantAll has one text in every field that anybody may set, and returns the callback that it arrived in and how many fields refused it.
func (s *scene) plantAll(text string, n int) (callback string, refused []string) {
	s.t.Helper()
	note := func(of string, names []string) {
		for _, name := range names {
			refused = append(refused, of+"."+name)
		}
	}
	address := fmt.Sprintf("%s/say/%d/%s?token=%s", s.r.URL, n, url.PathEscape(text), url.QueryEscape(text))
	if _, err := s.send("/v1/resume", harness.Submission{}); err != nil { // the text before has paused everything
		s.t.Fatal(err)
	}
	plainly := fmt.Sprintf("%s/say/%d/", s.r.URL, n)
	endpoint, no := s.plant("/v1/endpoints", harness.Submission{
		"name": text, "external_id": text, "url": address, "headers": harness.Submission{"X-Shop": text}, "secret_label": text, "topics": []string{text},
	}, harness.Submission{"url": plainly}, http.StatusCreated)
	note("endpoint", no)
	callback, no = s.plant("/v1/callbacks", harness.Submission{
		"endpoint": endpoint, "ref": text, "topic": text, "lock_key": text, "labels": harness.Submission{"label": text}, "headers": harness.Submission{"X-Text": text},
		"payload": harness.Submission{"text": text}, "content_type": "application/json; x=" + text, "idempotency_key": text, "policy": harness.AskAfter("20ms", "6h", "7h"),
	}, nil, http.StatusAccepted)
	note("callback", no)
	dead, no := s.plant("/v1/callbacks", harness.Submission{
		"url": address, "ref": text, "lane": text, "body": text, "content_type": "text/html", "labels": harness.Submission{strings.ToValidUTF8(text[:min(len(text), 60)], ""): "value"}, "policy": harness.AskAfter(),
	}, harness.Submission{"url": plainly, "topic": "died"}, http.StatusAccepted)
	note("callback", no)
	_, no = s.plant("/v1/polls", harness.Submission{
		"ref": text, "request": harness.Submission{"url": s.r.URL + "/asks"}, "policy": harness.AskAfter("6h"), "until": harness.Submission{"success": []harness.Submission{{"pointer": "/" + text, "in": []string{text}}}},
		"context": harness.Submission{"text": text}, "labels": harness.Submission{"label": text},
	}, harness.Submission{"until": harness.Finals()}, http.StatusAccepted)
	note("poll", no)
	_, no = s.plant("/v1/schedules", harness.Submission{"name": text, "cron": "1 1 1 1 *", "callback": harness.Submission{"url": address, "ref": text, "payload": harness.Submission{"text": text}}},
		harness.Submission{"name": fmt.Sprint("hostile-", n), "callback": harness.Submission{"url": s.r.URL, "payload": harness.Submission{"text": text}}}, http.StatusCreated)
	note("schedule", no)
	_, no = s.plant("/v1/keys", harness.Submission{"name": text, "scopes": []string{"read"}, "reason": text}, harness.Submission{"name": fmt.Sprint("hostile-", n)}, http.StatusCreated)
	note("key", no)
	harness.Eventually(s.t, time.Minute, "the receiver has answered", func() error {
		for id, want := range map[string]int{callback: 2, dead: 1} {
			if cb, err := s.Callback(s.t.Context(), id); err != nil || cb.AttemptCount < want {
				return errors.Join(err, fmt.Errorf("%s has %d attempts", id, cb.AttemptCount))
			}
		}
		return nil
	})
	for _, act := range []struct {
		path string
		set  harness.Submission
	}{
		{"/v1/callbacks/" + callback + "/reschedule", harness.Submission{"delay": "5h"}},
		{"/v1/endpoints/" + endpoint + "/pause", nil},
		{"/v1/lanes/" + url.PathEscape(fmt.Sprint("hostile-", n)) + "/pause", nil},
		{"/v1/redrives", harness.Submission{"action": "retry", "filter": harness.Submission{"state": "dead", "ref": text}}},
		{"/v1/pause", nil}, // the last one is on every page
	} {
		body := harness.Submission{"reason": text}
		maps.Copy(body, act.set)
		_, no := s.plant(act.path, body, harness.Submission{"filter": harness.Submission{"state": "dead", "lane": "none"}}, http.StatusOK, http.StatusAccepted)
		note(act.path, no)
	}
	return callback, refused
}

// send posts to the API, whatever becomes of it.
func (s *scene) send(path string, body harness.Submission) (harness.Answer, error) {
	return s.Send(s.t.Context(), http.MethodPost, path, body)
}

// Whatever somebody writes is text: no page takes it for markup, an address or a part of its stream, and none is torn by it.
func TestBrowserHostileTextsAreText(t *testing.T) {
	harness.BlackBox(t)
	t.Parallel()
	p := harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded)})
	s := &scene{Process: p, t: t}
	s.r = harness.NewReceiver(t, func(a *harness.Arrival) harness.Reply {
		rest, found := strings.CutPrefix(a.Path, "/say/")
		if !found {
			return harness.Reply{Status: 200, Body: "success"}
		}
		var n int
		fmt.Sscanf(rest, "%d", &n) // zero is a text as any other
		return harness.Reply{Stream: answerWith(hostile[n].text)}
	})
	b := newTab(t, s.Base)
	b.signIn(harness.AdminKey)
	var v verdict
	judged := func(where string) {
		t.Helper()
		b.streams()
		for _, wrong := range ask[[]string](b, inPage("harmful()")) {
			t.Errorf("%s: %s", where, wrong)
		}
	}
	for n, h := range hostile {
		callback, refused := s.plantAll(h.text, n)
		slices.Sort(refused)
		t.Logf("%s: refused by %s", h.name, strings.Join(slices.Compact(refused), ", "))
		b.forget()
		b.open("/ui/callbacks/" + callback)
		judged(h.name + ": a callback")
		for _, place := range []string{"h1", ".timeline pre", "[data-region=banner]", ".facts"} {
			if ask[string](b, `[...document.querySelectorAll(`+"`"+place+"`"+`)].map((e) => e.textContent).join(" ")`) == "" {
				t.Errorf("%s: there is no %s", h.name, place)
			}
		}
		if is := ask[string](b, `document.querySelector("h1").textContent`); is != h.text && !slices.Contains(refused, "callback.ref") {
			t.Errorf("%s: the reference is shown as %q", h.name, is)
		}
	}
	shapes := map[string]int{}
	crawled := 0
	waiting := slices.Clone(menu)
	seen := map[string]bool{}
	// More than one page of a shape: there are several texts.
	for len(waiting) > 0 {
		address := waiting[0]
		waiting = waiting[1:]
		shape := shapeOf(address)
		if seen[address] || shapes[shape] >= 2 {
			continue
		}
		seen[address] = true
		shapes[shape]++
		crawled++
		b.put(views[0])
		b.forget()
		if status := b.open(address); status != 200 {
			t.Errorf("%s is answered with %d", address, status)
			continue
		}
		for _, wrong := range ask[[]string](b, inPage("harmful()")) {
			t.Errorf("%s: %s", address, wrong)
		}
		waiting = append(waiting, b.links()...)
		if shapes[shape] == 1 {
			b.put(views[2])
			v.add(shape+" narrow", slices.DeleteFunc(b.check(), func(f finding) bool {
				return !slices.Contains([]string{"wide", "cut", "spill", "overlap", "scheme", "inline"}, f.Rule)
			}))
		}
	}
	v.complain(t)
	t.Logf("%d pages of %d shapes with %d hostile texts", crawled, len(shapes), len(hostile))

	// What is asked for in an address is text, too.
	b.put(views[0])
	b.forgive(`status of 4\d\d`, `does not conform to the required format`) // a field for a time says nothing to what is none
	for _, h := range hostile {
		q := url.QueryEscape(h.text)
		for _, address := range []string{
			"/ui/search?q=" + q, "/ui/orders?ref=" + q, "/ui/callbacks?ref=" + q + "&topic=" + q + "&from=" + q + "&state=" + q + "&cursor=" + q, "/ui/lanes?q=" + q,
			"/ui/endpoints?q=" + q, "/ui/audit?actor=" + q + "&object=" + q, "/ui/books?from=" + q + "&group_by=" + q, "/ui/redrives/new?action=retry&ref=" + q + "&back=" + q,
			"/ui/callbacks/" + url.PathEscape(h.text),
		} {
			b.open(address)
			for _, wrong := range ask[[]string](b, inPage("harmful()")) {
				t.Errorf("%s: %s", address, wrong)
			}
		}
	}
}
