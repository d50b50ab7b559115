package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// ReportHealth adds what attempts said of endpoints to what is known of them. One that was reported as
// failing and has recovered gets an event. Reports may come late, twice, and from several processes. An
// endpoint that is not there is left out.
func (db *DB) ReportHealth(ctx context.Context, reports []store.EndpointHealth, now int64) error {
	merged := mergeReports(reports)
	for len(merged) > 0 {
		batch := merged[:min(len(merged), db.dialect.maintenanceBatch)]
		merged = merged[len(batch):]
		if err := db.maintain(ctx, func(t *tx) error { return t.reportHealth(batch, now) }); err != nil {
			return fmt.Errorf("report health: %w", err)
		}
	}
	return nil
}

// mergeReports makes one report of those of the same endpoint, and puts them in order.
func mergeReports(reports []store.EndpointHealth) []store.EndpointHealth {
	sorted := slices.SortedStableFunc(slices.Values(reports), func(a, b store.EndpointHealth) int { return cmp.Compare(a.ID, b.ID) })
	var merged []store.EndpointHealth
	for _, h := range sorted {
		if n := len(merged); n > 0 && merged[n-1].ID == h.ID {
			m := &merged[n-1]
			m.SucceededAt, m.FailedAt = max(m.SucceededAt, h.SucceededAt), max(m.FailedAt, h.FailedAt)
			m.FailedFirst = firstAfter(m.SucceededAt, m.FailedFirst, h.FailedFirst, m.FailedAt)
			continue
		}
		merged = append(merged, h)
	}
	return merged
}

// firstAfter is the earliest of the times that is after that one; zero: none is.
func firstAfter(after int64, times ...int64) int64 {
	first := int64(0)
	for _, at := range times {
		if at > after && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

func (t *tx) reportHealth(reports []store.EndpointHealth, now int64) error {
	input, args, _, err := t.input([]column{texts("id", reports, func(h store.EndpointHealth) string { return h.ID })})
	if err != nil {
		return err
	}
	found, err := t.lockEndpoints(`endpoints.id IN (SELECT i.id FROM `+input+`) AND `+endpointIsThere, args...)
	if err != nil {
		return err
	}
	var changed []store.Endpoint
	var recovered []store.EndpointEvent
	for _, e := range found {
		i, ok := slices.BinarySearchFunc(reports, e.ID, func(h store.EndpointHealth, id string) int { return cmp.Compare(h.ID, id) })
		if !ok {
			continue
		}
		before, h := e, reports[i]
		e.LastSuccessAt, e.LastFailureAt = max(e.LastSuccessAt, h.SucceededAt), max(e.LastFailureAt, h.FailedAt)
		e.FailingSince = firstAfter(e.LastSuccessAt, e.FailingSince, h.FailedFirst, e.LastFailureAt)
		if e.FailingSince == 0 {
			e.AlertedAt = 0
		}
		if e.FailingSince == 0 && before.AlertedAt != 0 {
			recovered = append(recovered, store.EndpointEvent{
				Project: e.Project, EndpointID: e.ID, Kind: store.EndpointRecovered,
				At: now, Since: before.FailingSince,
			})
		}
		changed = append(changed, e)
	}
	if err := t.writeHealth(changed); err != nil {
		return err
	}
	return t.addEndpointEvents(recovered)
}

func (t *tx) writeHealth(endpoints []store.Endpoint) error {
	if len(endpoints) == 0 {
		return nil
	}
	input, args, _, err := t.input([]column{
		texts("id", endpoints, func(e store.Endpoint) string { return e.ID }),
		ints("failing", endpoints, func(e store.Endpoint) int64 { return e.FailingSince }),
		ints("alerted", endpoints, func(e store.Endpoint) int64 { return e.AlertedAt }),
		ints("success", endpoints, func(e store.Endpoint) int64 { return e.LastSuccessAt }),
		ints("failure", endpoints, func(e store.Endpoint) int64 { return e.LastFailureAt }),
	})
	if err != nil {
		return err
	}
	if _, err := t.exec(`UPDATE endpoints SET
			failing_since = i.failing,
			alerted_at = i.alerted,
			last_success_at = i.success,
			last_failure_at = i.failure
		FROM `+input+` WHERE endpoints.id = i.id`, args...); err != nil {
		return fmt.Errorf("write health: %w", err)
	}
	return nil
}

// TakeAlerts finds up to limit endpoints, of all projects, that have failed since before failingBefore and of
// which that was not reported after alertedBefore. Each gets an event now, and is returned to one caller.
func (db *DB) TakeAlerts(ctx context.Context, failingBefore, alertedBefore, now int64, limit int) ([]store.Endpoint, error) {
	var failing []store.Endpoint
	err := db.maintain(ctx, func(t *tx) error {
		var err error
		if failing, err = t.lockEndpoints(`endpoints.id IN (SELECT worst.id FROM endpoints AS worst
			WHERE worst.failing_since > 0 AND worst.failing_since < $1 AND worst.alerted_at <= $2 AND worst.deleted_at = 0
			ORDER BY worst.failing_since
			LIMIT $3)`, failingBefore, alertedBefore, limit); err != nil {
			return err
		}
		// Whoever waited for the rows finds them told.
		failing = slices.DeleteFunc(failing, func(e store.Endpoint) bool { return e.FailingSince == 0 || e.AlertedAt > alertedBefore })
		events := make([]store.EndpointEvent, len(failing))
		for i := range failing {
			e := &failing[i]
			e.AlertedAt = now
			events[i] = store.EndpointEvent{
				Project: e.Project, EndpointID: e.ID, Kind: store.EndpointFailing,
				At: now, Since: e.FailingSince,
			}
		}
		if err := t.writeHealth(failing); err != nil {
			return err
		}
		return t.addEndpointEvents(events)
	})
	if err != nil {
		return nil, fmt.Errorf("take alerts: %w", err)
	}
	return failing, nil
}
