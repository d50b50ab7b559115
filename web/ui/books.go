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
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
	"github.com/seed-ff5a32d8/dispatcher/web/ui/picture"
)

const (
	// booksTime bounds one counting, which reads every callback of its span: people choose a shorter span
	// rather than wait longer.
	booksTime = time.Minute
	// shownGroups is how many groups the page shows; the file has all.
	shownGroups = 30
)

// The groupings that the form offers. What is grouped by a label has the label's name beside it.
const (
	byDay   = "day"
	byLabel = "label"
)

// booksPage is what was accepted in a span of time, by what has become of it.
type booksPage struct {
	base
	// From, To and Label are what the form says.
	From, To, Label string
	Groupings       []option
	// Grouped: there are rows beside the total; Chosen names the grouping, and ByLabel says that it is by the
	// label of that name.
	Grouped, ByDay, ByLabel bool
	Chosen                  string
	// Quick are spans that are often asked for.
	Quick       []chip
	FieldErrors []store.FieldError
	// TooLong: the span was not counted to its end.
	TooLong bool
	// Total is nil where nothing was counted.
	Total *bookRow
	Rows  []*bookRow
	// More is how many groups the page does not show.
	More int

	span query.Span
}

// A bookRow is the books of one group, with the ways to its callbacks. A way that is empty leads nowhere: no
// filter picks them.
type bookRow struct {
	store.Reconciliation
	// Name is the group's; empty: what has no topic, endpoint or label of that name. Plain is another name of
	// it.
	Name, Plain                           string
	All, DeadLink, CanceledLink, OpenLink string
	// Share is what succeeded in percent, never rounded up to all; negative: nothing was accepted.
	Share float64
	// Off is how many are missing, or too many, where the books do not balance.
	Off int64
	Bar template.HTML
}

// books is GET /ui/books. Nothing is counted before it is asked for.
func (u *UI) books(r *request) (*answer, error) {
	p := &booksPage{base: u.base(r, "books", "books.title"), span: query.Span{From: dayBegin(r, 0)}}
	by := r.query("group_by")
	p.From, p.To, p.Label = inputOf(r, p.span.From), r.query("to"), r.query("label")
	asked := r.url.Query().Has("from")
	if asked {
		p.From = r.query("from")
		p.span, p.FieldErrors = readSpan(r, p.From, p.To)
	}
	p.offer(by)
	if by == byLabel {
		by += ":" + p.Label
		if p.Label == "" && asked {
			p.refuse("label", p.T("books.needed"))
		}
	}
	if by == byDay && p.span.To-p.span.From > query.MaxDays*(24*time.Hour).Milliseconds() {
		p.refuse("group_by", p.T("books.days", "n", query.MaxDays))
	}
	if !asked || len(p.FieldErrors) > 0 {
		return show("books", p)
	}
	ctx, cancel := context.WithTimeout(r.ctx, booksTime)
	defer cancel()
	found, err := u.Store.Reconcile(ctx, r.who.Project,
		store.ReconcileQuery{From: p.span.From, To: p.span.To, GroupBy: by, Zone: r.zone.Location,
			MaxGroups: query.MaxGroups})
	var wrong *store.InvalidError
	switch {
	case errors.As(err, &wrong):
		p.FieldErrors = wrong.Fields
		return show("books", p)
	case err != nil && r.tookTooLong(ctx):
		p.TooLong = true
		return &answer{status: http.StatusServiceUnavailable, template: "books", page: p}, nil
	case err != nil:
		return nil, err
	}
	if r.query("as") == "csv" {
		return booksFile(found)
	}
	if err := u.fillBooks(r, p, found, by); err != nil {
		return nil, err
	}
	return show("books", p)
}

func (p *booksPage) refuse(name, message string) {
	p.FieldErrors = append(p.FieldErrors, store.FieldError{Field: name, Message: message})
}

