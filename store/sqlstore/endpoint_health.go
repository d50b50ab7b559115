package sqlstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// ReportHealth adds the results of attempts to the health of endpoints. An endpoint that was reported as
// failing and has recovered gets an event. Reports may come late, twice or from several processes: the later
// time always wins. An endpoint that does not exist is left out.
func (db *DB) ReportHealth(ctx context.Context, reports []store.EndpointHealth, now int64) error {
	return inParts(ctx, db, "report health", mergeReports(reports),
		func(t *tx, part []store.EndpointHealth) error {
			return t.reportHealth(part, now)
		})
}

// mergeReports combines the reports of one endpoint into one, and sorts them by id.
func mergeReports(reports []store.EndpointHealth) []store.EndpointHealth {
	byID := func(a, b store.EndpointHealth) int { return cmp.Compare(a.ID, b.ID) }
	return merged(reports, byID, func(m, h *store.EndpointHealth) {
		m.SucceededAt, m.FailedAt = max(m.SucceededAt, h.SucceededAt), max(m.FailedAt, h.FailedAt)
		m.FailedFirst = firstAfter(m.SucceededAt, m.FailedFirst, h.FailedFirst, m.FailedAt)
		m.Succeeded, m.Failed = m.Succeeded+h.Succeeded, m.Failed+h.Failed
	})
}

// firstAfter returns the earliest of the times that lies after the given one, or zero if none does.
func firstAfter(after int64, times ...int64) int64 {
	first := int64(0)
	for _, at := range times {
		if at > after && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// reportHealth locks the endpoints in the order of their ids and updates their health in one transaction,
// with events for those that recovered. FailingSince is the first known failure after the last success, or
// zero. So reports may arrive in any order.
func (t *tx) reportHealth(reports []store.EndpointHealth, now int64) error {
	byID := make(map[string]*store.EndpointHealth, len(reports))
	for i := range reports {
		byID[reports[i].ID] = &reports[i]
	}
	found, err := t.lockEndpoints(`endpoints.id IN (SELECT i.id FROM $i) AND `+endpointExists,
		sqldb.Texts("id", sortedKeys(byID)))
	if err != nil {
		return err
	}
	var recovered []store.EndpointEvent
	for i := range found {
		e := &found[i]
		h, since := byID[e.ID], e.FailingSince
		e.LastSuccessAt = max(e.LastSuccessAt, h.SucceededAt)
		e.LastFailureAt = max(e.LastFailureAt, h.FailedAt)
		e.Succeeded, e.Failed = e.Succeeded+h.Succeeded, e.Failed+h.Failed
		e.FailingSince = firstAfter(e.LastSuccessAt, e.FailingSince, h.FailedFirst, e.LastFailureAt)
		if e.FailingSince != 0 {
			continue
		}
		if e.AlertedAt != 0 {
			recovered = append(recovered, store.EndpointEvent{
				Project: e.Project, EndpointID: e.ID, Kind: store.EndpointRecovered, At: now, Since: since,
			})
		}
		e.AlertedAt = 0
	}
	if err := t.writeHealth(found); err != nil {
		return err
	}
	return t.addEndpointEvents(recovered)
}

// writeHealth writes the health columns of locked endpoints. Health has no version: the settings do not
// change.
func (t *tx) writeHealth(endpoints []store.Endpoint) error {
	_, err := sqldb.ExecRows(t.Tx, `UPDATE endpoints SET
			failing_since = i.failing_since,
			alerted_at = i.alerted_at,
			last_success_at = i.last_success_at,
			last_failure_at = i.last_failure_at,
			succeeded = i.succeeded,
			failed = i.failed
		FROM $i WHERE endpoints.id = i.id`, endpoints,
		func(e *store.Endpoint) sqldb.Columns { return append(healthColumns(e), col("id", &e.ID)) })
	return named("write health", err)
}

// EndpointTotals returns the attempts of up to limit endpoints of the project, in the order of their ids.
// Those that alerts send their messages to are left out.
func (db *DB) EndpointTotals(ctx context.Context, project string, limit int) ([]store.EndpointTotal, error) {
	return sqldb.Select(db.read(ctx, "read endpoint totals"), totalColumns, `FROM endpoints
		WHERE project = $1 AND deleted_at = 0 AND substr(external_id, 1, 11) <> 'alert-sink:'
		ORDER BY id
		LIMIT $2`, project, limit)
}

var totalColumns = sqldb.Named[store.EndpointTotal](`id external_id name succeeded failed failing_since
	created_at`)

// TakeAlerts finds up to limit endpoints of all projects that have failed since before failingBefore, and
// that were not reported as failing after alertedBefore. Each gets an event at now and is marked as reported
// in the same transaction. So each is returned to one caller only. The index endpoints_failing serves the
// search.
func (db *DB) TakeAlerts(ctx context.Context, failingBefore, alertedBefore, now int64,
	limit int) ([]store.Endpoint, error) {
	return changed(ctx, db.maintain, "take alerts", func(t *tx) ([]store.Endpoint, error) {
		failing, err := t.lockEndpoints(`endpoints.id IN (SELECT worst.id FROM endpoints AS worst
			WHERE worst.failing_since > 0 AND worst.failing_since < $1
				AND worst.alerted_at <= $2 AND worst.deleted_at = 0
			ORDER BY worst.failing_since
			LIMIT $3)`, failingBefore, alertedBefore, limit)
		if err != nil {
			return nil, err
		}
		// Another process may have reported some of them while this transaction waited for the locks.
		failing = slices.DeleteFunc(failing, func(e store.Endpoint) bool {
			return e.FailingSince == 0 || e.AlertedAt > alertedBefore
		})
		events := make([]store.EndpointEvent, len(failing))
		for i := range failing {
			e := &failing[i]
			e.AlertedAt = now
			events[i] = store.EndpointEvent{Project: e.Project, EndpointID: e.ID, Kind: store.EndpointFailing,
				At: now, Since: e.FailingSince}
		}
		if err := t.writeHealth(failing); err != nil {
			return nil, err
		}
		return failing, t.addEndpointEvents(events)
	})
}

var endpointEventColumns = sqldb.Named[store.EndpointEvent](`id project endpoint_id kind at since`)

// addEndpointEvents inserts events in the transaction of what happened, with new ids.
func (t *tx) addEndpointEvents(events []store.EndpointEvent) error {
	for i := range events {
		var err error
		events[i].ID, err = t.db.newID()
		if err != nil {
			return err
		}
	}
	return named("add endpoint events", sqldb.InsertRows(t.Tx, "endpoint_events", endpointEventColumns,
		events, ""))
}

// EndpointEvents returns up to limit events of endpoints of all projects with ids above after, in order.
func (db *DB) EndpointEvents(ctx context.Context, after string, limit int) ([]store.EndpointEvent, error) {
	return sqldb.Select(db.read(ctx, "read endpoint events"), endpointEventColumns,
		`FROM endpoint_events WHERE id > $1 ORDER BY id LIMIT $2`, after, limit)
}

// RemoveEndpointEvents deletes events after the operational events were accepted. Unknown ids are left out.
func (db *DB) RemoveEndpointEvents(ctx context.Context, ids []string) error {
	return db.maintain(ctx, "remove endpoint events", func(t *tx) error {
		_, err := sqldb.ExecRows(t.Tx, `DELETE FROM endpoint_events USING $i WHERE endpoint_events.id = i.id`,
			ids, theID)
		return err
	})
}
