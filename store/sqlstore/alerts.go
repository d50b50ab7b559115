package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// An alertRow is an alert with the columns that only writes use.
type alertRow struct {
	store.Alert
	sealedKey, search string
}

var alertColumns = sqldb.Named[store.Alert](`id project name condition=When sink sink_masked sink_id
	silence_until digest_at digest_zone next_digest enabled sent_at sent_id last_error version created_at
	updated_at`)

// alertWithState adds the state of the last message.
func alertWithState(a *store.Alert) sqldb.Columns {
	return append(alertColumns(a), col(`COALESCE((SELECT callbacks.state FROM callbacks
		WHERE callbacks.id = alerts.sent_id), '')`, (*string)(&a.SentState)))
}

// alertRowColumns are the columns of a write.
func alertRowColumns(a *alertRow) sqldb.Columns {
	a.sealedKey, a.search = a.SealedKey(), store.Fold(a.Name)
	return append(alertColumns(&a.Alert), col("sealed_key", &a.sealedKey), col("search", &a.search))
}

// CreateAlert makes an alert, at its CreatedAt, with version 1. It returns store.ErrExists if the project has
// one with that name, and a store.InvalidError if it has store.MaxAlerts.
func (db *DB) CreateAlert(ctx context.Context, a store.Alert, by store.Actor) (store.Alert, error) {
	a.SentAt, a.SentID, a.LastError = 0, "", ""
	a.Version, a.UpdatedAt = 1, a.CreatedAt
	return changed(ctx, db.change, "create alert", func(t *tx) (store.Alert, error) {
		// The lock makes parallel creates follow each other, so that two cannot use the last free place.
		if err := t.lockProjectRow(a.Project); err != nil {
			return a, err
		}
		if t.MayBeCommitted {
			if there, err := t.lockAlert(a.Project, a.ID); err == nil && there.CreatedAt == a.CreatedAt {
				return a, nil // an earlier try was committed, and its reply was lost
			}
		}
		if err := t.alertNameIsFree(&a); err != nil {
			return a, err
		}
		n, _, err := sqldb.Value[int](t, `SELECT COUNT(*) FROM alerts WHERE project = $1`, a.Project)
		if err != nil {
			return a, named("count alerts", err)
		}
		if n >= store.MaxAlerts {
			return a, invalid("name", fmt.Sprintf("the project has %d alerts, which is the maximum", n))
		}
		if _, err := alertRowColumns(&alertRow{Alert: a}).Insert(t.Tx, "alerts", ""); err != nil {
			return a, sqldb.Overtaken("insert alert", err)
		}
		return a, t.auditChange(a.Project, "alert.create", a.ID, a.CreatedAt, by,
			diff(alertParts, new(store.Alert), &a).made(), fields{"name": a.Name})
	})
}

// alertNameIsFree returns store.ErrExists if another alert of the project has the name. The unique index
// alerts_name guards it against a parallel change, which makes the transaction repeat.
func (t *tx) alertNameIsFree(a *store.Alert) error {
	other, err := sqldb.Exists(t, `SELECT 1 FROM alerts WHERE project = $1 AND name = $2 AND id <> $3`,
		a.Project, a.Name, a.ID)
	if err == nil && other {
		return store.ErrExists
	}
	return named("check the name", err)
}

// lockAlert reads an alert and locks its row until the transaction ends. It returns store.ErrNotFound.
func (t *tx) lockAlert(project, id string) (store.Alert, error) {
	return sqldb.Get(t, "", alertColumns, `FROM alerts WHERE id = $1 AND project = $2 FOR UPDATE`, id,
		project)
}

// ChangeAlert changes an alert. change gets the alert as it is, and may run more than once. The store's own
// fields (ids, times, version, the last message) stay as they are. It returns the alert before and after the
// change, store.ErrNotFound, store.ErrExists for a name that is taken, or the error of change. A change
// without effect gets no version and no audit entry. With another condition, or disabled, the alert starts
// from ok: its firings end. With another sink, what fires counts as not reported.
func (db *DB) ChangeAlert(ctx context.Context, project, id string, change func(*store.Alert) error, now int64,
	by store.Actor) (a store.Alert, before store.Alert, err error) {
	err = db.change(ctx, "change alert "+id, func(t *tx) error {
		before, err = t.lockAlert(project, id)
		if err != nil {
			return err
		}
		a = before
		if err := change(&a); err != nil {
			return err
		}
		a.ID, a.Project, a.Version = before.ID, before.Project, before.Version
		a.CreatedAt, a.UpdatedAt = before.CreatedAt, before.UpdatedAt
		a.SentAt, a.SentID, a.LastError = before.SentAt, before.SentID, before.LastError
		if a == before {
			return nil
		}
		if a.Name != before.Name {
			if err := t.alertNameIsFree(&a); err != nil {
				return err
			}
		}
		if a.When != before.When || !a.Enabled {
			a.LastError = ""
			if err := t.endFirings(id, now); err != nil {
				return err
			}
		}
		if a.SinkID != before.SinkID { // the new sink gets a message about what fires
			_, err := t.Exec(`UPDATE alert_firings SET message_id = ''
				WHERE alert_id = $1 AND live = 1 AND resolved_at = 0`, id)
			if err != nil {
				return named("forget the messages of firings", err)
			}
		}
		a.Version++
		a.UpdatedAt = now
		if _, err := alertRowColumns(&alertRow{Alert: a}).Update(t.Tx, "alerts", `id = $1`, id); err != nil {
			return sqldb.Overtaken("write alert", err)
		}
		changes := diff(alertParts, &before, &a)
		return t.auditChange(project, "alert.update", id, now, by, changes, fields{"changed": changes.names})
	})
	return a, before, err
}

