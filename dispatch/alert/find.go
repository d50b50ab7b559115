package alert

import (
	"context"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// clearShare is the part of a threshold below which a value ends a firing. Between the two a firing stays
	// as it is, so that a value near the threshold does not fire again and again.
	clearShare = 0.8
	// maxLanes, maxEndpoints and maxSchedules bound what one query of an evaluation reads.
	maxLanes     = 1000
	maxEndpoints = 10_000
	maxSchedules = maxInstances
)

// A round is one run of EvaluateAlerts.
type round struct {
	as    *Alerts
	now   int64
	sinks map[int64]bool
	// walked: the walk over overdue callbacks was continued in this round, with this error.
	walked  bool
	walkErr error
}

// A projectView reads what the alerts of one project watch, each part at most once in a round.
type projectView struct {
	*round
	project string
	minutes []store.Activity
	totals  []store.EndpointTotal
	sources []store.RelaySource
	read    struct{ minutes, totals, sources bool }
}

// find returns what breaks the condition of an alert, or nearly does.
func (v *projectView) find(ctx context.Context, a *store.Alert) ([]finding, error) {
	switch w := &a.When; w.Kind {
	case store.AlertOldestDue:
		return v.oldestDue(ctx, w)
	case store.AlertDeadRate:
		return v.deadRate(ctx, w)
	case store.AlertEndpointSuccess:
		return v.endpointSuccess(ctx, w)
	case store.AlertBreakerOpen:
		return v.breakerOpen(ctx, w)
	case store.AlertPollUnresolved:
		return v.pollUnresolved(ctx, w)
	case store.AlertScheduleLate:
		return v.scheduleLate(ctx, w)
	case store.AlertReconcile:
		return v.reconcile(ctx)
	case store.AlertRelayLag, store.AlertRelayRefused:
		return v.relay(ctx, w)
	}
	return nil, nil
}

const (
	// reconcileWindow is how long a bad report is a finding. Then the alert ends, also without a good report.
	reconcileWindow = 7 * 24 * time.Hour
	// maxReports is how many reports an evaluation reads: those that a process makes up after an outage, and
	// those of the days since.
	maxReports = 40
	// lateRun begins the instance of a daily run that is late. The others are days.
	lateRun = "late "
)

// The values of a reconciliation without missing callbacks: the expected list was not submitted, rows are
// lost, or the run failed or is late.
const (
	noList     = -1
	unbalanced = -2
	notRun     = -3
)

// reconcile looks for days whose last report is bad, each until it is compared again and good, and for a
// daily run that is late.
func (v *projectView) reconcile(ctx context.Context) ([]finding, error) {
	reports, err := v.as.o.Store.ReconcileReports(ctx, v.project, "", maxReports)
	if err != nil {
		return nil, err
	}
	var found []finding
	for i := range reports {
		r := &reports[i]
		if len(r.Wrong()) == 0 || r.RunAt < v.now-reconcileWindow.Milliseconds() {
			continue
		}
		f := finding{instance: r.Day, name: r.Day, value: float64(r.Missing)}
		switch {
		case r.Missing > 0:
		case r.ExpectList && !r.ListGiven:
			f.value = noList
		default:
			f.value = unbalanced
		}
		found = append(found, f)
	}
	p, err := v.as.o.Store.Project(ctx, v.project)
	if err != nil {
		return nil, err
	}
	if day := p.LateReconcile(v.now); day != "" {
		found = append(found, finding{instance: lateRun + day, name: day, value: notRun})
	}
	return found, nil
}

// above compares a value with a threshold. A value at the threshold breaks the condition if at is set.
func above(instance, name string, value, threshold float64, at bool) []finding {
	f := finding{instance: instance, name: name, value: value}
	switch {
	case value > threshold || at && value == threshold:
	case value > threshold*clearShare:
		f.near = true
	default:
		return nil
	}
	return []finding{f}
}

// oldestDue looks for callbacks that have been due for too long. Lanes that a person paused are left out, and
// a stop of all sending leaves the alert as it is.
func (v *projectView) oldestDue(ctx context.Context, w *store.AlertWhen) ([]finding, error) {
	if !v.walked {
		v.walked, v.walkErr = true, v.as.overdue.advance(ctx, v.as.o.Store, v.round)
	}
	if v.walkErr != nil {
		return nil, v.walkErr
	}
	if v.as.overdue.stoppedAt == v.now {
		return []finding{{name: w.Lane, near: true}}, nil
	}
	oldest := v.as.overdue.oldest(v.project, w.Lane)
	if oldest == 0 {
		return nil, nil
	}
	return above("", w.Lane, float64(v.now-oldest), float64(w.Above), false), nil
}

// readMinutes reads the activity of the project in the last two hours.
func (v *projectView) readMinutes(ctx context.Context) error {
	if v.read.minutes {
		return nil
	}
	from := store.Minute.Begin(v.now - maxWindow.Milliseconds())
	to := v.now + store.Minute.Milliseconds()
	rows, err := v.as.o.Store.Activity(ctx, v.project, 0, store.Minute, from, to)
	v.minutes, v.read.minutes = rows, err == nil
	return err
}

