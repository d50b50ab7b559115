package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// callbackOf returns the JSON of a callback with its current state.
func (a *API) callbackOf(cb *store.Callback) json.RawMessage {
	return appendCallback(make([]byte, 0, 1024), cb, a.Engine.Now(), false)
}

// shownCallback is callbackOf with the creator, for requests that read callbacks. Other responses leave it
// out: a key without the scope read gets them.
func (a *API) shownCallback(cb *store.Callback) json.RawMessage {
	o := jsonObject{append(make([]byte, 0, 1024), '{')}
	o.callback(cb, a.Engine.Now())
	o.creator(cb)
	o.close()
	return o.b
}

// replyCallback responds with a changed callback.
func (a *API) replyCallback(c *gin.Context, status int) func(store.Callback, error) error {
	return reply(a, c, status, a.callbackOf)
}

// An endResult is the result of a call that ends a callback: cancel or resolve.
type endResult struct {
	Result   string          `json:"result"`
	Callback json.RawMessage `json:"callback"`
}

func (a *API) canceledOf(x *store.CanceledCallback) endResult {
	return endResult{string(x.Result), a.callbackOf(&x.Callback)}
}

// cancelRef handles POST /v1/callbacks/cancel: it cancels all open callbacks with a reference. On request the
// response also has the callbacks that had already finished.
func (a *API) cancelRef(ctx context.Context, c *gin.Context, who caller) error {
	r, err := readAll[client.CancelRequest](c, false)
	if err != nil {
		return err
	}
	if r.Ref == "" {
		return invalid("ref", query.Needed)
	}
	which := control.CancelRefRequest{Ref: r.Ref, Topic: r.Topic, Terminal: r.IncludeTerminal}
	canceled, err := a.Engine.CancelRef(ctx, who.Project, which, who.By(r.Reason))
	if err != nil {
		return err
	}
	return a.respond(c, http.StatusOK, map[string][]endResult{"data": each(canceled, a.canceledOf)})
}

// invalid returns the error of one field.
func invalid(field, message string) error {
	return &store.InvalidError{Fields: []store.FieldError{{Field: field, Message: message}}}
}

// retry handles POST /v1/callbacks/{id}/retry.
func (a *API) retry(ctx context.Context, c *gin.Context, who caller, id string) error {
	r, d, err := read[client.RetryRequest](c, true)
	if err != nil {
		return err
	}
	asked := control.RetryRequest{Ladder: store.Ladder(r.Ladder), URL: r.URL}
	if r.Ladder != "" && asked.Ladder != store.Once && asked.Ladder != store.Restart {
		d.add("ladder", "must be once or restart")
	}
	if err := d.err(); err != nil {
		return err
	}
	return a.replyCallback(c, http.StatusOK)(a.Engine.Retry(ctx, who.Project, id, asked, who.By(r.Reason)))
}

// reschedule handles POST /v1/callbacks/{id}/reschedule.
func (a *API) reschedule(ctx context.Context, c *gin.Context, who caller, id string) error {
	r, err := readAll[client.RescheduleRequest](c, false)
	if err != nil {
		return err
	}
	due, delay := millis(r.DueAt), length(r.Delay)
	if (due == nil) == (delay == nil) {
		return invalid("due_at", "exactly one of due_at and delay is required")
	}
	return a.replyCallback(c, http.StatusOK)(
		a.Engine.Reschedule(ctx, who.Project, id, due, delay, who.By(r.Reason)))
}

