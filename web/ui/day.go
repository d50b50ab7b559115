package ui

import (
	"cmp"
	"strconv"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

const (
	booksPath = Root + "/books"
	// shownDays bounds the days of one page.
	shownDays = 31
)

// A dayRow is the report of one day.
type dayRow struct {
	store.ReconcileReport
	// Why are the texts of Wrong.
	Why []string
}

// Good reports whether nothing needs a person.
func (d *dayRow) Good() bool { return len(d.Why) == 0 }

func (b *base) dayRow(r *store.ReconcileReport) *dayRow {
	row := &dayRow{ReconcileReport: *r}
	for _, why := range r.Wrong() {
		row.Why = append(row.Why, b.T("books.wrong."+why, "n", r.Missing))
	}
	return row
}

// addDays sets the reports of the last days, and what the daily run does.
func (u *UI) addDays(r *request, p *reconciliationPage) error {
	p.Listing = true
	project, err := u.Store.Project(r.ctx, r.caller.Project)
	if err != nil {
		return err
	}
	before := r.query("before")
	if before != "" && !isDay(before) {
		before = ""
	}
	reports, err := u.Store.ReconcileReports(r.ctx, r.caller.Project, before, shownDays+1)
	if err != nil {
		return err
	}
	reports, last := query.Cut(reports, shownDays)
	if last != nil {
		p.Older = p.With("before", last.Day)
	}
	if before != "" {
		p.Newest = p.With("before", "")
	}
	for i := range reports {
		p.Days = append(p.Days, p.dayRow(&reports[i]))
	}
	p.Daily, p.Late = p.dailyText(&project), p.lateText(&project)
	return nil
}

// lateText says what is wrong with the daily run; empty: nothing.
func (b *base) lateText(project *store.Project) string {
	switch {
	case project.ReconcileError == store.ReconcileTooLong:
		return b.T("books.late.long", "day", project.NextReconciled())
	case project.ReconcileError != "":
		return b.T("books.late.failed", "day", project.NextReconciled())
	case project.LateReconcile(b.r.now) != "":
		return b.T("books.late.waits", "day", project.NextReconciled())
	}
	return ""
}

// dailyText says when the daily run happens.
func (b *base) dailyText(project *store.Project) string {
	s := &project.Reconcile
	if s.At == "" {
		return b.T("books.daily.none")
	}
	key := "books.daily.at"
	if s.ExpectList {
		key = "books.daily.list"
	}
	return b.T(key, "at", s.At, "zone", s.Timezone)
}

// isDay reports whether a text is a day such as 2026-11-21.
func isDay(text string) bool {
	_, err := time.Parse(time.DateOnly, text)
	return err == nil
}

// dayPage is the report of one day with its findings.
type dayPage struct {
	base
	*dayRow
	Facts []fact
	// Kinds are the filters of the findings.
	Kinds []chip
	Items []dayItem
	// Cut is true if the report does not keep all findings.
	Cut bool
	// Next is the URL of the next page; empty on the last. First is the URL of the first; empty on the first.
	Next, First string
}

// A dayItem is a finding. FullID is the id of its callback with the prefix; empty without one.
type dayItem struct {
	store.ReconcileItem
	FullID string
}

func dayItemOf(item *store.ReconcileItem) dayItem {
	row := dayItem{ReconcileItem: *item}
	if item.CallbackID != "" {
		row.FullID = store.CallbackPrefix + item.CallbackID
	}
	return row
}

// day is GET /ui/books/days/{day}.
func (u *UI) day(r *request) (*response, error) {
	day, kind := r.params["day"], store.ItemKind(r.query("kind"))
	if !isDay(day) {
		return nil, store.ErrNotFound
	}
	if r.query("as") == "csv" {
		file, err := query.ReportCSV(r.ctx, u.Store, r.caller.Project, day, kind)
		if err != nil {
			return nil, err
		}
		return download("reconciliation-"+day+".csv", file)
	}
	report, err := u.Store.ReconcileReport(r.ctx, r.caller.Project, day)
	if err != nil {
		return nil, err
	}
	p := &dayPage{base: u.baseTitled(r, "books", day)}
	p.dayRow = p.base.dayRow(&report)
	p.addCounts(kind)
	after, err := strconv.ParseInt(cmp.Or(r.query("cursor"), "0"), 10, 64)
	if err != nil || after < 0 {
		after = 0
	}
	items, err := u.Store.ReconcileItems(r.ctx, r.caller.Project, day, kind, after, pageSize+1)
	if err != nil {
		return nil, err
	}
	items, last := query.Cut(items, pageSize)
	if last != nil {
		p.Next = p.With("cursor", strconv.FormatInt(last.Number, 10))
	}
	if after > 0 {
		p.First = p.With()
	}
	for _, item := range items {
		p.Items = append(p.Items, dayItemOf(&item))
	}
	return show("day", p)
}

// addCounts sets the counts of the day, each with a link to what it counts.
func (p *dayPage) addCounts(chosen store.ItemKind) {
	add := func(key string, n int64, states ...store.State) {
		pairs := []string{"from", inputText(p.r, p.ReconcileReport.From), "to", inputText(p.r, p.To)}
		for _, s := range states {
			pairs = append(pairs, "state", string(s))
		}
		f := fact{Name: p.T(key), Value: p.N(n), Data: true}
		if n > 0 {
			f.Link = link("/callbacks", pairs...)
		}
		p.Facts = append(p.Facts, f)
	}
	add("books.accepted", p.Books.Accepted)
	add("books.succeeded", p.Books.Succeeded, store.Succeeded)
	add("books.dead", p.Books.Dead, store.Dead)
	add("books.canceled", p.Books.Canceled, store.Canceled)
	add("books.open", p.Books.Open, store.Scheduled, store.Attempting)
	if !p.ListGiven {
		return
	}
	p.Facts = append(p.Facts, fact{Name: p.T("compare.listed"), Value: p.N(p.Listed), Data: true},
		fact{Name: p.T("compare.matched"), Value: p.N(p.Matched), Data: true})
	p.Kinds = append(p.Kinds, chip{Text: p.T("filter.any"), Current: chosen == "", Link: p.With("kind", "")})
	counts := []int64{p.Missing, p.Unfinished, p.Duplicates, p.Extra}
	for i, kind := range store.ItemKinds {
		p.Kinds = append(p.Kinds, chip{Text: p.T("books.item." + string(kind)), Count: counts[i],
			Current: kind == chosen, Link: p.With("kind", string(kind))})
		p.Cut = p.Cut || counts[i] > control.MaxReportItems
	}
}
