package sqlstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// CreateEndpoint makes an endpoint, at its CreatedAt; an empty id is made. It returns the endpoint with its lane and version, or
// store.ErrExists where its id or its external id is taken, or store.ErrLaneQuota.
func (db *DB) CreateEndpoint(ctx context.Context, e store.Endpoint, by store.Actor) (store.Endpoint, error) {
	if e.ID == "" {
		var err error
		if e.ID, err = db.ids.next(); err != nil {
			return store.Endpoint{}, fmt.Errorf("create endpoint: %w", err)
		}
	}
	e.UpdatedAt, e.DeletedAt = e.CreatedAt, 0
	u := upsert{created: true}
	err := db.change(ctx, "create endpoint", func(t *tx) error {
		u.after = e
		if err := t.giveLanes([]*upsert{&u}); err != nil {
			return err
		}
		if u.after.LaneID == 0 {
			return store.ErrLaneQuota
		}
		if err := t.lockSettings(); err != nil {
			return err
		}
		there, err := t.lockEndpoints(`endpoints.id = $1`, e.ID)
		if err != nil {
			return err
		}
		if len(there) > 0 {
			if u.after = there[0]; t.Again && u.after.CreatedAt == e.CreatedAt && u.after.Project == e.Project {
				return nil // An earlier try was committed, and its reply lost.
			}
			return store.ErrExists
		}
		if err := t.mustBeFree(e.Project, e.ExternalID, e.ID); err != nil {
			return err
		}
		return t.writeUpserts([]*upsert{&u}, e.CreatedAt, by)
	})
	if err != nil {
		return store.Endpoint{}, err
	}
	return u.after, nil
}

// mustBeFree returns store.ErrExists where another endpoint than that of the id has the external id. The settings are locked.
func (t *tx) mustBeFree(project, externalID, id string) error {
	taken, err := sqldb.Exists(t, `SELECT 1 FROM endpoints
		WHERE endpoints.project = $1 AND endpoints.external_id = $2 AND endpoints.external_id <> '' AND `+endpointIsThere+`
			AND endpoints.id <> $3`, project, externalID, id)
	if err == nil && taken {
		return store.ErrExists
	}
	return named("look for the external id", err)
}

// PatchEndpoint changes an endpoint: change is given it as it is, and may be called more than once. What of it belongs to the store
// (ids, times, lane, version, health) stays as it is. It returns the endpoint as it is then, store.ErrNotFound, store.ErrExists for an external
// id that is taken, or the error of change. What changes nothing is neither numbered nor audited.
func (db *DB) PatchEndpoint(ctx context.Context, project, id string, change func(*store.Endpoint) error, now int64, by store.Actor) (store.Endpoint, error) {
	return db.changeEndpoint(ctx, "change", project, id, now, by, func(t *tx, u *upsert) error {
		if err := u.apply(change, now); err != nil || u.after.ExternalID == u.before.ExternalID {
			return err
		}
		return t.mustBeFree(project, u.after.ExternalID, id)
	})
}

// changeEndpoint changes one endpoint, and returns it as it is then.
func (db *DB) changeEndpoint(
	ctx context.Context, verb, project, id string, now int64, by store.Actor, change func(*tx, *upsert) error,
) (store.Endpoint, error) {
	return changed(ctx, db, verb+" endpoint "+id, func(t *tx) (store.Endpoint, error) {
		u, err := t.lockUpsert(project, id)
		if err == nil {
			err = change(t, u)
		}
		if err == nil {
			err = t.writeUpserts([]*upsert{u}, now, by)
		}
		if err != nil {
			return store.Endpoint{}, err
		}
		return u.after, nil
	})
}

// lockUpsert reads an endpoint that this transaction is going to change.
func (t *tx) lockUpsert(project, id string) (*upsert, error) {
	if err := t.lockSettings(); err != nil {
		return nil, err
	}
	found, err := t.lockEndpoints(`endpoints.id = $1 AND endpoints.project = $2 AND `+endpointIsThere, id, project)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, store.ErrNotFound
	}
	return &upsert{before: found[0], after: found[0]}, nil
}

// DisableEndpoint stops sending to an endpoint for a reason, "gone" or "requested", and says whether that is new: nothing is dropped, it
// is held. One that is not there any more is none.
func (db *DB) DisableEndpoint(ctx context.Context, project, id, reason string, now int64, by store.Actor) (bool, error) {
	return changed(ctx, db, "disable endpoint "+id, func(t *tx) (bool, error) {
		found, err := t.lockEnabled(project, id)
		if err != nil || found == nil {
			return false, err
		}
		found.after.Enabled, found.after.DisabledReason, found.after.UpdatedAt = false, reason, now
		if err := t.writeUpserts([]*upsert{found}, now, by); err != nil {
			return false, err
		}
		return true, t.addEndpointEvents([]store.EndpointEvent{{
			Project: project, EndpointID: id, Kind: store.EndpointDisabled, At: now,
		}})
	})
}

// lockEnabled reads an endpoint that is to be disabled; nil, without locking the settings, where it need not be: a receiver that is gone
// says so to every attempt in flight.
func (t *tx) lockEnabled(project, id string) (*upsert, error) {
	enabled, err := sqldb.Exists(t, `SELECT 1 FROM endpoints
		WHERE endpoints.id = $1 AND endpoints.project = $2 AND endpoints.enabled = 1 AND `+endpointIsThere, id, project)
	if err != nil || !enabled {
		return nil, err
	}
	u, err := t.lockUpsert(project, id)
	if err != nil || !u.before.Enabled {
		return nil, err
	}
	return u, nil
}