// editCallback handles PATCH /v1/callbacks/{id}: it changes a scheduled or dead callback, but never its
// payload. Null has a meaning only for expires_in: the callback no longer expires.
func (a *API) editCallback(ctx context.Context, c *gin.Context, who caller, id string) error {
	var (
		d decoder
		r client.CallbackPatch
		e control.EditRequest
	)
	d.custom = map[string]func(string, []byte){
		// "***" is a valid value here: responses do not have the headers of a callback, so it is no mask.
		"headers": func(_ string, raw []byte) {
			if !isNull(raw) {
				e.Headers = &[]store.Header{}
				d.headers(raw, e.Headers)
			}
		},
	}
	if err := d.read(c, false, &r); err != nil {
		return err
	}
	expires, _ := r.ExpiresIn.Get()
	e.URL, e.Choice, e.Invalid = r.URL.Pointer(), d.choice, d.invalid
	e.ExpiresIn, e.NoExpiry = length(expires), r.ExpiresIn.IsNull()
	changes := e.URL != nil || e.Headers != nil || e.ExpiresIn != nil || e.NoExpiry ||
		e.PolicyName != "" || e.PolicyGiven
	if len(d.invalid) == 0 && !changes {
		return invalid(request, "changes nothing; set url, headers, policy or expires_in")
	}
	return a.replyCallback(c, http.StatusOK)(a.Engine.Edit(ctx, who.Project, id, e, who.By(r.Reason)))
}

// attempts handles GET /v1/callbacks/{id}/attempts, newest first.
func (a *API) attempts(ctx context.Context, c *gin.Context, who caller, id string) error {
	read := func(ctx context.Context, id string, before, limit int) ([]store.Attempt, error) {
		return a.Store.Attempts(ctx, who.Project, id, before, limit)
	}
	return a.listAttempts(ctx, c, who, id, read)
}

// listAttempts responds with a page of attempts that read returns. Its cursors are only valid for the same
// callback.
func (a *API) listAttempts(ctx context.Context, c *gin.Context, who caller, id string,
	read func(ctx context.Context, id string, before, limit int) ([]store.Attempt, error)) error {
	parse := func(q *query.Values) reader[store.Attempt] {
		if after, err := q.Cursors.Decode(query.ListAttempts, q.Get("cursor")); err == nil && after.ID != id {
			q.Add("cursor", query.ErrCursor.Error())
		}
		return func(ctx context.Context, _ caller, after store.Cursor, limit int) ([]store.Attempt, error) {
			return read(ctx, id, int(after.DueAt), limit)
		}
	}
	at := func(x *store.Attempt) store.Cursor { return store.Cursor{DueAt: int64(x.Number), ID: id} }
	return listOf(a, query.ListAttempts, parse, at, attemptOf)(ctx, c, who)
}

// attemptOf converts an attempt. Its durations are rounded to three decimals.
func attemptOf(x *store.Attempt) client.Attempt {
	t := &x.Timings
	return client.Attempt{
		Number: x.Number, Trigger: string(x.Trigger), Outcome: string(x.Outcome), Charged: x.Charged,
		Class: client.Class(x.Class), StatusCode: x.Status, Error: x.Error,
		StartedAt: moment(x.StartedAt), EndedAt: moment(x.EndedAt), DueAt: moment(x.DueAt),
		LatenessMs: rounded(x.Lateness),
		TimingsMs: client.Timings{
			DNS: rounded(t.DNS), Connect: rounded(t.Connect), TLS: rounded(t.TLS),
			FirstByte: rounded(t.FirstByte), Total: rounded(t.Total),
		},
		RequestHeaders: headersOf(x.RequestHeaders), ResponseHeaders: headersOf(x.ResponseHeaders),
		ResponseBody: x.ResponseBody, ResponseTrunc: x.ResponseTruncated,
		Rule: (*client.RuleResult)(x.Rule), NextDueAt: moment(x.NextDueAt), Stale: x.Stale,
		Diverts: x.Diverts, DivertReason: x.DivertReason,
	}
}

func explanationOf(x *control.Explanation) client.Explanation {
	blocking := each(x.Blocking, blockOf)
	return client.Explanation{Summary: x.Summary, NextAt: endTime(x.NextAt), Blocking: blocking}
}

// blockOf converts a block. Until is null for a block whose end is unknown, or that has none.
func blockOf(b *control.Block) client.Block {
	return client.Block{
		Code: client.BlockCode(b.Code), Since: moment(b.Since), Until: endTime(b.Until), Detail: b.Detail,
		Cure: b.Cure,
	}
}

