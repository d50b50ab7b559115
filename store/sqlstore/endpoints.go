package sqlstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// endpointColumns are the columns that a change of an endpoint writes: all but its health.
var endpointColumns = sqldb.Named[store.Endpoint](`id project external_id name url url_override topics policy
	success signer headers rate_count rate_per_ms concurrency enabled disabled_reason disabled_at
	paused_until pause_reason paused_at lane=LaneID version created_at updated_at deleted_at
	link_version`)

// wholeEndpoint is all columns of an endpoint.
func wholeEndpoint(e *store.Endpoint) sqldb.Columns {
	return append(endpointColumns(e), healthColumns(e)...)
}

var healthColumns = sqldb.Named[store.Endpoint](`failing_since alerted_at last_success_at last_failure_at
	succeeded failed`)

// endpointExists is the condition for endpoints that are not deleted. It repeats the WHERE of the partial
// indexes word for word.
const endpointExists = `endpoints.deleted_at = 0`

// readEndpoints reads the endpoints that a condition finds.
func (db *DB) readEndpoints(ctx context.Context, which string, args ...any) ([]store.Endpoint, error) {
	return sqldb.Select(db.read(ctx, "read endpoints"), wholeEndpoint, `FROM endpoints WHERE `+which, args...)
}

// Endpoint returns one endpoint. It returns store.ErrNotFound if the project has none with that id, or if it
// is deleted.
func (db *DB) Endpoint(ctx context.Context, project, id string) (store.Endpoint, error) {
	return db.oneEndpoint(ctx, id, `endpoints.id = $1 AND endpoints.project = $2 AND `+endpointExists, id,
		project)
}

// AnyEndpoint returns one endpoint of the project, deleted or not. Callbacks are kept longer than their
// endpoint. It returns store.ErrNotFound if the project never had an endpoint with that id.
func (db *DB) AnyEndpoint(ctx context.Context, project, id string) (store.Endpoint, error) {
	return db.oneEndpoint(ctx, id, `endpoints.id = $1 AND endpoints.project = $2`, id, project)
}

// EndpointByExternalID returns the project's endpoint with that external id, or store.ErrNotFound.
func (db *DB) EndpointByExternalID(ctx context.Context, project, externalID string) (store.Endpoint, error) {
	return db.oneEndpoint(ctx, externalID,
		`endpoints.project = $1 AND endpoints.external_id = $2 AND endpoints.external_id <> ''
		AND `+endpointExists, project, externalID)
}

// oneEndpoint reads one endpoint; name is for the error.
func (db *DB) oneEndpoint(ctx context.Context, name, which string, args ...any) (store.Endpoint, error) {
	return sqldb.Get(db.read(ctx, "read endpoints"), "endpoint "+name, wholeEndpoint,
		`FROM endpoints WHERE `+which, args...)
}

// EndpointsByID returns the endpoints with these ids, of all projects and including deleted ones, in the
// order of ids. Unknown ids are left out. It fills the engine's cache and must not be used to answer callers.
func (db *DB) EndpointsByID(ctx context.Context, ids []string) ([]store.Endpoint, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return db.readEndpoints(ctx, `endpoints.id IN (SELECT i.id FROM $i) ORDER BY endpoints.id`,
		sqldb.Texts("id", ids))
}

// EndpointsChanged returns up to limit endpoints of all projects that changed after version since, including
// deleted ones, in the order of their versions.
func (db *DB) EndpointsChanged(ctx context.Context, since int64, limit int) ([]store.Endpoint, error) {
	return db.readEndpoints(ctx, `endpoints.version > $1 ORDER BY endpoints.version LIMIT $2`, since, limit)
}

// FindEndpoints looks up endpoints by the names that callers use: the id with its prefix, or the external id.
// Unknown names are missing in the map. An id wins over an equal external id.
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
		// after external ids, so that an id wins
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

// Subscribers returns up to limit endpoints of the project that subscribe to topics, with ids above after and
// in the order of ids.
func (db *DB) Subscribers(ctx context.Context, project, after string, limit int) ([]store.Endpoint, error) {
	return db.readEndpoints(ctx, `endpoints.project = $1 AND endpoints.topics <> '' AND `+endpointExists+
		` AND endpoints.id > $2
		ORDER BY endpoints.id
		LIMIT $3`, project, after, limit)
}

// Endpoints returns a page of the project's endpoints, newest first, by the index endpoints_project.
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
			values = append(values, text) // with its quotes: quotes inside a topic are escaped
		}
		q.and("("+strings.Join(parts, " OR ")+")", values...)
	}
	q.andIf(f.NotSending, "(endpoints.enabled = 0 OR endpoints.paused_until > ?)", f.Now)
	q.andIf(f.Failing, "endpoints.failing_since > 0")
	q.andIf(f.NoSinks, "substr(endpoints.external_id, 1, 11) <> 'alert-sink:'")
	q.add("\n\tORDER BY endpoints.id DESC LIMIT ?", min(max(f.Limit, 1), maxList+1))
	return db.readEndpoints(ctx, q.text, q.args...)
}
