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

// Bounds of the page of an endpoint: hours of the charts, rows of the lists.
const (
	endpointHours     = 48
	endpointCallbacks = 20
	endpointAudit     = 20
)

// endpointPage is the page of one endpoint.
type endpointPage struct {
	base
	*endpointRow
	Details     *laneDetails
	Settings    []setting
	SentHeaders []store.Header
}

// A change is an entry of the audit log for an endpoint or its lane.
type change struct {
	store.AuditEntry
	// Parts are the names of the changed fields, as the API names them.
	Parts []string
}

// endpoint is GET /ui/endpoints/{id}. For a deleted endpoint it redirects to the endpoint's callbacks.
func (u *UI) endpoint(r *request) (*response, error) {
	ep, err := load(r, store.EndpointPrefix, u.Store.AnyEndpoint)
	if err != nil {
		return nil, err
	}
	row := newEndpointRow(ep)
	if ep.DeletedAt != 0 {
		return redirect(link("/callbacks", "endpoint", row.FullID))
	}
	p := &endpointPage{base: u.baseTitled(r, "endpoints", row.Label), endpointRow: row}
	if err := u.addLaneStates(r, &p.base, []*endpointRow{row}, endpointHours); err != nil {
		return nil, err
	}
	p.Details = &laneDetails{Kind: "endpoint", States: row.States, Figures: row.Figures, Lane: row.Lane,
		Flight: row.Flight, filter: []string{"endpoint", row.FullID}}
	p.Settings, err = u.settingsOf(r, &p.base, row)
	if err != nil {
		return nil, err
	}
	p.SentHeaders = query.MaskHeaders(ep.Headers)
	// The audit entries for the endpoint's lane and for reads of its secret name the endpoint by its id with
	// the prefix.
	err = u.readLaneDetails(r, &p.base, p.Details, store.Filter{EndpointID: ep.ID}, ep.ID, row.FullID)
	if err != nil {
		return nil, err
	}
	return show("endpoint", p)
}