// endFirings ends what an alert has found so far.
func (t *tx) endFirings(alert string, now int64) error {
	_, err := t.Exec(`DELETE FROM alert_firings WHERE alert_id = $1 AND live = 1 AND fired_at = 0`, alert)
	if err == nil {
		_, err = t.Exec(`UPDATE alert_firings SET live = 0,
				resolved_at = CASE WHEN resolved_at = 0 THEN $2 ELSE resolved_at END
			WHERE alert_id = $1 AND live = 1`, alert, now)
	}
	return named("end firings", err)
}

// DeleteAlert deletes an alert and its firings, and returns it as it was, or store.ErrNotFound. Its messages
// stay.
func (db *DB) DeleteAlert(ctx context.Context, project, id string, now int64,
	by store.Actor) (store.Alert, error) {
	return changed(ctx, db.change, "delete alert "+id, func(t *tx) (store.Alert, error) {
		a, err := t.lockAlert(project, id)
		if err != nil {
			return a, err
		}
		for _, text := range []string{`DELETE FROM alerts WHERE id = $1`,
			`DELETE FROM alert_firings WHERE alert_id = $1`} {
			if _, err := t.Exec(text, id); err != nil {
				return a, err
			}
		}
		return a, t.auditChange(project, "alert.delete", id, now, by,
			diff(alertParts, &a, new(store.Alert)).removed(), fields{"name": a.Name})
	})
}

// Alert returns an alert of the project, or store.ErrNotFound.
func (db *DB) Alert(ctx context.Context, project, id string) (store.Alert, error) {
	return sqldb.Get(db.read(ctx, "read alerts"), "alert "+id, alertWithState,
		`FROM alerts WHERE id = $1 AND project = $2`, id, project)
}

// Alerts returns a page of the project's alerts, newest first.
func (db *DB) Alerts(ctx context.Context, project string, f store.AlertFilter) ([]store.Alert, error) {
	var q query
	q.add("FROM alerts WHERE project = ?", project)
	q.andIf(f.After != "", "id < ?", f.After)
	q.andIf(f.Search != "", "strpos(search, ?) > 0", store.Fold(f.Search))
	if f.Enabled != nil {
		q.and("enabled = ?", sqldb.Bool(f.Enabled))
	}
	q.add("\n\tORDER BY id DESC LIMIT ?", min(max(f.Limit, 1), maxList+1))
	return sqldb.Select(db.read(ctx, "read alerts"), alertWithState, q.text, q.args...)
}

// AlertProjects returns, in order, up to limit projects above after that have an enabled alert.
func (db *DB) AlertProjects(ctx context.Context, after string, limit int) ([]string, error) {
	read := db.read(ctx, "read projects with alerts")
	return sqldb.Values[string](read, `SELECT DISTINCT project FROM alerts
		WHERE project > $1 AND enabled = 1
		ORDER BY project
		LIMIT $2`, after, limit)
}

// SinkInUse reports whether an alert of the project sends to the sink.
func (db *DB) SinkInUse(ctx context.Context, project, sinkID string) (bool, error) {
	return sqldb.Exists(db.read(ctx, "find alerts of a sink"),
		`SELECT 1 FROM alerts WHERE project = $1 AND sink_id = $2`, project, sinkID)
}

// SinkLanes returns the lanes of the endpoints of all projects that alerts send to, up to limit.
func (db *DB) SinkLanes(ctx context.Context, limit int) ([]int64, error) {
	return sqldb.Values[int64](db.read(ctx, "read lanes of sinks"), `SELECT lane FROM endpoints
		WHERE deleted_at = 0 AND substr(external_id, 1, 11) = 'alert-sink:'
		ORDER BY lane
		LIMIT $1`, limit)
}
