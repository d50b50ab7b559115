package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// laneColumns are what scanLane reads, in its order.
const laneColumns = `
	lanes.id,
	lanes.project,
	lanes.key,
	lanes.concurrency,
	lanes.rate_count,
	lanes.rate_per_ms,
	lanes.paused_until,
	lanes.own_paused_until,
	lanes.endpoint_paused_until,
	lanes.project_paused_until,
	lanes.own_paused_at,
	CASE WHEN lanes.endpoint_paused_until = 0 THEN 0 ELSE COALESCE((
		SELECT CASE
			WHEN endpoints.deleted_at > 0 THEN endpoints.deleted_at
			WHEN endpoints.enabled = 0 THEN endpoints.disabled_at
			ELSE endpoints.paused_at
		END
		FROM endpoints WHERE endpoints.id = lanes.endpoint_id), 0) END,
	CASE WHEN lanes.project_paused_until = 0 THEN 0 ELSE COALESCE((
		SELECT projects.paused_at FROM projects WHERE projects.id = lanes.project), 0) END,
	lanes.endpoint_id,
	lanes.version,
	CASE
		WHEN lanes.paused_until = 0 THEN ''
		WHEN lanes.paused_until = lanes.own_paused_until THEN lanes.pause_reason
		WHEN lanes.paused_until = lanes.endpoint_paused_until THEN COALESCE((
			SELECT CASE WHEN endpoints.enabled = 0 THEN endpoints.disabled_reason ELSE endpoints.pause_reason END
			FROM endpoints WHERE endpoints.id = lanes.endpoint_id), '')
		ELSE COALESCE((SELECT projects.pause_reason FROM projects WHERE projects.id = lanes.project), '')
	END`

// scanLane reads laneColumns, and more columns after them.
func scanLane(rows scanner, more ...any) (store.Lane, error) {
	var l store.Lane
	var perMillis int64
	dest := []any{
		&l.ID, &l.Project, &l.Key, &l.Limit, &l.Rate.Count, &perMillis, &l.PausedUntil, &l.OwnPause, &l.EndpointPause, &l.ProjectPause,
		&l.OwnPausedAt, &l.EndpointPausedAt, &l.ProjectPausedAt, &l.EndpointID, &l.Version, &l.PauseReason,
	}
	if err := rows.Scan(append(dest, more...)...); err != nil {
		return l, fmt.Errorf("scan lane: %w", err)
	}
	l.Rate.Per = time.Duration(perMillis) * time.Millisecond
	return l, nil
}

// lastPause is SQL for the last of three times.
func lastPause(own, endpoint, project string) string {
	return `CASE WHEN ` + own + ` >= ` + endpoint + ` AND ` + own + ` >= ` + project + ` THEN ` + own +
		` WHEN ` + endpoint + ` >= ` + project + ` THEN ` + endpoint + ` ELSE ` + project + ` END`
}

// A laneWrite is what one transaction changes of a lane for its project.
type laneWrite struct{ id, pause, version int64 }

// holdNew gives lanes that were just made their project's pause.
func (t *tx) holdNew(held []laneWrite) error {
	if len(held) == 0 {
		return nil
	}
	for i := range held {
		var err error
		if held[i].version, err = t.nextVersion(); err != nil {
			return err
		}
	}
	input, args, _, err := t.input([]column{
		ints("id", held, func(l laneWrite) int64 { return l.id }),
		ints("pause", held, func(l laneWrite) int64 { return l.pause }),
		ints("version", held, func(l laneWrite) int64 { return l.version }),
	})
	if err != nil {
		return err
	}
	if _, err := t.exec(`UPDATE lanes SET
			project_paused_until = i.pause,
			paused_until = `+lastPause("lanes.own_paused_until", "lanes.endpoint_paused_until", "i.pause")+`,
			version = i.version
		FROM `+input+` WHERE lanes.id = i.id`, args...); err != nil {
		return fmt.Errorf("hold new lanes: %w", err)
	}
	return nil
}

// Lanes returns the settings of lanes that were changed after version since, in the order of their versions, at most
// limit. A lane that was never set has version 0 and is not among them.
func (db *DB) Lanes(ctx context.Context, since int64, limit int) ([]store.Lane, error) {
	return db.readLanes(ctx, `SELECT `+laneColumns+` FROM lanes
		WHERE lanes.version > 0 AND lanes.version > $1
		ORDER BY lanes.version
		LIMIT $2`, since, limit)
}

func (db *DB) readLanes(ctx context.Context, query string, args ...any) ([]store.Lane, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var lanes []store.Lane
	err := queryEach(ctx, db.read, func(rows scanner) error {
		l, err := scanLane(rows)
		lanes = append(lanes, l)
		return err
	}, query, args...)
	if err != nil {
		return nil, readError("read lanes", err)
	}
	return lanes, nil
}

