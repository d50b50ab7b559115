package sqlstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// endpointColumns are what scanEndpoint reads, in its order.
const endpointColumns = `
	endpoints.id,
	endpoints.project,
	endpoints.external_id,
	endpoints.name,
	endpoints.url,
	endpoints.url_override,
	endpoints.topics,
	endpoints.policy,
	endpoints.success,
	endpoints.signer,
	endpoints.headers,
	endpoints.rate_count,
	endpoints.rate_per_ms,
	endpoints.concurrency,
	endpoints.enabled,
	endpoints.disabled_reason,
	endpoints.disabled_at,
	endpoints.paused_until,
	endpoints.pause_reason,
	endpoints.paused_at,
	endpoints.failing_since,
	endpoints.alerted_at,
	endpoints.last_success_at,
	endpoints.last_failure_at,
	endpoints.lane,
	endpoints.version,
	endpoints.created_at,
	endpoints.updated_at,
	endpoints.deleted_at`

// scanEndpoint reads endpointColumns.
func scanEndpoint(rows scanner) (store.Endpoint, error) {
	var e store.Endpoint
	var topics, policy, success, headers string
	var perMillis int64
	var enabled int
	if err := rows.Scan(&e.ID, &e.Project, &e.ExternalID, &e.Name, &e.URL, &e.URLOverride, &topics, &policy, &success, &e.Signer, &headers,
		&e.Rate.Count, &perMillis, &e.Concurrency, &enabled, &e.DisabledReason, &e.DisabledAt,
		&e.PausedUntil, &e.PauseReason, &e.PausedAt, &e.FailingSince, &e.AlertedAt, &e.LastSuccessAt,
		&e.LastFailureAt, &e.LaneID, &e.Version, &e.CreatedAt, &e.UpdatedAt, &e.DeletedAt); err != nil {
		return e, fmt.Errorf("scan endpoint: %w", err)
	}
	e.Rate.Per, e.Enabled = time.Duration(perMillis)*time.Millisecond, enabled != 0
	for _, part := range []struct {
		column, text string
		to           any
	}{{"topics", topics, &e.Topics}, {"policy", policy, &e.Policy}, {"success", success, &e.Success}, {"headers", headers, &e.Headers}} {
		if err := decode(part.column, part.text, part.to); err != nil {
			return e, fmt.Errorf("endpoint %s: %w", e.ID, err)
		}
	}
	return e, nil
}

// endpointIsThere is the condition for endpoints that callers see, word for word that of the indexes.
const endpointIsThere = `endpoints.deleted_at = 0`

func (db *DB) readEndpoints(ctx context.Context, which string, args ...any) ([]store.Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var endpoints []store.Endpoint
	err := queryEach(ctx, db.read, func(rows scanner) error {
		e, err := scanEndpoint(rows)
		endpoints = append(endpoints, e)
		return err
	}, `SELECT `+endpointColumns+` FROM endpoints WHERE `+which, args...)
	if err != nil {
		return nil, readError("read endpoints", err)
	}
	return endpoints, nil
}

// Endpoint returns one endpoint; store.ErrNotFound when the project has none of that id, or it was deleted.
func (db *DB) Endpoint(ctx context.Context, project, id string) (store.Endpoint, error) {
	return db.oneEndpoint(ctx, id, `endpoints.id = $1 AND endpoints.project = $2 AND `+endpointIsThere, id, project)
}

// AnyEndpoint returns one endpoint of the project, also one that was deleted: its callbacks are kept longer
// than itself. It returns store.ErrNotFound when the project never had one of that id.
func (db *DB) AnyEndpoint(ctx context.Context, project, id string) (store.Endpoint, error) {
	return db.oneEndpoint(ctx, id, `endpoints.id = $1 AND endpoints.project = $2`, id, project)
}

// EndpointByExternalID returns the project's endpoint that the caller gave that name, or store.ErrNotFound.
func (db *DB) EndpointByExternalID(ctx context.Context, project, externalID string) (store.Endpoint, error) {
	return db.oneEndpoint(ctx, externalID, `endpoints.project = $1 AND endpoints.external_id = $2 AND endpoints.external_id <> ''
		AND `+endpointIsThere, project, externalID)
}

func (db *DB) oneEndpoint(ctx context.Context, name, which string, args ...any) (store.Endpoint, error) {
	found, err := db.readEndpoints(ctx, which, args...)
	if err != nil {
		return store.Endpoint{}, err
	}
	if len(found) == 0 {
		return store.Endpoint{}, fmt.Errorf("endpoint %s: %w", name, store.ErrNotFound)
	}
	return found[0], nil
}