// deadRate counts dead callbacks in this minute and in the last one; the larger number counts.
func (v *projectView) deadRate(ctx context.Context, w *store.AlertWhen) ([]finding, error) {
	if err := v.readMinutes(ctx); err != nil {
		return nil, err
	}
	var most int64
	for i := range v.minutes {
		if m := &v.minutes[i]; m.At >= store.Minute.Begin(v.now)-store.Minute.Milliseconds() {
			most = max(most, m.Dead)
		}
	}
	return above("", "", float64(most), float64(w.Above), true), nil
}

// pollUnresolved counts polls that ended without a final result.
func (v *projectView) pollUnresolved(ctx context.Context, w *store.AlertWhen) ([]finding, error) {
	if err := v.readMinutes(ctx); err != nil {
		return nil, err
	}
	var sum int64
	for i := range v.minutes {
		if m := &v.minutes[i]; m.At > v.now-w.Window.Milliseconds()-store.Minute.Milliseconds() {
			sum += m.Unresolved
		}
	}
	return above("", "", float64(sum), float64(w.Above), false), nil
}

// brokenLanes returns the lanes of the project with open callbacks whose breaker is open.
func (v *projectView) brokenLanes(ctx context.Context) ([]store.Lane, error) {
	open, err := v.as.o.Index.OpenBreakers(ctx)
	if err != nil || len(open) == 0 {
		return nil, err
	}
	// At that time no lane is paused any more, so only those with an open breaker are found.
	keys, err := v.as.o.Store.HeldLanes(ctx, v.project, open, store.Forever, maxLanes)
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	return v.as.o.Store.LanesByKey(ctx, v.project, keys)
}

// breakerOpen asks the index since when the breakers of lanes are open.
func (v *projectView) breakerOpen(ctx context.Context, w *store.AlertWhen) ([]finding, error) {
	var lanes []store.Lane
	var err error
	if w.Lane != "" {
		lanes, err = v.as.o.Store.LanesByKey(ctx, v.project, []string{w.Lane})
	} else {
		lanes, err = v.brokenLanes(ctx)
	}
	if err != nil || len(lanes) == 0 {
		return nil, err
	}
	byID, ids := make(map[int64]*store.Lane), make([]int64, 0, len(lanes))
	for i := range lanes {
		if l := &lanes[i]; !v.sinks[l.ID] {
			byID[l.ID], ids = l, append(ids, l.ID)
		}
	}
	_, states, err := v.as.o.Index.AskIndex(ctx, nil, ids)
	if err != nil {
		return nil, err
	}
	var found []finding
	var endpoints []string
	for i := range states {
		s, l := &states[i], byID[states[i].Lane]
		if l == nil || s.Breaker == schedule.BreakerClosed || s.OpenedAt == 0 {
			continue
		}
		name, open := strings.TrimPrefix(l.Key, v.project+"+"), float64(v.now-s.OpenedAt)
		found = append(found, above(l.Key, name, open, float64(w.Above), false)...)
		if l.EndpointID != "" {
			endpoints = append(endpoints, l.EndpointID)
		}
	}
	return found, v.nameLanes(ctx, found, endpoints)
}

// nameLanes gives lanes of endpoints the names of these.
func (v *projectView) nameLanes(ctx context.Context, found []finding, ids []string) error {
	if len(ids) == 0 || len(found) == 0 {
		return nil
	}
	endpoints, err := v.as.o.Store.EndpointsByID(ctx, ids)
	if err != nil {
		return err
	}
	for i := range found {
		for k := range endpoints {
			if e := &endpoints[k]; found[i].instance == e.LaneKey() {
				found[i].name = e.Title()
			}
		}
	}
	return nil
}

// neverRan is the value of a schedule whose last run created no callback.
const neverRan = -1

// scheduleLate looks for schedules that are late, or whose last run created no callback.
func (v *projectView) scheduleLate(ctx context.Context, w *store.AlertWhen) ([]finding, error) {
	before := v.now - int64(float64(w.Above)*clearShare)
	late, err := v.as.o.Store.LateSchedules(ctx, v.project, before, maxSchedules)
	if err != nil {
		return nil, err
	}
	var found []finding
	for i := range late {
		s := &late[i]
		switch {
		case w.Schedule != "" && w.Schedule != s.ID:
		case s.NextAt > 0 && s.NextAt < before:
			found = append(found, above(s.ID, s.Name, float64(v.now-s.NextAt), float64(w.Above), false)...)
		case s.LastError != "":
			found = append(found, finding{instance: s.ID, name: s.Name, value: neverRan})
		}
	}
	return found, nil
}

// relay looks for outbox sources that lag, or that have refused rows.
func (v *projectView) relay(ctx context.Context, w *store.AlertWhen) ([]finding, error) {
	if !v.read.sources {
		sources, err := v.as.o.Store.RelaySources(ctx, v.project)
		if err != nil {
			return nil, err
		}
		v.sources, v.read.sources = sources, true
	}
	var found []finding
	for i := range v.sources {
		s := &v.sources[i]
		value := float64(s.Report.RefusedRows)
		if w.Kind == store.AlertRelayLag {
			value = float64(s.LagMs(v.now))
		}
		found = append(found, above(s.Name, s.Name, value, float64(w.Above), false)...)
	}
	return found, nil
}