// evidence handles GET /v1/callbacks/{id}/evidence: the delivery report as text. It quotes responses of
// receivers, so a browser must not treat it as HTML.
func (a *API) evidence(ctx context.Context, c *gin.Context, who caller, id string) error {
	return a.writeReport(c, func() (*control.Report, error) {
		return a.Engine.Report(ctx, who.Project, id, control.MaxReport)
	})
}

// writeReport writes a delivery report in the language of the parameter lang. The default is English.
func (a *API) writeReport(c *gin.Context, read func() (*control.Report, error)) error {
	q, err := parseQuery(c)
	if err != nil {
		return err
	}
	lang := q.OneOf("lang", slices.Sorted(maps.Keys(a.ReportTexts))...)
	q.Unknown()
	if err := q.Err(); err != nil {
		return err
	}
	r, err := read()
	if err != nil {
		return err
	}
	a.text(c, "text/plain; charset=utf-8", a.ReportTexts[cmp.Or(lang, "en")](r))
	return nil
}

// payload handles GET /v1/callbacks/{id}/payload: the raw bytes, as text that a browser must not treat as
// HTML.
func (a *API) payload(ctx context.Context, c *gin.Context, who caller, id string) error {
	p, err := a.Store.Payload(ctx, who.Project, id)
	if err != nil {
		return err
	}
	a.payloadText(c, id, p)
	return nil
}

// payloadText responds with the bytes of a payload.
func (a *API) payloadText(c *gin.Context, id string, p store.Payload) {
	contentType := "text/plain"
	if utf8.Valid(p.Body) {
		contentType = "text/plain; charset=utf-8"
	}
	h := c.Writer.Header()
	h.Set("Content-Disposition", `attachment; filename="`+store.CallbackPrefix+id+`.txt"`)
	if p.Masked { // the setting pan_guard masks card numbers
		h.Set(client.MaskedHeader, "card-numbers")
	}
	a.text(c, contentType, p.Body)
}

// text responds with bytes that a browser must not treat as HTML.
func (a *API) text(c *gin.Context, contentType string, body []byte) {
	h := c.Writer.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	c.Writer.WriteHeader(http.StatusOK)
	_, err := c.Writer.Write(body)
	a.logWriteError(c, err)
}

func parseQuery(c *gin.Context) (*query.Values, error) { return query.Parse(c.Request.URL.RawQuery) }

// listQuery parses the query of a list. Its cursors belong to the caller's project.
func (a *API) listQuery(ctx context.Context, c *gin.Context, who caller) (*query.Values, error) {
	q, err := parseQuery(c)
	if err != nil {
		return nil, err
	}
	q.Cursors.Project = who.Project
	q.Cursors.Key, err = a.cursorKey(ctx)
	return q, err
}

