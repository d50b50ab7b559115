package alert

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A reconcileStore has reports and a project.
type reconcileStore struct {
	Store
	reports []store.ReconcileReport
	project store.Project
}

func (s *reconcileStore) ReconcileReports(_ context.Context, _, _ string, limit int) (
	[]store.ReconcileReport, error) {
	return s.reports[:min(len(s.reports), limit)], nil
}

func (s *reconcileStore) Project(context.Context, string) (store.Project, error) {
	return s.project, nil
}

// Each bad day is a finding of its own until it is compared again and good, or a week has passed. A later
// good day hides none, and a run that is late is one, too.
func TestEachBadDayIsAFinding(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 20, 3, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }
	const day = 24 * time.Hour
	s := &reconcileStore{reports: []store.ReconcileReport{
		{Day: "2026-01-19", RunAt: ago(time.Hour)},
		{Day: "2026-01-18", RunAt: ago(day), ListGiven: true, Missing: 3},
		{Day: "2026-01-17", RunAt: ago(time.Hour), ListGiven: true}, // compared again
		{Day: "2026-01-16", RunAt: ago(4 * day), ExpectList: true},
		{Day: "2026-01-15", RunAt: ago(5 * day), Books: store.Reconciliation{Accepted: 2, Open: 1}},
		{Day: "2026-01-11", RunAt: ago(8 * day), ExpectList: true},
		{Day: "2025-12-28", RunAt: ago(time.Hour), ExpectList: true}, // made up after an outage
	}}
	find := func() (all []finding) {
		t.Helper()
		v := projectView{round: &round{as: &Alerts{o: Options{Store: s}}, now: now.UnixMilli()}}
		all, err := v.reconcile(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	bad := []finding{
		{instance: "2026-01-18", name: "2026-01-18", value: 3},
		{instance: "2026-01-16", name: "2026-01-16", value: noList},
		{instance: "2026-01-15", name: "2026-01-15", value: unbalanced},
		{instance: "2025-12-28", name: "2025-12-28", value: noList},
	}
	if got := find(); !slices.Equal(got, bad) {
		t.Errorf("found %+v, want %+v", got, bad)
	}
	// The run of the 19th was due at 02:00 in Shanghai on the 20th.
	s.project = store.Project{Reconcile: store.Reconciling{At: "02:00", Timezone: "Asia/Shanghai"},
		ReconcileNext: time.Date(2026, 1, 19, 18, 0, 0, 0, time.UTC).UnixMilli()}
	want := append(bad, finding{instance: "late 2026-01-19", name: "2026-01-19", value: notRun})
	if got := find(); !slices.Equal(got, want) {
		t.Errorf("with a late run: %+v, want %+v", got, want)
	}
	s.project.ReconcileNext = ago(20 * time.Minute)
	if got := find(); !slices.Equal(got, bad) {
		t.Errorf("with a run that has just begun: %+v, want %+v", got, bad)
	}
}
