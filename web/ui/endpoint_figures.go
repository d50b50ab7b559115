package ui

import (
	"html/template"
	"math"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/ui/picture"
)

// figures are what happened in a lane: the sums are of the last 24 hours, whatever else there is to draw.
type figures struct {
	// Attempts are all that ended; Failed those that failed or of which nobody knows how they ended.
	Attempts, Succeeded, Failed int64
	// Share is the part of the attempts that succeeded, in percent; -1: there were none.
	Share float64
	// P50 and P95 are what half, and all but a twentieth, of the attempts took at most; empty: there were none.
	P50, P95 string
	p95      float64
	// hours are what happened in each hour, those without anything too; the last one is that which it is now.
	hours []store.Activity
	// some: there were attempts in any of the hours.
	some bool
}

// hoursAgo is when the first of so many hours began, of which the last one is that which it is now.
func hoursAgo(now int64, hours int) int64 {
	return store.Hour.Begin(now) - int64(hours-1)*store.Hour.Milliseconds()
}

// figuresOf sums up the rows of one lane.
func figuresOf(rows []store.Activity, from int64, hours int) figures {
	f := figures{Share: -1, hours: make([]store.Activity, hours)}
	for i := range f.hours {
		f.hours[i].At = from + int64(i)*store.Hour.Milliseconds()
	}
	var all store.Activity
	for i := range rows {
		if n := (rows[i].At - from) / store.Hour.Milliseconds(); rows[i].At >= from && n < int64(hours) {
			f.hours[n].Add(&rows[i])
			f.some = f.some || rows[i].Succeeded+rows[i].Failed+rows[i].Unknown > 0
			if n >= int64(hours-listHours) {
				all.Add(&rows[i])
			}
		}
	}
	f.Succeeded, f.Failed = all.Succeeded, all.Failed+all.Unknown
	if f.Attempts = f.Succeeded + f.Failed; f.Attempts > 0 {
		f.Share = 100 * float64(f.Succeeded) / float64(f.Attempts)
	}
	f.P50, _ = tookText(&all.Took, 0.5)
	f.P95, f.p95 = tookText(&all.Took, 0.95)
	return f
}

// tookText writes what the part q of attempts took at most. What took longer than the histogram knows is said to be so.
func tookText(h *store.TookHistogram, q float64) (string, float64) {
	ms := h.Quantile(q)
	if math.IsNaN(ms) {
		return "", 0
	}
	text := shortMillis(ms)
	if ms >= store.TookBounds[len(store.TookBounds)-1] {
		text = "≥ " + text
	}
	return text, ms
}

// shortMillis writes milliseconds as a length of time, to three digits at most.
func shortMillis(ms float64) string {
	if ms < 10 {
		return shortDuration(time.Duration(math.Round(ms*10)/10*1000) * time.Microsecond)
	}
	return shortDuration(time.Duration(math.Round(ms)) * time.Millisecond)
}

// Spark draws the attempts of each hour, with those that failed.
func (f *figures) Spark() template.HTML {
	s := picture.Spark{Values: make([]float64, len(f.hours)), Failures: make([]float64, len(f.hours)), Width: 120, Height: 26}
	if !f.some {
		return picture.Spark{Width: 120, Height: 26}.HTML()
	}
	for i := range f.hours {
		bad := f.hours[i].Failed + f.hours[i].Unknown
		s.Values[i], s.Failures[i] = float64(f.hours[i].Succeeded+bad), float64(bad)
	}
	return s.HTML()
}

// axis is the axis of the charts of an endpoint.
func (f *figures) axis(b *base) picture.TimeAxis {
	end := f.hours[len(f.hours)-1].At + store.Hour.Milliseconds()
	return picture.TimeAxis{From: time.UnixMilli(f.hours[0].At), To: time.UnixMilli(end), Location: b.zone.Location, Header: b.T("endpoint.chart.hour")}
}

// attemptsChart draws how many attempts ended how in each hour.
func (f *figures) attemptsChart(b *base) template.HTML {
	chart := picture.Bars{
		Frame:    picture.Frame{ID: "attempts", Title: b.T("endpoint.chart.attempts"), Desc: b.T("endpoint.chart.attempts.help"), NoData: b.T("endpoint.chart.none")},
		TimeAxis: f.axis(b), Step: time.Hour, Height: 180,
		Value: func(v float64) string { return b.N(int64(v)) },
	}
	if !f.some {
		return chart.HTML()
	}
	good, bad, unknown := make([]float64, len(f.hours)), make([]float64, len(f.hours)), make([]float64, len(f.hours))
	for i := range f.hours {
		h := &f.hours[i]
		chart.Times = append(chart.Times, time.UnixMilli(h.At))
		good[i], bad[i], unknown[i] = float64(h.Succeeded), float64(h.Failed), float64(h.Unknown)
	}
	chart.Series = []picture.Series{
		{Name: b.T("outcome.succeeded"), Values: good, Tone: picture.Good}, {Name: b.T("outcome.failed"), Values: bad, Tone: picture.Bad},
		{Name: b.T("outcome.unknown"), Values: unknown, Tone: picture.Warn},
	}
	return chart.HTML()
}

// tookChart draws how long the attempts of each hour took.
func (f *figures) tookChart(b *base) template.HTML {
	chart := picture.Lines{
		Frame:    picture.Frame{ID: "took", Title: b.T("endpoint.chart.took"), Desc: b.T("endpoint.chart.took.help"), NoData: b.T("endpoint.chart.none")},
		TimeAxis: f.axis(b), Height: 180, Value: shortMillis,
	}
	if !f.some {
		return chart.HTML()
	}
	half, most := make([]float64, len(f.hours)), make([]float64, len(f.hours))
	for i := range f.hours {
		chart.Times = append(chart.Times, time.UnixMilli(f.hours[i].At))
		half[i], most[i] = f.hours[i].Took.Quantile(0.5), f.hours[i].Took.Quantile(0.95)
	}
	chart.Series = []picture.Series{{Name: b.T("endpoint.p50"), Values: half}, {Name: b.T("endpoint.p95"), Values: most}}
	return chart.HTML()
}
