package ui

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// Bounds of one page. Links lead to the rest. maxBody and maxPayload are bytes.
const (
	maxAttempts = 15
	maxBody     = 700
	maxPayload  = 4 << 10
	maxAudit    = 50
)

// callbackPage is the page of one callback.
type callbackPage struct {
	base
	// Alert is true for a message of an alert, whose id is the reference.
	Alert bool
	*callbackRow
	Policy   string
	RuleName string
	Creator  creator
	Why      whyPart
	Ladder   template.HTML
	Timeline []timelineItem
	// Older counts the attempts that are older than the page's, OlderLink shows them. NewestLink is empty on
	// the first page.
	Older      int
	OlderLink  string
	NewestLink string
	Headers    []store.Header
	Payload    payloadPart
	Curl       string
	Poll       *control.PollView
	// Got says what the last attempt got, if the callback waits for the next one.
	Got        string
	CanCancel  bool
	CanRetry   bool
	CanResolve bool
	// RetryNow is true if a button retries at once. The retry of a delivered callback needs a confirmation.
	RetryNow bool
	CanMove  bool
}

// A whyPart explains why a callback has not been sent yet, or how it has ended.
type whyPart struct {
	Kind, Summary string
	// Code is that of the first block, or "".
	Code   string
	NextAt int64
	Blocks []whyBlock
}

// A whyBlock is one reason why a callback waits, in the viewer's language. Block.Detail is the engine's
// English text.
type whyBlock struct {
	control.Block
	Title, Cure string
}

// A timelineItem is one event of a callback.
type timelineItem struct {
	At   int64
	Kind string
	// Title is a text of the catalogue. Attempt or Audit has the details of an attempt or an act, else both
	// are nil.
	Title   string
	Attempt *attemptPart
	Audit   *store.AuditEntry
}

// A payloadPart is the beginning of a payload.
type payloadPart struct {
	ContentType string
	// Size is in bytes.
	Size int
	Text string
	// Cut is true if Text is only the beginning, None if the callback has no payload, Gone if it was purged.
	Cut, None, Gone bool
	// Elsewhere is true if the payload is not the merchant's.
	Elsewhere bool
	// Binary is true if the payload is not UTF-8; then Text is empty. Masked is true if pan_guard masks card
	// numbers in it.
	Binary, Masked bool
}

// callback is GET /ui/callbacks/{id}.
func (u *UI) callback(r *request) (*response, error) {
	c, err := load(r, store.CallbackPrefix, u.Store.Get)
	if err != nil {
		return nil, err
	}
	rows, err := u.callbackRows(r, []store.Callback{c})
	if err != nil {
		return nil, err
	}
	section := "callbacks"
	if c.Kind == store.Poll {
		section = "polls"
	}
	p := &callbackPage{base: u.baseTitled(r, section, rows[0].heading()), callbackRow: rows[0]}
	_, p.Alert = store.BareID(store.AlertPrefix, c.Ref)
	p.Headers = query.MaskHeaders(c.Headers)
	p.Policy = c.Policy.Name
	p.RuleName = successText(c.Success)
	creators, err := u.creators(r, &p.base, []store.Callback{c})
	if err != nil {
		return nil, err
	}
	p.Creator = creators[c.CreatedBy]
	if err := u.explainInto(r, p); err != nil {
		return nil, err
	}
	newest, err := u.Store.Attempts(r.ctx, r.caller.Project, c.ID, 0, maxAttempts)
	if err != nil {
		return nil, err
	}
	p.DivertedFor = divertedFor(&c, newest)
	if err := u.timelineInto(r, p, newest); err != nil {
		return nil, err
	}
	p.Payload, err = u.payloadOf(r, &c, maxPayload)
	if err != nil {
		return nil, err
	}
	if c.Kind == store.Poll {
		p.Poll, err = u.pollOf(r, p)
		if err != nil {
			return nil, err
		}
		p.CanResolve = !c.State.Terminal() && p.Can(string(store.ScopeSend))
	}
	p.Ladder, p.Got = p.ladder(newest), p.got(newest)
	if p.Got != "" && p.Why.Code == control.BlockNotDue {
		p.Why.Summary = "" // the heading says when the next attempt is
	}
	p.Curl = p.curl()
	open, attempting := !c.State.Terminal(), p.State == store.Attempting
	if p.Can(string(store.ScopeOperate)) {
		p.CanCancel = open
		p.CanRetry = !attempting && !c.PayloadPurged
		p.RetryNow = p.CanRetry && c.State != store.Succeeded
		p.CanMove = !attempting && (open || c.State == store.Dead) && !c.PayloadPurged
	}
	return show("callback", p)
}

