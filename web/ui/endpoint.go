package ui

import (
	"cmp"
	"encoding/json"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
	"github.com/seed-ff5a32d8/dispatcher/web/ui/picture"
)

// Bounds of what the page of an endpoint shows.
const (
	endpointHours     = 48
	endpointCallbacks = 20
	endpointAudit     = 20
)

// endpointPage is one endpoint.
type endpointPage struct {
	base
	*endpointRow
	// Attempts and Took are charts.
	Attempts, Took template.HTML
	Policy, Rule   string
	SentHeaders    []store.Header
	Callbacks      []*callbackRow
	History        []change
}

// A change is something that somebody did to an endpoint or a lane.
type change struct {
	store.AuditEntry
	// Parts are the names of what was changed, for programs and people alike.
	Parts []string
}

// endpoint is GET /ui/endpoints/{id}. Of one that was deleted its callbacks are left.
func (u *UI) endpoint(r *request) (*answer, error) {
	ep, err := load(r, store.EndpointPrefix, u.Store.AnyEndpoint)
	if err != nil {
		return nil, err
	}
	row := newEndpointRow(ep)
	if ep.DeletedAt != 0 {
		return redirect(link("/callbacks", "endpoint", row.FullID))
	}
	p := &endpointPage{base: u.baseTitled(r, "endpoints", row.Label), endpointRow: row}
	if err := u.standInto(r, &p.base, []*endpointRow{row}, endpointHours); err != nil {
		return nil, err
	}
	p.Attempts, p.Took = row.Figures.attemptsChart(&p.base), row.Figures.tookChart(&p.base)
	p.Policy, p.Rule = policyText(ep.Policy), successText(ep.Success)
	p.SentHeaders = query.MaskHeaders(ep.Headers)
	newest, err := u.Store.List(r.ctx, r.who.Project,
		store.Filter{EndpointID: ep.ID, Now: r.now, Limit: endpointCallbacks})
	if err != nil {
		return nil, err
	}
	p.Callbacks = newRows(newest.Callbacks, r.now)
	// What was done to its lane, and that its secret was read, is said of the lane, whose key is the id with
	// the prefix.
	p.History, err = u.historyOf(r, ep.ID, row.FullID)
	if err != nil {
		return nil, err
	}
	return show("endpoint", p)
}

// historyOf returns what was last done to objects, the newest first.
func (u *UI) historyOf(r *request, objects ...string) ([]change, error) {
	var entries []store.AuditEntry
	for _, object := range objects {
		found, err := u.Store.Audit(r.ctx, r.who.Project,
			store.AuditFilter{Object: object, Limit: endpointAudit})
		if err != nil {
			return nil, err
		}
		entries = append(entries, found.Entries...)
	}
	slices.SortStableFunc(entries, func(a, b store.AuditEntry) int { return strings.Compare(b.ID, a.ID) })
	var all []change
	for _, e := range entries[:min(len(entries), endpointAudit)] {
		all = append(all, change{e, changedParts(e.Detail)})
	}
	return all, nil
}

// changedParts reads which fields an entry of the audit says were changed; none, where it does not say.
func changedParts(detail string) []string {
	var d struct {
		Changed []string `json:"changed"`
	}
	if json.Unmarshal([]byte(detail), &d) != nil {
		// the details of other actions are other objects, and a page without them says what was done all the
		// same
		return nil
	}
	return d.Changed[:min(len(d.Changed), 20)]
}

// A standing is one thing that is so of an endpoint or a lane: what holds it, that it fails, that all is
// well.
type standing struct {
	// Code is dispatch's word where that has one. Kind is the colour of the badge that says Text.
	Code, Kind, Text string
	// Since and Until are moments, zero: not known. Forever: until somebody ends it.
	Since, Until int64
	// Word is more of it in our words, Note what somebody wrote of it.
	Word, Note string
	// Cure says what can be done about it, and Act is the address of the form that does it, which ActText
	// names. Empty: there is none.
	Cure, Act, ActText string
}

