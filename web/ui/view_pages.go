package ui

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// A viewBase is the part that all pages of a merchant share.
type viewBase struct {
	base
	v *viewRequest
	// Receiver is the endpoint's name, or its URL. Empty: the link is not valid.
	Receiver string
}

func (u *UI) viewBase(v *viewRequest, title string) viewBase {
	ep := &v.merchant.Endpoint
	b := viewBase{base: u.baseTitled(v.request, "", title), v: v}
	b.Receiver = cmp.Or(ep.Name, shortAddress(store.MaskURL(ep.URL)))
	return b
}

// carried are the parameters that links keep: what the reader has chosen.
var carried = [...]string{"lang", "zone"}

// Href returns the URL of a page of the link, with the reader's choices and the given pairs of a name and a
// value. It omits empty values.
func (b *viewBase) Href(path string, pairs ...string) string {
	q := url.Values{}
	for _, name := range carried {
		pairs = append(pairs, name, b.v.query(name))
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return b.v.root + path
	}
	return b.v.root + path + "?" + q.Encode()
}

// ExpiresAt returns the end of the link.
func (b *viewBase) ExpiresAt() int64 { return b.v.link.ExpiresAt }

// Choices returns the reader's choices as hidden fields of a form, except the one with that name.
func (b *viewBase) Choices(except string) (fields []named) {
	for _, name := range carried {
		if value := b.v.query(name); value != "" && name != except {
			fields = append(fields, named{name, value})
		}
	}
	return fields
}

// StateText returns the state of a callback in a merchant's words.
func (b *viewBase) StateText(row *callbackRow) string {
	if key := "view.state." + row.Shown(); b.Has(key) {
		return b.T(key)
	}
	return b.T("state." + row.Shown())
}

// Zones returns the options of the list of time zones.
func (b *viewBase) Zones() (options []option) {
	names := commonZones
	if !slices.Contains(names, b.zone.name) {
		names = append([]string{b.zone.name}, names...)
	}
	for _, name := range names {
		options = append(options, option{Value: name, Text: name, Data: true, Chosen: name == b.zone.name})
	}
	return options
}

// LanguageLinks returns the page in the other languages.
func (b *viewBase) LanguageLinks() (links []chip) {
	for _, l := range b.ui.languages {
		q := b.v.url.Query()
		q.Set("lang", l.code)
		links = append(links, chip{Text: l.name, Link: b.v.url.Path + "?" + q.Encode(), Current: l == b.lang})
	}
	return links
}

// viewListPage is the list of an endpoint's callbacks for its merchant.
type viewListPage struct {
	viewBase
	Address    string
	Ref, State string
	States     []option
	Rows       []*callbackRow
	Next       string
	Narrow     bool
}

// viewStates are the states of the filter.
var viewStates = map[string][]store.State{
	"open": {store.Scheduled, store.Attempting}, "succeeded": {store.Succeeded}, "dead": {store.Dead},
	"canceled": {store.Canceled},
}

// viewList is GET /view/{token}.
func (u *UI) viewList(v *viewRequest) (*response, error) {
	p := &viewListPage{viewBase: u.viewBase(v, v.lang.text("view.title")), Ref: v.query("ref"),
		State: v.query("state"), Address: store.MaskURL(v.merchant.Endpoint.URL)}
	if query.CheckText(p.Ref, false) != "" {
		return nil, invalid("ref", "is not text")
	}
	f := store.Filter{
		Ref: p.Ref, States: viewStates[p.State], Now: v.now, Limit: pageSize,
		After: query.ReadPlace(v.query("cursor")),
	}
	page, err := v.merchant.List(v.ctx, f)
	if err != nil {
		return nil, err
	}
	for i := range page.Callbacks {
		p.Rows = append(p.Rows, newRow(&page.Callbacks[i], v.now))
	}
	p.Narrow = f.Ref != "" || len(f.States) > 0
	if page.Next != nil {
		p.Next = p.Href("", "ref", p.Ref, "state", p.State, "cursor", query.Place(*page.Next))
	}
	p.States = []option{{Text: p.T("view.state.all"), Chosen: len(f.States) == 0}}
	for _, state := range []string{"open", "succeeded", "dead", "canceled"} {
		p.States = append(p.States,
			option{Value: state, Text: p.T("view.state." + state), Chosen: state == p.State})
	}
	return show("view", p)
}

