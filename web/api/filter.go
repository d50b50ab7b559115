package api

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Limits of a list's page.
const (
	defaultLimit = 50
	maxLimit     = 500
)

// maxRepeats is how often a parameter may stand in a query, and how many labels may be filters together. Each
// is a part of a statement of SQL, whose size has bounds.
const maxRepeats = 20

// A query decodes the parameters of a list. Each may stand once, unless it is read with all.
type query struct {
	fields
	values url.Values
	// known are the names that were asked for.
	known map[string]bool
	// cursors are the list's: see listQuery.
	cursors cursorSigner
}

func newQuery(values url.Values) *query { return &query{values: values, known: make(map[string]bool)} }

// parseQuery splits the query. Unlike net/url's own reading it drops nothing: what cannot be split is an error.
func parseQuery(raw string) (*query, error) {
	values, err := url.ParseQuery(raw)
	q := newQuery(values)
	if err != nil {
		q.add("query", "is not a query string")
		return nil, q.err()
	}
	return q, nil
}

// all returns every value of a parameter, those that are text.
func (q *query) all(name string) []string {
	q.known[name] = true
	if len(q.values[name]) > maxRepeats {
		q.add(printable([]byte(name)), fmt.Sprintf("may be given at most %d times", maxRepeats))
		return nil
	}
	var out []string
	for _, value := range q.values[name] {
		s, wrong := checkText(value, false)
		switch {
		case wrong != "":
			q.add(printable([]byte(name)), wrong)
		case s == "":
			// An empty filter is a variable that nobody filled; taking it for "all" would be the opposite of what was meant.
			q.add(printable([]byte(name)), "must not be empty")
		default:
			out = append(out, s)
		}
	}
	return out
}

// one returns the value of a parameter that may stand once, or "".
func (q *query) one(name string) string {
	if len(q.values[name]) > 1 {
		q.known[name] = true
		q.add(printable([]byte(name)), "stands here twice")
		return ""
	}
	if values := q.all(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// number returns a whole number between the bounds, or otherwise when it is not given.
func (q *query) number(name string, least, most, otherwise int) int {
	s := q.one(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		q.add(name, "must be a whole number from "+strconv.Itoa(least)+" to "+strconv.Itoa(most))
		return otherwise
	}
	return n
}

// instant returns a time in Unix milliseconds, or zero.
func (q *query) instant(name string) int64 {
	s := q.one(name)
	if s == "" {
		return 0
	}
	ms, ok := parseQueryTime(s)
	if !ok {
		q.add(name, badTime)
	}
	return ms
}

// parseQueryTime is parseTime for what stood in a query. A plus sign that was not escaped arrives as a space; where only a zone can
// stand, it is taken for the plus sign that was meant.
func parseQueryTime(s string) (ms int64, ok bool) {
	if i := len(s) - len(" 08:00"); i > len("2006-01-02") && s[i] == ' ' {
		s = s[:i] + "+" + s[i+1:]
	}
	return parseTime(s)
}

// wait returns how long a request may wait for something to happen, at most that long; zero: it does not wait.
func (q *query) wait(name string, most time.Duration) time.Duration {
	s := q.one(name)
	if s == "" {
		return 0
	}
	d, err := schedule.ParseDuration(s)
	if err != nil || d < 0 || d > most {
		q.add(name, "must be a duration from 0s to "+schedule.FormatDuration(most)+`, such as "20s"`)
		return 0
	}
	return d
}

// oneOf returns a value out of those allowed, or "".
func (q *query) oneOf(name string, allowed ...string) string {
	s := q.one(name)
	if s != "" && !slices.Contains(allowed, s) {
		q.add(name, "must be one of "+strings.Join(allowed, ", "))
		return ""
	}
	return s
}

// yes returns whether a parameter that is true or false is true.
func (q *query) yes(name string) bool { return q.oneOf(name, "true", "false") == "true" }

// unknown refuses every parameter that was not asked for.
func (q *query) unknown() {
	for name := range q.values {
		if !q.known[name] {
			q.add(printable([]byte(name)), "is not a filter of this list")
		}
	}
}

// page reads limit and cursor.
func (q *query) page(list byte) (limit int, after *store.Cursor) {
	limit = q.number("limit", 1, maxLimit, defaultLimit)
	if s := q.one("cursor"); s != "" {
		c, err := q.cursors.decode(list, s)
		if err != nil {
			q.add("cursor", err.Error())
			return limit, nil
		}
		after = &c
	}
	return limit, after
}

// A picked is which callbacks are meant: what GET /v1/callbacks lists, and what a redrive is for.
type picked struct {
	store.Filter
	// endpoint is the name of an endpoint as callers name it; empty: of any, or of none.
	endpoint string
}

// picks reads the filters that both have.
func (q *query) picks() (p picked) {
	p.Filter = store.Filter{
		Kind:        store.Kind(q.oneOf("kind", string(store.Notify), string(store.Poll))),
		Topic:       q.one("topic"),
		Ref:         q.one("ref"),
		LockKey:     q.one("lock_key"),
		Lane:        q.one("lane"),
		Class:       store.Class(q.one("class")),
		Reason:      store.Reason(q.one("reason")),
		Status:      q.number("status_code", 100, 999, 0),
		MinAttempts: q.number("min_attempts", 0, 1_000_000, 0),
		Overdue:     q.yes("overdue"),
		From:        q.instant("from"),
		To:          q.instant("to"),
	}
	p.endpoint = q.one("endpoint")
	for _, s := range q.all("state") {
		if p.States = append(p.States, store.State(s)); !slices.Contains(store.States[:], store.State(s)) {
			q.add("state", "must be one of scheduled, attempting, succeeded, dead, canceled")
		}
	}
	if p.Class != "" && !slices.Contains(store.Classes[:], p.Class) {
		q.add("class", "is not a class of attempts")
	}
	if p.Reason != "" && !slices.Contains(store.Reasons[:], p.Reason) {
		q.add("reason", "is not a reason for which callbacks end")
	}
	if p.From != 0 && p.To != 0 && p.From > p.To {
		q.add("from", "must not be later than to")
	}
	q.labels(&p.Filter)
	return p
}

// labelPrefix stands before the name of a label in the name of its filter.
const labelPrefix = "label."

// labels adds the filters by labels' values.
func (q *query) labels(f *store.Filter) {
	var names []string
	for name := range q.values {
		if strings.HasPrefix(name, labelPrefix) {
			names = append(names, name)
			q.known[name] = true
		}
	}
	if len(names) > maxRepeats {
		q.add("label", fmt.Sprintf("may be given for at most %d labels", maxRepeats))
		return
	}
	for _, name := range names {
		label := strings.TrimPrefix(name, labelPrefix)
		if _, wrong := checkText(label, false); wrong != "" || label == "" {
			q.add(printable([]byte(name)), "does not name a label")
			continue
		}
		if f.Labels == nil {
			f.Labels = make(map[string]string)
		}
		f.Labels[label] = q.one(name)
	}
}

// A listRequest is what GET /v1/callbacks asks for.
type listRequest struct {
	picked
	csv bool
}

// listFilter reads the parameters of GET /v1/callbacks.
func (q *query) listFilter(now int64) (f listRequest, err error) {
	f.picked = q.picks()
	f.Now = now
	f.ByDue = q.oneOf("order", "due") == "due"
	f.csv = q.oneOf("format", "json", "csv") == "csv"
	list := listNewest
	if f.ByDue {
		list = listByDue
	}
	f.Limit, f.After = q.page(list)
	q.unknown()
	return f, q.err()
}