// LaneByKey returns the project's lane; store.ErrNotFound where it has none with that key.
func (db *DB) LaneByKey(ctx context.Context, project, key string) (store.Lane, error) {
	lanes, err := db.readLanes(ctx, `SELECT `+laneColumns+` FROM lanes WHERE lanes.project = $1 AND lanes.key = $2`, project, key)
	if err != nil {
		return store.Lane{}, err
	}
	if len(lanes) == 0 {
		return store.Lane{}, fmt.Errorf("lane %q: %w", key, store.ErrNotFound)
	}
	return lanes[0], nil
}

// An ownLane is a lane with the reason of its own pause.
type ownLane struct {
	store.Lane
	reason string
}

// SetLane bounds what a lane may do: nil leaves a bound as it is, zero takes it away. The lane is made if it is missing. The bounds of an
// endpoint's lane are the endpoint's.
func (db *DB) SetLane(ctx context.Context, project, key string, limit *int, rate *store.Rate, now int64, by store.Actor) (store.Lane, error) {
	return db.changeLane(ctx, project, key, now, by, func(t *tx, l *ownLane) (string, any, error) {
		before := *l
		if limit != nil {
			l.Limit = *limit
		}
		if rate != nil {
			l.Rate = *rate
		}
		if l.EndpointID != "" && *l != before {
			version, err := t.nextVersion()
			if err != nil {
				return "", nil, err
			}
			if _, err := t.exec(`UPDATE endpoints SET concurrency = $1, rate_count = $2, rate_per_ms = $3, version = $4, updated_at = $5
				WHERE id = $6`, l.Limit, l.Rate.Count, l.Rate.Per.Milliseconds(), version, now, l.EndpointID); err != nil {
				return "", nil, fmt.Errorf("write bounds of its endpoint: %w", err)
			}
		}
		return actionSetLane, map[string]any{"concurrency": l.Limit, "rate": l.Rate.String()}, nil
	})
}

// PauseLane holds a lane until then, or with zero resumes it: its own pause, beside which those of its endpoint and its project stay as
// they are. The lane is made if it is missing.
func (db *DB) PauseLane(ctx context.Context, project, key string, until int64, reason string, now int64, by store.Actor) (store.Lane, error) {
	return db.changeLane(ctx, project, key, now, by, func(_ *tx, l *ownLane) (string, any, error) {
		l.OwnPausedAt = pausedSince(l.OwnPause, l.OwnPausedAt, until, now)
		l.OwnPause, l.reason = until, reason
		if until == 0 {
			l.reason = ""
			return actionResumeLane, nil, nil
		}
		return actionPauseLane, pauseDetail(until, reason), nil
	})
}

// pauseDetail is what the audit says of a pause.
func pauseDetail(until int64, reason string) any {
	return map[string]any{"until": until, "pause_reason": reason}
}

// changeLane changes one lane. What changes nothing is not audited.
func (db *DB) changeLane(ctx context.Context, project, key string, now int64, by store.Actor,
	change func(*tx, *ownLane) (action string, detail any, err error)) (store.Lane, error) {
	var lane ownLane
	err := db.change(ctx, func(t *tx) error {
		id, err := t.laneID(project, key)
		if err != nil {
			return err
		}
		if err := t.lockSettings(); err != nil {
			return err
		}
		if lane, err = t.readLane(id); err != nil {
			return err
		}
		before := lane
		action, detail, err := change(t, &lane)
		if err != nil || lane == before {
			return err
		}
		version, err := t.nextVersion()
		if err != nil {
			return err
		}
		if _, err := t.exec(`UPDATE lanes SET
				concurrency = $1,
				rate_count = $2,
				rate_per_ms = $3,
				own_paused_until = $4,
				pause_reason = $5,
				own_paused_at = $8,
				paused_until = `+lastPause("$4", "lanes.endpoint_paused_until", "lanes.project_paused_until")+`,
				version = $6
			WHERE id = $7`, lane.Limit, lane.Rate.Count, lane.Rate.Per.Milliseconds(),
			lane.OwnPause, lane.reason, version, lane.ID, lane.OwnPausedAt); err != nil {
			return fmt.Errorf("write lane: %w", err)
		}
		if lane, err = t.readLane(lane.ID); err != nil {
			return err
		}
		return t.auditChange(project, action, key, now, by, diffLane(&before, &lane), detail)
	})
	if err != nil {
		return store.Lane{}, fmt.Errorf("change lane %q: %w", key, err)
	}
	return lane.Lane, nil
}

// readLane reads a lane that this transaction changes.
func (t *tx) readLane(id int64) (lane ownLane, err error) {
	err = t.each(func(rows scanner) error {
		var err error
		lane.Lane, err = scanLane(rows, &lane.reason)
		return err
	}, `SELECT `+laneColumns+`, lanes.pause_reason FROM lanes WHERE lanes.id = $1`, id)
	if err != nil {
		return lane, fmt.Errorf("read lane: %w", err)
	}
	return lane, nil
}
