package api

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
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

// list is GET /v1/callbacks.
func (a *API) list(ctx context.Context, c *gin.Context, who caller) error {
	now := a.Engine.Now()
	q, err := a.listQuery(ctx, c, who)
	if err != nil {
		return err
	}
	f, err := readList(q, now)
	if err != nil {
		return err
	}
	page, err := a.page(ctx, who.Project, &f.Filter)
	if err != nil {
		return err
	}
	next := ""
	if page.Next != nil {
		next = q.Cursors.Encode(f.list, *page.Next)
	}
	if f.csv {
		return a.listCSV(c, page.Callbacks, next, now)
	}
	data := each(page.Callbacks, a.callbackOf)
	return a.show(c, http.StatusOK, client.Page[json.RawMessage]{Data: data, NextCursor: next})
}

// page reads a page of callbacks. Of an endpoint's name that means nothing there are none.
func (a *API) page(ctx context.Context, project string, f *query.Filter) (store.Page, error) {
	err := f.Find(ctx, project, a.Store)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Page{}, nil
	case err != nil:
		return store.Page{}, err
	}
	return a.Store.List(ctx, project, f.Filter)
}

// csvColumns are the columns of a list as CSV. New ones are added at the end.
var csvColumns = [...]string{
	"id", "kind", "state", "reason", "topic", "ref", "lock_key", "lane", "method", "url", "attempt_count", "divert_count",
	"max_attempts", "last_status", "last_class", "due_at", "created_at", "updated_at", "finished_at", "expires_at",
	"endpoint_id",
}

// listCSV answers a page as CSV; the address of the next page is in the Link header.
func (a *API) listCSV(c *gin.Context, callbacks []store.Callback, next string, now int64) error {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	if err := w.Write(csvColumns[:]); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	for i := range callbacks {
		cells := csvCells(&callbacks[i], now)
		for j := range cells {
			cells[j] = safeCell(cells[j])
		}
		if err := w.Write(cells); err != nil {
			return fmt.Errorf("write CSV: %w", err)
		}
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	h := c.Writer.Header()
	if next != "" {
		values := c.Request.URL.Query()
		values.Set("cursor", next)
		h.Set("Link", "<"+(&url.URL{Path: c.Request.URL.Path, RawQuery: values.Encode()}).String()+`>; rel="next"`)
	}
	h.Set("Content-Type", "text/csv; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="callbacks.csv"`)
	c.Writer.WriteHeader(http.StatusOK)
	_, err := c.Writer.Write(b.Bytes())
	a.wrote(c, err)
	return nil
}

func csvCells(c *store.Callback, now int64) []string {
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	endpoint := ""
	if c.EndpointID != "" {
		endpoint = store.EndpointPrefix + c.EndpointID
	}
	state, due, most := c.StateAt(now), c.DueAt, c.MaxAttempts()
	if state.Terminal() {
		due = 0
	}
	if c.Policy.RepeatLast {
		most = 0
	}
	return []string{
		store.CallbackPrefix + c.ID, string(c.Kind), string(state), string(c.Reason), c.Topic, c.Ref, c.LockKey, c.Lane,
		c.Method, c.URL, strconv.Itoa(c.AttemptCount), strconv.Itoa(c.DivertCount), number(most), number(c.LastStatus),
		string(c.LastClass), formatTime(due), formatTime(c.CreatedAt), formatTime(c.UpdatedAt), formatTime(c.FinishedAt),
		formatTime(c.ExpiresAt), endpoint,
	}
}

// safeCell keeps a spreadsheet from taking a cell for a formula.
func safeCell(s string) string {
	if s != "" {
		switch s[0] {
		case '=', '+', '-', '@', '\t', '\r':
			return "'" + s
		}
	}
	return s
}
