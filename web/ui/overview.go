package ui

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/ui/picture"
)

const (
	// topLanes and newestCallbacks bound the rows of the two lists.
	topLanes, newestCallbacks = 8, 8
	// overdueAfter is how long the oldest callback may be overdue before the page shows a warning.
	overdueAfter = 5 * time.Second
)

// overviewPage is the start page: rates, backlog and health.
type overviewPage struct {
	base
	// AcceptedRate and DeliveredRate are callbacks per second over the last one to two minutes.
	AcceptedRate, DeliveredRate string
	// Share is the percentage of successful attempts in the last hour. It is negative without attempts.
	Share float64
	Due   store.DueNow
	// Late is true if the oldest due callback is overdue by more than overdueAfter.
	Late bool
	Dead int64
	Open int64

	Ranges                         []chip
	Throughput, Attempts, Lateness template.HTML
	Tiers, DueSoon                 template.HTML

	Lanes  []*laneRow
	Newest callbackTable
	installation
}

// overview is GET /ui/.
func (u *UI) overview(r *request) (*response, error) {
	p := &overviewPage{base: u.base(r, "overview", "overview.title")}
	for _, part := range []func(*request, *overviewPage) error{
		u.readRates, u.drawCharts, u.readBacklog, u.readNewest,
	} {
		if err := part(r, p); err != nil {
			return nil, err
		}
	}
	if r.caller.Root() { // all projects share the processes and the index
		var err error
		p.installation, err = u.installation(r)
		if err != nil {
			return nil, err
		}
	}
	return show("overview", p)
}

// readRates sets the current rates and the success share of the last hour.
func (u *UI) readRates(r *request, p *overviewPage) error {
	const span = store.Minute
	begin := span.Begin(r.now) - span.Milliseconds()
	recent, err := u.Store.Activity(r.ctx, r.caller.Project, 0, span, begin-58*span.Milliseconds(), r.now+1)
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
	p.AcceptedRate, p.DeliveredRate = rate(float64(last.Accepted)/seconds),
		rate(float64(last.Succeeded)/seconds)
	p.Share = share(hour.Succeeded, hour.Succeeded+hour.Failed+hour.Unknown)
	return nil
}

// share returns part as a percentage of whole. It is negative if whole is zero.
func share(part, whole int64) float64 {
	if whole <= 0 {
		return -1
	}
	return 100 * float64(part) / float64(whole)
}

// readBacklog sets the numbers of due, dead and open callbacks, their charts and the most delayed lanes.
func (u *UI) readBacklog(r *request, p *overviewPage) error {
	var err error
	p.Due, err = u.Store.DueNow(r.ctx, r.caller.Project, r.now)
	if err != nil {
		return err
	}
	p.Late = p.Due.OldestAt != 0 && r.now-p.Due.OldestAt > overdueAfter.Milliseconds()
	counts, err := u.Store.Counts(r.ctx, r.caller.Project)
	if err != nil {
		return err
	}
	p.Dead, p.Open = counts.States[store.Dead], counts.States[store.Scheduled]
	p.Tiers = p.tiersChart(counts.Tiers)
	hours, err := u.Store.DueHours(r.ctx, r.caller.Project, store.Hour.Begin(r.now),
		r.now+dueHours*store.Hour.Milliseconds())
	if err != nil {
		return err
	}
	p.DueSoon = p.dueChart(hours)
	views, err := u.largestLanes(r, &counts, store.LaneFilter{Now: r.now, DueBy: r.now})
	if err != nil {
		return err
	}
	for i := range views {
		p.Lanes = append(p.Lanes, p.laneRow(&views[i]))
	}
	// Lanes with the oldest due callback come first. Lanes without due callbacks follow, by backlog.
	slices.SortStableFunc(p.Lanes, func(a, b *laneRow) int {
		return cmp.Or(cmp.Compare(dueOr(a.OldestDue, r.now), dueOr(b.OldestDue, r.now)),
			cmp.Compare(b.Open, a.Open))
	})
	p.Lanes = p.Lanes[:min(len(p.Lanes), topLanes)]
	return u.labelLanes(r, p.Lanes)
}

// dueOr returns a due time that has passed, or now.
func dueOr(due, now int64) int64 {
	if due == 0 || due > now {
		return now
	}
	return due
}

