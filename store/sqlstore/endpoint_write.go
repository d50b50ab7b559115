package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

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

// holdSince notes since when what an endpoint's own holds it lasts.
func holdSince(before, after *store.Endpoint, now int64) {
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

// setsLane says whether the endpoint's lane must be told of a change.
func setsLane(before, after *store.Endpoint) bool {
	return before.Concurrency != after.Concurrency || before.Rate != after.Rate ||
		lanePause(before) != lanePause(after)
}

// lockEndpoints reads endpoints that this transaction is going to change, those that were deleted too, and keeps others from changing
// them. The condition's arguments are those of its parameters.
func (t *tx) lockEndpoints(which string, args ...any) ([]store.Endpoint, error) {
	found, err := sqldb.Select(t, wholeEndpoint, `FROM endpoints WHERE `+which+` ORDER BY endpoints.id FOR UPDATE`, args...)
	return found, named("lock endpoints", err)
}

// writeEndpoints gives the endpoints versions and writes them, and what their lanes must be told. The settings are locked.
func (t *tx) writeEndpoints(rows []endpointRow) error {
	slices.SortFunc(rows, func(a, b endpointRow) int { return cmp.Compare(a.ID, b.ID) })
	for i := range rows {
		e := &rows[i]
		e.search, e.sealedKey = searchOf(&e.Endpoint), store.SealedKey(e.Headers)
		var err error
		if e.Version, err = t.nextVersion(); err != nil {
			return err
		}
	}
	overwrite := endpointRowColumns(new(endpointRow)).Overwrite("id", "project", "lane", "created_at")
	if err := sqldb.InsertRows(t.Tx, "endpoints", endpointRowColumns, rows, `ON CONFLICT (id) DO UPDATE SET `+overwrite); err != nil {
		return fmt.Errorf("write endpoints: %w", err)
	}
	return t.writeLanes(rows)
}

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
			return sqldb.Columns{
				col("lane", &e.LaneID),
				col("endpoint_id", &e.ID),
				col("concurrency", &e.Concurrency),
				col("rate_count", &e.Rate.Count),
				calc("rate_per_ms", func() int64 { return e.Rate.Per.Milliseconds() }),
				calc("pause", func() int64 { return lanePause(&e.Endpoint) }),
				col("version", &e.laneVersion),
			}
		})
	return named("write lanes of endpoints", err)
}

// UpsertEndpoints makes or changes up to 1,000 endpoints in one transaction, and answers each in its place. What is refused, by its
// Change or because its external id is empty or stands there twice, leaves the others alone. An error means that nothing was done.
func (db *DB) UpsertEndpoints(ctx context.Context, project string, wants []store.EndpointUpsert, now int64, by store.Actor) ([]store.UpsertedEndpoint, error) {
	answers := make([]store.UpsertedEndpoint, len(wants))
	if len(wants) == 0 {
		return answers, nil
	}
	err := db.changeMany(ctx, "upsert endpoints", len(wants), func(t *tx) error {
		places := make(map[string]int, len(wants))
		for i, w := range wants {
			answers[i] = store.UpsertedEndpoint{}
			switch _, twice := places[w.ExternalID]; {
			case w.ExternalID == "":
				answers[i].Err = &store.InvalidError{Fields: []store.FieldError{{Field: "external_id", Message: "is needed"}}}
			case twice:
				answers[i].Err = &store.InvalidError{Fields: []store.FieldError{{Field: "external_id", Message: "stands there twice"}}}
			default:
				places[w.ExternalID] = i
			}
		}
		upserts, err := t.findUpserts(project, places, now)
		if err != nil {
			return err
		}
		var written []*upsert
		for _, u := range upserts {
			i := places[u.before.ExternalID]
			if err := u.apply(wants[i].Change, now); err != nil {
				answers[i].Err = err
				continue
			}
			if u.after.LaneID == 0 {
				answers[i].Err = store.ErrLaneQuota
				continue
			}
			u.after.ExternalID = u.before.ExternalID
			written = append(written, u)
		}
		if err := t.writeUpserts(written, now, by); err != nil {
			return err
		}
		for _, u := range written {
			i := places[u.after.ExternalID]
			answers[i].Endpoint, answers[i].Created = u.after, u.created
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// findUpserts returns, for each external id, the endpoint that there is, locked, or a new one with a lane.
func (t *tx) findUpserts(project string, places map[string]int, now int64) ([]*upsert, error) {
	names := sortedKeys(places)
	input := sqldb.Texts("name", names)
	const which = `endpoints.external_id IN (SELECT i.name FROM $i) AND endpoints.external_id <> ''
		AND endpoints.project = $1 AND ` + endpointIsThere
	// Those that are to be made are found before the settings are locked, since their lanes come before; another
	// transaction may have made some of them by then.
	known, err := sqldb.Values[string](t, `SELECT endpoints.external_id FROM endpoints WHERE `+which, project, input)
	if err != nil {
		return nil, fmt.Errorf("look for endpoints: %w", err)
	}
	var made []*upsert
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(known, name) })
	if made, err = t.newUpserts(project, missing, now); err != nil {
		return nil, err
	}
	if err := t.lockSettings(); err != nil {
		return nil, err
	}
	found, err := t.lockEndpoints(which, project, input)
	if err != nil {
		return nil, err
	}
	upserts := make([]*upsert, 0, len(places))
	there := make(map[string]bool, len(places))
	for i := range found {
		upserts = append(upserts, &upsert{before: found[i], after: found[i]})
		there[found[i].ExternalID] = true
	}
	for _, u := range made {
		if name := u.after.ExternalID; !there[name] {
			upserts = append(upserts, u)
			there[name] = true
		}
	}
	// Some were deleted in between. This makes lanes with the settings locked: a transaction that waits for this one is tried again.
	missing = slices.DeleteFunc(names, func(name string) bool { return there[name] })
	if made, err = t.newUpserts(project, missing, now); err != nil {
		return nil, err
	}
	upserts = append(upserts, made...)
	// In the order in which they were asked for, which the audit keeps.
	slices.SortFunc(upserts, func(a, b *upsert) int { return cmp.Compare(places[a.before.ExternalID], places[b.before.ExternalID]) })
	return upserts, nil
}

// newUpserts are endpoints that are made, with lanes.
func (t *tx) newUpserts(project string, externalIDs []string, now int64) ([]*upsert, error) {
	if len(externalIDs) == 0 {
		return nil, nil
	}
	made := make([]*upsert, len(externalIDs))
	for i, name := range externalIDs {
		id, err := t.db.ids.next()
		if err != nil {
			return nil, err
		}
		e := store.Endpoint{ID: id, Project: project, ExternalID: name, Enabled: true, CreatedAt: now, UpdatedAt: now}
		made[i] = &upsert{after: e, created: true}
	}
	if err := t.giveLanes(made); err != nil {
		return nil, err
	}
	for _, u := range made {
		u.before = u.after
	}
	return made, nil
}