// viewCallbackPage is a callback for its merchant.
type viewCallbackPage struct {
	viewBase
	*callbackRow
	Row *callbackRow
	// LastText describes the last response.
	LastText string
	Attempts []attemptPart
	Payload  payloadPart
	// OlderLink and NewestLink lead to the other pages of attempts.
	OlderLink, NewestLink string
	// CanSend is true if the link allows sending the callback again in its state. Open: it is scheduled.
	CanSend, Open bool
	// Elsewhere: the sender has set a URL of another host than the endpoint's.
	Elsewhere bool
	// Sent is true after the merchant has sent it, Pending until the attempt has ended. Paused: the attempt
	// waits for the sender to resume sending.
	Sent, Pending, Paused bool
}

// viewCallback is GET /view/{token}/callbacks/{id}.
func (u *UI) viewCallback(v *viewRequest) (*response, error) {
	id, err := v.bareID(store.CallbackPrefix)
	if err != nil {
		return nil, err
	}
	c, err := v.merchant.Get(v.ctx, id)
	if err != nil {
		return nil, err
	}
	p := &viewCallbackPage{viewBase: u.viewBase(v, cmp.Or(c.Ref, c.Topic, store.CallbackPrefix+c.ID)),
		callbackRow: newRow(&c, v.now)}
	p.Row, p.Elsewhere = p.callbackRow, c.URL == query.Mask
	before, err := strconv.Atoi(v.query("before"))
	if err != nil || before < 2 {
		before = 0
	}
	attempts, err := v.merchant.Attempts(v.ctx, id, before, maxAttempts)
	if err != nil {
		return nil, err
	}
	for i := range attempts {
		// The store keeps at most 4 KiB of a response, so nothing is cut here.
		p.Attempts = append(p.Attempts, newAttempt(p.frame(), &attempts[i], &c, maxPayload+1))
	}
	at := "/callbacks/" + p.FullID
	if n := len(attempts); n > 0 && attempts[n-1].Number > 1 {
		p.OlderLink = p.Href(at, "before", strconv.Itoa(attempts[n-1].Number))
	}
	if before != 0 {
		p.NewestLink = p.Href(at)
	}
	p.Payload, err = payloadPartOf(&c, maxPayload, func() (store.Payload, error) {
		return v.merchant.Payload(v.ctx, id)
	})
	p.LastText = p.Last(p.callbackRow)
	p.CanSend = v.link.Resend && v.merchant.MayResend(&c, v.now)
	p.Open = p.callbackRow.State == store.Scheduled
	p.Sent = v.query("sent") != ""
	p.Pending = p.callbackRow.State == store.Attempting || p.Open && c.DueAt <= v.now
	if err == nil && p.Sent && p.Open {
		p.Paused, err = v.merchant.Paused(v.ctx, id)
	}
	return &response{status: http.StatusOK, template: "viewcallback", page: p}, err
}

// viewPayload is GET /view/{token}/callbacks/{id}/payload.
func (u *UI) viewPayload(v *viewRequest) (*response, error) {
	id, err := v.bareID(store.CallbackPrefix)
	if err != nil {
		return nil, err
	}
	payload, err := v.merchant.Payload(v.ctx, id)
	if err != nil {
		return nil, err
	}
	return download(v.params["id"]+".txt", append([]byte{}, payload.Body...))
}

// viewReport is GET /view/{token}/callbacks/{id}/report: the delivery report in the reader's language.
func (u *UI) viewReport(v *viewRequest) (*response, error) {
	id, err := v.bareID(store.CallbackPrefix)
	if err != nil {
		return nil, err
	}
	report, err := v.merchant.Report(v.ctx, id)
	if err != nil {
		return nil, err
	}
	b := u.viewBase(v, "view.report")
	return download(v.params["id"]+"-report.txt", reportText(b.reportHTML(report)))
}

// viewSend is POST /view/{token}/callbacks/{id}/send.
func (u *UI) viewSend(v *viewRequest) (*response, error) {
	id, err := v.bareID(store.CallbackPrefix)
	if err != nil {
		return nil, err
	}
	if !v.link.Resend {
		return nil, httperr.ErrForbidden
	}
	ep := &v.merchant.Endpoint
	by := v.caller.By("")
	by.Name = "merchant link of " + cmp.Or(ep.Name, ep.ExternalID, store.EndpointPrefix+ep.ID)
	_, wait, err := v.merchant.Resend(v.ctx, id, by)
	switch {
	case wait > 0:
		return nil, httperr.Later(httperr.ErrResends, wait)
	case err != nil:
		return nil, err
	}
	b := u.viewBase(v, "")
	return redirect(b.Href("/callbacks/"+store.CallbackPrefix+id, "sent", "1"))
}