func (u *UI) readNewest(r *request, p *overviewPage) error {
	newest, err := u.Store.List(r.ctx, r.caller.Project, store.Filter{Now: r.now, Limit: newestCallbacks})
	if err != nil {
		return err
	}
	p.Newest.Caption = p.T("overview.newest")
	p.Newest.Rows, err = u.callbackRows(r, newest.Callbacks)
	return err
}

// A timeRange is the period of the charts: n spans up to now.
type timeRange struct {
	name string
	span store.Span
	n    int64
}

// timeRanges are the choices. The first is the default.
var timeRanges = [...]timeRange{{"1h", store.Minute, 60}, {"24h", store.Quarter, 96}, {"7d", store.Hour, 168}}

func rangeOf(name string) timeRange {
	return timeRanges[max(slices.IndexFunc(timeRanges[:], func(r timeRange) bool {
		return r.name == name
	}), 0)]
}

// dueHours is the number of hours in the chart of due callbacks, the current one included.
const dueHours = 24

// drawCharts draws the charts of throughput, attempts and lateness.
func (u *UI) drawCharts(r *request, p *overviewPage) error {
	chosen := rangeOf(r.query("range"))
	for _, each := range timeRanges {
		p.Ranges = append(p.Ranges, chip{Text: p.T("range." + each.name), Link: p.With("range", each.name),
			Current: each == chosen})
	}
	length := chosen.span.Milliseconds()
	from := chosen.span.Begin(r.now) - (chosen.n-1)*length
	rows, err := u.Store.Activity(r.ctx, r.caller.Project, 0, chosen.span, from, r.now+1)
	if err != nil {
		return err
	}
	spans := spansOf(rows, chosen.span, from, int(chosen.n))
	// A span that has just begun is omitted: a few events in its first second would show as a high rate.
	if r.now-spans[len(spans)-1].At < length/4 {
		spans = spans[:len(spans)-1]
	}
	times := timesOf(spans)
	axis := p.axis(times[0], time.UnixMilli(r.now))
	perSecond := func(count func(a *store.Activity) int64) []float64 {
		return valuesOf(spans, func(a *store.Activity) float64 {
			return float64(count(a)) / (max(float64(min(length, r.now-a.At)), 1000) / 1000)
		})
	}
	chart := func(
		name string, form picture.Form, value func(float64) string, all ...picture.Series,
	) picture.Chart {
		return picture.Chart{
			Frame: p.quiet(name), TimeAxis: axis, Form: form, Times: times, Step: time.Duration(chosen.span),
			Series: all, Value: value,
		}
	}
	p.Throughput = chart("throughput", picture.Lines, rate,
		picture.Series{Name: p.T("overview.accepted"), Values: perSecond(func(a *store.Activity) int64 {
			return a.Accepted
		}), Fill: true},
		picture.Series{Name: p.T("overview.delivered"), Values: perSecond(func(a *store.Activity) int64 {
			return a.Succeeded
		})},
	).HTML()
	p.Attempts = chart("attempts", picture.Bars, whole, p.outcomes(spans)...).HTML()
	late := func(percent string, q float64) picture.Series {
		values := valuesOf(spans, func(a *store.Activity) float64 { return a.Lateness.Quantile(q) })
		return picture.Series{Name: p.T("chart.percentile", "q", percent), Values: values}
	}
	lateness := chart("lateness", picture.Lines, milliseconds, late("50", .5), late("95", .95),
		late("99", .99))
	lateness.Scale, lateness.Min = picture.Log, 1
	p.Lateness = lateness.HTML()
	return nil
}

// spansOf sums rows into n consecutive spans that begin at from. Spans without rows are zero.
func spansOf(rows []store.Activity, span store.Span, from int64, n int) []store.Activity {
	spans := make([]store.Activity, n)
	for i := range spans {
		spans[i].At = from + int64(i)*span.Milliseconds()
	}
	for i := range rows {
		if at := (rows[i].At - from) / span.Milliseconds(); rows[i].At >= from && at < int64(n) {
			spans[at].Add(&rows[i])
		}
	}
	return spans
}