// cursorKey returns the key that signs cursors, and caches it after the first successful read. Without the
// key, lists get the same 503 as without SQL.
func (a *API) cursorKey(ctx context.Context) ([]byte, error) {
	if key := a.knownCursorKey.Load(); key != nil {
		return *key, nil
	}
	key, err := a.Engine.CursorKey(ctx)
	if err == nil && len(key) != query.CursorKeyBytes {
		err = fmt.Errorf("%d bytes, want %d", len(key), query.CursorKeyBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: read the cursor key: %w", store.ErrUnavailable, err)
	}
	a.knownCursorKey.Store(&key)
	return key, nil
}

// filterOf reads a filter. Unlike the UI, the API rejects an unknown reason.
func filterOf(q *query.Values, now int64) query.Filter {
	f := q.Filter(now)
	if f.Reason != "" && !slices.Contains(store.Reasons[:], f.Reason) {
		q.Add("reason", "is not a known reason")
	}
	return f
}

// A listRequest has the parameters of GET /v1/callbacks.
type listRequest struct {
	query.Filter
	list byte
	csv  bool
}

// readList reads the parameters of GET /v1/callbacks, and rejects unknown ones.
func readList(q *query.Values, now int64) (f listRequest, err error) {
	f.Filter, f.list = filterOf(q, now), query.ListNewest
	f.ByDue = q.OneOf("order", "due") == "due"
	if f.ByDue {
		f.list = query.ListByDue
	}
	f.csv = q.OneOf("format", "json", "csv") == "csv"
	f.Limit, f.After = q.Page(f.list)
	q.Unknown()
	return f, q.Err()
}

// list handles GET /v1/callbacks.
func (a *API) list(ctx context.Context, c *gin.Context, who caller) error {
	q, err := a.listQuery(ctx, c, who)
	if err != nil {
		return err
	}
	read := func(ctx context.Context, f *query.Filter) (store.Page, error) {
		return a.page(ctx, who.Project, f)
	}
	return a.listBy(ctx, c, q, read)
}

// listBy responds with the page of callbacks that read returns.
func (a *API) listBy(
	ctx context.Context, c *gin.Context, q *query.Values,
	read func(context.Context, *query.Filter) (store.Page, error),
) error {
	now := a.Engine.Now()
	f, err := readList(q, now)
	if err != nil {
		return err
	}
	page, err := read(ctx, &f.Filter)
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
	data := each(page.Callbacks, a.shownCallback)
	return a.respond(c, http.StatusOK, client.Page[json.RawMessage]{Data: data, NextCursor: next})
}

// page reads a page of callbacks. If the filter names an unknown endpoint, the page is empty.
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

// csvColumns are the columns of a list as CSV. Append new columns at the end, because readers may use
// positions.
var csvColumns = [...]string{
	"id", "kind", "state", "reason", "topic", "ref", "lock_key", "lane", "method", "url",
	"attempt_count", "divert_count", "max_attempts", "last_status", "last_class",
	"due_at", "created_at", "updated_at", "finished_at", "expires_at", "endpoint_id",
}

// listCSV responds with a page as CSV. The Link header has the URL of the next page.
func (a *API) listCSV(c *gin.Context, callbacks []store.Callback, next string, now int64) error {
	rows := [][]string{csvColumns[:]}
	for i := range callbacks {
		cells := csvCells(&callbacks[i], now)
		for j := range cells {
			cells[j] = query.SafeCell(cells[j])
		}
		rows = append(rows, cells)
	}
	var b bytes.Buffer
	if err := csv.NewWriter(&b).WriteAll(rows); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	h := c.Writer.Header()
	if next != "" {
		values := c.Request.URL.Query()
		values.Set("cursor", next)
		address := url.URL{Path: c.Request.URL.Path, RawQuery: values.Encode()}
		h.Set("Link", "<"+address.String()+`>; rel="next"`)
	}
	h.Set("Content-Type", "text/csv; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="callbacks.csv"`)
	c.Writer.WriteHeader(http.StatusOK)
	_, err := c.Writer.Write(b.Bytes())
	a.logWriteError(c, err)
	return nil
}

// csvCells returns the values of csvColumns for a callback. They are formatted as in JSON; null is empty.
func csvCells(c *store.Callback, now int64) []string {
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	state, due, most := c.StateAt(now), c.DueAt, c.MaxAttempts()
	if state.Terminal() {
		due = 0
	}
	if c.Policy.RepeatLast {
		most = 0
	}
	return []string{
		store.CallbackPrefix + c.ID, string(c.Kind), string(state), string(c.Reason), c.Topic, c.Ref,
		c.LockKey, c.Lane, c.Method, c.URL,
		strconv.Itoa(c.AttemptCount), strconv.Itoa(c.DivertCount), number(most), number(c.LastStatus),
		string(c.LastClass),
		formatTime(due), formatTime(c.CreatedAt), formatTime(c.UpdatedAt), formatTime(c.FinishedAt),
		formatTime(c.ExpiresAt), prefixed(store.EndpointPrefix, c.EndpointID),
	}
}
