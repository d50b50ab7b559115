package sqlstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// endpointColumns describe what of an endpoint is written: all but its health.
var endpointColumns = sqldb.Named[store.Endpoint](`id project external_id name url url_override topics policy success signer headers rate_count
	rate_per_ms concurrency enabled disabled_reason disabled_at paused_until pause_reason paused_at
	lane=LaneID version created_at updated_at deleted_at`)

// wholeEndpoint describes all that is read of an endpoint.
func wholeEndpoint(e *store.Endpoint) sqldb.Columns {
	return append(endpointColumns(e), healthColumns(e)...)
}

var healthColumns = sqldb.Named[store.Endpoint](`failing_since alerted_at last_success_at last_failure_at`)

// endpointExists is the condition for endpoints that callers see, word for word that of the indexes.
const endpointExists = `endpoints.deleted_at = 0`

func (db *DB) readEndpoints(ctx context.Context, which string, args ...any) ([]store.Endpoint, error) {
	return sqldb.Select(db.read(ctx, "read endpoints"), wholeEndpoint, `FROM endpoints WHERE `+which, args...)
}

// Endpoint returns one endpoint; store.ErrNotFound when the project has none of that id, or it was deleted.
func (db *DB) Endpoint(ctx context.Context, project, id string) (store.Endpoint, error) {
	return db.oneEndpoint(ctx, id, `endpoints.id = $1 AND endpoints.project = $2 AND `+endpointExists, id,
		project)
}

// AnyEndpoint returns one endpoint of the project, also one that was deleted: its callbacks are kept longer
// than itself. It returns store.ErrNotFound when the project never had one of that id.
func (db *DB) AnyEndpoint(ctx context.Context, project, id string) (store.Endpoint, error) {
	return db.oneEndpoint(ctx, id, `endpoints.id = $1 AND endpoints.project = $2`, id, project)
}

// EndpointByExternalID returns the project's endpoint that the caller gave that name, or store.ErrNotFound.
func (db *DB) EndpointByExternalID(ctx context.Context, project, externalID string) (store.Endpoint, error) {
	return db.oneEndpoint(ctx, externalID,
		`endpoints.project = $1 AND endpoints.external_id = $2 AND endpoints.external_id <> ''
		AND `+endpointExists, project, externalID)
}

func (db *DB) oneEndpoint(ctx context.Context, name, which string, args ...any) (store.Endpoint, error) {
	return sqldb.Get(db.read(ctx, "read endpoints"), "endpoint "+name, wholeEndpoint,
		`FROM endpoints WHERE `+which, args...)
}

// EndpointsByID returns those of the ids that there is an endpoint of, of all projects, deleted ones too, by
// id. It is for the engine's cache, not for callers.
func (db *DB) EndpointsByID(ctx context.Context, ids []string) ([]store.Endpoint, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return db.readEndpoints(ctx, `endpoints.id IN (SELECT i.id FROM $i) ORDER BY endpoints.id`,
		sqldb.Texts("id", ids))
}

// EndpointsChanged returns the endpoints of all projects that were changed after version since, deleted ones
// too, in the order of their versions, at most limit.
func (db *DB) EndpointsChanged(ctx context.Context, since int64, limit int) ([]store.Endpoint, error) {
	return db.readEndpoints(ctx, `endpoints.version > $1 ORDER BY endpoints.version LIMIT $2`, since, limit)
}

// FindEndpoints looks up names as callers write them: an endpoint's id with its prefix, or an external id.
// What is not there is not in the answer.
func (db *DB) FindEndpoints(ctx context.Context, project string,
	names []string) (map[string]store.Endpoint, error) {
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
		// the last one wins
		{"id", ids, func(e *store.Endpoint) string { return store.EndpointPrefix + e.ID }},
	} {
		if len(which.values) == 0 {
			continue
		}
		endpoints, err := db.readEndpoints(ctx,
			fmt.Sprintf(`endpoints.%[1]s IN (SELECT i.name FROM $i) AND endpoints.%[1]s <> ''
			AND endpoints.project = $1 AND %[2]s`, which.column, endpointExists), project,
			sqldb.Texts("name", which.values))
		if err != nil {
			return nil, err
		}
		for i := range endpoints {
			found[which.name(&endpoints[i])] = endpoints[i]
		}
	}
	return found, nil
}

// Subscribers returns the project's endpoints that have topics and ids above after, in the order of their
// ids, at most limit.
func (db *DB) Subscribers(ctx context.Context, project, after string, limit int) ([]store.Endpoint, error) {
	return db.readEndpoints(ctx, `endpoints.project = $1 AND endpoints.topics <> '' AND `+endpointExists+
		` AND endpoints.id > $2
		ORDER BY endpoints.id
		LIMIT $3`, project, after, limit)
}

// Endpoints returns a part of the project's list of endpoints, newest first.
func (db *DB) Endpoints(ctx context.Context, project string,
	f store.EndpointFilter) ([]store.Endpoint, error) {
	var q query
	q.add("endpoints.project = ?", project)
	q.and(endpointExists)
	q.andIf(f.After != "", "endpoints.id < ?", f.After)
	q.andIf(f.Search != "", "strpos(endpoints.search, ?) > 0", store.Fold(f.Search))
	if f.Topic != "" {
		var parts []string
		var values []any
		for _, pattern := range store.TopicPatterns(f.Topic) {
			text, err := encode(pattern)
			if err != nil {
				return nil, named("encode topic", err)
			}
			parts = append(parts, "strpos(endpoints.topics, ?) > 0")
			values = append(values, text) // with its quotes, of which a topic's own are written otherwise
		}
		q.and("("+strings.Join(parts, " OR ")+")", values...)
	}
	q.andIf(f.Held, "(endpoints.enabled = 0 OR endpoints.paused_until > ?)", f.Now)
	q.andIf(f.Failing, "endpoints.failing_since > 0")
	q.add("\n\tORDER BY endpoints.id DESC LIMIT ?", min(max(f.Limit, 1), maxList+1))
	return db.readEndpoints(ctx, q.text, q.args...)
}
