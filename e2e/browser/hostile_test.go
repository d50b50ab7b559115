package browser

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

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

// plantAll has one text in every field that anybody may set.
func (s *scene) plantAll(text string, n int) {
	s.Helper()
	escaped := func(text string) string { return quoted(text)[1 : len(quoted(text))-1] }
	plain := fmt.Sprintf("%s/say/%d/", s.r.URL, n)
	maps.Copy(s.names, map[string]string{
		"n": fmt.Sprint(n), "plain": plain, "address": plain + url.PathEscape(text) + "?token=" + url.QueryEscape(text),
		"TEXT": escaped(text), "START": escaped(strings.ToValidUTF8(text[:min(len(text), 60)], "")),
	})
	s.refused = nil
	s.play("hostile.txt")
	slices.Sort(s.refused)
	s.refused = slices.Compact(s.refused)
}

// Whatever somebody writes is text: no page takes it for markup, an address or a part of its stream, and none is torn by it.
func TestBrowserHostileTextsAreText(t *testing.T) {
	harness.BlackBox(t)
	t.Parallel()
	s := newScene(t, harness.SQLiteEmbedded, func(a *harness.Arrival) harness.Reply {
		var n int
		if _, err := fmt.Sscanf(a.Path, "/say/%d", &n); err != nil {
			return harness.Reply{Status: 200, Body: "success"}
		}
		return harness.Reply{Stream: answerWith(hostile[n].text)}
	})
	b := s.window("", s.Base)
	var v verdict
	harmless := func(where string) {
		t.Helper()
		for _, wrong := range ask[[]string](b, inPage("harmful()")) {
			t.Errorf("%s: %s", where, wrong)
		}
	}
	for n, h := range hostile {
		s.plantAll(h.text, n)
		t.Logf("%s: refused by %s", h.name, strings.Join(s.refused, ", "))
		b.forget()
		b.open("/ui/callbacks/" + s.names["callback"])
		b.streams()
		harmless(h.name + ": a callback")
		for _, place := range []string{"h1", ".timeline pre", "[data-region=banner]", ".facts"} {
			if ask[string](b, `[...document.querySelectorAll(`+"`"+place+"`"+`)].map((e) => e.textContent).join(" ")`) == "" {
				t.Errorf("%s: there is no %s", h.name, place)
			}
		}
		if is := ask[string](b, `document.querySelector("h1").textContent`); is != h.text && !slices.Contains(s.refused, "callback.ref") {
			t.Errorf("%s: the reference is shown as %q", h.name, is)
		}
	}
	pages, narrow := 0, map[string]bool{}
	// More than one page of a shape: there are several texts.
	shapes := b.crawl(2, func(address, shape string) {
		pages++
		harmless(address)
		if !narrow[shape] {
			narrow[shape] = true
			b.put(views[2])
			v.add(shape+" narrow", slices.DeleteFunc(b.check(), func(f finding) bool {
				return !slices.Contains([]string{"wide", "cut", "spill", "overlap", "scheme", "inline"}, f.Rule)
			}))
		}
	})
	v.complain(t)
	t.Logf("%d pages of %d shapes with %d hostile texts", pages, len(shapes), len(hostile))

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
			harmless(address)
		}
	}
}
