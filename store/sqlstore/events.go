package sqlstore

import (
	"context"
	"encoding/hex"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// PlanEvent writes the plan down, unless its project has one with the same route and key, and returns the
// plan that stands then, with what has been accepted of it, and whether it was there before.
// store.ErrIdempotencyMismatch: the key is another request's. store.ErrIdempotencyInProgress: it was, and
// ended meanwhile.
func (db *DB) PlanEvent(ctx context.Context, p store.EventPlan) (plan store.EventPlan, known bool,
	err error) {
	fingerprint := hex.EncodeToString(p.Idempotency.Fingerprint)
	err = db.change(ctx, "plan event", func(t *tx) error {
		plan = p
		n, err :=
			t.Exec(`INSERT INTO events (id, project, route, key, fingerprint, created_at) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (project, route, key) DO NOTHING`,
				p.ID, p.Project, p.Idempotency.Route, p.Idempotency.Key, fingerprint, p.CreatedAt)
		if err != nil {
			return err
		}
		if n == 1 {
			return t.insertTargets(&p)
		}
		var held string
		plan, _, err = sqldb.One(t, func(plan *store.EventPlan) sqldb.Columns {
			return sqldb.Columns{col("id", &plan.ID), col("fingerprint", &held),
				col("created_at", &plan.CreatedAt)}
		}, `FROM events WHERE project = $1 AND route = $2 AND key = $3`, p.Project, p.Idempotency.Route,
			p.Idempotency.Key)
		if err != nil {
			return err
		}
		if plan.ID == "" {
			// it ended between the two statements: the next try is the first
			return store.ErrIdempotencyInProgress
		}
		if held != fingerprint {
			return store.ErrIdempotencyMismatch
		}
		// It may be this one, of a try that was committed without our hearing of it.
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

// EventPlanned says whether the project has a plan with that route and key.
func (db *DB) EventPlanned(ctx context.Context, project, route, key string) (bool, error) {
	return sqldb.Exists(db.read(ctx, "look for an event"),
		`SELECT 1 FROM events WHERE project = $1 AND route = $2 AND key = $3`, project, route, key)
}

func (t *tx) insertTargets(p *store.EventPlan) error {
	_, err := sqldb.ExecRows(t.Tx, `INSERT INTO event_targets (event_id, endpoint_id, callback_id)
		SELECT i.event_id, i.endpoint_id, i.callback_id FROM $i`, p.Targets,
		func(e *store.EventTarget) sqldb.Columns {
			return sqldb.Columns{calc("event_id", func() string {
				return p.ID
			}), col("endpoint_id", &e.EndpointID), col("callback_id", &e.CallbackID)}
		})
	return err
}

var targetFields = sqldb.Named[store.EventTarget](`event_targets.endpoint_id event_targets.callback_id`)

func (t *tx) targets(event string) ([]store.EventTarget, error) {
	return sqldb.Select(t, func(e *store.EventTarget) sqldb.Columns {
		return append(targetFields(e), col("CASE WHEN callbacks.id IS NULL THEN 0 ELSE 1 END",
			sqldb.Bool(&e.Accepted)))
	}, `FROM event_targets LEFT JOIN callbacks ON callbacks.id = event_targets.callback_id
		WHERE event_targets.event_id = $1
		ORDER BY event_targets.callback_id`, event)
}

// endEvents looks at the next events that are old enough, and removes those of which no callback is open.
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
	}, `SELECT created_at, id,
			CASE WHEN EXISTS (SELECT 1 FROM event_targets JOIN callbacks ON callbacks.id = event_targets.callback_id
				WHERE event_targets.event_id = events.id AND callbacks.state = 'scheduled')
				THEN 1 ELSE 0 END
		FROM events
		WHERE (created_at, id) > ($1, $2) AND created_at < $3
		ORDER BY created_at, id
		LIMIT $4`, b.from.DueAt, b.from.ID, b.before, b.rows); err != nil || len(ended) == 0 {
		return seen, 0, err
	}
	if _,
		err := sqldb.ExecRows(t.Tx, `DELETE FROM event_targets USING $i WHERE event_targets.event_id = i.id`,
		ended, theID); err != nil {
		return seen, 0, err
	}
	n, err := sqldb.ExecRows(t.Tx, `DELETE FROM events USING $i WHERE events.id = i.id`, ended, theID)
	return seen, int(n), err
}
