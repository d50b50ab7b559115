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

// choiceText prints a choice for people: a name, an object, or nothing for null.
func choiceText(choice client.Choice) string {
	return console.Printable(cmp.Or(choice.Name, string(choice.Object)))
}

// jsonText prints JSON from elsewhere on one line; nothing for null.
func jsonText(raw json.RawMessage) string {
	if string(raw) == "null" {
		return ""
	}
	return console.Printable(string(raw))
}

// joined prints names one after the other.
func joined[T ~string](names []T, between string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, between)
}

// numberOr prints a number; zero: otherwise.
func numberOr(n int, otherwise string) string {
	if n == 0 {
		return otherwise
	}
	return strconv.Itoa(n)
}

// printLines prints a text of several lines from elsewhere.
func printLines(c *session, text string) {
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		fmt.Fprintln(c.Out, console.Printable(line))
	}
}

// ago says how long ago something was.
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

// agoOr is ago for a time that there may not be.
func agoOr(t, now time.Time, otherwise string) string {
	if t.IsZero() {
		return otherwise
	}
	return ago(t, now)
}

// until says how far away a time is.
func until(t, now time.Time) string {
	if d := t.Sub(now); d > 0 {
		return "in " + console.Brief(d)
	}
	return "now"
}

// meanings are the words of the API that are told with what they mean.
var meanings = map[string]string{
	"deny":      "deny: callbacks may not bring an address of their own",
	"same_host": "same_host: callbacks may bring another path of this host",
	"any":       "any: callbacks may bring any address",

	"once": "once: one callback for all times at which nothing ran",
	"skip": "skip: no callback for times at which nothing ran",

	"timing_out": "times out",
	"answering":  "yes",

	"canceled": "canceled: no attempt will start any more",
	"too_late": "too late: an attempt is in flight; its success counts, else the callback ends " +
		"canceled",
	"already_terminal": "already terminal: nothing was changed",

	"changed": "the entry, or its place, is not the one that was chained",
	"missing": "one or more entries were removed before the entry that comes next",
	"cut":     "the chain ends here: entries after it were removed, or its head was changed",
	"beyond": "there are entries behind the head of the chain: another program wrote them, or it was " +
		"set back",
	"unexpected": "the chain has another hash here than was expected: entries were removed or replaced",
}

// meaning explains a word, as far as it is known.
func meaning(word string) string { return cmp.Or(meanings[word], word) }
