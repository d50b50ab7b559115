package sqlstore

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// CreateEndpoint makes an endpoint with its lane, at its CreatedAt. An empty id is filled in. It returns the
// endpoint with its lane and version, store.ErrExists if the id or the external id is taken, or
// store.ErrLaneQuota. The settings are locked, so no other process can take the external id between the check
// and the insert.
func (db *DB) CreateEndpoint(ctx context.Context, e store.Endpoint, by store.Actor) (store.Endpoint, error) {
	if e.ID == "" {
		var err error
		e.ID, err = db.newID()
		if err != nil {
			return store.Endpoint{}, named("create endpoint", err)
		}
	}
	e.UpdatedAt, e.DeletedAt = e.CreatedAt, 0
	return changed(ctx, db.change, "create endpoint", func(t *tx) (store.Endpoint, error) {
		u := upsert{after: e, created: true}
		if err := t.lockForLanes(e.Project); err != nil {
			return e, err
		}
		existing, err := t.lockEndpoints(`endpoints.id = $1`, e.ID)
		if err != nil {
			return e, err
		}
		if len(existing) > 0 {
			if t.MayBeCommitted && existing[0].CreatedAt == e.CreatedAt && existing[0].Project == e.Project {
				return existing[0], nil // an earlier try was committed, and its reply was lost
			}
			return e, store.ErrExists
		}
		if err := t.mustBeFree(e.Project, e.ExternalID, e.ID); err != nil {
			return e, err
		}
		if err := t.assignLanes([]*upsert{&u}); err != nil {
			return e, err
		}
		if u.after.LaneID == 0 {
			return e, store.ErrLaneQuota
		}
		err = t.writeUpserts([]*upsert{&u}, e.CreatedAt, by)
		return u.after, err
	})
}

// lockForLanes locks the project's row and then the settings, for a transaction that makes lanes later.
// Making lanes locks the project's row, and the order of locks is fixed: see lockSettings.
func (t *tx) lockForLanes(project string) error {
	if err := t.lockProjectRow(project); err != nil {
		return err
	}
	return t.lockSettings()
}

// mustBeFree returns store.ErrExists if an endpoint other than id has the external id. The caller has locked
// the settings.
func (t *tx) mustBeFree(project, externalID, id string) error {
	taken, err := sqldb.Exists(t, `SELECT 1 FROM endpoints
		WHERE endpoints.project = $1 AND endpoints.external_id = $2 AND endpoints.external_id <> ''
			AND `+endpointExists+` AND endpoints.id <> $3`, project, externalID, id)
	if err == nil && taken {
		return store.ErrExists
	}
	return named("check the external id", err)
}

// PatchEndpoint changes an endpoint. change gets the endpoint as it is, and may run more than once. The
// store's own fields (ids, times, lane, version, health) stay as they are. It returns the endpoint after the
// change, store.ErrNotFound, store.ErrExists for an external id that is taken, or the error of change. A
// patch that changes nothing gets no version and no audit entry.
func (db *DB) PatchEndpoint(ctx context.Context, project, id string, change func(*store.Endpoint) error,
	now int64, by store.Actor) (store.Endpoint, error) {
	return db.changeEndpoint(ctx, "change", project, id, now, by, func(t *tx, u *upsert) error {
		if err := u.apply(change, now); err != nil || u.after.ExternalID == u.before.ExternalID {
			return err
		}
		return t.mustBeFree(project, u.after.ExternalID, id)
	})
}