// DeleteEndpoint removes an endpoint from sight and holds its lane for good; CancelDeleted cancels what is open. Its external id is free
// at once. It returns the endpoint as it is then, or store.ErrNotFound.
func (db *DB) DeleteEndpoint(ctx context.Context, project, id string, now int64, by store.Actor) (store.Endpoint, error) {
	return db.changeEndpoint(ctx, "delete", project, id, now, by, func(_ *tx, u *upsert) error {
		u.after.DeletedAt, u.after.UpdatedAt = max(now, 1), now
		u.after.Enabled, u.after.DisabledReason = false, "deleted"
		return nil
	})
}

// An upsert is one endpoint that is made or changed.
type upsert struct {
	before, after store.Endpoint
	created       bool
}

// apply calls change, and puts back what is not its to change.
func (u *upsert) apply(change func(*store.Endpoint) error, now int64) error {
	e := u.before
	// The caller's own: what it does to them must not reach what they are compared with.
	e.Topics, e.Headers = slices.Clone(e.Topics), slices.Clone(e.Headers)
	if e.Policy.Given != nil {
		given := *e.Policy.Given
		given.Tiers, given.StopOn = slices.Clone(given.Tiers), slices.Clone(given.StopOn)
		e.Policy.Given = &given
	}
	if err := change(&e); err != nil {
		return err
	}
	b := &u.before
	e.ID, e.Project, e.LaneID, e.Version, e.CreatedAt, e.DeletedAt, e.UpdatedAt = b.ID, b.Project, b.LaneID, b.Version, b.CreatedAt, b.DeletedAt, now
	e.FailingSince, e.AlertedAt, e.LastSuccessAt, e.LastFailureAt = b.FailingSince, b.AlertedAt, b.LastSuccessAt, b.LastFailureAt
	u.after = e
	return nil
}

// giveLanes makes the lanes of endpoints that are made; zero: its project has as many lanes as it may. It
// comes before the settings are locked: see settings.go.
func (t *tx) giveLanes(upserts []*upsert) error {
	keys := make([]laneKey, len(upserts))
	for i, u := range upserts {
		keys[i] = laneKey{u.after.Project, u.after.LaneKey()}
	}
	ids, err := t.laneIDs(keys)
	if err != nil {
		return err
	}
	for i, u := range upserts {
		u.after.LaneID = ids[keys[i]]
	}
	return nil
}

// writeUpserts writes those that were made or changed, their lanes and the audit. The settings are locked.
func (t *tx) writeUpserts(upserts []*upsert, now int64, by store.Actor) error {
	var rows []endpointRow
	done := make(map[string]*upsert)
	var entries []store.AuditEntry
	for _, u := range upserts {
		action, changed, detail := u.audit()
		if action == "" {
			u.after = u.before
			continue
		}
		holdSince(&u.before, &u.after, now)
		row := endpointRow{Endpoint: u.after}
		if u.after.DeletedAt != 0 {
			row.canceling = belowAllIDs
		}
		if setsLane(&u.before, &u.after) {
			var err error
			if row.laneVersion, err = t.nextVersion(); err != nil {
				return err
			}
		}
		entry, err := auditOf(u.after.Project, action, u.after.ID, now, by, changed, detail)
		if err != nil {
			return err
		}
		done[u.after.ID] = u
		rows, entries = append(rows, row), append(entries, entry)
	}
	if len(rows) == 0 {
		return nil
	}
	if err := t.writeEndpoints(rows); err != nil {
		return err
	}
	for i := range rows {
		done[rows[i].ID].after = rows[i].Endpoint
	}
	return t.audit(entries...)
}

// audit says what was done, as the audit names it, and what differs by it; empty: nothing.
func (u *upsert) audit() (action string, changed auditDiff, detail any) {
	if u.created {
		u.before.Enabled = true // What it is compared with: nothing holds it, and its lane has no bounds.
		return actionCreateEndpoint, diffEndpoint(&u.before, &u.after).made(),
			map[string]any{"name": u.after.Name, "external_id": u.after.ExternalID}
	}
	changed = diffEndpoint(&u.before, &u.after)
	only := func(part string) bool { return len(changed.names) == 1 && changed.names[0] == part }
	switch {
	case u.after.DeletedAt != u.before.DeletedAt:
		return actionDeleteEndpoint, diffEndpoint(&u.before, new(store.Endpoint)).removed(), nil
	case len(changed.names) == 0:
		return "", changed, nil
	case only("pause") && u.after.PausedUntil == 0:
		return actionResumeEndpoint, changed, nil
	case only("pause"):
		return actionPauseEndpoint, changed, pauseDetail(u.after.PausedUntil, u.after.PauseReason)
	case only("enabled") && u.after.Enabled:
		return actionEnableEndpoint, changed, nil
	case only("enabled"):
		return actionDisableEndpoint, changed, map[string]any{"disabled_reason": u.after.DisabledReason}
	}
	return actionUpdateEndpoint, changed, map[string]any{"changed": changed.names}
}
