package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

var laneFields = sqldb.Named[store.Lane](`lanes.id lanes.project lanes.key lanes.concurrency=Limit
	lanes.rate_count lanes.rate_per_ms lanes.paused_until lanes.own_paused_until=OwnPause
	lanes.endpoint_paused_until=EndpointPause lanes.project_paused_until=ProjectPause lanes.own_paused_at
	lanes.endpoint_id lanes.version`)

// laneColumns are the settings of a lane. paused_until is the latest of three pauses: the lane's own, its
// endpoint's and its project's. The reason is that of the latest one.
func laneColumns(l *store.Lane) sqldb.Columns {
	return append(laneFields(l),
		col(`CASE WHEN lanes.endpoint_paused_until = 0 THEN 0 ELSE COALESCE((
			SELECT CASE
				WHEN endpoints.deleted_at > 0 THEN endpoints.deleted_at
				WHEN endpoints.enabled = 0 THEN endpoints.disabled_at
				ELSE endpoints.paused_at
			END
			FROM endpoints WHERE endpoints.id = lanes.endpoint_id), 0) END`, &l.EndpointPausedAt),
		col(`CASE WHEN lanes.project_paused_until = 0 THEN 0 ELSE COALESCE((
			SELECT projects.paused_at FROM projects WHERE projects.id = lanes.project), 0) END`,
			&l.ProjectPausedAt),
		col(`CASE
			WHEN lanes.paused_until = 0 THEN ''
			WHEN lanes.paused_until = lanes.own_paused_until THEN lanes.pause_reason
			WHEN lanes.paused_until = lanes.endpoint_paused_until THEN COALESCE((
				SELECT CASE
					WHEN endpoints.enabled = 0 THEN endpoints.disabled_reason
					ELSE endpoints.pause_reason
				END
				FROM endpoints WHERE endpoints.id = lanes.endpoint_id), '')
			ELSE COALESCE((SELECT projects.pause_reason FROM projects WHERE projects.id = lanes.project), '')
		END`, &l.PauseReason))
}

// lastPause is an SQL expression for the latest of three pauses.
func lastPause(own, endpoint, project string) string {
	return `CASE WHEN ` + own + ` >= ` + endpoint + ` AND ` + own + ` >= ` + project + ` THEN ` + own +
		` WHEN ` + endpoint + ` >= ` + project + ` THEN ` + endpoint + ` ELSE ` + project + ` END`
}

// A laneWrite is a new lane that gets its project's pause and a version.
type laneWrite struct{ ID, Pause, Version int64 }

// pauseNewLanes gives new lanes the pause of their project, and a version, so that the engine reads them.
func (t *tx) pauseNewLanes(paused []laneWrite) error {
	if len(paused) == 0 {
		return nil
	}
	for i := range paused {
		var err error
		paused[i].Version, err = t.nextVersion()
		if err != nil {
			return err
		}
	}
	_, err := t.Exec(`UPDATE lanes SET
			project_paused_until = i.pause,
			paused_until = `+lastPause("lanes.own_paused_until", "lanes.endpoint_paused_until", "i.pause")+`,
			version = i.version
		FROM $i WHERE lanes.id = i.id`, sqldb.Rows(paused, sqldb.Named[laneWrite](`id pause version`)))
	return named("pause new lanes", err)
}

// Lanes returns the settings of up to limit lanes that changed after version since, in the order of their
// versions. A lane that was never set has version 0 and is left out.
func (db *DB) Lanes(ctx context.Context, since int64, limit int) ([]store.Lane, error) {
	return sqldb.Select(db.read(ctx, "read lanes"), laneColumns, `FROM lanes
		WHERE lanes.version > 0 AND lanes.version > $1
		ORDER BY lanes.version
		LIMIT $2`, since, limit)
}

// LanesByKey returns the project's lanes with these keys, by key. Missing lanes are left out.
func (db *DB) LanesByKey(ctx context.Context, project string, keys []string) ([]store.Lane, error) {
	return sqldb.Select(db.read(ctx, "read lanes"), laneColumns, `FROM lanes
		WHERE lanes.project = $1 AND lanes.key IN (SELECT i.key FROM $i)
		ORDER BY lanes.key`, project, sqldb.Texts("key", keys))
}

// An ownLane is a lane with the reason of its own pause, which laneColumns read only if that pause is the
// latest.
type ownLane struct {
	store.Lane
	reason string
}

