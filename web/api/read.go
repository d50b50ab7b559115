package api

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// get is GET /v1/callbacks/{id}.
func (a *API) get(ctx context.Context, c *gin.Context, who caller) error {
	id, err := param(c)
	if err != nil {
		return err
	}
	cb, err := a.Store.Get(ctx, who.Project, id)
	if err != nil {
		return err
	}
	a.answer(c, http.StatusOK, appendCallback(nil, &cb, a.Engine.Now(), false))
	return nil
}

// attempts is GET /v1/callbacks/{id}/attempts, newest first. Its cursors name the callback, too.
func (a *API) attempts(ctx context.Context, c *gin.Context, who caller) error {
	id, err := param(c)
	if err != nil {
		return err
	}
	q, err := a.listQuery(ctx, c, who)
	if err != nil {
		return err
	}
	limit, after := q.Page(query.ListAttempts)
	if after != nil && after.ID != id {
		q.Add("cursor", query.ErrCursor.Error())
	}
	q.Unknown()
	if err := q.Err(); err != nil {
		return err
	}
	before := 0
	if after != nil {
		before = int(after.DueAt)
	}
	attempts, err := a.Store.Attempts(ctx, who.Project, id, before, limit+1)
	if err != nil {
		return err
	}
	next := ""
	if len(attempts) > limit {
		attempts = attempts[:limit]
		next = q.Cursors.Encode(query.ListAttempts, store.Cursor{DueAt: int64(attempts[limit-1].Number), ID: id})
	}
	b := []byte(`{"data":[`)
	for i := range attempts {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendAttempt(b, &attempts[i])
	}
	a.answer(c, http.StatusOK, appendNext(b, next))
	return nil
}

// MaskedHeader says what of an answer is masked: the setting pan_guard masks card numbers.
const MaskedHeader = "Dispatcher-Masked"

// payload is GET /v1/callbacks/{id}/payload: the raw bytes, as text that no browser will take for a page.
func (a *API) payload(ctx context.Context, c *gin.Context, who caller) error {
	id, err := param(c)
	if err != nil {
		return err
	}
	p, err := a.Store.Payload(ctx, who.Project, id)
	if err != nil {
		return err
	}
	contentType := "text/plain"
	if utf8.Valid(p.Body) {
		contentType = "text/plain; charset=utf-8"
	}
	h := c.Writer.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Disposition", `attachment; filename="`+store.CallbackPrefix+id+`.txt"`)
	if p.Masked {
		h.Set(MaskedHeader, "card-numbers")
	}
	h.Set("Content-Length", strconv.Itoa(len(p.Body)))
	c.Writer.WriteHeader(http.StatusOK)
	_, err = c.Writer.Write(p.Body)
	a.wrote(c, err)
	return nil
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
	b := append(make([]byte, 0, 1024*(1+len(page.Callbacks))), `{"data":[`...)
	for i := range page.Callbacks {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendCallback(b, &page.Callbacks[i], now, false)
	}
	a.answer(c, http.StatusOK, appendNext(b, next))
	return nil
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
