package ui

import (
	"cmp"
	"context"
	"html/template"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Overview is what the first page asks of the store.
type Overview interface {
	// Activity returns what happened in a lane, or with 0 in all, in spans that begin from then on and before that.
	Activity(ctx context.Context, project string, lane int64, span store.Span, from, to int64) ([]store.Activity, error)
	DueNow(ctx context.Context, project string, now int64) (store.DueNow, error)
	// DueHours are the hours in which something is due.
	DueHours(ctx context.Context, project string, from, to int64) ([]store.DueHour, error)
}

func (u *UI) overviewRoutes() []Route { return []Route{page("/", u.overview)} }

const (
	// topLanes is how many lanes the page shows, newestShown how many callbacks.
	topLanes, newestShown = 8, 8
	// dueTooLong is how overdue the oldest callback is when the page shows it as a warning.
	dueTooLong = 5 * time.Second
)

// overviewPage is how things stand.
type overviewPage struct {
	base
	// AcceptedRate and DeliveredRate are a second, over the last minute or two.
	AcceptedRate, DeliveredRate string
	// Share is the part of attempts of the last hour that succeeded, in percent; below zero: there were none.
	Share float64
	Due   store.DueNow
	// Late: what is due waits for longer than it should.
	Late bool
	Dead int64
	Open int64

	Ranges                         []chip
	Throughput, Attempts, Lateness template.HTML
	Tiers, DueSoon                 template.HTML

	Lanes       []*waitingLane
	Newest      []*callbackRow
	Dispatchers []*dispatcherRow
	Alive       int
	Index       indexPart
}

// A waitingLane is a lane with what waits in it.
type waitingLane struct {
	Key, Link string
	Open      int64
	OldestDue int64
	// Why is what holds it back; empty: nothing.
	Why string
	// endpoint is the id, with its prefix, of the endpoint whose lane it is; EndpointLabel is what people call that one. Either may be empty.
	endpoint, EndpointLabel string
}

// A dispatcherRow is one process.
type dispatcherRow struct {
	store.Dispatcher
	Gone bool
}

// An indexPart is how the index stands.
type indexPart struct {
	dispatch.IndexStatus
	Stats schedule.Stats
	// Known: Stats says something.
	Known bool
}

// overview is GET /ui/.
func (u *UI) overview(r *request) (*answer, error) {
	p := &overviewPage{base: u.base(r, "overview", "overview.title")}
	for _, fill := range []func(*request, *overviewPage) error{
		u.fillRates, u.fillCharts, u.fillBacklog, u.fillNewest, u.fillProcesses,
	} {
		if err := fill(r, p); err != nil {
			return nil, err
		}
	}
	return show("overview", p)
}

// fillRates says what happens at this moment.
func (u *UI) fillRates(r *request, p *overviewPage) error {
	const span = store.Minute
	begin := span.Begin(r.now) - span.Milliseconds()
	recent, err := u.Overview.Activity(r.ctx, r.who.project, 0, span, begin-58*span.Milliseconds(), r.now+1)
	if err != nil {
		return err
	}
	var last, hour store.Activity
	for i := range recent {
		hour.Add(&recent[i])
		if recent[i].At >= begin {
			last.Add(&recent[i])
		}
	}
	seconds := float64(r.now-begin) / 1000
	p.AcceptedRate, p.DeliveredRate = rate(float64(last.Accepted)/seconds), rate(float64(last.Succeeded)/seconds)
	p.Share = share(hour.Succeeded, hour.Succeeded+hour.Failed+hour.Unknown)
	return nil
}

// share is a part in percent; below zero where there is no whole.
func share(part, whole int64) float64 {
	if whole <= 0 {
		return -1
	}
	return 100 * float64(part) / float64(whole)
}

// fillBacklog says what waits, since when, and what holds it.
func (u *UI) fillBacklog(r *request, p *overviewPage) error {
	var err error
	if p.Due, err = u.Overview.DueNow(r.ctx, r.who.project, r.now); err != nil {
		return err
	}
	p.Late = p.Due.OldestAt != 0 && r.now-p.Due.OldestAt > dueTooLong.Milliseconds()
	counts, err := u.Callbacks.Counts(r.ctx, r.who.project)
	if err != nil {
		return err
	}
	p.Dead, p.Open = counts.States[store.Dead], counts.States[store.Scheduled]
	p.Tiers = p.tiersChart(counts.Tiers)
	hours, err := u.Overview.DueHours(r.ctx, r.who.project, store.Hour.Begin(r.now), r.now+dueHours*store.Hour.Milliseconds())
	if err != nil {
		return err
	}
	p.DueSoon = p.dueChart(hours)
	if len(counts.Lanes) == 0 {
		return nil
	}
	f := store.LaneFilter{Limit: len(counts.Lanes), Now: r.now, DueBy: r.now}
	for _, l := range counts.Lanes {
		f.Keys = append(f.Keys, l.Lane)
	}
	views, err := u.Lanes.Lanes(r.ctx, r.who.project, f)
	if err != nil {
		return err
	}
	for i := range views {
		v := &views[i]
		lane := &waitingLane{Key: v.Key, Link: link("/lanes", "q", v.Key), Open: v.Open, OldestDue: v.OldestDue, Why: v.Why(r.now)}
		if v.EndpointID != "" {
			lane.endpoint = store.EndpointPrefix + v.EndpointID
		}
		p.Lanes = append(p.Lanes, lane)
	}
	// The oldest first; then those of which nothing is due, by how much waits in them.
	slices.SortStableFunc(p.Lanes, func(a, b *waitingLane) int {
		return cmp.Or(cmp.Compare(dueOr(a.OldestDue, r.now), dueOr(b.OldestDue, r.now)), cmp.Compare(b.Open, a.Open))
	})
	p.Lanes = p.Lanes[:min(len(p.Lanes), topLanes)]
	var ids []string
	for _, lane := range p.Lanes {
		ids = append(ids, lane.endpoint)
	}
	labels, err := u.endpointLabels(r, ids)
	for _, lane := range p.Lanes {
		lane.EndpointLabel = labels[lane.endpoint]
	}
	return err
}

// dueOr is a due time that has passed, or now.
func dueOr(due, now int64) int64 {
	if due == 0 || due > now {
		return now
	}
	return due
}

func (u *UI) fillNewest(r *request, p *overviewPage) error {
	newest, err := u.Callbacks.List(r.ctx, r.who.project, store.Filter{Now: r.now, Limit: newestShown})
	if err != nil {
		return err
	}
	for i := range newest.Callbacks {
		p.Newest = append(p.Newest, newRow(&newest.Callbacks[i], r.now))
	}
	return nil
}

// fillProcesses says which processes work, and how the index stands: to the settings' admin key, because they
// are those of all projects. An index that does not answer is no error of the page.
func (u *UI) fillProcesses(r *request, p *overviewPage) error {
	if !r.who.root() {
		return nil
	}
	all, err := u.Index.Dispatchers(r.ctx)
	if err != nil {
		return err
	}
	for i := range all {
		row := &dispatcherRow{Dispatcher: all[i], Gone: r.now-all[i].SeenAt > dispatch.DispatcherSilence.Milliseconds()}
		if !row.Gone {
			p.Alive++
		}
		p.Dispatchers = append(p.Dispatchers, row)
	}
	if p.Index.IndexStatus, err = u.Index.IndexStatus(r.ctx); err != nil {
		return err
	}
	if !p.Index.Down {
		p.Index.Stats, err = u.Index.Stats(r.ctx)
		p.Index.Known = err == nil // it may have gone away in between; the frame says so then
	}
	return nil
}