func ownLaneColumns(l *ownLane) sqldb.Columns {
	return append(laneColumns(&l.Lane), col("lanes.pause_reason", &l.reason))
}

// SetLane sets the limits of a lane. Nil leaves a limit as it is, and zero removes it. A missing lane is
// made. The limits of an endpoint's lane are the endpoint's, which changes in the same transaction.
func (db *DB) SetLane(ctx context.Context, project, key string, concurrency *int, rate *store.Rate, now int64,
	by store.Actor) (store.Lane, error) {
	return db.changeLane(ctx, project, key, now, by, func(t *tx, l *ownLane) (string, fields, error) {
		before := *l
		if concurrency != nil {
			l.Limit = *concurrency
		}
		if rate != nil {
			l.Rate = *rate
		}
		if l.EndpointID != "" && *l != before {
			version, err := t.nextVersion()
			if err != nil {
				return "", nil, err
			}
			_, err = t.Exec(`UPDATE endpoints SET
					concurrency = $1,
					rate_count = $2,
					rate_per_ms = $3,
					version = $4,
					updated_at = $5
				WHERE id = $6`, l.Limit, l.Rate.Count, l.Rate.Per.Milliseconds(), version, now, l.EndpointID)
			if err != nil {
				return "", nil, named("write limits of its endpoint", err)
			}
		}
		return "lane.limits", fields{"concurrency": l.Limit, "rate": l.Rate.String()}, nil
	})
}

// PauseLane pauses a lane until then, and with zero resumes it. It sets the lane's own pause; those of its
// endpoint and its project stay as they are. A missing lane is made.
func (db *DB) PauseLane(ctx context.Context, project, key string, until int64, reason string, now int64,
	by store.Actor) (store.Lane, error) {
	return db.changeLane(ctx, project, key, now, by, func(_ *tx, l *ownLane) (string, fields, error) {
		l.OwnPausedAt = pausedSince(l.OwnPause, l.OwnPausedAt, until, now)
		l.OwnPause, l.reason = until, reason
		if until == 0 {
			l.reason = ""
			return "lane.resume", nil, nil
		}
		return "lane.pause", pauseDetail(until, reason), nil
	})
}

// pauseDetail is the audit's detail of a pause.
func pauseDetail(until int64, reason string) fields {
	return fields{"until": until, "pause_reason": reason}
}

// changeLane changes one lane in one transaction, with a version and an audit entry. A change without effect
// gets neither. The settings are locked before the lane is read, so two changes of a lane follow each other.
func (db *DB) changeLane(ctx context.Context, project, key string, now int64, by store.Actor,
	change func(*tx, *ownLane) (action string, detail fields, err error)) (store.Lane, error) {
	return changed(ctx, db.change, fmt.Sprintf("change lane %q", key), func(t *tx) (store.Lane, error) {
		id, err := t.laneID(project, key)
		if err == nil {
			err = t.lockSettings()
		}
		if err != nil {
			return store.Lane{}, err
		}
		lane, err := t.readLane(id)
		if err != nil {
			return store.Lane{}, err
		}
		before := lane
		action, detail, err := change(t, &lane)
		if err != nil || lane == before {
			return lane.Lane, err
		}
		version, err := t.nextVersion()
		if err != nil {
			return store.Lane{}, err
		}
		if _, err := t.Exec(`UPDATE lanes SET
				concurrency = $1,
				rate_count = $2,
				rate_per_ms = $3,
				own_paused_until = $4,
				pause_reason = $5,
				own_paused_at = $8,
				paused_until = `+lastPause("$4", "lanes.endpoint_paused_until",
			"lanes.project_paused_until")+`,
				version = $6
			WHERE id = $7`, lane.Limit, lane.Rate.Count, lane.Rate.Per.Milliseconds(),
			lane.OwnPause, lane.reason, version, lane.ID, lane.OwnPausedAt); err != nil {
			return store.Lane{}, named("write lane", err)
		}
		lane, err = t.readLane(id)
		if err != nil {
			return store.Lane{}, err
		}
		return lane.Lane, t.auditChange(project, action, key, now, by, diff(laneParts, &before, &lane),
			detail)
	})
}

// readLane reads a lane. The caller has locked the settings.
func (t *tx) readLane(id int64) (ownLane, error) {
	lane, _, err := sqldb.One(t, ownLaneColumns, `FROM lanes WHERE lanes.id = $1`, id)
	return lane, named("read lane", err)
}
