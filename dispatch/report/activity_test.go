package report

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// in returns the accepted callbacks in rows of projects and in rows of lanes, of a span.
func in(rows []store.Activity, span store.Span) (projects, lanes int64) {
	for i := range rows {
		switch r := &rows[i]; {
		case r.LaneID != 0:
			lanes += r.Accepted
		case r.Span == span:
			projects += r.Accepted
		}
	}
	return projects, lanes
}

// accepts returns n callbacks of a project, each in its own lane.
func accepts(project string, n int, first int64) []store.Accepted {
	list := make([]store.Accepted, n)
	for i := range list {
		list[i].Callback = store.Callback{Project: project, LaneID: first + int64(i)}
	}
	return list
}

// The buffer is bounded, however many lanes there are and however long SQL fails, and projects come before
// lanes.
func TestActivityIsBounded(t *testing.T) {
	t.Parallel()
	b, hour := newActivityBuffer(), time.Hour.Milliseconds()
	b.accepted(accepts("crowded", maxActivity+500, 1), hour)
	if b.size() != maxActivity {
		t.Errorf("%d rows wait, want %d", b.size(), maxActivity)
	}
	for i := range 100 { // each needs a row and replaces that of a lane
		b.accepted(accepts(fmt.Sprint("project-", i), 1, int64(1_000_000+i)), hour)
	}
	if b.size() != maxActivity {
		t.Errorf("%d rows wait, want %d", b.size(), maxActivity)
	}
	rows, dropped := b.drain()
	projects, lanes := in(rows, store.Hour)
	if projects != maxActivity+600 || lanes != maxActivity-101 || lanes+dropped != projects {
		t.Errorf("%d counted by project, %d by lane, %d dropped", projects, lanes, dropped)
	}
	b.accepted(accepts("crowded", 10, 1), hour)
	b.restore(rows)
	if b.size() > maxActivity {
		t.Errorf("%d rows wait after a failure, want at most %d", b.size(), maxActivity)
	}
	rows, _ = b.drain()
	for _, span := range store.Spans {
		if counted, _ := in(rows, span); counted != projects+10 {
			t.Errorf("%s: %d after a failure, want %d", time.Duration(span), counted, projects+10)
		}
	}
	for i := 1; i < len(rows); i++ {
		if rows[i-1].LaneID > 0 && rows[i].LaneID == 0 {
			t.Fatal("a project comes after a lane: a failed write would lose the project first")
		}
	}
	if rows, dropped := b.drain(); len(rows) != 0 || dropped != 0 {
		t.Errorf("%d rows and %d dropped in an empty buffer", len(rows), dropped)
	}
	for i := range int64(maxActivity + 100) { // the rows of one project are bounded as well
		b.accepted(accepts("crowded", 1, 1), i*store.Minute.Milliseconds())
	}
	if b.size() > maxActivity {
		t.Errorf("%d rows wait, want at most %d", b.size(), maxActivity)
	}
}

// After a write that failed in part nothing is lost and no row is written twice. Spans that began before the
// failure continue.
func TestActivityThatWasWrittenInPart(t *testing.T) {
	t.Parallel()
	b := newActivityBuffer()
	at := time.Date(2026, 1, 1, 10, 59, 0, 0, time.UTC).UnixMilli()
	b.accepted(accepts("default", 3, 1), at)
	b.accepted(accepts("default", 2, 1), at+60_000)
	rows, _ := b.drain()
	b.restore(rows[2:])
	b.accepted(accepts("default", 1, 1), at+60_000)
	later, _ := b.drain()
	sum := make(map[string]int64)
	for _, r := range append(rows[:2], later...) {
		sum[fmt.Sprint(r.LaneID, " ", time.Duration(r.Span), " ",
			time.UnixMilli(r.At).UTC().Format("15:04"))] += r.Accepted
	}
	want := map[string]int64{
		"0 1m0s 10:59": 3, "0 1m0s 11:00": 3, "0 15m0s 10:45": 3, "0 15m0s 11:00": 3, "0 1h0m0s 10:00": 3,
		"0 1h0m0s 11:00": 3,
		"1 1h0m0s 10:00": 1, "2 1h0m0s 10:00": 1, "3 1h0m0s 10:00": 1, "1 1h0m0s 11:00": 2,
		"2 1h0m0s 11:00": 1,
	}
	if fmt.Sprint(sum) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", sum, want)
	}
}

// Results without effect are not counted: stale ones, failed ones, and ones without an attempt.
func TestActivityOfWhatHadNoEffect(t *testing.T) {
	t.Parallel()
	b := newActivityBuffer()
	result := func(a *store.Attempt) store.Result {
		return store.Result{Attempt: a, Stamped: &store.Stamped{
			Callback: store.Callback{Project: "default", LaneID: 7}}}
	}
	made := &store.Attempt{Outcome: store.AttemptFailed, Trigger: store.BySchedule, EndedAt: 1}
	b.settled([]store.Result{result(made), result(made), result(made), result(nil), result(nil)},
		[]store.Committed{
			{Won: false, State: store.Dead}, {Err: errors.New("no")}, {Won: true, State: store.Scheduled},
			{Won: true, State: store.Scheduled},
			{Won: true, State: store.Dead, Reason: store.Expired},
		}, 2)
	b.accepted([]store.Accepted{{Replayed: true}, {Err: errors.New("no")}}, 2)
	rows, _ := b.drain()
	for i := range rows {
		if r := &rows[i]; r.Project != "default" || r.Accepted != 0 || r.Failed != 1 || r.Dead != 1 ||
			r.Succeeded != 0 || r.Unknown != 0 {
			t.Errorf("%+v", r)
		}
	}
	if len(rows) != len(store.Spans)+1 {
		t.Errorf("%d rows", len(rows))
	}
}

// A row that expired counts as what it ended: an expired poll has no final result, and a row that was
// canceled or returned to its success is not dead.
func TestExpiredRowsCountAsWhatTheyEnded(t *testing.T) {
	t.Parallel()
	c := NewCounts(process.Metrics{})
	row := func(kind store.Kind, state store.State, reason store.Reason) store.EndedRow {
		return store.EndedRow{OpenRow: store.OpenRow{Project: "default", LaneID: 7}, Kind: kind,
			State: state, Reason: reason}
	}
	rows := []store.EndedRow{
		row(store.Notify, store.Dead, store.Expired), row(store.Poll, store.Dead, store.Expired),
		row(store.Poll, store.Dead, store.Unresolved), row(store.Poll, store.Canceled, store.Requested),
		row(store.Notify, store.Succeeded, ""),
	}
	c.Expired(rows, 1)
	counted, _ := c.activity.drain()
	for i := range counted {
		if r := &counted[i]; r.Dead != 3 || r.Unresolved != 2 {
			t.Errorf("%+v", r)
		}
	}
	if len(counted) != len(store.Spans)+1 {
		t.Errorf("%d rows", len(counted))
	}
	for series, want := range map[[2]string]float64{
		{"dead", "expired"}: 2, {"dead", "unresolved"}: 1, {"canceled", "requested"}: 1, {"succeeded", ""}: 1,
	} {
		if n := testutil.ToFloat64(c.metrics.terminal.WithLabelValues(series[0], series[1])); n != want {
			t.Errorf("%v: %v, want %v", series, n, want)
		}
	}
}
