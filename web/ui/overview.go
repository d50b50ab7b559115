package ui

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/ui/picture"
)

const (
	// topLanes and newestCallbacks bound the rows of the two lists.
	topLanes, newestCallbacks = 6, 5
	// overdueAfter is how long the oldest callback may be overdue before the page shows a warning.
	overdueAfter = 5 * time.Second
)

// overviewPage is the start page: what needs attention, health, rates and backlog.
type overviewPage struct {
	base
	// Attention is what is wrong, with the act that helps. Older links to the callbacks that died before the
	// last hour; zero if there are none.
	Attention []problem
	Older     problemAct
	Figures   []figure
	Due       store.DueNow

	Ranges                        []chip
	Throughput, Attempts, DueSoon template.HTML
	Tiers                         template.HTML

	// Lanes are the largest ones and the held ones. readNewest shortens the list. heldCut is true if there
	// may be more held ones.
	Lanes   []*laneRow
	heldCut bool
	Newest  callbackTable
	installation
}

// A figure is a number with its name. Spark and Link may be empty.
type figure struct {
	Name, Value, Link string
	Spark             template.HTML
}

// overview is GET /ui/.
func (u *UI) overview(r *request) (*response, error) {
	p := &overviewPage{base: u.base(r, "overview", "overview.title")}
	counts, err := u.Store.Counts(r.ctx, r.caller.Project)
	if err != nil {
		return nil, err
	}
	for _, part := range []func(*request, *overviewPage, *store.Counts) error{
		u.readLanesInto, u.readAttention, u.drawCharts, u.readNewest,
	} {
		if err := part(r, p, &counts); err != nil {
			return nil, err
		}
	}
	if r.caller.Root() { // all projects share the processes and the index
		p.installation, err = u.installation(r)
		if err != nil {
			return nil, err
		}
	}
	return show("overview", p)
}

// readRates returns the minutes of the last hour, the oldest first. The present minute is the last.
func (u *UI) readRates(r *request) ([]store.Activity, error) {
	from := store.Minute.Begin(r.now) - 59*store.Minute.Milliseconds()
	rows, err := u.Store.Activity(r.ctx, r.caller.Project, 0, store.Minute, from, r.now+1)
	return spansOf(rows, store.Minute.Milliseconds(), from, 60), err
}

// figuresOfHour sets the figures from the minutes of the last hour. Rates are those of the last one to two
// minutes.
func (p *overviewPage) figuresOfHour(minutes []store.Activity, counts *store.Counts) {
	var last, hour store.Activity
	for i := range minutes {
		hour.Add(&minutes[i])
	}
	recent := minutes[len(minutes)-2:]
	for i := range recent {
		last.Add(&recent[i])
	}
	seconds := float64(p.now-recent[0].At) / 1000
	spark := func(value func(a *store.Activity) float64) template.HTML {
		return picture.Chart{Form: picture.Spark, Width: 64, Height: 20,
			Series: []picture.Series{{Values: valuesOf(minutes[:len(minutes)-1], value)}}}.HTML()
	}
	ofShare := func(a *store.Activity) float64 { return share(a.Succeeded, a.Succeeded+a.Failed+a.Unknown) }
	lag := "–"
	if ms := hour.Lateness.Quantile(.99); !math.IsNaN(ms) {
		lag = p.lang.millis(ms)
	}
	success := "–"
	if percent := ofShare(&hour); percent >= 0 {
		success = fmt.Sprintf("%.1f %%", percent)
	}
	p.Figures = []figure{
		{Name: "overview.accepted", Value: rate(float64(last.Accepted) / seconds),
			Spark: spark(func(a *store.Activity) float64 { return float64(a.Accepted) })},
		{Name: "overview.delivered", Value: rate(float64(last.Succeeded) / seconds),
			Spark: spark(func(a *store.Activity) float64 { return float64(a.Succeeded) })},
		{Name: "overview.share", Value: success, Spark: spark(ofShare)},
		{Name: "overview.lag", Value: lag},
		{Name: "overview.open", Value: grouped(counts.States[store.Scheduled]),
			Link: link("/callbacks", "state", string(store.Scheduled))},
		{Name: "overview.dead", Value: grouped(counts.States[store.Dead]), Link: Root + "/dead"},
	}
}

// share returns part as a percentage of whole. It is negative if whole is zero.
func share(part, whole int64) float64 {
	if whole <= 0 {
		return -1
	}
	return 100 * float64(part) / float64(whole)
}

// readLanesInto sets the most delayed lanes.
func (u *UI) readLanesInto(r *request, p *overviewPage, counts *store.Counts) error {
	held, err := u.Engine.HeldLanes(r.ctx, r.caller.Project)
	if err != nil {
		return err
	}
	p.heldCut = len(held) == control.MaxHeldLanes
	views, err := u.largestLanes(r, counts, store.LaneFilter{Now: r.now, DueBy: r.now, Keys: held})
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
	return u.labelLanes(r, p.Lanes)
}

// dueOr returns a due time that has passed, or now.
func dueOr(due, now int64) int64 {
	if due == 0 || due > now {
		return now
	}
	return due
}

