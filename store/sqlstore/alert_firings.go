package sqlstore

import (
	"context"
	"errors"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

var firingColumns = sqldb.Named[store.AlertFiring](`id project alert_id instance name value pending_since
	fired_at clear_since resolved_at message_id live`)

// liveFiring adds whether the message of a firing is dead.
func liveFiring(r *store.AlertFiring) sqldb.Columns {
	return append(firingColumns(r), col(`CASE WHEN EXISTS (SELECT 1 FROM callbacks
		WHERE callbacks.id = alert_firings.message_id AND callbacks.state = 'dead') THEN 1 ELSE 0 END`,
		sqldb.Bool(&r.Lost)))
}

// LiveFirings returns what the alerts of a project have found and not finished, by alert and instance.
func (db *DB) LiveFirings(ctx context.Context, project string, limit int) ([]store.AlertFiring, error) {
	return sqldb.Select(db.read(ctx, "read firings"), liveFiring, `FROM alert_firings
		WHERE project = $1 AND live = 1
		ORDER BY alert_id, instance
		LIMIT $2`, project, limit)
}

// AlertFirings returns the last firings of an alert, newest first, or store.ErrNotFound. Pending ones are
// among them.
func (db *DB) AlertFirings(ctx context.Context, project, id string, limit int) ([]store.AlertFiring, error) {
	if _, err := db.Alert(ctx, project, id); err != nil {
		return nil, err
	}
	return sqldb.Select(db.read(ctx, "read firings"), firingColumns, `FROM alert_firings
		WHERE alert_id = $1
		ORDER BY id DESC
		LIMIT $2`, id, limit)
}

// FiringsSince returns the firings of all alerts of a project that fired at or after a time and the ones that
// still fire, oldest first.
func (db *DB) FiringsSince(ctx context.Context, project string, since int64,
	limit int) ([]store.AlertFiring, error) {
	return sqldb.Select(db.read(ctx, "read firings"), firingColumns, `FROM alert_firings
		WHERE project = $1 AND fired_at > 0 AND (fired_at >= $2 OR resolved_at = 0)
		ORDER BY id
		LIMIT $3`, project, since, limit)
}

// StepAlert stores the result of one evaluation of an alert, with its message, in one transaction. It has no
// effect if the alert has another version than the step. So of two processes that evaluate an alert, one
// sends. Its error is that of the message, or store.ErrUnavailable.
func (db *DB) StepAlert(ctx context.Context, s store.AlertStep) (store.AlertStepResult, error) {
	e := acceptEntry{draft: s.Draft}
	if s.Draft != nil {
		if err := e.encode(&db.written); err != nil {
			return store.AlertStepResult{}, err
		}
	}
	won := false
	err := db.change(ctx, "step alert "+s.Alert.ID, func(t *tx) (err error) {
		won, err = t.stepAlert(&s, &e)
		return err
	})
	if err != nil || !won {
		return store.AlertStepResult{}, err
	}
	if s.Draft != nil {
		db.cacheAccepted(&e)
	}
	return store.AlertStepResult{Won: true, Accepted: e.out}, nil
}

// stepAlert is the transaction of StepAlert.
func (t *tx) stepAlert(s *store.AlertStep, e *acceptEntry) (won bool, err error) {
	e.out = store.Accepted{}
	a, err := sqldb.Get(t, "", alertColumns, `FROM alerts WHERE id = $1 AND project = $2 FOR UPDATE`,
		s.Alert.ID, s.Alert.Project)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil // deleted meanwhile
	}
	if err != nil {
		return false, err
	}
	if t.MayBeCommitted && s.Draft != nil && a.SentID == s.Draft.Callback.ID {
		// an earlier try was committed, and its reply lost
		found, err := t.callbacksByID([]string{a.SentID}, "")
		e.out.Callback = found[a.SentID].Callback
		return true, err
	}
	if a.Version != s.Alert.Version {
		return false, nil
	}
	a.Version++
	a.NextDigest, a.LastError = s.NextDigest, s.LastError
	if s.Draft != nil {
		if err := t.applyDrafts([]*acceptEntry{e}); err != nil {
			return false, named("accept its message", err)
		}
		if e.out.Err != nil {
			return false, e.out.Err
		}
		if !s.Summary {
			a.SentAt, a.SentID = s.Now, e.out.Callback.ID
		}
	}
	if _, err := t.Exec(`UPDATE alerts SET version = $2, next_digest = $3, last_error = $4, sent_at = $5,
			sent_id = $6
		WHERE id = $1`, a.ID, a.Version, a.NextDigest, a.LastError, a.SentAt, a.SentID); err != nil {
		return false, named("write alert", err)
	}
	return true, t.writeFirings(s)
}

// writeFirings stores the firings of a step, and drops the oldest finished ones.
func (t *tx) writeFirings(s *store.AlertStep) error {
	if _, err := sqldb.ExecRows(t.Tx, `DELETE FROM alert_firings USING $i WHERE alert_firings.id = i.id`,
		s.Drop, theID); err != nil {
		return named("drop pending firings", err)
	}
	columns := firingColumns(new(store.AlertFiring))
	if err := sqldb.InsertRows(t.Tx, "alert_firings", firingColumns, s.Put,
		`ON CONFLICT (id) DO UPDATE SET `+columns.Overwrite("id")); err != nil {
		return named("write firings", err)
	}
	for i := range s.Put {
		if !s.Put[i].Live { // the history grew
			_, err := t.Exec(`DELETE FROM alert_firings
				WHERE alert_id = $1 AND live = 0 AND id <= (SELECT newer.id FROM alert_firings AS newer
					WHERE newer.alert_id = $1 AND newer.live = 0
					ORDER BY newer.id DESC
					LIMIT 1 OFFSET $2)`, s.Alert.ID, store.KeptFirings)
			return named("drop old firings", err)
		}
	}
	return nil
}
