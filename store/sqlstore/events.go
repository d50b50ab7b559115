package sqlstore

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// PlanEvent writes the plan down, unless its project has one with the same route and key, and returns the plan that stands then, with what
// has been accepted of it, and whether it was there before. store.ErrIdempotencyMismatch: the key is another request's.
// store.ErrIdempotencyInProgress: it was, and ended meanwhile.
func (db *DB) PlanEvent(ctx context.Context, p store.EventPlan) (plan store.EventPlan, known bool, err error) {
	fingerprint := hex.EncodeToString(p.Idempotency.Fingerprint)
	err = db.change(ctx, func(t *tx) error {
		plan = p
		n, err := t.exec(`INSERT INTO events (id, project, route, key, fingerprint, created_at) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (project, route, key) DO NOTHING`,
			p.ID, p.Project, p.Idempotency.Route, p.Idempotency.Key, fingerprint, p.CreatedAt)
		if err != nil {
			return err
		}
		if n == 1 {
			return t.insertTargets(&p)
		}
		plan = store.EventPlan{}
		if err := t.each(func(rows scanner) error {
			var text string
			if err := rows.Scan(&plan.ID, &text, &plan.CreatedAt); err != nil {
				return err
			}
			if text != fingerprint {
				return store.ErrIdempotencyMismatch
			}
			return nil
		}, `SELECT id, fingerprint, created_at FROM events WHERE project = $1 AND route = $2 AND key = $3`,
			p.Project, p.Idempotency.Route, p.Idempotency.Key); err != nil {
			return err
		}
		if plan.ID == "" {
			return store.ErrIdempotencyInProgress // it ended between the two statements: the next try is the first
		}
		// It may be this one, of a try that was committed without our hearing of it.
		known = plan.ID != p.ID
		plan.Project, plan.Idempotency = p.Project, p.Idempotency
		plan.Targets, err = t.targets(plan.ID)
		return err
	})
	if err != nil {
		return store.EventPlan{}, false, fmt.Errorf("plan event: %w", err)
	}
	return plan, known, nil
}

// EventPlanned says whether the project has a plan with that route and key.
func (db *DB) EventPlanned(ctx context.Context, project, route, key string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	planned := false
	found := func(scanner) error {
		planned = true
		return nil
	}
	const query = `SELECT 1 FROM events WHERE project = $1 AND route = $2 AND key = $3`
	if err := queryEach(ctx, db.read, found, query, project, route, key); err != nil {
		return false, readError("look for an event", err)
	}
	return planned, nil
}

func (t *tx) insertTargets(p *store.EventPlan) error {
	if len(p.Targets) == 0 {
		return nil
	}
	input, args, next, err := t.input([]column{
		texts("endpoint_id", p.Targets, func(e store.EventTarget) string { return e.EndpointID }),
		texts("callback_id", p.Targets, func(e store.EventTarget) string { return e.CallbackID }),
	})
	if err != nil {
		return err
	}
	_, err = t.exec(fmt.Sprintf(`INSERT INTO event_targets (event_id, endpoint_id, callback_id)
		SELECT $%d, i.endpoint_id, i.callback_id FROM %s`, next, input), append(args, p.ID)...)
	return err
}

func (t *tx) targets(event string) ([]store.EventTarget, error) {
	var targets []store.EventTarget
	err := t.each(func(rows scanner) error {
		var e store.EventTarget
		var accepted int
		err := rows.Scan(&e.EndpointID, &e.CallbackID, &accepted)
		e.Accepted = accepted != 0
		targets = append(targets, e)
		return err
	}, `SELECT event_targets.endpoint_id, event_targets.callback_id,
			CASE WHEN callbacks.id IS NULL THEN 0 ELSE 1 END
		FROM event_targets LEFT JOIN callbacks ON callbacks.id = event_targets.callback_id
		WHERE event_targets.event_id = $1
		ORDER BY event_targets.callback_id`, event)
	return targets, err
}

// endEvents looks at the next events that are old enough, and removes those of which no callback is open.
func (t *tx) endEvents(b *batch) (seen, removed int, err error) {
	var ended []string
	if err := t.each(func(rows scanner) error {
		var open int
		err := rows.Scan(&b.from.DueAt, &b.from.ID, &open)
		if seen++; open == 0 {
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
	input, args, _, err := t.input([]column{{name: "id", texts: ended}})
	if err != nil {
		return seen, 0, err
	}
	if _, err := t.exec(`DELETE FROM event_targets WHERE event_id IN (SELECT i.id FROM `+input+`)`,
		args...); err != nil {
		return seen, 0, err
	}
	n, err := t.exec(`DELETE FROM events WHERE id IN (SELECT i.id FROM `+input+`)`, args...)
	return seen, int(n), err
}