// dayBegin is when the day began in the viewer's zone that is so many days away from today.
func dayBegin(r *request, days int) int64 {
	at := time.UnixMilli(r.now).In(r.zone.Location)
	return time.Date(at.Year(), at.Month(), at.Day()+days, 0, 0, 0, 0, r.zone.Location).UnixMilli()
}

// readSpan reads a span out of two fields. Without an end it goes up to now: to the end of this second, so
// that an address can say it too.
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

// offer fills in what the form offers.
func (p *booksPage) offer(by string) {
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
		from, to := inputOf(p.r, dayBegin(p.r, q.from)), inputOf(p.r, dayBegin(p.r, q.to))
		p.Quick = append(p.Quick, chip{
			Text: p.T("books.quick." + q.name), Current: p.From == from && p.To == to,
			Link: link("/books", "from", from, "to", to, "group_by", by, "label", p.Label),
		})
	}
}

// fillBooks makes rows of the books: those first that one must look at, days newest first.
func (u *UI) fillBooks(r *request, p *booksPage, found []store.Reconciliation, by string) error {
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
	p.More = max(len(found)-shownGroups, 0)
	for i := range found[:min(len(found), shownGroups)] {
		p.Rows = append(p.Rows, p.row(&found[i], by))
	}
	if by == "endpoint" {
		return u.nameEndpoints(r, p.Rows)
	}
	return nil
}

// worseFirst orders books by what is wrong with them.
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

