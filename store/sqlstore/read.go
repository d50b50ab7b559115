package sqlstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Querier is a pool, a connection or a transaction.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// queryEach runs a query and calls scan for every row.
func queryEach(ctx context.Context, q Querier, scan func(scanner) error, query string, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	return eachRow(rows, scan)
}

// readError wraps what went wrong with a read; with store.ErrUnavailable where the database as a whole is to blame.
func readError(operation string, err error) error {
	if unavailable(err) {
		return fmt.Errorf("%s: %w: %w", operation, store.ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// One callback and its payload, by the primary keys of both tables.
const (
	oneCallback = `SELECT ` + callbackColumns + ` FROM ` + fromRequests + `
		AND requests.id = $1 AND requests.project = $2`
	onePayload = `SELECT ` + bodyColumn + ` FROM ` + fromRequests + `
		AND requests.id = $1 AND requests.project = $2 AND callbacks.payload = 1`
)

// Get returns the callback, or store.ErrNotFound when the project has none of that id. What of a damaged row can be
// shown is shown.
func (db *DB) Get(ctx context.Context, project, id string) (store.Callback, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var found []row
	err := queryEach(ctx, db.read, func(rows scanner) error {
		r, err := db.scanCallback(rows)
		found = append(found, r)
		return err
	}, oneCallback, id, project)
	if err != nil {
		return store.Callback{}, readError("get callback", err)
	}
	if len(found) == 0 {
		return store.Callback{}, fmt.Errorf("get callback %s: %w", id, store.ErrNotFound)
	}
	return found[0].Callback, nil
}

// Payload returns the callback's body as it was given; store.ErrNotFound when the project has no such callback,
// store.ErrPayloadPurged when retention has removed the body. A callback that never had one has the zero Payload.
func (db *DB) Payload(ctx context.Context, project, id string) (store.Payload, error) {
	c, err := db.Get(ctx, project, id)
	if err != nil {
		return store.Payload{}, err
	}
	if c.PayloadPurged {
		return store.Payload{}, fmt.Errorf("payload of %s: %w", id, store.ErrPayloadPurged)
	}
	if c.PayloadID == "" {
		return store.Payload{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	p := store.Payload{ID: c.PayloadID, ContentType: c.ContentType}
	found := false
	err = queryEach(ctx, db.read, func(rows scanner) error {
		found = true
		return rows.Scan(&p.Body)
	}, onePayload, id, project)
	if err != nil {
		return store.Payload{}, readError("read payload", err)
	}
	if !found {
		// It was purged between the two reads.
		return store.Payload{}, fmt.Errorf("payload of %s: %w", id, store.ErrPayloadPurged)
	}
	if p.Body == nil {
		p.Body = []byte{}
	}
	return p, nil
}