// slowFrom is how long the slowest twentieth of the attempts may take before an endpoint is called slow: a
// third of the time that an attempt mostly has.
const slowFrom = 5 * time.Second

// standings says how an endpoint stands, the most important first. There is always at least one.
func (b *base) standings(row *endpointRow) []standing {
	var all []standing
	lane := row.Lane
	if !row.Enabled {
		s := standing{
			Code: control.BlockEndpointOff, Kind: "bad", Since: row.DisabledAt,
			Act: row.path("enable"), ActText: b.T("endpoint.enable.button"),
		}
		if key := "endpoint.disabled." + row.DisabledReason; b.Has(key) {
			s.Word = b.T(key)
		} else {
			s.Note = row.DisabledReason
		}
		all = append(all, s)
	}
	if row.PausedUntil > b.now {
		all = append(all, standing{
			Code: control.BlockEndpointPaused, Kind: "warn", Since: row.PausedAt, Until: row.PausedUntil,
			Note: row.PauseReason, Act: row.path("resume"), ActText: b.T("endpoint.resume.button"),
		})
	}
	if lane != nil {
		for _, s := range b.laneRow(lane).Standings {
			// which are the endpoint's own
			if s.Code != control.BlockEndpointOff && s.Code != control.BlockEndpointPaused {
				all = append(all, s)
			}
		}
	}
	if row.FailingSince != 0 {
		all = append(all, standing{Code: "failing", Kind: "bad", Since: row.FailingSince})
	}
	if lane != nil && lane.State != nil && lane.State.Health == schedule.TimingOut ||
		row.Figures.p95 >= float64(slowFrom.Milliseconds()) {
		all = append(all, standing{Code: "slow", Kind: "warn"})
	}
	switch {
	case len(all) > 0:
	case row.LastSuccessAt == 0 && row.LastFailureAt == 0 && row.Figures.Attempts == 0:
		all = append(all, standing{Code: "idle"})
	default:
		all = append(all, standing{Code: "ok", Kind: "good"})
	}
	for i := range all {
		b.word(&all[i])
	}
	return all
}

// laneStanding says what holds a lane, by the word that dispatch has for it.
func (b *base) laneStanding(v *control.LaneView, hold control.Block) standing {
	s := standing{Code: hold.Code, Kind: "warn", Since: hold.Since, Until: hold.Until}
	switch hold.Code {
	case control.BlockLanePaused:
		s.Act, s.ActText = link("/lanes/resume", "key", v.Key), b.T("lanes.resume.button")
		if v.PausedUntil == v.OwnPause {
			s.Note = v.PauseReason
		}
	case control.BlockEndpointPaused:
		if v.PausedUntil == v.EndpointPause {
			s.Note = v.PauseReason
		}
	case control.BlockProjectPaused:
		s.Act, s.ActText = link("/system/resume"), b.T("banner.resume")
	case control.BlockEndpointOff, control.BlockSQLDown, control.BlockNoWorker,
		control.BlockIndexUnanswered:
		s.Kind = "bad"
	case control.BlockBreakerOpen:
		s.Kind, s.Until = "bad", 0 // it ends with an answer, not with its next probe
	case control.BlockRate, control.BlockConcurrency:
		s.Kind = "busy"
	}
	b.word(&s)
	return s
}

// word puts a standing into the viewer's words.
func (b *base) word(s *standing) {
	s.Text = b.T("lanes.held." + s.Code)
	for _, prefix := range []string{"why.cure.", "endpoint.cure."} {
		if b.Has(prefix + s.Code) {
			s.Cure = b.T(prefix + s.Code)
		}
	}
}

// path is the address of an act on the endpoint.
func (row *endpointRow) path(act string) string { return Root + "/endpoints/" + row.FullID + "/" + act }

// Flight is how many attempts it has in flight, and may have at present; empty: that is not known.
func (row *endpointRow) Flight() string { return flightText(row.Lane) }

// Limit is how many attempts it may ever have in flight; zero: that is not known.
func (row *endpointRow) Limit() int { return flightLimit(row.Lane) }

