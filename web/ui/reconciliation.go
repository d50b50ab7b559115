package ui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
	"github.com/seed-ff5a32d8/dispatcher/web/ui/picture"
)

const (
	// reconcileTimeout bounds a count, which reads every callback of its span. The page then asks for a
	// shorter span.
	reconcileTimeout = time.Minute
	// maxGroups bounds the groups of the page. The CSV file has all groups.
	maxGroups = 30
)

// Two of the groupings. The URL names the label of byLabel in the parameter "label".
const (
	byDay   = "day"
	byLabel = "label"
)

// reconciliationPage is the page that counts the callbacks accepted in a span of time by their state.
type reconciliationPage struct {
	base
	// From, To and Label are the values of the form.
	From, To, Label string
	Groupings       []option
	// Grouped is true if there are rows besides the total. Chosen is the text of the grouping.
	Grouped, ByDay, ByLabel bool
	Chosen                  string
	// Quick are links to common spans.
	Quick       []chip
	FieldErrors []store.FieldError
	// TooLong is true if the count has reached reconcileTimeout.
	TooLong bool
	// Total is nil if nothing was counted.
	Total *reconciliationRow
	Rows  []*reconciliationRow
	// More counts the groups that the page does not show.
	More int
	// Listing is true if nothing is counted, and Days are the reports of days, the newest first. Daily says
	// when the daily run happens. Older and Newest are the URLs of other pages; empty: there are none.
	Listing              bool
	Days                 []*dayRow
	Daily, Older, Newest string
	// Late says that the daily run failed or is late; empty: it is not.
	Late string

	span query.Span
}

// A reconciliationRow is one group with links to the lists of its callbacks. The links are empty if no filter
// selects the group.
type reconciliationRow struct {
	store.Reconciliation
	// Name is the group's name. It is empty for callbacks without a topic, endpoint or such a label. Plain is
	// the name or external id of an endpoint.
	Name, Plain                           string
	All, DeadLink, CanceledLink, OpenLink string
	// Share is the percentage of delivered callbacks, rounded down so that only a complete group has 100.
	// It is negative if nothing was accepted.
	Share float64
	// Off is the number of accepted callbacks minus the sum of the states. It is zero in a balanced group.
	Off int64
	Bar template.HTML
}

// reconciliation is GET /ui/books: the reports of days. It counts a span if the URL has the parameter "from".
func (u *UI) reconciliation(r *request) (*response, error) {
	p := &reconciliationPage{base: u.base(r, "books", "books.title"), span: query.Span{From: dayBegin(r, 0)}}
	by := r.query("group_by")
	p.From, p.To, p.Label = inputText(r, p.span.From), r.query("to"), r.query("label")
	requested := r.url.Query().Has("from")
	if requested {
		p.From = r.query("from")
		p.span, p.FieldErrors = readSpan(r, p.From, p.To)
	}
	p.offer(by)
	if by == byLabel {
		by += ":" + p.Label
		if p.Label == "" && requested {
			p.refuse("label", p.T("books.needed"))
		}
	}
	if by == byDay && p.span.To-p.span.From > query.MaxDays*(24*time.Hour).Milliseconds() {
		p.refuse("group_by", p.T("books.days", "n", query.MaxDays))
	}
	if !requested {
		if err := u.addDays(r, p); err != nil {
			return nil, err
		}
	}
	if !requested || len(p.FieldErrors) > 0 {
		return show("reconciliation", p)
	}
	ctx, cancel := context.WithTimeout(r.ctx, reconcileTimeout)
	defer cancel()
	found, err := u.Store.Reconcile(ctx, r.caller.Project, store.ReconcileQuery{
		From: p.span.From, To: p.span.To, GroupBy: by, Zone: r.zone.Location, MaxGroups: query.MaxGroups,
	})
	var wrong *store.InvalidError
	switch {
	case errors.As(err, &wrong):
		p.FieldErrors = wrong.Fields
		return show("reconciliation", p)
	case err != nil && r.timedOut(ctx):
		p.TooLong = true
		return &response{status: http.StatusServiceUnavailable, template: "reconciliation", page: p}, nil
	case err != nil:
		return nil, err
	}
	if r.query("as") == "csv" {
		return reconciliationCSV(found)
	}
	if err := u.addGroups(r, p, found, by); err != nil {
		return nil, err
	}
	return show("reconciliation", p)
}

