package sqlstore

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// CreateEndpoint makes an endpoint, at its CreatedAt; an empty id is made. It returns the endpoint with its
// lane and version, or store.ErrExists where its id or its external id is taken, or store.ErrLaneQuota.
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
		there, err := t.lockEndpoints(`endpoints.id = $1`, e.ID)
		if err != nil {
			return e, err
		}
		if len(there) > 0 {
			if t.Again && there[0].CreatedAt == e.CreatedAt && there[0].Project == e.Project {
				return there[0], nil // An earlier try was committed, and its reply lost.
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

// lockForLanes locks the settings for a transaction that may make lanes then, which locks their project's
// row.
func (t *tx) lockForLanes(project string) error {
	if err := t.lockProjectRow(project); err != nil {
		return err
	}
	return t.lockSettings()
}

// mustBeFree returns store.ErrExists where another endpoint than that of the id has the external id. The
// settings are locked.
func (t *tx) mustBeFree(project, externalID, id string) error {
	taken, err := sqldb.Exists(t, `SELECT 1 FROM endpoints
		WHERE endpoints.project = $1 AND endpoints.external_id = $2 AND endpoints.external_id <> '' AND `+endpointExists+`
			AND endpoints.id <> $3`, project, externalID, id)
	if err == nil && taken {
		return store.ErrExists
	}
	return named("look for the external id", err)
}

// PatchEndpoint changes an endpoint: change is given it as it is, and may be called more than once. What of
// it belongs to the store (ids, times, lane, version, health) stays as it is. It returns the endpoint as it
// is then, store.ErrNotFound, store.ErrExists for an external id that is taken, or the error of change. What
// changes nothing is neither numbered nor audited.
func (db *DB) PatchEndpoint(ctx context.Context, project, id string, change func(*store.Endpoint) error,
	now int64, by store.Actor) (store.Endpoint, error) {
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

// lockUpsert reads an endpoint that this transaction is going to change.
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

// DisableEndpoint stops sending to an endpoint for a reason, "gone" or "requested", and says whether that is
// new: nothing is dropped, it is held. One that is not there any more is none.
func (db *DB) DisableEndpoint(ctx context.Context, project, id, reason string, now int64,
	by store.Actor) (bool, error) {
	return changed(ctx, db.change, "disable endpoint "+id, func(t *tx) (bool, error) {
		// A receiver that is gone says so to every attempt in flight: one that need not be disabled locks no
		// settings.
		enabled, err := sqldb.Exists(t, `SELECT 1 FROM endpoints
			WHERE endpoints.id = $1 AND endpoints.project = $2 AND endpoints.enabled = 1 AND `+endpointExists, id, project)
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

// DeleteEndpoint removes an endpoint from sight and holds its lane for good; CancelDeleted cancels what is
// open. Its external id is free at once. It returns the endpoint as it is then, or store.ErrNotFound.
func (db *DB) DeleteEndpoint(ctx context.Context, project, id string, now int64,
	by store.Actor) (store.Endpoint, error) {
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
		given := clonePolicy(*e.Policy.Given)
		e.Policy.Given = &given
	}
	if err := change(&e); err != nil {
		return err
	}
	b := &u.before
	e.ID, e.Project, e.LaneID, e.Version, e.CreatedAt, e.DeletedAt, e.UpdatedAt = b.ID, b.Project, b.LaneID,
		b.Version, b.CreatedAt, b.DeletedAt, now
	e.FailingSince, e.AlertedAt, e.LastSuccessAt, e.LastFailureAt = b.FailingSince, b.AlertedAt,
		b.LastSuccessAt, b.LastFailureAt
	u.after = e
	return nil
}

// assignLanes makes the lanes of endpoints that are made; zero: its project has as many lanes as it may. See
// lockForLanes.
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
		notePauseStarts(&u.before, &u.after, now)
		row := endpointRow{Endpoint: u.after}
		if u.after.DeletedAt != 0 {
			row.canceling = belowAllIDs
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

// audit says what was done, as the audit names it, and what differs by it; empty: nothing.
func (u *upsert) audit() (action string, changed auditDiff, detail fields) {
	if u.created {
		u.before.Enabled = true // What it is compared with: nothing holds it, and its lane has no bounds.
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
	case only("enabled") && u.after.Enabled:
		return "endpoint.enable", changed, nil
	case only("enabled"):
		return "endpoint.disable", changed, fields{"disabled_reason": u.after.DisabledReason}
	}
	return "endpoint.update", changed, fields{"changed": changed.names}
}

// An endpointRow is an endpoint that is written.
type endpointRow struct {
	store.Endpoint
	search, sealedKey, canceling string
	// laneVersion is its lane's new version; zero: its lane stays as it is.
	laneVersion int64
}

func endpointRowColumns(e *endpointRow) sqldb.Columns {
	return append(endpointColumns(&e.Endpoint),
		col("search", &e.search), col("sealed_key", &e.sealedKey), col("canceling", &e.canceling))
}

// searchOf is what a search for the endpoint looks in. No text that is searched has a line end.
func searchOf(e *store.Endpoint) string {
	return store.Fold(strings.Join([]string{e.ExternalID, e.Name, e.URL, store.EndpointPrefix + e.ID}, "\n"))
}

// lanePause is what of an endpoint's own holds its lane.
func lanePause(e *store.Endpoint) int64 {
	if !e.Enabled || e.DeletedAt != 0 {
		return store.Forever
	}
	return e.PausedUntil
}

// pausedSince returns since when a pause lasts that was until before, since at, and is until after from now
// on: one that is moved while it lasts goes on.
func pausedSince(before, at, after, now int64) int64 {
	switch {
	case after == 0:
		return 0
	case after == before || before > now:
		return at
	}
	return now
}

// notePauseStarts notes since when what an endpoint's own holds it lasts.
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

// changesLane says whether the endpoint's lane must be told of a change.
func changesLane(before, after *store.Endpoint) bool {
	return before.Concurrency != after.Concurrency || before.Rate != after.Rate ||
		lanePause(before) != lanePause(after)
}

// lockEndpoints reads endpoints that this transaction is going to change, those that were deleted too, and
// keeps others from changing them. The condition's arguments are those of its parameters.
func (t *tx) lockEndpoints(which string, args ...any) ([]store.Endpoint, error) {
	found, err := sqldb.Select(t, wholeEndpoint,
		`FROM endpoints WHERE `+which+` ORDER BY endpoints.id FOR UPDATE`, args...)
	return found, named("lock endpoints", err)
}

// writeEndpoints gives the endpoints versions and writes them, and what their lanes must be told. The
// settings are locked.
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

// writeLanes tells the lanes of endpoints what is theirs.
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
			return append(boundFields(&e.Endpoint), calc("pause", func() int64 {
				return lanePause(&e.Endpoint)
			}), col("version", &e.laneVersion))
		})
	return named("write lanes of endpoints", err)
}

// UpsertEndpoints makes or changes up to 1,000 endpoints in one transaction, and answers each in its place.
// What is refused, by its Change or because its external id is empty or stands there twice, leaves the others
// alone. An error means that nothing was done.
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
				message = "stands there twice"
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

// findUpserts returns, for each external id, the endpoint that there is, locked, or a new one with a lane, in
// the order in which they were asked for, which the audit keeps.
func (t *tx) findUpserts(project string, places map[string]int, now int64) ([]*upsert, error) {
	if err := t.lockForLanes(project); err != nil {
		return nil, err
	}
	names := sortedKeys(places)
	found,
		err :=
		t.lockEndpoints(`endpoints.external_id IN (SELECT i.name FROM $i) AND endpoints.external_id <> ''
		AND endpoints.project = $1 AND `+endpointExists, project, sqldb.Texts("name", names))
	if err != nil {
		return nil, err
	}
	var upserts, made []*upsert
	there := make(map[string]bool, len(names))
	for _, e := range found {
		there[e.ExternalID] = true
		upserts = append(upserts, &upsert{before: e, after: e})
	}
	for _, name := range names {
		if there[name] {
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