// heading returns the title of the callback's page: topic and reference, or the id without both, and the
// receiver.
func (row *callbackRow) heading() string {
	parts := slices.DeleteFunc([]string{row.Topic, row.Ref}, func(s string) bool { return s == "" })
	return cmp.Or(strings.Join(parts, " · "), row.FullID) + " → " + row.To
}

// got says what the newest attempt got.
func (p *callbackPage) got(newest []store.Attempt) string {
	if len(newest) == 0 || p.Callback.State.Terminal() {
		return ""
	}
	a := &newest[0]
	says := p.Or("class.", string(a.Class))
	if displayOutcome(a, &p.Callback) == notFinal {
		says = p.T("outcome." + notFinal)
	}
	if a.Status != 0 {
		says = "HTTP " + strconv.Itoa(a.Status) + " " + says
	}
	return p.T("callback.got", "number", a.Number, "says", says)
}

// whyKinds are the colours of the explanation by state.
var whyKinds = map[store.State]string{
	store.Succeeded: "good", store.Dead: "bad", store.Attempting: "busy", store.Scheduled: "warn",
}

// explainInto sets p.Why from the engine's explanation, in the viewer's language.
func (u *UI) explainInto(r *request, p *callbackPage) error {
	x, err := u.Engine.Explain(r.ctx, r.caller.Project, p.ID)
	if err != nil {
		return err
	}
	w := &p.Why
	w.NextAt = x.NextAt
	w.Kind = whyKinds[p.State]
	if p.Reason == store.PollFailed {
		w.Kind = "bad"
	}
	w.Summary = p.T("why."+string(p.State), "reason", p.Or("reason.", string(p.Reason)), "n", p.AttemptCount)
	switch {
	case p.State == store.Succeeded && p.Kind == store.Poll:
		w.Summary = p.Or("why.poll.", string(p.Reason))
	case p.State == store.Scheduled && len(x.Blocking) > 0:
		w.Code = x.Blocking[0].Code
		w.Summary = p.Or("why.title.", w.Code)
	}
	for _, b := range x.Blocking {
		if b.Code == control.BlockNotDue && len(x.Blocking) == 1 {
			break // the heading says so
		}
		block := whyBlock{Block: b, Title: p.Or("why.title.", b.Code)}
		if b.Cure != "" {
			block.Cure = p.Or("why.cure.", b.Code)
			if block.Cure == b.Code {
				block.Cure = b.Cure
			}
		}
		w.Blocks = append(w.Blocks, block)
	}
	return nil
}

// payloadOf reads a payload and returns at most that many bytes of its text.
func (u *UI) payloadOf(r *request, c *store.Callback, limit int) (part payloadPart, err error) {
	return payloadPartOf(c, limit, func() (store.Payload, error) {
		return u.Store.Payload(r.ctx, r.caller.Project, c.ID)
	})
}

// payloadPartOf returns at most that many bytes of the payload that read returns.
func payloadPartOf(
	c *store.Callback, limit int, read func() (store.Payload, error),
) (part payloadPart, err error) {
	part.ContentType = c.ContentType
	if c.PayloadPurged {
		part.Gone = true
		return part, nil
	}
	if c.PayloadID == "" {
		part.None = true
		return part, nil
	}
	payload, err := read()
	switch {
	case errors.Is(err, store.ErrPayloadPurged), errors.Is(err, store.ErrNotFound):
		part.Gone = true
		return part, nil
	case errors.Is(err, store.ErrOtherHost):
		part.Elsewhere = true
		return part, nil
	case err != nil:
		return part, err
	}
	part.Size, part.Masked = len(payload.Body), payload.Masked
	part.Binary = !utf8.Valid(payload.Body)
	if !part.Binary {
		part.Text, part.Cut = cut(string(payload.Body), limit)
	}
	return part, nil
}

// cut shortens a text to at most that many bytes, at a character boundary. It reports whether it has cut.
func cut(s string, limit int) (string, bool) {
	if len(s) <= limit {
		return s, false
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit], true
}

