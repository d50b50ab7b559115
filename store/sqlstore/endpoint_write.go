package sqlstore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// An endpointRow is an endpoint that is written, with its structured parts as JSON text.
type endpointRow struct {
	store.Endpoint
	topics, policy, success, headers string
	canceling                        string
	// laneVersion is its lane's new version; zero: its lane stays as it is.
	laneVersion int64
}

// endpointWrite makes endpoints, or changes those that there are, but for their health.
var endpointWrite = newBulkInsert("endpoints", fields[*endpointRow]{
	textField("id", func(e *endpointRow) string { return e.ID }),
	textField("project", func(e *endpointRow) string { return e.Project }),
	textField("external_id", func(e *endpointRow) string { return e.ExternalID }),
	textField("name", func(e *endpointRow) string { return e.Name }),
	textField("url", func(e *endpointRow) string { return e.URL }),
	textField("url_override", func(e *endpointRow) string { return string(e.URLOverride) }),
	textField("search", func(e *endpointRow) string { return searchOf(&e.Endpoint) }),
	textField("topics", func(e *endpointRow) string { return e.topics }),
	textField("policy", func(e *endpointRow) string { return e.policy }),
	textField("success", func(e *endpointRow) string { return e.success }),
	textField("signer", func(e *endpointRow) string { return e.Signer }),
	textField("headers", func(e *endpointRow) string { return e.headers }),
	textField("sealed_key", func(e *endpointRow) string { return store.SealedKey(e.Headers) }),
	numberField("rate_count", func(e *endpointRow) int64 { return e.Rate.Count }),
	numberField("rate_per_ms", func(e *endpointRow) int64 { return e.Rate.Per.Milliseconds() }),
	numberField("concurrency", func(e *endpointRow) int64 { return int64(e.Concurrency) }),
	numberField("enabled", func(e *endpointRow) int64 { return flag(e.Enabled) }),
	textField("disabled_reason", func(e *endpointRow) string { return e.DisabledReason }),
	numberField("disabled_at", func(e *endpointRow) int64 { return e.DisabledAt }),
	numberField("paused_at", func(e *endpointRow) int64 { return e.PausedAt }),
	numberField("paused_until", func(e *endpointRow) int64 { return e.PausedUntil }),
	textField("pause_reason", func(e *endpointRow) string { return e.PauseReason }),
	numberField("lane", func(e *endpointRow) int64 { return e.LaneID }),
	numberField("version", func(e *endpointRow) int64 { return e.Version }),
	numberField("created_at", func(e *endpointRow) int64 { return e.CreatedAt }),
	numberField("updated_at", func(e *endpointRow) int64 { return e.UpdatedAt }),
	numberField("deleted_at", func(e *endpointRow) int64 { return e.DeletedAt }),
	textField("canceling", func(e *endpointRow) string { return e.canceling }),
}, `ON CONFLICT (id) DO UPDATE SET
		external_id = excluded.external_id,
		name = excluded.name,
		url = excluded.url,
		url_override = excluded.url_override,
		search = excluded.search,
		topics = excluded.topics,
		policy = excluded.policy,
		success = excluded.success,
		signer = excluded.signer,
		headers = excluded.headers,
		sealed_key = excluded.sealed_key,
		rate_count = excluded.rate_count,
		rate_per_ms = excluded.rate_per_ms,
		concurrency = excluded.concurrency,
		enabled = excluded.enabled,
		disabled_reason = excluded.disabled_reason,
		disabled_at = excluded.disabled_at,
		paused_at = excluded.paused_at,
		paused_until = excluded.paused_until,
		pause_reason = excluded.pause_reason,
		version = excluded.version,
		updated_at = excluded.updated_at,
		deleted_at = excluded.deleted_at,
		canceling = excluded.canceling`)

// searchOf is what a search for the endpoint looks in. No text that is searched has a line end.
func searchOf(e *store.Endpoint) string {
	return store.Fold(strings.Join([]string{e.ExternalID, e.Name, e.URL, store.EndpointPrefix + e.ID}, "\n"))
}

// encode writes the structured parts as JSON text; what is empty stays empty.
func (e *endpointRow) encode() error {
	var errs [4]error
	if len(e.Topics) > 0 {
		e.topics, errs[0] = encode(e.Topics)
	}
	if !e.Policy.IsZero() {
		e.policy, errs[1] = encode(e.Policy)
	}
	if e.Success != (store.Success{}) {
		e.success, errs[2] = encode(e.Success)
	}
	if len(e.Headers) > 0 {
		e.headers, errs[3] = encode(e.Headers)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("encode endpoint %s: %w", e.ID, err)
	}
	return nil
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
	var found []store.Endpoint
	if err := t.each(func(rows scanner) error {
		e, err := scanEndpoint(rows)
		found = append(found, e)
		return err
	}, `SELECT `+endpointColumns+` FROM endpoints WHERE `+which+` ORDER BY endpoints.id`+t.db.dialect.forUpdate, args...); err != nil {
		return nil, fmt.Errorf("lock endpoints: %w", err)
	}
	return found, nil
}

// writeEndpoints gives the endpoints versions and writes them, and what their lanes must be told. The settings are locked.
func (t *tx) writeEndpoints(rows []*endpointRow) error {
	if len(rows) == 0 {
		return nil
	}
	slices.SortFunc(rows, func(a, b *endpointRow) int { return cmp.Compare(a.ID, b.ID) })
	for _, e := range rows {
		if err := e.encode(); err != nil {
			return err
		}
		var err error
		if e.Version, err = t.nextVersion(); err != nil {
			return err
		}
	}
	if err := endpointWrite.run(t, rows, nil); err != nil {
		return fmt.Errorf("write endpoints: %w", err)
	}
	return t.writeLanes(rows)
}

// writeLanes tells the lanes of endpoints what is theirs.
func (t *tx) writeLanes(rows []*endpointRow) error {
	input, args, _, err := t.input([]column{
		ints("lane", rows, func(e *endpointRow) int64 { return e.LaneID }),
		texts("endpoint_id", rows, func(e *endpointRow) string { return e.ID }),
		ints("concurrency", rows, func(e *endpointRow) int64 { return int64(e.Concurrency) }),
		ints("rate_count", rows, func(e *endpointRow) int64 { return e.Rate.Count }),
		ints("rate_per_ms", rows, func(e *endpointRow) int64 { return e.Rate.Per.Milliseconds() }),
		ints("pause", rows, func(e *endpointRow) int64 { return lanePause(&e.Endpoint) }),
		ints("version", rows, func(e *endpointRow) int64 { return e.laneVersion }),
	})
	if err != nil {
		return err
	}
	if _, err := t.exec(`UPDATE lanes SET
			endpoint_id = i.endpoint_id,
			concurrency = i.concurrency,
			rate_count = i.rate_count,
			rate_per_ms = i.rate_per_ms,
			endpoint_paused_until = i.pause,
			paused_until = `+lastPause("lanes.own_paused_until", "i.pause", "lanes.project_paused_until")+`,
			version = CASE WHEN i.version > 0 THEN i.version ELSE lanes.version END
		FROM `+input+` WHERE lanes.id = i.lane`, args...); err != nil {
		return fmt.Errorf("write lanes of endpoints: %w", err)
	}
	return nil
}
