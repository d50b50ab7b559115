package browser

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
)

// What a user does with a page, and sees on it. A click is a mouse click at the position of the element, and
// fails if another element covers it. Keys are real key presses. Everything works without the page's scripts
// too, because these expressions are not the page's.

// findFunctions finds visible elements by a selector and a part of their text. The best match is first: the
// exact text, then the shortest.
const findFunctions = `
const label = (e) => e.labels && e.labels[0] ? e.labels[0].innerText : e.getAttribute("aria-label") || "";
const words = (e) => (e.matches("input, textarea, select") ? label(e) : e.innerText || e.textContent || "")
	.replace(/\s+/g, " ").trim();
const visible = (e) => e.checkVisibility({ visibilityProperty: true }) && e.getClientRects().length > 0;
const find = (selector, text) => [...document.querySelectorAll(selector)]
	.filter((e) => visible(e) && words(e).includes(text))
	.sort((a, b) => (words(b) === text) - (words(a) === text) || words(a).length - words(b).length);
`

// js writes the call of a function with the given body and arguments.
func js(body string, args ...any) string {
	return "((...args) => {" + findFunctions + body + "})(..." + quoted(append([]any{}, args...)) + ")"
}

// quoted encodes a value as JSON.
func quoted(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers always have a JSON form
	}
	return string(b)
}

// A spot is the position of an element, or why it cannot be clicked.
type spot struct {
	X, Y float64
	Why  string
}

// click clicks the best visible match of a selector and a part of its text.
func (t *tab) click(selector, text string) {
	t.Helper()
	var at spot
	t.eventually(fmt.Sprintf("%s %q can be clicked", selector, text), func() (err error) {
		at, err = evaluate[spot](t, js(`
			const [e] = find(args[0], args[1]);
			if (!e) return { Why: "it is not there" };
			if (e.disabled) return { Why: "it is disabled" };
			e.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
			const r = e.getClientRects()[0], x = r.x + r.width / 2, y = r.y + r.height / 2;
			const top = document.elementFromPoint(x, y);
			if (!top || !(e.contains(top) || top.contains(e) && top.matches("label")))
				return { Why: "it is covered by " + (top ? top.outerHTML.slice(0, 200) : "nothing") };
			return { X: x, Y: y };`, selector, text))
		if err == nil && at.Why != "" {
			err = errors.New(at.Why)
		}
		return err
	})
	t.clicks++
	for _, kind := range []input.DispatchMouseEventType{
		input.DispatchMouseEventTypeMouseMoved, input.DispatchMouseEventTypeMousePressed,
		input.DispatchMouseEventTypeMouseReleased,
	} {
		call(t, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: kind, X: at.X, Y: at.Y,
			Button: input.MouseButtonLeft, ClickCount: 1})
	}
}

// unfold opens the details element with a summary. It repeats the click if the page moved during it, as a
// user does.
func (t *tab) unfold(text string) {
	t.eventually(fmt.Sprintf("the details under %q are open", text), func() error {
		open := js(`const [e] = find("summary", args[0]); return Boolean(e && e.parentElement.open);`, text)
		if ask[bool](t, open) {
			return nil
		}
		t.click("summary", text)
		if !ask[bool](t, open) {
			return errors.New("a click has not opened it")
		}
		return nil
	})
}

// fill replaces the text of a field.
func (t *tab) fill(selector, text string) {
	t.Helper()
	t.click(selector, "")
	ask[bool](t, js(`document.querySelector(args[0]).select(); return true`, selector))
	if text == "" {
		t.press("Backspace")
		return
	}
	t.write(text)
}

// choose sets a field without typing: a select, a time.
func (t *tab) choose(selector, value string) {
	t.eventually(selector+" has "+value, func() error {
		is, err := evaluate[string](t, js(`
			const e = document.querySelector(args[0]);
			if (!e) return "it is not there";
			e.value = args[1];
			e.dispatchEvent(new Event("input", { bubbles: true }));
			e.dispatchEvent(new Event("change", { bubbles: true }));
			return e.value;`, selector, value))
		if err == nil && is != value {
			err = errors.New(is)
		}
		return err
	})
}

// keyboard has the supported keys, and the text of each that writes any.
var keyboard = map[string]input.DispatchKeyEventParams{
	"Tab":       {Code: "Tab", WindowsVirtualKeyCode: 9},
	"Shift+Tab": {Code: "Tab", WindowsVirtualKeyCode: 9, Modifiers: 8},
	"Enter":     {Code: "Enter", WindowsVirtualKeyCode: 13, Text: "\r"},
	"Escape":    {Code: "Escape", WindowsVirtualKeyCode: 27},
	"Backspace": {Code: "Backspace", WindowsVirtualKeyCode: 8},
	"/":         {Code: "Slash", WindowsVirtualKeyCode: 191, Text: "/"},
}

// press presses a key at the current focus. The key and its text are one event, as with a real keyboard, so
// that nothing happens between them.
func (t *tab) press(key string) {
	t.Helper()
	event, known := keyboard[key]
	if !known {
		t.Fatalf("there is no key %q", key)
	}
	t.presses++
	event.Key, event.NativeVirtualKeyCode = strings.TrimPrefix(key, "Shift+"), event.WindowsVirtualKeyCode
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown,
		input.DispatchKeyEventTypeKeyUp} {
		event.Type = kind
		if kind == input.DispatchKeyEventTypeKeyUp {
			event.Text = ""
		}
		call(t, input.DispatchKeyEvent, event)
	}
}