// changeEndpoint changes one endpoint in one transaction, and returns it as it is afterwards.
func (db *DB) changeEndpoint(
	ctx context.Context, verb, project, id string, now int64, by store.Actor, change func(*tx, *upsert) error,
) (store.Endpoint, error) {
	return changed(ctx, db.change, verb+" endpoint "+id, func(t *tx) (store.Endpoint, error) {
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

// lockUpsert locks the settings and the endpoint, and returns it for a change. It returns store.ErrNotFound.
func (t *tx) lockUpsert(project, id string) (*upsert, error) {
	if err := t.lockSettings(); err != nil {
		return nil, err
	}
	found, err := t.lockEndpoints(`endpoints.id = $1 AND endpoints.project = $2 AND `+endpointExists, id,
		project)
	if err == nil && len(found) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return &upsert{before: found[0], after: found[0]}, nil
}

// DisableEndpoint stops sending to an endpoint for a reason, "gone" or "requested". Its lane is paused, and
// nothing is dropped. It returns true if the endpoint was enabled before, and false for a deleted or
// unknown one.
func (db *DB) DisableEndpoint(ctx context.Context, project, id, reason string, now int64,
	by store.Actor) (bool, error) {
	return changed(ctx, db.change, "disable endpoint "+id, func(t *tx) (bool, error) {
		// Every attempt in flight may report that a receiver is gone. This read lets all but the first one
		// return without the lock of the settings.
		enabled, err := sqldb.Exists(t, `SELECT 1 FROM endpoints
			WHERE endpoints.id = $1 AND endpoints.project = $2 AND endpoints.enabled = 1
				AND `+endpointExists, id, project)
		if err != nil || !enabled {
			return false, err
		}
		found, err := t.lockUpsert(project, id)
		if err != nil || !found.before.Enabled {
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

// DeleteEndpoint hides an endpoint from callers and pauses its lane for good. CancelDeleted then cancels its
// open callbacks. Its external id is free at once. It returns the endpoint as it is afterwards, or
// store.ErrNotFound.
func (db *DB) DeleteEndpoint(ctx context.Context, project, id string, now int64,
	by store.Actor) (store.Endpoint, error) {
	return db.changeEndpoint(ctx, "delete", project, id, now, by, func(_ *tx, u *upsert) error {
		u.delete(now)
		return nil
	})
}

// delete marks the endpoint as deleted.
func (u *upsert) delete(now int64) {
	u.after.DeletedAt, u.after.UpdatedAt = max(now, 1), now
	u.after.Enabled, u.after.DisabledReason = false, "deleted"
}

// An upsert is one endpoint to be inserted or changed, before and after the change.
type upsert struct {
	before, after store.Endpoint
	created       bool
}

// apply runs change on a copy of the endpoint, and restores the fields that a caller may not change.
func (u *upsert) apply(change func(*store.Endpoint) error, now int64) error {
	e := u.before
	// Clone what the fields point to, so that change cannot reach the value before it.
	e.Topics, e.Headers = slices.Clone(e.Topics), slices.Clone(e.Headers)
	if e.Policy.Given != nil {
		given := clonePolicy(*e.Policy.Given)
		e.Policy.Given = &given
	}
	if err := change(&e); err != nil {
		return err
	}
	b := &u.before
	e.ID, e.Project, e.LaneID, e.Version = b.ID, b.Project, b.LaneID, b.Version
	e.CreatedAt, e.DeletedAt, e.UpdatedAt = b.CreatedAt, b.DeletedAt, now
	e.FailingSince, e.AlertedAt = b.FailingSince, b.AlertedAt
	e.LastSuccessAt, e.LastFailureAt = b.LastSuccessAt, b.LastFailureAt
	e.Succeeded, e.Failed = b.Succeeded, b.Failed
	u.after = e
	return nil
}

// assignLanes looks up or makes the lanes of new endpoints. LaneID stays zero if the project's lane quota is
// used up. See lockForLanes.
func (t *tx) assignLanes(upserts []*upsert) error {
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

// writeUpserts writes the endpoints that differ, the settings of their lanes, and the audit, in this
// transaction. It sets after to what was written. The caller has locked the settings.
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
		notePauseStarts(&u.before, &u.after, now)
		row := endpointRow{Endpoint: u.after}
		if u.after.DeletedAt != 0 {
			row.canceling = belowAllIDs // CancelDeleted begins at the first callback
		}
		if changesLane(&u.before, &u.after) {
			var err error
			row.laneVersion, err = t.nextVersion()
			if err != nil {
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

// audit returns the audit action and the differences of the upsert. The action is empty if nothing differs;
// then nothing is written. What the dispatcher itself records, such as health, is not compared. For a created
// endpoint it sets u.before.Enabled: a missing endpoint counts as enabled, here and where the lanes of before
// and after are compared.
func (u *upsert) audit() (action string, changed auditDiff, detail fields) {
	if u.created {
		u.before.Enabled = true
		return "endpoint.create", diff(endpointParts, &u.before, &u.after).made(),
			fields{"name": u.after.Name, "external_id": u.after.ExternalID}
	}
	changed = diff(endpointParts, &u.before, &u.after)
	only := func(part string) bool { return len(changed.names) == 1 && changed.names[0] == part }
	switch {
	case u.after.DeletedAt != u.before.DeletedAt:
		return "endpoint.delete", diff(endpointParts, &u.before, new(store.Endpoint)).removed(), nil
	case len(changed.names) == 0:
		return "", changed, nil
	case only("pause") && u.after.PausedUntil == 0:
		return "endpoint.resume", changed, nil
	case only("pause"):
		return "endpoint.pause", changed, pauseDetail(u.after.PausedUntil, u.after.PauseReason)
	case only("link_version"):
		return "endpoint.revoke_view_links", changed, nil
	case only("enabled") && u.after.Enabled:
		return "endpoint.enable", changed, nil
	case only("enabled"):
		return "endpoint.disable", changed, fields{"disabled_reason": u.after.DisabledReason}
	}
	return "endpoint.update", changed, fields{"changed": changed.names}
}

// An endpointRow is an endpoint with the columns that only writes use.
type endpointRow struct {
	store.Endpoint
	search, sealedKey, canceling string
	// laneVersion is the new version of its lane. Zero leaves the lane's version as it is.
	laneVersion int64
}

func endpointRowColumns(e *endpointRow) sqldb.Columns {
	return append(endpointColumns(&e.Endpoint),
		col("search", &e.search), col("sealed_key", &e.sealedKey), col("canceling", &e.canceling))
}

// searchOf is the text that a search for the endpoint reads, one field a line. A searched text has no line
// end, so it cannot match across fields.
func searchOf(e *store.Endpoint) string {
	return store.Fold(strings.Join([]string{e.ExternalID, e.Name, e.URL, store.EndpointPrefix + e.ID}, "\n"))
}

// lanePause is until when the endpoint's own settings pause its lane.
func lanePause(e *store.Endpoint) int64 {
	if !e.Enabled || e.DeletedAt != 0 {
		return store.Forever
	}
	return e.PausedUntil
}

// pausedSince returns when a pause began, after its end was changed from before to after at now. began is
// when it began before the change. A pause that is still running keeps its beginning. Zero means no pause.
func pausedSince(before, began, after, now int64) int64 {
	switch {
	case after == 0:
		return 0
	case after == before || before > now:
		return began
	}
	return now
}

// notePauseStarts sets when the pause and the disabling of an endpoint began.
func notePauseStarts(before, after *store.Endpoint, now int64) {
	after.PausedAt = pausedSince(before.PausedUntil, before.PausedAt, after.PausedUntil, now)
	switch {
	case after.Enabled:
		after.DisabledAt = 0
	case before.Enabled:
		after.DisabledAt = now
	default:
		after.DisabledAt = before.DisabledAt
	}
}

// changesLane reports whether the change concerns the settings of the endpoint's lane.
func changesLane(before, after *store.Endpoint) bool {
	return before.Concurrency != after.Concurrency || before.Rate != after.Rate ||
		lanePause(before) != lanePause(after)
}

// lockEndpoints reads endpoints, including deleted ones, and locks them in the order of their ids.
func (t *tx) lockEndpoints(which string, args ...any) ([]store.Endpoint, error) {
	found, err := sqldb.Select(t, wholeEndpoint,
		`FROM endpoints WHERE `+which+` ORDER BY endpoints.id FOR UPDATE`, args...)
	return found, named("lock endpoints", err)
}

// writeEndpoints gives each endpoint a version, and writes the endpoints and the settings of their lanes. The
// caller has locked the settings.
func (t *tx) writeEndpoints(rows []endpointRow) error {
	slices.SortFunc(rows, func(a, b endpointRow) int { return cmp.Compare(a.ID, b.ID) })
	for i := range rows {
		e := &rows[i]
		e.search, e.sealedKey = searchOf(&e.Endpoint), store.SealedKey(e.Headers)
		var err error
		e.Version, err = t.nextVersion()
		if err != nil {
			return err
		}
	}
	overwrite := endpointRowColumns(new(endpointRow)).Overwrite("id", "project", "lane", "created_at")
	if err := sqldb.InsertRows(t.Tx, "endpoints", endpointRowColumns, rows,
		`ON CONFLICT (id) DO UPDATE SET `+overwrite); err != nil {
		return named("write endpoints", err)
	}
	return t.writeLanes(rows)
}

var boundFields = sqldb.Named[store.Endpoint](`lane=LaneID endpoint_id=ID concurrency rate_count rate_per_ms`)

// writeLanes copies the endpoints' limits and pauses to their lanes. The index reads them there, by the
// lane's version.
func (t *tx) writeLanes(rows []endpointRow) error {
	_, err := sqldb.ExecRows(t.Tx, `UPDATE lanes SET
			endpoint_id = i.endpoint_id,
			concurrency = i.concurrency,
			rate_count = i.rate_count,
			rate_per_ms = i.rate_per_ms,
			endpoint_paused_until = i.pause,
			paused_until = `+lastPause("lanes.own_paused_until", "i.pause", "lanes.project_paused_until")+`,
			version = CASE WHEN i.version > 0 THEN i.version ELSE lanes.version END
		FROM $i WHERE lanes.id = i.lane`, rows,
		func(e *endpointRow) sqldb.Columns {
			return append(boundFields(&e.Endpoint),
				calc("pause", func() int64 { return lanePause(&e.Endpoint) }),
				col("version", &e.laneVersion))
		})
	return named("write lanes of endpoints", err)
}

// UpsertEndpoints inserts or changes up to 1,000 endpoints in one transaction, and answers each in its place.
// An upsert is refused alone by the error of its Change, by the lane quota, or if its external id is empty or
// occurs twice. If UpsertEndpoints returns an error, nothing is changed.
func (db *DB) UpsertEndpoints(ctx context.Context, project string, wants []store.EndpointUpsert, now int64,
	by store.Actor) ([]store.UpsertedEndpoint, error) {
	if len(wants) == 0 {
		return []store.UpsertedEndpoint{}, nil
	}
	return changed(ctx, db.changeLong, "upsert endpoints", func(t *tx) ([]store.UpsertedEndpoint, error) {
		answers := make([]store.UpsertedEndpoint, len(wants))
		places := make(map[string]int, len(wants))
		for i, w := range wants {
			message := ""
			if _, twice := places[w.ExternalID]; twice {
				message = "occurs twice in this request"
			} else if w.ExternalID == "" {
				message = "is needed"
			}
			if message != "" {
				answers[i].Err = invalid("external_id", message)
				continue
			}
			places[w.ExternalID] = i
		}
		upserts, err := t.findUpserts(project, places, now)
		if err != nil {
			return nil, err
		}
		var written []*upsert
		for _, u := range upserts {
			i := places[u.before.ExternalID]
			answers[i].Err = u.apply(wants[i].Change, now)
			if answers[i].Err == nil && u.after.LaneID == 0 {
				answers[i].Err = store.ErrLaneQuota
			}
			if answers[i].Err == nil {
				u.after.ExternalID = u.before.ExternalID
				written = append(written, u)
			}
		}
		err = t.writeUpserts(written, now, by)
		for _, u := range written {
			answers[places[u.after.ExternalID]] = store.UpsertedEndpoint{Endpoint: u.after,
				Created: u.created}
		}
		return answers, err
	})
}

// findUpserts returns an upsert for each external id: the existing endpoint, locked, or a new one with a
// lane. They are in the order of the request, which the audit keeps.
func (t *tx) findUpserts(project string, places map[string]int, now int64) ([]*upsert, error) {
	if err := t.lockForLanes(project); err != nil {
		return nil, err
	}
	names := sortedKeys(places)
	found, err := t.lockEndpoints(`endpoints.external_id IN (SELECT i.name FROM $i)
		AND endpoints.external_id <> '' AND endpoints.project = $1 AND `+endpointExists,
		project, sqldb.Texts("name", names))
	if err != nil {
		return nil, err
	}
	var upserts, made []*upsert
	existing := make(map[string]bool, len(names))
	for _, e := range found {
		existing[e.ExternalID] = true
		upserts = append(upserts, &upsert{before: e, after: e})
	}
	for _, name := range names {
		if existing[name] {
			continue
		}
		id, err := t.db.newID()
		if err != nil {
			return nil, err
		}
		e := store.Endpoint{ID: id, Project: project, ExternalID: name, Enabled: true, CreatedAt: now,
			UpdatedAt: now}
		made = append(made, &upsert{after: e, created: true})
	}
	if err := t.assignLanes(made); err != nil {
		return nil, err
	}
	for _, u := range made {
		u.before = u.after
	}
	upserts = append(upserts, made...)
	slices.SortFunc(upserts, func(a, b *upsert) int {
		return cmp.Compare(places[a.before.ExternalID], places[b.before.ExternalID])
	})
	return upserts, nil
}