// Paused says whether somebody has paused it.
func (row *endpointRow) Paused(now int64) bool { return row.PausedUntil > now }

// policyText writes a policy as the form of an endpoint takes it: by its name, or the waits of one given
// whole.
func policyText(p store.PolicyChoice) string {
	if p.Given == nil {
		return p.Name
	}
	if len(p.Given.Tiers) == 0 {
		return "[]"
	}
	text := ""
	for i, wait := range p.Given.Tiers {
		if i > 0 {
			text += " "
		}
		text += schedule.FormatDuration(wait)
	}
	return text
}

// successText writes a success rule by its name, or the rule itself.
func successText(s store.Success) string {
	return cmp.Or(s.Name, string(s.Rule))
}

// figures are what happened in a lane: the sums are of the last 24 hours, whatever else there is to draw.
type figures struct {
	// Attempts are all that ended; Failed those that failed or whose end is unknown.
	Attempts, Succeeded, Failed int64
	// Share is the part of the attempts that succeeded, in percent; -1: there were none.
	Share float64
	// P50 and P95 are what half, and all but a twentieth, of the attempts took at most; empty: there were
	// none.
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
	f := figures{hours: spansOf(rows, store.Hour, from, hours)}
	var all store.Activity
	for i := range f.hours {
		f.some = f.some || f.hours[i].Succeeded+f.hours[i].Failed+f.hours[i].Unknown > 0
		if i >= hours-listHours {
			all.Add(&f.hours[i])
		}
	}
	f.Succeeded, f.Failed = all.Succeeded, all.Failed+all.Unknown
	f.Attempts = f.Succeeded + f.Failed
	f.Share = share(f.Succeeded, f.Attempts)
	f.P50, _ = tookText(&all.Took, 0.5)
	f.P95, f.p95 = tookText(&all.Took, 0.95)
	return f
}

// tookText writes what the part q of attempts took at most. What took longer than the histogram knows is said
// to be so.
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
	s := picture.Chart{Form: picture.Spark, Width: 120, Height: 26}
	if f.some {
		s.Series = []picture.Series{
			{Values: valuesOf(f.hours, func(a *store.Activity) float64 {
				return float64(a.Succeeded + a.Failed + a.Unknown)
			})},
			{Values: valuesOf(f.hours, func(a *store.Activity) float64 {
				return float64(a.Failed + a.Unknown)
			})},
		}
	}
	return s.HTML()
}

// chart draws what happened in each hour.
func (f *figures) chart(
	b *base, name string, form picture.Form, value func(float64) string, series func() []picture.Series,
) template.HTML {
	end := f.hours[len(f.hours)-1].At + store.Hour.Milliseconds()
	key := "endpoint.chart." + name
	chart := picture.Chart{
		Frame: picture.Frame{ID: name, Title: b.T(key), Desc: b.T(key + ".help"),
			NoData: b.T("endpoint.chart.none")},
		TimeAxis: picture.TimeAxis{
			From: time.UnixMilli(f.hours[0].At), To: time.UnixMilli(end), Location: b.zone.Location,
			Header: b.T("endpoint.chart.hour"),
		},
		Form: form, Step: time.Hour, Height: 180, Value: value,
	}
	if f.some {
		chart.Times, chart.Series = timesOf(f.hours), series()
	}
	return chart.HTML()
}

// attemptsChart draws how many attempts ended how in each hour.
func (f *figures) attemptsChart(b *base) template.HTML {
	return f.chart(b, "attempts", picture.Bars, whole, func() []picture.Series { return b.outcomes(f.hours) })
}

// tookChart draws how long the attempts of each hour took.
func (f *figures) tookChart(b *base) template.HTML {
	took := func(name string, q float64) picture.Series {
		values := valuesOf(f.hours, func(a *store.Activity) float64 { return a.Took.Quantile(q) })
		return picture.Series{Name: b.T(name), Values: values}
	}
	return f.chart(b, "took", picture.Lines, shortMillis, func() []picture.Series {
		return []picture.Series{took("endpoint.p50", 0.5), took("endpoint.p95", 0.95)}
	})
}
