package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// addEndpointEvents writes events in the transaction of what happened. Their ids are made.
func (t *tx) addEndpointEvents(events []store.EndpointEvent) error {
	if len(events) == 0 {
		return nil
	}
	for i := range events {
		id, err := t.db.ids.next()
		if err != nil {
			return err
		}
		events[i].ID = id
	}
	input, args, _, err := t.input([]column{
		texts("id", events, func(e store.EndpointEvent) string { return e.ID }),
		texts("project", events, func(e store.EndpointEvent) string { return e.Project }),
		texts("endpoint_id", events, func(e store.EndpointEvent) string { return e.EndpointID }),
		texts("kind", events, func(e store.EndpointEvent) string { return string(e.Kind) }),
		ints("at", events, func(e store.EndpointEvent) int64 { return e.At }),
		ints("since", events, func(e store.EndpointEvent) int64 { return e.Since }),
	})
	if err != nil {
		return err
	}
	if _, err := t.exec(`INSERT INTO endpoint_events (id, project, endpoint_id, kind, at, since)
		SELECT i.id, i.project, i.endpoint_id, i.kind, i.at, i.since FROM `+input, args...); err != nil {
		return fmt.Errorf("add endpoint events: %w", err)
	}
	return nil
}

// EndpointEvents returns up to limit endpoint events of all projects, in the order of their ids, with ids
// above after.
func (db *DB) EndpointEvents(ctx context.Context, after string, limit int) ([]store.EndpointEvent, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var events []store.EndpointEvent
	err := queryEach(ctx, db.read, func(rows scanner) error {
		var e store.EndpointEvent
		err := rows.Scan(&e.ID, &e.Project, &e.EndpointID, &e.Kind, &e.At, &e.Since)
		events = append(events, e)
		return err
	}, `SELECT id, project, endpoint_id, kind, at, since FROM endpoint_events
		WHERE id > $1 ORDER BY id LIMIT $2`, after, limit)
	if err != nil {
		return nil, readError("read endpoint events", err)
	}
	return events, nil
}

// RemoveEndpointEvents removes events that have become operational events. Ids that are not there are left
// out.
func (db *DB) RemoveEndpointEvents(ctx context.Context, ids []string) error {
	err := db.maintain(ctx, func(t *tx) error {
		input, args, _, err := t.input([]column{{name: "id", texts: ids}})
		if err != nil {
			return err
		}
		_, err = t.exec(`DELETE FROM endpoint_events WHERE id IN (SELECT i.id FROM `+input+`)`, args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("remove endpoint events: %w", err)
	}
	return nil
}
