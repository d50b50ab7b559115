package sqlstore

import (
	"context"
	"encoding/hex"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// PlanEvent stores the plan of an event: its endpoints and the ids of their callbacks. It commits before the
// callbacks do. If the project already has a plan with the same route and key, that one is kept.
// PlanEvent returns the stored plan, which callbacks of it were accepted, and whether it was stored before.
// So a repeated request makes the same callbacks, even if the process died in between, or if other endpoints
// have subscribed since.
//
// It returns store.ErrIdempotencyMismatch if the key belongs to another request, and
// store.ErrIdempotencyInProgress if a purge removed the stored plan meanwhile; the caller may try again.
func (db *DB) PlanEvent(
	ctx context.Context, p store.EventPlan,
) (plan store.EventPlan, known bool, err error) {
	fingerprint := hex.EncodeToString(p.Idempotency.Fingerprint)
	err = db.change(ctx, "plan event", func(t *tx) error {
		plan = p
		n, err := t.Exec(`INSERT INTO events (id, project, route, key, fingerprint, created_at)
			VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (project, route, key) DO NOTHING`,
			p.ID, p.Project, p.Idempotency.Route, p.Idempotency.Key, fingerprint, p.CreatedAt)
		if err != nil {
			return err
		}
		if n == 1 {
			return t.insertTargets(&p)
		}
		var storedFingerprint string
		plan, _, err = sqldb.One(t, func(plan *store.EventPlan) sqldb.Columns {
			return sqldb.Columns{col("id", &plan.ID), col("fingerprint", &storedFingerprint),
				col("created_at", &plan.CreatedAt)}
		}, `FROM events WHERE project = $1 AND route = $2 AND key = $3`, p.Project, p.Idempotency.Route,
			p.Idempotency.Key)
		if err != nil {
			return err
		}
		if plan.ID == "" { // a purge removed it between the two statements
			return store.ErrIdempotencyInProgress
		}
		if storedFingerprint != fingerprint {
			return store.ErrIdempotencyMismatch
		}
		// The stored plan is this very one if an earlier try was committed and its reply was lost.
		known = plan.ID != p.ID
		plan.Project, plan.Idempotency = p.Project, p.Idempotency
		plan.Targets, err = t.targets(plan.ID)
		return err
	})
	if err != nil {
		return store.EventPlan{}, false, err
	}
	return plan, known, nil
}

// EventPlanned reports whether the project has a plan with that route and key.
func (db *DB) EventPlanned(ctx context.Context, project, route, key string) (bool, error) {
	return sqldb.Exists(db.read(ctx, "find an event"),
		`SELECT 1 FROM events WHERE project = $1 AND route = $2 AND key = $3`, project, route, key)
}

// insertTargets inserts the endpoints of a plan with the ids of their callbacks.
func (t *tx) insertTargets(p *store.EventPlan) error {
	_, err := sqldb.ExecRows(t.Tx, `INSERT INTO event_targets (event_id, endpoint_id, callback_id)
		SELECT i.event_id, i.endpoint_id, i.callback_id FROM $i`, p.Targets,
		func(e *store.EventTarget) sqldb.Columns {
			return sqldb.Columns{
				calc("event_id", func() string { return p.ID }),
				col("endpoint_id", &e.EndpointID),
				col("callback_id", &e.CallbackID),
			}
		})
	return err
}

var targetFields = sqldb.Named[store.EventTarget](`event_targets.endpoint_id event_targets.callback_id`)

// targets reads the endpoints of a plan, and whether their callbacks were accepted.
func (t *tx) targets(event string) ([]store.EventTarget, error) {
	return sqldb.Select(t, func(e *store.EventTarget) sqldb.Columns {
		return append(targetFields(e), col("CASE WHEN callbacks.id IS NULL THEN 0 ELSE 1 END",
			sqldb.Bool(&e.Accepted)))
	}, `FROM event_targets LEFT JOIN callbacks ON callbacks.id = event_targets.callback_id
		WHERE event_targets.event_id = $1
		ORDER BY event_targets.callback_id`, event)
}

// endEvents is the step of a purge: it reads the next event plans that are old enough by the index
// events_age, and deletes those without an open callback.
func (t *tx) endEvents(b *batch) (seen, removed int, err error) {
	var ended []string
	if err := t.Each(func(rows sqldb.Row) error {
		var open int
		err := rows.Scan(&b.from.DueAt, &b.from.ID, &open)
		seen++
		if open == 0 {
			ended = append(ended, b.from.ID)
		}
		return err
	}, `SELECT created_at, id, CASE WHEN EXISTS (
			SELECT 1 FROM event_targets JOIN callbacks ON callbacks.id = event_targets.callback_id
			WHERE event_targets.event_id = events.id AND callbacks.state = 'scheduled')
			THEN 1 ELSE 0 END
		FROM events
		WHERE (created_at, id) > ($1, $2) AND created_at < $3
		ORDER BY created_at, id
		LIMIT $4`, b.from.DueAt, b.from.ID, b.before, b.rows); err != nil || len(ended) == 0 {
		return seen, 0, err
	}
	_, err = sqldb.ExecRows(t.Tx, `DELETE FROM event_targets USING $i WHERE event_targets.event_id = i.id`,
		ended, theID)
	if err != nil {
		return seen, 0, err
	}
	n, err := sqldb.ExecRows(t.Tx, `DELETE FROM events USING $i WHERE events.id = i.id`, ended, theID)
	return seen, int(n), err
}