// historyOf returns the newest audit entries for objects, the newest first.
func (u *UI) historyOf(r *request, objects ...string) ([]change, error) {
	var entries []store.AuditEntry
	for _, object := range objects {
		found, err := u.Store.Audit(r.ctx, r.caller.Project,
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

// changedParts returns the changed fields that the detail of an audit entry names, at most 20.
func changedParts(detail string) []string {
	var d struct {
		Changed []string `json:"changed"`
	}
	if json.Unmarshal([]byte(detail), &d) != nil {
		return nil // the detail of another action may have another form
	}
	return d.Changed[:min(len(d.Changed), 20)]
}

// A laneState is one state of an endpoint or a lane: a block, a failure, "slow", or "ok".
type laneState struct {
	// Code is the code of a control.Block, or failing, slow, idle or ok. Kind is the colour of the badge with
	// Text.
	Code, Kind, Text string
	// Since and Until are Unix milliseconds; zero means unknown. Until is store.Forever for a pause without
	// an end.
	Since, Until int64
	// Explanation is a text of the catalogue, Note a text of an operator. Both may be empty.
	Explanation, Note string
	// Success is the time of the last success, for a state without errors.
	Success int64
	// Cure says what to do. Act is the URL of the form that does it, ActText its label. All may be empty.
	Cure, Act, ActText string
}

// slowFrom is the 95th percentile of the attempts' durations from which an endpoint is slow: a third of the
// default timeout of an attempt.
const slowFrom = 5 * time.Second

// endpointStates returns the states of an endpoint, the most important first. There is always at least one.
func (b *base) endpointStates(row *endpointRow) []laneState {
	var all []laneState
	lane := row.Lane
	if !row.Enabled {
		s := laneState{
			Code: control.BlockEndpointOff, Kind: "bad", Since: row.DisabledAt,
			Act: row.path("enable"), ActText: b.T("endpoint.enable.button"),
		}
		if key := "endpoint.disabled." + row.DisabledReason; b.Has(key) {
			s.Explanation = b.T(key)
		} else {
			s.Note = row.DisabledReason
		}
		all = append(all, s)
	}
	if row.PausedUntil > b.now {
		all = append(all, laneState{
			Code: control.BlockEndpointPaused, Kind: "warn", Since: row.PausedAt, Until: row.PausedUntil,
			Note: row.PauseReason, Act: row.path("resume"), ActText: b.T("endpoint.resume.button"),
		})
	}
	if lane != nil {
		for _, s := range b.laneRow(lane).States {
			// The endpoint's own states are in the list already.
			if s.Code != control.BlockEndpointOff && s.Code != control.BlockEndpointPaused {
				all = append(all, s)
			}
		}
	}
	if row.FailingSince != 0 {
		all = append(all, laneState{Code: "failing", Kind: "bad", Since: row.FailingSince})
	}
	timingOut := lane != nil && lane.State != nil && lane.State.Health == schedule.TimingOut
	if timingOut || row.Figures.p95 >= float64(slowFrom.Milliseconds()) {
		all = append(all, laneState{Code: "slow", Kind: "warn"})
	}
	switch {
	case len(all) > 0:
	case row.LastSuccessAt == 0 && row.LastFailureAt == 0 && row.Figures.Attempts == 0:
		all = append(all, laneState{Code: "idle"})
	default:
		all = append(all, laneState{Code: "ok", Kind: "good", Success: row.LastSuccessAt})
	}
	for i := range all {
		b.addTexts(&all[i])
	}
	return all
}

// blockState returns the state for a block of a lane. The pause's reason is shown only if that pause is the
// one that ends last.
func (b *base) blockState(v *control.LaneView, block control.Block) laneState {
	s := laneState{Code: block.Code, Kind: "warn", Since: block.Since, Until: block.Until}
	switch block.Code {
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
		s.Kind, s.Until = "bad", 0 // any HTTP response closes the breaker, not the time of the next probe
	case control.BlockRate, control.BlockConcurrency:
		s.Kind = "busy"
	}
	b.addTexts(&s)
	return s
}

// addTexts sets the texts of a state in the viewer's language.
func (b *base) addTexts(s *laneState) {
	s.Text = b.T("lanes.held." + s.Code)
	for _, prefix := range []string{"why.cure.", "endpoint.cure."} {
		if b.Has(prefix + s.Code) {
			s.Cure = b.T(prefix + s.Code)
		}
	}
}

// Notes returns the states and their notes in one line, for the title of a cell that may cut them. It is
// empty if one state without a note is all.
func (b *base) Notes(states []laneState) string {
	if len(states) == 0 || len(states) == 1 && states[0].Note == "" {
		return ""
	}
	var parts []string
	for _, s := range states {
		parts = append(parts, strings.TrimSpace(s.Text+" "+s.Note))
	}
	return strings.Join(parts, " · ")
}

// path returns the path of an act on the endpoint.
func (row *endpointRow) path(act string) string { return Root + "/endpoints/" + row.FullID + "/" + act }

// Paused reports whether the endpoint is paused.
func (row *endpointRow) Paused(now int64) bool { return row.PausedUntil > now }

// policyText formats a policy for the form of an endpoint: its name, or the waits of a custom policy.
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

// successText returns the name of a success rule, or the rule as JSON if it has no name.
func successText(s store.Success) string {
	return cmp.Or(s.Name, string(s.Rule))
}

// figures are the statistics of a lane. The sums cover the last 24 hours even if hours covers more.
type figures struct {
	// Attempts counts all ended attempts. Failed includes attempts with an unknown result.
	Attempts, Succeeded, Failed int64
	// Share is the percentage of successful attempts; -1 if there were no attempts.
	Share float64
	// P50 and P95 are percentiles of the attempts' durations; empty if there were no attempts. p95 is in
	// milliseconds.
	P50, P95 string
	p95      float64
	// hours has the activity of each hour, empty hours included. The last one is the current hour.
	hours []store.Activity
	// some is true if any hour has attempts.
	some bool
}

// hoursAgo returns the begin of the first of that many hours. The last one is the current hour.
func hoursAgo(now int64, hours int) int64 {
	return store.Hour.Begin(now) - int64(hours-1)*store.Hour.Milliseconds()
}

// figuresOf computes the figures from the activity rows of one lane.
func (l *language) figuresOf(rows []store.Activity, from int64, hours int) figures {
	f := figures{hours: spansOf(rows, store.Hour.Milliseconds(), from, hours)}
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
	f.P50, _ = l.tookText(&all.Took, 0.5)
	f.P95, f.p95 = l.tookText(&all.Took, 0.95)
	return f
}

// tookText formats the quantile q of the durations and returns it in milliseconds too. "≥" marks a value at
// the histogram's upper bound. Without attempts it returns "" and 0.
func (l *language) tookText(h *store.TookHistogram, q float64) (string, float64) {
	ms := h.Quantile(q)
	if math.IsNaN(ms) {
		return "", 0
	}
	text := l.millis(ms)
	if ms >= store.TookBounds[len(store.TookBounds)-1] {
		text = "≥ " + text
	}
	return text, ms
}

// Spark draws a sparkline of the attempts and the failed attempts of each hour.
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

// chart draws a chart over the hours.
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
		},
		Form: form, Step: time.Hour, Height: 180, Value: value,
	}
	if f.some {
		chart.Times, chart.Series = timesOf(f.hours), series()
	}
	return chart.HTML()
}

// attemptsChart draws the attempts of each hour by outcome.
func (f *figures) attemptsChart(b *base) template.HTML {
	return f.chart(b, "attempts", picture.Bars, whole, func() []picture.Series { return b.outcomes(f.hours) })
}

// tookChart draws the percentiles of the attempts' durations in each hour.
func (f *figures) tookChart(b *base) template.HTML {
	quantiles := func(name string, q float64) picture.Series {
		values := valuesOf(f.hours, func(a *store.Activity) float64 { return a.Took.Quantile(q) })
		return picture.Series{Name: b.T(name), Values: values}
	}
	return f.chart(b, "took", picture.Lines, b.lang.millis, func() []picture.Series {
		return []picture.Series{quantiles("endpoint.p50", 0.5), quantiles("endpoint.p95", 0.95)}
	})
}
