package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// choiceText formats a choice: a name, an object, or "" for null.
func choiceText(choice client.Choice) string {
	return console.Printable(cmp.Or(choice.Name, string(choice.Object)))
}

// jsonText formats JSON on one line, safe for a terminal; "" for null.
func jsonText(raw json.RawMessage) string {
	if string(raw) == "null" {
		return ""
	}
	return console.Printable(string(raw))
}

// joined joins names with a separator.
func joined[T ~string](names []T, between string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, between)
}

// numberOr formats a number; otherwise replaces zero.
func numberOr(n int, otherwise string) string {
	if n == 0 {
		return otherwise
	}
	return strconv.Itoa(n)
}

// printLines prints a text of several lines, safe for a terminal.
func printLines(c *session, text string) {
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		fmt.Fprintln(c.Out, console.Printable(line))
	}
}

// ago formats the time since t.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case d < time.Second:
		return "just now"
	case d < time.Minute:
		return console.Brief(d.Truncate(time.Second)) + " ago"
	case d < 24*time.Hour:
		return console.Brief(d.Truncate(time.Minute)) + " ago"
	}
	return console.Brief(d.Truncate(time.Hour)) + " ago"
}

// agoOr is ago; otherwise replaces the zero time.
func agoOr(t, now time.Time, otherwise string) string {
	if t.IsZero() {
		return otherwise
	}
	return ago(t, now)
}

// until formats the time that is left until t.
func until(t, now time.Time) string {
	if d := t.Sub(now); d > 0 {
		return "in " + console.Brief(d)
	}
	return "now"
}

// meanings explains words of the API.
var meanings = map[string]string{
	"deny":      "deny: callbacks cannot have a URL of their own",
	"same_host": "same_host: callbacks can have another URL on this host",
	"any":       "any: callbacks can have any URL",

	"once": "once: one callback for all missed times",
	"skip": "skip: no callback for missed times",

	"timing_out": "times out",
	"answering":  "yes",

	"canceled": "canceled: no further attempt will start",
	"too_late": "too late: an attempt is in flight; if it succeeds, the callback has succeeded, " +
		"else it is canceled",
	"already_terminal": "already finished: nothing was changed",

	"changed": "this entry was changed or moved after it was chained",
	"missing": "one or more entries before the next one were removed",
	"cut":     "the chain ends here: later entries were removed, or its head was changed",
	"beyond": "there are entries after the head of the chain: another program wrote them, " +
		"or the head was set back",
	"unexpected": "the hash differs from the expected one: entries were removed or replaced",
}

// meaning returns the explanation of a word, or the word if it has none.
func meaning(word string) string { return cmp.Or(meanings[word], word) }