func (p *reconciliationPage) refuse(name, message string) {
	p.FieldErrors = append(p.FieldErrors, store.FieldError{Field: name, Message: message})
}

// dayBegin returns when a day begins in the viewer's zone. days counts from today; negative days are past.
func dayBegin(r *request, days int) int64 {
	at := time.UnixMilli(r.now).In(r.zone.Location)
	return store.LocalTime(at.Year(), at.Month(), at.Day()+days, 0, 0, r.zone.Location).UnixMilli()
}

// readSpan parses a span from two fields. Without an end the span ends now, rounded up to the next second:
// URLs have times in whole seconds.
func readSpan(r *request, from, to string) (s query.Span, wrong []store.FieldError) {
	refuse := func(name, key string) {
		wrong = append(wrong, store.FieldError{Field: name, Message: r.lang.text(key)})
	}
	read := func(name, text string) *int64 {
		if text == "" {
			return nil
		}
		ms, ok := r.parseInput(text)
		if !ok {
			refuse(name, "form.moment")
		}
		return &ms
	}
	begin, end := read("from", from), read("to", to)
	if begin != nil && len(wrong) > 0 {
		return s, wrong
	}
	s, fault := query.SpanOf(begin, end, (r.now/1000+1)*1000)
	switch fault {
	case query.Needed:
		refuse("from", "books.needed")
	case query.Unordered:
		refuse("from", "books.order")
	}
	return s, wrong
}

// offer sets the options and the quick links of the form.
func (p *reconciliationPage) offer(by string) {
	for _, name := range []string{"", "topic", "endpoint", "lane", byDay, byLabel} {
		key := "books.by.none"
		if name != "" {
			key = "books.by." + name
		}
		o := option{Value: name, Text: p.T(key), Chosen: name == by}
		p.Groupings = append(p.Groupings, o)
		if o.Chosen {
			p.Chosen = o.Text
		}
	}
	p.Grouped, p.ByDay, p.ByLabel = by != "", by == byDay, by == byLabel
	for _, q := range []struct {
		name     string
		from, to int
	}{{"today", 0, 1}, {"yesterday", -1, 0}, {"week", -6, 1}, {"month", -29, 1}} {
		from, to := inputText(p.r, dayBegin(p.r, q.from)), inputText(p.r, dayBegin(p.r, q.to))
		p.Quick = append(p.Quick, chip{
			Text: p.T("books.quick." + q.name), Current: p.Moment(p.From) == from && p.Moment(p.To) == to,
			Link: link("/books", "from", from, "to", to, "group_by", by, "label", p.Label),
		})
	}
}

// Day returns the day of a typed time for a date field. It returns "" for a time within a day: only a field
// with a time can show that.
func (p *reconciliationPage) Day(typed string) string {
	day, ok := strings.CutSuffix(p.Moment(typed), "T00:00:00")
	if !ok {
		return ""
	}
	return day
}

// addGroups sets the total and the rows. Days are in reverse order; other groups begin with the worst.
func (u *UI) addGroups(r *request, p *reconciliationPage, found []store.Reconciliation, by string) error {
	total := query.Total(found)
	p.Total = p.row(&total, "")
	if by == "" {
		return nil
	}
	if by == byDay {
		slices.Reverse(found)
	} else {
		slices.SortStableFunc(found, worseFirst)
	}
	p.More = max(len(found)-maxGroups, 0)
	for i := range found[:min(len(found), maxGroups)] {
		p.Rows = append(p.Rows, p.row(&found[i], by))
	}
	if by == "endpoint" {
		return u.nameEndpoints(r, p.Rows)
	}
	return nil
}