// curl returns the request as a shell command for manual tests. It is unsigned and without secrets.
func (p *callbackPage) curl() string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	var out strings.Builder
	method := "-i -X " + quote(p.Method)
	if p.Method == http.MethodHead {
		method = "-I" // with -X HEAD curl would wait for a body that never comes
	}
	// --globoff: brackets and braces in the URL are no pattern.
	fmt.Fprintf(&out, "curl --globoff %s %s", method, quote(p.Address))
	if p.Payload.ContentType != "" {
		out.WriteString(" \\\n  -H " + quote("Content-Type: "+p.Payload.ContentType))
	}
	for _, h := range append([]store.Header{{Name: "webhook-id", Value: p.FullID}}, p.Headers...) {
		out.WriteString(" \\\n  -H " + quote(h.Name+": "+h.Value))
	}
	switch {
	case p.Payload.None || p.Payload.Gone:
	case p.Payload.Binary || p.Payload.Cut:
		out.WriteString(" \\\n  --data-binary @payload")
	default:
		// With --data-raw a payload that begins with @ is no file name.
		out.WriteString(" \\\n  --data-raw " + quote(p.Payload.Text))
	}
	return out.String()
}

// payload is GET /ui/callbacks/{id}/payload: the bytes of the payload. pan_guard may mask card numbers.
func (u *UI) payload(r *request) (*response, error) {
	payload, err := load(r, store.CallbackPrefix, u.Store.Payload)
	if err != nil {
		return nil, err
	}
	return download(r.params["id"]+".txt", append([]byte{}, payload.Body...))
}

// timelineInto sets one page of the timeline. It begins with the newest attempts, which the caller has read,
// or before the attempt that the parameter "before" names. The acts of the same period are merged into it.
func (u *UI) timelineInto(r *request, p *callbackPage, newest []store.Attempt) error {
	attempts := newest
	acts := store.AuditFilter{Object: p.ID, Limit: maxAudit}
	if n, err := strconv.Atoi(r.query("before")); err == nil && n > 1 {
		newer, err := u.Store.Attempt(r.ctx, r.caller.Project, p.ID, n)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if err == nil {
			p.NewestLink, acts.To = p.With("before", ""), newer.StartedAt
			attempts, err = u.Store.Attempts(r.ctx, r.caller.Project, p.ID, n, maxAttempts)
			if err != nil {
				return err
			}
		}
	}
	if n := len(attempts); n > 0 && attempts[n-1].Number > 1 {
		oldest := &attempts[n-1]
		p.Older, p.OlderLink = oldest.Number-1, p.With("before", strconv.Itoa(oldest.Number))
		acts.From = oldest.StartedAt
	}
	audit, err := u.Store.Audit(r.ctx, r.caller.Project, acts)
	if err != nil {
		return err
	}
	p.timeline(attempts, audit.Entries)
	return nil
}

// timeline merges attempts and acts, the newest first. Both lists have this order already.
func (p *callbackPage) timeline(attempts []store.Attempt, audit []store.AuditEntry) {
	if p.FinishedAt != 0 && p.NewestLink == "" {
		kind := map[store.State]string{store.Succeeded: "good", store.Dead: "bad"}[p.Callback.State]
		if p.Reason == store.PollFailed {
			kind = "bad"
		}
		title := p.T("timeline.ended", "state", p.T("state."+p.Shown()))
		p.Timeline = append(p.Timeline, timelineItem{At: p.FinishedAt, Kind: kind, Title: title})
	}
	for i := range attempts {
		part := newAttempt(&p.base, &attempts[i], &p.Callback, maxBody)
		p.Timeline = append(p.Timeline, timelineItem{
			At: part.StartedAt, Kind: part.Kind(), Title: p.T("timeline.attempt", "number", part.Number),
			Attempt: &part,
		})
	}
	for i := range audit {
		p.Timeline = append(p.Timeline, timelineItem{
			At: audit[i].At, Kind: "busy", Title: p.Or("action.", audit[i].Action), Audit: &audit[i],
		})
	}
	if p.Older == 0 {
		p.Timeline = append(p.Timeline, timelineItem{At: p.CreatedAt, Title: p.T("timeline.created")})
	}
	slices.SortStableFunc(p.Timeline, func(a, b timelineItem) int { return cmp.Compare(b.At, a.At) })
}