// timesOf returns the begin of each span.
func timesOf(spans []store.Activity) []time.Time {
	times := make([]time.Time, len(spans))
	for i := range spans {
		times[i] = time.UnixMilli(spans[i].At)
	}
	return times
}

// valuesOf returns a value for each span.
func valuesOf(spans []store.Activity, of func(a *store.Activity) float64) []float64 {
	values := make([]float64, len(spans))
	for i := range spans {
		values[i] = of(&spans[i])
	}
	return values
}

// outcomes returns the series of attempts by outcome.
func (b *base) outcomes(spans []store.Activity) []picture.Series {
	outcome := func(name string, tone picture.Tone, count func(a *store.Activity) int64) picture.Series {
		values := valuesOf(spans, func(a *store.Activity) float64 { return float64(count(a)) })
		return picture.Series{Name: b.T(name), Values: values, Tone: tone}
	}
	return []picture.Series{
		outcome("outcome.succeeded", picture.Good, func(a *store.Activity) int64 { return a.Succeeded }),
		outcome("outcome.failed", picture.Bad, func(a *store.Activity) int64 { return a.Failed }),
		outcome("outcome.unknown", picture.Warn, func(a *store.Activity) int64 { return a.Unknown }),
	}
}

// picture returns the frame of a chart with the texts "chart.NAME" and "chart.NAME.says".
func (b *base) picture(name string) picture.Frame {
	return picture.Frame{ID: "chart-" + name, Title: b.T("chart." + name),
		Desc: b.T("chart." + name + ".says"), NoData: b.T("chart.nodata")}
}

// quiet returns the frame of one of several charts on a page.
func (b *base) quiet(name string) picture.Frame {
	f := b.picture(name)
	f.Quiet = true
	return f
}

// axis returns a time axis in the viewer's zone.
func (b *base) axis(from, to time.Time) picture.TimeAxis {
	return picture.TimeAxis{From: from, To: to, Location: b.zone.Location, Header: b.T("chart.time")}
}

// tiersChart draws the number of scheduled callbacks by the number of their next attempt. It has no waits:
// they depend on the policy.
func (p *overviewPage) tiersChart(tiers map[int]int64) template.HTML {
	usual := len(accept.PaymentPolicy().Tiers)
	c := picture.Categories{Label: p.T("chart.tiers"), NoData: p.T("chart.nodata"), Value: whole}
	for tier := range maxTier {
		if tier > usual && tiers[tier] <= 0 {
			continue
		}
		name := p.T("overview.tier.first")
		if tier > 0 {
			name = p.T("overview.tier", "number", strconv.Itoa(tier+1))
		}
		c.Items = append(c.Items, picture.Category{
			Name: name, Value: float64(tiers[tier]),
			Href: link("/callbacks", "state", "scheduled", "min_attempts", positive(tier)),
		})
	}
	return c.HTML()
}

// maxTier bounds the positions of the chart.
const maxTier = 100

// positive formats a number, zero as "".
func positive(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// dueChart draws the callbacks that are due now and in each of the next hours.
func (p *overviewPage) dueChart(hours []store.DueHour) template.HTML {
	from := store.Hour.Begin(p.now)
	counts := make([]float64, dueHours)
	for _, h := range hours {
		if i := (h.At - from) / store.Hour.Milliseconds(); i >= 0 && i < dueHours {
			counts[i] = float64(h.Count)
		}
	}
	return picture.Chart{
		Frame: p.picture("due"), TimeAxis: p.axis(time.UnixMilli(from), time.Time{}), Form: picture.Bars,
		Step:   time.Hour,
		Times:  timesOf(spansOf(nil, store.Hour, from, dueHours)),
		First:  &picture.Bar{Name: p.T("chart.due.now"), Value: float64(p.Due.Count)},
		Series: []picture.Series{{Name: p.T("chart.due.count"), Values: counts}}, Value: whole,
	}.HTML()
}

// rate formats a rate per second.
func rate(v float64) string {
	switch {
	case math.IsNaN(v) || v <= 0:
		return "0/s"
	case v < 1:
		return fmt.Sprintf("%.2f/s", v)
	case v < 100:
		return fmt.Sprintf("%.1f/s", v)
	}
	return grouped(int64(math.Round(v))) + "/s"
}

// whole formats a count.
func whole(v float64) string { return grouped(int64(math.Round(v))) }