// worseFirst orders groups: unbalanced ones first, then by dead, open and accepted callbacks.
func worseFirst(a, b store.Reconciliation) int {
	if a.Balanced() != b.Balanced() {
		if b.Balanced() {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(b.Dead, a.Dead), cmp.Compare(b.Open, a.Open),
		cmp.Compare(b.Accepted, a.Accepted))
}

// row returns the row of a group. by is the grouping, empty for the total.
func (p *reconciliationPage) row(b *store.Reconciliation, by string) *reconciliationRow {
	row := &reconciliationRow{Reconciliation: *b, Name: b.Group, Share: -1,
		Off: b.Accepted - b.Succeeded - b.Dead - b.Canceled - b.Open}
	if b.Accepted > 0 {
		row.Share = math.Floor(float64(b.Succeeded)/float64(b.Accepted)*1000) / 10
	}
	if by == "endpoint" && row.Name != "" {
		row.Name = store.EndpointPrefix + row.Name
	}
	row.Bar = picture.Progress{Total: float64(b.Accepted), Legend: by == "", Parts: []picture.Part{
		{Name: p.T("books.succeeded"), Value: float64(b.Succeeded), Tone: picture.Good},
		{Name: p.T("books.dead"), Value: float64(b.Dead), Tone: picture.Bad},
		{Name: p.T("books.canceled"), Value: float64(b.Canceled), Tone: picture.Muted},
		{Name: p.T("books.open"), Value: float64(b.Open), Tone: picture.Second},
	}}.HTML()
	pairs, ok := p.conditions(row.Name, by)
	if !ok {
		return row
	}
	list := func(states ...store.State) string {
		all := slices.Clone(pairs)
		for _, s := range states {
			all = append(all, "state", string(s))
		}
		return link("/callbacks", all...)
	}
	row.All = list()
	row.DeadLink, row.CanceledLink = list(store.Dead), list(store.Canceled)
	row.OpenLink = list(store.Scheduled, store.Attempting)
	return row
}

// conditions returns the parameters of the list of callbacks that select a group. ok is false if no filter
// can: there is none for "no topic", "no endpoint" or "no label".
func (p *reconciliationPage) conditions(name, by string) (pairs []string, ok bool) {
	s := p.span
	if by == byDay {
		day, err := time.Parse(time.DateOnly, name)
		if err != nil {
			return nil, false
		}
		midnight := func(days int) int64 {
			return store.LocalTime(day.Year(), day.Month(), day.Day()+days, 0, 0, p.zone.Location).UnixMilli()
		}
		s.From, s.To = max(s.From, midnight(0)), min(s.To, midnight(1))
	}
	pairs = []string{"from", inputText(p.r, s.From), "to", inputText(p.r, s.To)}
	label, isLabel := strings.CutPrefix(by, byLabel+":")
	switch {
	case by == "", by == byDay:
		return pairs, true
	case name == "":
		return nil, false
	case isLabel:
		return append(pairs, query.LabelPrefix+label, name), true
	}
	return append(pairs, by, name), true
}

// maxNamed bounds the endpoints whose names are read, one call each.
const maxNamed = 20

// nameEndpoints sets the names of the endpoints of the first maxNamed rows.
func (u *UI) nameEndpoints(r *request, rows []*reconciliationRow) error {
	for _, row := range rows[:min(len(rows), maxNamed)] {
		if row.Group == "" {
			continue
		}
		ep, err := u.Store.AnyEndpoint(r.ctx, r.caller.Project, row.Group)
		if err != nil && !notFound(err) {
			return err
		}
		row.Plain = cmp.Or(ep.Name, ep.ExternalID)
	}
	return nil
}

// reconciliationCSV returns a CSV file with all groups.
func reconciliationCSV(found []store.Reconciliation) (*response, error) {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	rows := [][]string{{"group", "accepted", "succeeded", "dead", "canceled", "open"}}
	for i := range found {
		g := &found[i]
		row := []string{query.SafeCell(g.Group)}
		for _, n := range []int64{g.Accepted, g.Succeeded, g.Dead, g.Canceled, g.Open} {
			row = append(row, strconv.FormatInt(n, 10))
		}
		rows = append(rows, row)
	}
	if err := w.WriteAll(rows); err != nil {
		return nil, fmt.Errorf("write the reconciliation as CSV: %w", err)
	}
	return download("books.csv", out.Bytes())
}