// EndpointsByID returns those of the ids that there is an endpoint of, of all projects, deleted ones too, by id. It is for the engine's
// cache, not for callers.
func (db *DB) EndpointsByID(ctx context.Context, ids []string) ([]store.Endpoint, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	columns := []column{{name: "id", texts: ids}}
	input, _ := db.dialect.input(1, columns)
	args, err := db.dialect.args(columns)
	if err != nil {
		return nil, err
	}
	return db.readEndpoints(ctx, `endpoints.id IN (SELECT i.id FROM `+input+`) ORDER BY endpoints.id`, args...)
}

// EndpointsChanged returns the endpoints of all projects that were changed after version since, deleted ones too, in the order of their
// versions, at most limit.
func (db *DB) EndpointsChanged(ctx context.Context, since int64, limit int) ([]store.Endpoint, error) {
	return db.readEndpoints(ctx, `endpoints.version > $1 ORDER BY endpoints.version LIMIT $2`, since, limit)
}

// FindEndpoints looks up names as callers write them: an endpoint's id with its prefix, or an external id. What is not there is not in
// the answer.
func (db *DB) FindEndpoints(ctx context.Context, project string, names []string) (map[string]store.Endpoint, error) {
	found := make(map[string]store.Endpoint, len(names))
	if len(names) == 0 {
		return found, nil
	}
	ids := make([]string, 0, len(names))
	for _, name := range names {
		if id, ok := strings.CutPrefix(name, store.EndpointPrefix); ok {
			ids = append(ids, id)
		}
	}
	for _, which := range []struct {
		column string
		values []string
		name   func(*store.Endpoint) string
	}{
		{"external_id", names, func(e *store.Endpoint) string { return e.ExternalID }},
		{"id", ids, func(e *store.Endpoint) string { return store.EndpointPrefix + e.ID }}, // the last one wins
	} {
		if len(which.values) == 0 {
			continue
		}
		columns := []column{{name: "name", texts: which.values}}
		input, next := db.dialect.input(1, columns)
		args, err := db.dialect.args(columns)
		if err != nil {
			return nil, err
		}
		endpoints, err := db.readEndpoints(ctx, fmt.Sprintf(`endpoints.%[1]s IN (SELECT i.name FROM %[2]s) AND endpoints.%[1]s <> ''
			AND endpoints.project = $%[3]d AND %[4]s`, which.column, input, next, endpointIsThere), append(args, project)...)
		if err != nil {
			return nil, err
		}
		for i := range endpoints {
			found[which.name(&endpoints[i])] = endpoints[i]
		}
	}
	return found, nil
}

// Subscribers returns the project's endpoints that have topics and ids above after, in the order of their ids, at most limit.
func (db *DB) Subscribers(ctx context.Context, project, after string, limit int) ([]store.Endpoint, error) {
	return db.readEndpoints(ctx, `endpoints.project = $1 AND endpoints.topics <> '' AND `+endpointIsThere+` AND endpoints.id > $2
		ORDER BY endpoints.id
		LIMIT $3`, project, after, limit)
}

// Endpoints returns a part of the project's list of endpoints, newest first.
func (db *DB) Endpoints(ctx context.Context, project string, f store.EndpointFilter) ([]store.Endpoint, error) {
	var q query
	q.add("endpoints.project = ?", project)
	q.and(endpointIsThere)
	if f.After != "" {
		q.and("endpoints.id < ?", f.After)
	}
	if f.Search != "" {
		q.and(db.dialect.position+"(endpoints.search, ?) > 0", store.Fold(f.Search))
	}
	if f.Topic != "" {
		var parts []string
		var values []any
		for _, pattern := range store.TopicPatterns(f.Topic) {
			text, err := encode(pattern)
			if err != nil {
				return nil, fmt.Errorf("encode topic: %w", err)
			}
			parts = append(parts, db.dialect.position+"(endpoints.topics, ?) > 0")
			values = append(values, text) // with its quotes, of which a topic's own are written otherwise
		}
		q.and("("+strings.Join(parts, " OR ")+")", values...)
	}
	if f.Held {
		q.and("(endpoints.enabled = 0 OR endpoints.paused_until > ?)", f.Now)
	}
	if f.Failing {
		q.and("endpoints.failing_since > 0")
	}
	q.add("\n\tORDER BY endpoints.id DESC LIMIT ?", min(max(f.Limit, 1), maxList+1))
	return db.readEndpoints(ctx, q.text.String(), q.args...)
}
