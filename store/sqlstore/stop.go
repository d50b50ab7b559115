package sqlstore

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

var stopColumns = sqldb.Named[store.Stop](`began_at=At ends_at=Until reason stopped_by=By`)

func stopParts(s *store.Stop) []part {
	return []part{
		{"until", s.Until, printedTime(s.Until)}, samePart("reason", s.Reason), samePart("by", s.By),
	}
}

// Stop returns the stop of all sending, also one that has ended by itself.
func (db *DB) Stop(ctx context.Context) (store.Stop, error) {
	return sqldb.Get(db.read(ctx, "read the stop"), "stop", stopColumns, `FROM stop WHERE id = 1`)
}

// SetStop stops all sending until a time; zero ends the stop. The reason is the actor's. A stop that is on
// keeps its beginning.
func (db *DB) SetStop(ctx context.Context, until, now int64, by store.Actor) (store.Stop, error) {
	return changed(ctx, db.change, "set the stop", func(t *tx) (store.Stop, error) {
		before, err := sqldb.Get(t, "stop", stopColumns, `FROM stop WHERE id = 1 FOR UPDATE`)
		if err != nil {
			return before, err
		}
		after, action := store.Stop{}, "sending.start"
		if until != 0 {
			action = "sending.stop"
			after = store.Stop{At: pausedSince(before.Until, before.At, until, now), Until: until,
				Reason: by.Reason, By: by.Name}
		}
		if after == before {
			return after, nil
		}
		if _, err := t.Exec(`UPDATE stop SET began_at = $1, ends_at = $2, reason = $3, stopped_by = $4
			WHERE id = 1`, after.At, after.Until, after.Reason, after.By); err != nil {
			return after, err
		}
		return after, t.auditChange(store.DefaultProject, action, "all sending", now, by,
			diff(stopParts, &before, &after), nil)
	})
}

// busyLanes finds the settings of lanes with open callbacks, as far as the counters are folded.
const busyLanes = `FROM lanes WHERE lanes.id > $1 AND EXISTS (
		SELECT 1 FROM counters WHERE counters.project = lanes.project AND counters.kind = 'lane'
			AND counters.key = CAST(lanes.id AS TEXT) AND counters.value > 0)
	ORDER BY lanes.id LIMIT $2`

// BusyLanes returns up to limit lanes of all projects with open callbacks and ids above after, ordered by id.
// The counters that it reads are up to a second old.
func (db *DB) BusyLanes(ctx context.Context, after int64, limit int) ([]store.Lane, error) {
	return sqldb.Select(db.read(ctx, "read busy lanes"), laneColumns, busyLanes, after, limit)
}