// write types a text at the current focus.
func (t *tab) write(text string) {
	t.Helper()
	call(t, input.InsertText, input.InsertTextParams{Text: text})
}

// see waits until a visible match of a selector has a text.
func (t *tab) see(selector, text string) {
	t.Helper()
	t.counts(fmt.Sprintf("%s says %q", selector, text), selector, text, func(n int) bool { return n > 0 })
}

// seeNot waits until no visible match of a selector has a text.
func (t *tab) seeNot(selector, text string) {
	t.Helper()
	t.counts(fmt.Sprintf("no %s says %q", selector, text), selector, text, func(n int) bool { return n == 0 })
}

// counting counts the visible matches of a selector and a part of their text.
func counting(selector, text string) string {
	return js(`return find(args[0], args[1]).length`, selector, text)
}

// counts waits until will accepts the number of matches.
func (t *tab) counts(what, selector, text string, will func(n int) bool) {
	t.Helper()
	t.eventually(what, func() error {
		n, err := evaluate[int](t, counting(selector, text))
		if err == nil && !will(n) {
			err = fmt.Errorf("%d match, at %s", n, t.where())
		}
		return err
	})
}

// count returns the number of visible matches now.
func (t *tab) count(selector, text string) int {
	t.Helper()
	return ask[int](t, counting(selector, text))
}

// pageText returns the visible text of the page.
func (t *tab) pageText() string {
	text, err := evaluate[string](t, `document.body.innerText`)
	if err != nil {
		return err.Error()
	}
	return text
}

// where returns the path and query of the address.
func (t *tab) where() string {
	path, err := evaluate[string](t, `location.pathname + location.search`)
	if err != nil {
		return err.Error()
	}
	return path
}

// arrive waits until the address begins with a path and the page is loaded.
func (t *tab) arrive(path string) {
	t.Helper()
	t.eventually("the page is "+path, func() error {
		if at := t.where(); !strings.HasPrefix(at, path) {
			return errors.New("it is " + at)
		}
		_, err := evaluate[bool](t,
			`document.readyState === "complete" || Promise.reject(new Error(document.readyState))`)
		return err
	})
}

// address waits until the address has a part.
func (t *tab) address(part string) {
	t.Helper()
	t.eventually("the address has "+part, func() error {
		if at := t.where(); !strings.Contains(at, part) {
			return errors.New("it is " + at)
		}
		return nil
	})
}

// focused returns the focused element, by id or by text.
func (t *tab) focused() string {
	t.Helper()
	return ask[string](t, js(`
		const e = document.activeElement;
		if (!e || e === document.body) return "";
		return e.id ? "#" + e.id : e.localName + " " + words(e);`))
}

// mark sets a variable in the page, which a reload removes.
func (t *tab) mark() {
	t.Helper()
	ask[bool](t, `window.__mark = true`)
}

// marked fails the test if the page was reloaded since mark.
func (t *tab) marked(what string) {
	t.Helper()
	if !ask[bool](t, `window.__mark === true`) {
		t.Errorf("%s: the page was reloaded", what)
	}
}

// size sets the width of the window, in CSS pixels.
func (t *tab) size(width int64) {
	t.Helper()
	call(t, emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1})
}

// scripts turns the page's scripts on or off, from the next page on.
func (t *tab) scripts(on bool) {
	t.Helper()
	call(t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
}

// prefer sets a preference in a cookie of the pages: language (en, zh-CN), zone, theme.
func (t *tab) prefer(name, value string) {
	t.Helper()
	call(t, network.SetCookie, network.SetCookieParams{Name: "dispatcher_" + name, Value: value,
		URL: t.base + "/ui/", Path: "/ui"})
}

// A user uses a page with a mouse, with keys alone, or with a mouse and without scripts.
type user struct {
	*tab
	keys, plain bool
}

// use activates a link or a button.
func (h user) use(selector, text string) {
	if !h.keys {
		h.click(selector, text)
		return
	}
	h.reach(selector, text)
	h.press("Enter")
}

// write replaces the text of a field.
func (h user) write(selector, text string) {
	h.Helper()
	if !h.keys {
		h.fill(selector, text)
		return
	}
	h.reach(selector, "")
	// Like Ctrl-A, for which a headless browser has no command.
	ask[bool](h.tab, `document.activeElement.select(), true`)
	h.tab.write(text)
}

// reach moves the focus to an element with Tab alone.
func (h user) reach(selector, text string) {
	h.Helper()
	h.see(selector, text)
	const most = 250
	for range most {
		if ask[bool](h.tab, js(`return document.activeElement === find(args[0], args[1])[0]`, selector,
			text)) {
			return
		}
		h.press("Tab")
	}
	h.Fatalf("Tab does not lead to %s %q within %d steps", selector, text, most)
}

// becomes waits until an element has a text. Without scripts it reloads the page.
func (h user) becomes(selector, text string) {
	if !h.plain {
		h.see(selector, text)
		return
	}
	h.eventually(fmt.Sprintf("%s says %q", selector, text), func() error {
		h.open(h.where())
		if h.count(selector, text) == 0 {
			return errors.New("it does not")
		}
		return nil
	})
}
