package sqlstore

import (
	"cmp"
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
		sqldb.Int("lane", func(e endpointRow) int64 { return e.LaneID }),
		sqldb.Text("endpoint_id", func(e endpointRow) string { return e.ID }),
		sqldb.Int("concurrency", func(e endpointRow) int { return e.Concurrency }),
		sqldb.Int("rate_count", func(e endpointRow) int64 { return e.Rate.Count }),
		sqldb.Int("rate_per_ms", func(e endpointRow) int64 { return e.Rate.Per.Milliseconds() }),
		sqldb.Int("pause", func(e endpointRow) int64 { return lanePause(&e.Endpoint) }),
		sqldb.Int("version", func(e endpointRow) int64 { return e.laneVersion }))
	return named("write lanes of endpoints", err)
}