func (u *UI) readNewest(r *request, p *overviewPage, _ *store.Counts) error {
	newest, err := u.Store.List(r.ctx, r.caller.Project, store.Filter{Now: r.now, Limit: newestCallbacks})
	if err != nil {
		return err
	}
	p.Lanes = p.Lanes[:min(len(p.Lanes), topLanes)]
	p.Newest.Caption = p.T("overview.newest")
	p.Newest.Rows, err = u.callbackRows(r, newest.Callbacks)
	return err
}

// A timeRange is the period of the charts: n points up to now. A point covers several spans, so that each of
// the points has the width of a pointer.
type timeRange struct {
	name  string
	span  store.Span
	spans int64
	n     int
}

// length is the time that a point covers, in milliseconds.
func (r timeRange) length() int64 { return r.spans * r.span.Milliseconds() }

// timeRanges are the choices. The first is the default.
var timeRanges = [...]timeRange{
	{"1h", store.Minute, 1, 60}, {"24h", store.Quarter, 2, 48}, {"7d", store.Hour, 3, 56},
}

func rangeOf(name string) timeRange {
	return timeRanges[max(slices.IndexFunc(timeRanges[:], func(r timeRange) bool {
		return r.name == name
	}), 0)]
}

// dueHours is the number of hours in the chart of due callbacks, the current one included.
const dueHours = 24

// chartHeight is the height of the overview's charts in pixels.
const chartHeight = 120

// drawCharts draws the charts of throughput, attempts and due callbacks.
func (u *UI) drawCharts(r *request, p *overviewPage, counts *store.Counts) error {
	p.Tiers = p.tiersChart(counts.Tiers)
	hours, err := u.Store.DueHours(r.ctx, r.caller.Project, store.Hour.Begin(r.now),
		r.now+dueHours*store.Hour.Milliseconds())
	if err != nil {
		return err
	}
	p.DueSoon = p.dueChart(hours)
	chosen := rangeOf(r.query("range"))
	for _, each := range timeRanges {
		p.Ranges = append(p.Ranges, chip{Text: p.T("range." + each.name), Link: p.With("range", each.name),
			Current: each == chosen})
	}
	length := chosen.length()
	from := r.now - r.now%length - int64(chosen.n-1)*length
	rows, err := u.Store.Activity(r.ctx, r.caller.Project, 0, chosen.span, from, r.now+1)
	if err != nil {
		return err
	}
	spans := spansOf(rows, length, from, chosen.n)
	// A span that has just begun is omitted: a few events in its first second would show as a high rate.
	if r.now-spans[len(spans)-1].At < min(length/4, time.Minute.Milliseconds()) {
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
	) template.HTML {
		return picture.Chart{
			Frame: p.picture(name), TimeAxis: axis, Form: form, Times: times,
			Step:   time.Duration(length) * time.Millisecond,
			Series: all, Value: value, Height: chartHeight,
		}.HTML()
	}
	p.Throughput = chart("throughput", picture.Lines, rate,
		picture.Series{Name: p.T("overview.accepted"), Values: perSecond(func(a *store.Activity) int64 {
			return a.Accepted
		}), Fill: true},
		picture.Series{Name: p.T("overview.delivered"), Values: perSecond(func(a *store.Activity) int64 {
			return a.Succeeded
		})},
	)
	p.Attempts = chart("attempts", picture.Bars, whole, p.outcomes(spans)...)
	return nil
}

// spansOf sums rows into n consecutive spans of a length in milliseconds. The first begins at from. Spans
// without rows are zero.
func spansOf(rows []store.Activity, length, from int64, n int) []store.Activity {
	spans := make([]store.Activity, n)
	for i := range spans {
		spans[i].At = from + int64(i)*length
	}
	for i := range rows {
		if at := (rows[i].At - from) / length; rows[i].At >= from && at < int64(n) {
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

// axis returns a time axis in the viewer's zone.
func (b *base) axis(from, to time.Time) picture.TimeAxis {
	return picture.TimeAxis{From: from, To: to, Location: b.zone.Location}
}

// tiersChart draws the number of scheduled callbacks by the number of their next attempt. It has no waits:
// they depend on the policy.
func (p *overviewPage) tiersChart(tiers map[int]int64) template.HTML {
	shown := fewTiers
	for tier := range tiers {
		if tiers[tier] > 0 {
			shown = min(max(shown, tier+1), maxTier)
		}
	}
	c := picture.Categories{Label: p.T("chart.tiers"), NoData: p.T("chart.nodata"), Value: whole}
	for tier := range shown {
		if tier >= fewTiers && tiers[tier] <= 0 {
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

// fewTiers is the number of positions that the chart has at least, maxTier at most.
const fewTiers, maxTier = 5, 100

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
		Frame: p.picture("due"), Height: chartHeight, Form: picture.Bars,
		TimeAxis: p.axis(time.UnixMilli(from), time.Time{}),
		Step:     time.Hour,
		Times:    timesOf(spansOf(nil, store.Hour.Milliseconds(), from, dueHours)),
		First:    &picture.Bar{Name: p.T("chart.due.now"), Value: float64(p.Due.Count)},
		Series:   []picture.Series{{Name: p.T("chart.due.count"), Values: counts}}, Value: whole,
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