// row makes a row of books that are grouped so; empty: they are of all.
func (p *booksPage) row(b *store.Reconciliation, by string) *bookRow {
	row := &bookRow{Reconciliation: *b, Name: b.Group, Share: -1,
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
	pairs, ok := p.picks(row.Name, by)
	if !ok {
		return row
	}
	way := func(states ...store.State) string {
		all := slices.Clone(pairs)
		for _, s := range states {
			all = append(all, "state", string(s))
		}
		return link("/callbacks", all...)
	}
	row.All = way()
	row.DeadLink, row.CanceledLink, row.OpenLink = way(store.Dead), way(store.Canceled),
		way(store.Scheduled, store.Attempting)
	return row
}

// picks are the conditions of the list of callbacks that pick a group; what has none of a thing can be picked
// by no filter.
func (p *booksPage) picks(name, by string) (pairs []string, ok bool) {
	s := p.span
	if by == byDay {
		day, err := time.ParseInLocation(time.DateOnly, name, p.zone.Location)
		if err != nil {
			return nil, false
		}
		s.From = max(s.From, day.UnixMilli())
		s.To = min(s.To, time.Date(day.Year(), day.Month(), day.Day()+1, 0, 0, 0, 0,
			p.zone.Location).UnixMilli())
	}
	pairs = []string{"from", inputOf(p.r, s.From), "to", inputOf(p.r, s.To)}
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

// nameEndpoints puts the names of endpoints beside their ids, of the first of the rows.
func (u *UI) nameEndpoints(r *request, rows []*bookRow) error {
	for _, row := range rows[:min(len(rows), maxNamed)] {
		if row.Group == "" {
			continue
		}
		ep, err := u.Store.AnyEndpoint(r.ctx, r.who.Project, row.Group)
		if err != nil && !notFound(err) {
			return err
		}
		row.Plain = cmp.Or(ep.Name, ep.ExternalID)
	}
	return nil
}

// booksFile answers with all groups as CSV.
func booksFile(found []store.Reconciliation) (*answer, error) {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	rows := [][]string{{"group", "accepted", "succeeded", "dead", "canceled", "open"}}
	for i := range found {
		row := []string{query.SafeCell(found[i].Group)}
		for _, n := range []int64{found[i].Accepted, found[i].Succeeded, found[i].Dead, found[i].Canceled,
			found[i].Open} {
			row = append(row, strconv.FormatInt(n, 10))
		}
		rows = append(rows, row)
	}
	if err := w.WriteAll(rows); err != nil {
		return nil, fmt.Errorf("write books as CSV: %w", err)
	}
	return download("books.csv", out.Bytes())
}

const (
	// maxListed is the most references of a list that is compared here; the API takes longer ones.
	maxListed = 10_000
	// maxRef is the most characters of a reference.
	maxRef = 256
	// shownRefs is how many references the page names that are on one side only.
	shownRefs = 200
)

// comparisonPage is what a caller's own list has and the project has not, and the other way round.
type comparisonPage struct {
	base
	From, To int64
	// Listed is how many different references the list has.
	Listed, Matched int
	// Missing are the first of those that nothing was accepted for, MissingCount is how many there are.
	Missing      []string
	MissingCount int
	// Extra are of callbacks and not in the list; MoreExtra: there are more of them.
	Extra     []string
	MoreExtra bool
	Again     string
}

// MissingLines are the missing ones, one a line.
func (p *comparisonPage) MissingLines() string { return strings.Join(p.Missing, "\n") }

// Agrees says whether both sides have the same.
func (p *comparisonPage) Agrees() bool { return p.MissingCount == 0 && len(p.Extra) == 0 }

func (u *UI) askCompare(r *request) (*form, error) {
	f := &form{base: u.base(r, "books", "compare.title"), Back: r.back(Root + "/books"),
		Says: []string{r.lang.text("compare.says"), r.lang.text("compare.time")}}
	from := cmp.Or(r.query("from"), inputOf(r, dayBegin(r, 0)))
	begin, end, refs := f.askMoment("from", "books.from"), f.ask("to", momentField, "books.to"),
		f.ask("refs", textField, "compare.refs")
	begin.Value, begin.Required, end.Value = from, true, r.query("to")
	refs.Help, refs.Mono, refs.Rows, refs.Required = f.T("compare.refs.help", "n", maxListed), true, 12, true
	f.Fields = []field{begin, end, refs}
	f.Submit, f.PreviewSubmit = f.T("compare.submit"), f.T("compare.file")
	return f, nil
}

// compare is POST /ui/books/compare, because of the list's size: it changes nothing.
func (u *UI) compare(r *request) (*answer, error) {
	s, wrong := readSpan(r, r.value("from"), r.value("to"))
	refs, message := readRefs(r)
	if message != "" {
		wrong = append(wrong, store.FieldError{Field: "refs", Message: message})
	}
	if len(wrong) > 0 {
		return nil, &store.InvalidError{Fields: wrong}
	}
	ctx, cancel := context.WithTimeout(r.ctx, booksTime)
	defer cancel()
	c, err := u.Store.Compare(ctx, r.who.Project, s.From, s.To, refs, shownRefs)
	if err != nil && r.tookTooLong(ctx) {
		return nil, invalid("from", r.lang.text("books.toolong"))
	}
	if err != nil {
		return nil, err
	}
	if r.form.Has("preview") {
		return download("missing.txt", []byte(strings.Join(append(c.Missing, ""), "\n")))
	}
	p := &comparisonPage{
		base: u.base(r, "books", "compare.title"), From: s.From, To: s.To, Listed: c.Matched + len(c.Missing),
		Matched: c.Matched,
		Missing: c.Missing[:min(len(c.Missing), shownRefs)], MissingCount: len(c.Missing), Extra: c.Extra,
		MoreExtra: c.More,
		Again:     link("/books/compare", "from", r.value("from"), "to", r.value("to")),
	}
	return show("compare", p)
}

// readRefs reads the list, one reference a line; empty lines are none. The message says what is wrong with
// it.
func readRefs(r *request) (refs []string, message string) {
	line := 0
	for text := range strings.Lines(r.text("refs")) {
		line++
		ref := strings.TrimSpace(text)
		switch {
		case ref == "":
			continue
		case utf8.RuneCountInString(ref) > maxRef:
			return nil, r.lang.text("compare.long", "line", line, "n", maxRef)
		case len(refs) == maxListed:
			return nil, r.lang.text("compare.many", "n", maxListed)
		}
		refs = append(refs, ref)
	}
	if len(refs) == 0 {
		return nil, r.lang.text("compare.none")
	}
	return refs, ""
}
