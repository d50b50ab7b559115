package api

import (
	"context"
	"fmt"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// parseQuery returns the parameters of a request.
func parseQuery(c *gin.Context) (*query.Values, error) { return query.Parse(c.Request.URL.RawQuery) }

// listQuery parses the query of a list, whose cursors are of the caller's project.
func (a *API) listQuery(ctx context.Context, c *gin.Context, who caller) (*query.Values, error) {
	q, err := parseQuery(c)
	if err != nil {
		return nil, err
	}
	q.Cursors.Project = who.Project
	q.Cursors.Key, err = a.cursorKey(ctx)
	return q, err
}

// cursorKey returns the key that signs cursors, which is asked for until there is one. Without it lists
// cannot be read, as without SQL.
func (a *API) cursorKey(ctx context.Context) ([]byte, error) {
	if key := a.knownCursorKey.Load(); key != nil {
		return *key, nil
	}
	key, err := a.Engine.CursorKey(ctx)
	if err == nil && len(key) != query.CursorKeyBytes {
		err = fmt.Errorf("it has %d bytes, not %d", len(key), query.CursorKeyBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: read the key of cursors: %w", store.ErrUnavailable, err)
	}
	a.knownCursorKey.Store(&key)
	return key, nil
}

// appendNext ends a list: its array's bracket, and next_cursor.
func appendNext(b []byte, next string) []byte {
	b = append(b, `],"next_cursor":`...)
	if next == "" {
		b = append(b, "null"...)
	} else {
		b = appendString(b, next)
	}
	return append(b, '}')
}

// filterOf reads a filter. The API refuses a reason that no callback can have.
func filterOf(q *query.Values, now int64) query.Filter {
	f := q.Filter(now)
	if f.Reason != "" && !slices.Contains(store.Reasons[:], f.Reason) {
		q.Add("reason", "is not a reason for which callbacks end")
	}
	return f
}

// A listRequest is what GET /v1/callbacks asks for.
type listRequest struct {
	query.Filter
	list byte
	csv  bool
}

// readList reads the parameters of GET /v1/callbacks.
func readList(q *query.Values, now int64) (f listRequest, err error) {
	f.Filter, f.list = filterOf(q, now), query.ListNewest
	if f.ByDue = q.OneOf("order", "due") == "due"; f.ByDue {
		f.list = query.ListByDue
	}
	f.csv = q.OneOf("format", "json", "csv") == "csv"
	f.Limit, f.After = q.Page(f.list)
	q.Unknown()
	return f, q.Err()
}
